"""Whether a request may be worked at: from where it comes, who signed it, and what the account may
do.  It stands before the handlers, and before the short way of messages.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Collection
from secrets import token_hex

from attrs import define, field
from twisted.internet.defer import Deferred

from rmqha.broker.access.accounts import AccessTable, Account, Grant
from rmqha.broker.access.needs import AccountNeed, Wanted, sent
from rmqha.errors import AccessDenied
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Handler, Lane
from rmqha.wire.names import RETRY_PREFIX, TRACE_TOPIC
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.signature import ACCESS_KEY, SIGNATURE, signature

REFUSAL = "org.apache.rocketmq.acl.common.AclException: "
"""What the remarks of all refusals begin with, as those of stock brokers: clients look for it."""

UNSIGNED = "_UNIQUE_KEY_QUERY"
"""A field that stock brokers leave out of a signature and stock clients do not: both count."""

MOST_SENDERS = 10_000
"""Accounts with a topic whose permission is kept, at most."""

_NO_ACCOUNT = token_hex()
"""What the signature of an unknown account is compared with, so that it takes as long."""


@define(eq=False, kw_only=True)
class AccessControl:
    """Decides about requests.

    @ivar table: The accounts that are in force.
    @ivar refused: How many requests were refused.
    """

    table: Callable[[], AccessTable]
    refused: int = field(default=0, init=False)
    # The keys of accounts, by their names and the topics that they may send to, and as of when.
    _senders: dict[tuple[bytes, bytes], bytes] = field(factory=dict, init=False)
    _as_of: AccessTable | None = field(default=None, init=False)

    def trusts(self, host: str) -> bool:
        """Whether everything is taken from an address."""
        return self.table().white.contain(host)

    def permits(self, host: str, name: str, wanted: Wanted) -> bool:
        """Whether a client may be told what only some accounts may know, by the accounts of now.

        @param host: Where it is.
        @param name: The account that its last heartbeat was signed by.
        """
        account = self.table().accounts.get(name)
        return self.trusts(host) or (account is not None and account.may(*wanted))

    def check_of_sends(self, host: str) -> Callable[[bytes, bytes, bytes, bytes], bool] | None:
        """What tells whether a message may be sent from an address, by the account's name, the
        signature, what was signed, and a topic that is none of retries; what it does not let pass
        L{check} refuses, or does not.  C{None} if everything is taken from there.
        """
        table = self.table()
        if table is not self._as_of:
            self._as_of = table
            self._senders.clear()
        return None if table.white.contain(host) else self._may_send

    def _may_send(self, name: bytes, given: bytes, content: bytes, topic: bytes) -> bool:
        key = self._senders.get((name, topic)) or self._sender(name, topic)
        return bool(key) and hmac.compare_digest(
            given, b64encode(hmac.digest(key, content, "sha1"))
        )

    def _sender(self, name: bytes, topic: bytes) -> bytes:
        account = self.table().accounts.get(name.decode())
        if account is None or not _permitted(account, sent(topic.decode())):
            return b""
        if len(self._senders) == MOST_SENDERS:
            self._senders.clear()
        key = self._senders[name, topic] = account.secret_key.encode(errors="replace")
        return key

    def check(self, host: str, command: Command, need: AccountNeed) -> None:
        """Let a request pass, or not.

        @param host: Where it comes from.
        @param need: What it needs.
        @raise AccessDenied: If it must not be worked at.
        @raise RmqhaError: If what it wants cannot be read.
        """
        if not self.trusts(host):
            try:
                self._check_account(host, command, need)
            except AccessDenied:
                self.refused += 1
                raise

    def _check_account(self, host: str, command: Command, need: AccountNeed) -> None:
        name = command.ext.get(ACCESS_KEY, "")
        if not name:
            raise _denied("", "No accessKey is configured", "it is not signed")
        account = self.table().accounts.get(name)
        if account is not None and account.white.contain(host):
            return
        told = f"Check signature failed for accessKey={name}"
        if not _signed(command, _NO_ACCOUNT if account is None else account.secret_key):
            reason = "there is no such account" if account is None else "the signature is wrong"
            raise _denied(name, told, reason)
        if account is None:
            raise _denied(name, told, "there is no such account")
        _check_permissions(account, command, need)


def _check_permissions(account: Account, command: Command, need: AccountNeed) -> None:
    name = account.access_key
    if need.wants is None:
        told = f"No permission is enough for request code={command.code}"
        raise _denied(name, told, "nothing is stated of what it needs")
    if need.administrator and not account.admin:
        told = f"Need admin permission for request code={command.code}, but accessKey={name} is not"
        raise _denied(name, told, "it is no administrator's")
    for resource, permission in need.wants(command):
        if not _permitted(account, (resource, permission)):
            what = _shown(resource)
            reason = f"{what} is not permitted for {permission.name or 'PUB or SUB'}"
            raise _denied(name, f"No default permission for {resource or what}", reason)


def _permitted(account: Account, wanted: Wanted) -> bool:
    return wanted == (TRACE_TOPIC, Grant.PUB) or account.may(*wanted)


def _shown(resource: str) -> str:
    name = resource.removeprefix(RETRY_PREFIX)
    kind = "group" if resource.startswith(RETRY_PREFIX) else "topic"
    return f"{kind} {name}" if name else f"what is told of all {kind}s"


def _signed(command: Command, secret_key: str) -> bool:
    """Whether a request was signed with a key; it takes as long if not."""
    given = command.ext.get(SIGNATURE, "").encode(errors="replace")
    ext, body = command.ext, command.body
    right = hmac.compare_digest(given, signature(ext, body, secret_key).encode())
    if not right and UNSIGNED in ext:
        other = signature(ext, body, secret_key, without=(UNSIGNED,))
        right = hmac.compare_digest(given, other.encode())
    return right


def _denied(account: str, told: str, reason: str) -> AccessDenied:
    return AccessDenied(
        code=ResponseCode.SYSTEM_ERROR, remark=REFUSAL + told, account=account, reason=reason
    )


def checked(access: AccessControl, need: AccountNeed, handler: Handler) -> Handler:
    """A handler that works at what access control lets pass."""

    def guard(connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        access.check(connection.host, command, need)
        return handler(connection, command)

    return guard


@define(eq=False)
class TrustedLane:
    """A lane for those from whom everything is taken; it does not see signatures."""

    lane: Lane
    access: AccessControl

    @property
    def serves(self) -> Collection[int]:
        """The codes of all that it may serve."""
        return self.lane.serves

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        """How many requests of each code the last run had."""
        return self.lane.codes

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        """Serve frames in one go, or leave them all to the handlers."""
        if not self.access.trusts(connection.host):
            return 0, at
        return self.lane.serve_run(connection, data, at, stop)
