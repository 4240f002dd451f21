"""
Whether a request may be worked at: from where it comes, who signed it, and what the account may do.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from secrets import token_hex

from attrs import define, field

from rmqha.broker.access.accounts import AccessTable, Account, Grant
from rmqha.broker.access.wanted import wanted
from rmqha.errors import AccessDenied
from rmqha.wire.names import RETRY_PREFIX, TRACE_TOPIC
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.signature import ACCESS_KEY, SIGNATURE, signature

REFUSAL = "org.apache.rocketmq.acl.common.AclException: "
"""What the remarks of all refusals begin with, as those of stock brokers: clients look for it."""

UNSIGNED = "_UNIQUE_KEY_QUERY"
"""A field that stock brokers leave out of a signature and stock clients do not: both count."""

_NO_ACCOUNT = token_hex()
"""What the signature of an unknown account is compared with, so that it takes as long."""


@define(eq=False, kw_only=True)
class AccessControl:
    """
    Decides about requests.

    @ivar table: The accounts that are in force.
    @ivar refused: How many requests were refused.
    """

    table: Callable[[], AccessTable]
    refused: int = field(default=0, init=False)

    def trusts(self, host: str) -> bool:
        """
        Whether everything is taken from an address.
        """
        return self.table().white.contain(host)

    def check(self, host: str, command: Command, *, administers: bool) -> None:
        """
        Let a request pass, or not.

        @param host: Where it comes from.
        @param administers: Whether only an administrator may send it.
        @raise AccessDenied: If it must not be worked at.
        @raise BodyInvalid: If what it wants cannot be read.
        """
        if not self.trusts(host):
            try:
                self._check_account(host, command, administers)
            except AccessDenied:
                self.refused += 1
                raise

    def _check_account(self, host: str, command: Command, administers: bool) -> None:
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
        _check_permissions(account, command, administers)


def _check_permissions(account: Account, command: Command, administers: bool) -> None:
    wants = list(wanted(command))
    if (TRACE_TOPIC, Grant.PUB) in wants:
        return
    if administers and not account.admin:
        told = (
            f"Need admin permission for request code={command.code}, "
            f"but accessKey={account.access_key} is not"
        )
        raise _denied(account.access_key, told, "it is no administrator's")
    for resource, permission in wants:
        if not account.may(resource, permission):
            group = resource.startswith(RETRY_PREFIX)
            name = resource.removeprefix(RETRY_PREFIX) or "without a name"
            what = f"group {name}" if group else f"topic {name}"
            lacks = permission.name or "PUB or SUB"
            reason = f"{what} is not permitted for {lacks}"
            raise _denied(account.access_key, f"No default permission for {resource}", reason)


def _signed(command: Command, secret_key: str) -> bool:
    """
    Whether a request was signed with a key; it takes as long if not.
    """
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
