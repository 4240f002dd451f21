"""What C{plain_acl.yml} says: accounts, what each may do, and who needs none.

Only what would be understood in one way is taken.  A stock broker reads a permission that it does
not know as C{DENY}, and so do we; but a list that is none, an account that is there twice or a
topic without a permission is refused, with its place.

Source: docs/protocol/remoting.md, Access control.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag
from typing import Any, Self

from attrs import evolve, field, frozen

from rmqha.broker.access.errors import AclInvalid
from rmqha.broker.access.remote_addresses import RemoteAddresses
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting.bodies.access import PlainAccessConfig
from rmqha.wire.remoting.bodies.common import DataVersion

LEAST_KEY = 7
"""Characters of an access key and of a secret key, at least."""


class Grant(IntFlag):
    """What somebody may do with a topic, or with a group; C{DENY} is none of it."""

    DENY = 0
    PUB = 1
    SUB = 2
    EITHER = PUB | SUB


_WORDS = {"PUB": Grant.PUB, "SUB": Grant.SUB, "PUB|SUB": Grant.EITHER, "SUB|PUB": Grant.EITHER}


def permission(text: str) -> Grant:
    """Read a permission.  What is none of the known ones is C{DENY}, as in stock."""
    return _WORDS.get(text.strip(), Grant.DENY)


@frozen(kw_only=True)
class Account:
    """One account.

    @ivar row: As the file has it, for when the file is written.
    @ivar shown: What an administrator is shown: all but the secret key.
    @ivar admin: Whether it may administer.
    @ivar white: From where its requests need no signature.
    @ivar explicit: Permissions by topic; those of a group stand under the name of its retry topic.
    """

    access_key: str
    secret_key: str = field(repr=False)
    white: RemoteAddresses
    admin: bool
    default_topic: Grant
    default_group: Grant
    explicit: Mapping[str, Grant]
    row: Mapping[str, Any] = field(repr=False)
    shown: PlainAccessConfig = field(repr=False)

    @classmethod
    def read(cls, row: Any, place: str) -> Self:
        """Read one row of the file.

        @param place: Which one, for messages.
        @raise AclInvalid: If it is none.
        """
        if not isinstance(row, dict):
            raise AclInvalid(place, "an account is a mapping of keys to values")
        access_key = _text(row, "accessKey", place)
        place = f"account {access_key!r}" if access_key else place
        secret_key = _text(row, "secretKey", place)
        if len(access_key) < LEAST_KEY or len(secret_key) < LEAST_KEY:
            raise AclInvalid(
                place, f"accessKey and secretKey need {LEAST_KEY} characters or more each"
            )
        admin = row.get("admin")
        if admin is not None and not isinstance(admin, bool):
            raise AclInvalid(place, f"admin is {admin!r}, must be true or false")
        groups = _permissions(row, "groupPerms", place)
        white = RemoteAddresses.parse(_text(row, "whiteRemoteAddress", place))
        default_topic = _text(row, "defaultTopicPerm", place)
        default_group = _text(row, "defaultGroupPerm", place)
        shown = PlainAccessConfig(
            access_key=access_key,
            white_remote_address=white.text,
            admin=bool(admin),
            default_topic_perm=default_topic,
            default_group_perm=default_group,
            topic_perms=tuple(_texts(row, "topicPerms", place)),
            group_perms=tuple(_texts(row, "groupPerms", place)),
        )
        return cls(
            access_key=access_key,
            secret_key=secret_key,
            white=white,
            admin=shown.admin,
            default_topic=permission(default_topic),
            default_group=permission(default_group),
            explicit=_permissions(row, "topicPerms", place)
            | {RETRY_PREFIX + group: granted for group, granted in groups.items()},
            row=row,
            shown=shown,
        )

    def may(self, resource: str, wanted: Grant) -> bool:
        """Whether any of the wanted things is permitted.

        @param resource: A topic, or the retry topic of a group.
        """
        if self.admin and not self.explicit:
            return True
        default = self.default_group if resource.startswith(RETRY_PREFIX) else self.default_topic
        return bool(self.explicit.get(resource, default) & wanted)


def _text(row: Mapping[str, Any], name: str, place: str) -> str:
    """@raise AclInvalid: If it is anything else than a text."""
    value = row.get(name)
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    raise AclInvalid(place, f"{name} must be a text")


def _texts(row: Mapping[str, Any], name: str, place: str) -> list[str]:
    value = row.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise AclInvalid(place, f"{name} must be a list of texts")
    return value


def _permissions(row: Mapping[str, Any], name: str, place: str) -> dict[str, Grant]:
    found = {}
    for text in _texts(row, name, place):
        resource, equals, granted = text.partition("=")
        if not equals or not resource.strip() or "=" in granted:
            raise AclInvalid(place, f"{name} has {text!r}, must be NAME=PERMISSION")
        found[resource.strip()] = permission(granted)
    return found


@frozen(kw_only=True)
class AccessTable:
    """All that the file says; a change makes another one.

    @ivar accounts: By access key.
    @ivar white: From where everything is taken, whoever sends it.
    @ivar white_texts: The same as the file has it.
    @ivar version: Which state of the file this is.
    """

    accounts: Mapping[str, Account] = field(factory=dict)
    white: RemoteAddresses = field(factory=lambda: RemoteAddresses.parse(""))
    white_texts: tuple[str, ...] = ()
    version: DataVersion = field(factory=DataVersion)

    @classmethod
    def read(cls, content: Any) -> Self:
        """Read what YAML made of the file.

        @raise AclInvalid: If that is not all understood.
        """
        if not isinstance(content, dict):
            raise AclInvalid("the file", "must be a mapping with accounts in it")
        rows = content.get("accounts")
        if rows is not None and not isinstance(rows, list):
            raise AclInvalid("accounts", "must be a list")
        accounts: dict[str, Account] = {}
        for number, row in enumerate(rows or (), 1):
            account = Account.read(row, f"account {number}")
            if account.access_key in accounts:
                raise AclInvalid(f"account {account.access_key!r}", "is there twice")
            accounts[account.access_key] = account
        white = tuple(_texts(content, "globalWhiteRemoteAddresses", "the file"))
        return cls(
            accounts=accounts,
            white=RemoteAddresses.all_of(white),
            white_texts=white,
            version=_version(content.get("dataVersion")),
        )

    def content(self) -> dict[str, Any]:
        """The same as it stands in the file."""
        return {
            "globalWhiteRemoteAddresses": list(self.white_texts),
            "accounts": [dict(account.row) for account in self.accounts.values()],
            "dataVersion": [{"counter": self.version.counter, "timestamp": self.version.timestamp}],
        }

    def with_account(self, row: Mapping[str, Any], now_ms: int) -> Self:
        """The table with an account more, or with one changed: what the row does not say stays.

        @raise AclInvalid: If that makes no account.
        """
        access_key = _text(row, "accessKey", "the account")
        before = self.accounts.get(access_key)
        account = Account.read({**(before.row if before else {}), **row}, "the account")
        return evolve(
            self,
            accounts={**self.accounts, account.access_key: account},
            version=self.version.changed(now_ms),
        )

    def without_account(self, access_key: str, now_ms: int) -> Self:
        """The table with an account less.

        @raise AclInvalid: If there is none of that key.
        """
        if access_key not in self.accounts:
            raise AclInvalid(f"account {access_key!r}", "there is none")
        accounts = {key: each for key, each in self.accounts.items() if key != access_key}
        return evolve(self, accounts=accounts, version=self.version.changed(now_ms))

    def with_white(self, texts: tuple[str, ...], now_ms: int) -> Self:
        """The table with other addresses from where everything is taken.

        @raise AclInvalid: If one is none.
        """
        white = RemoteAddresses.all_of(texts)
        version = self.version.changed(now_ms)
        return evolve(self, white=white, white_texts=texts, version=version)


def _version(written: Any) -> DataVersion:
    """The file's version; one that cannot be read is that of a new file."""
    first = written[0] if isinstance(written, list) and written else None
    if not isinstance(first, dict):
        return DataVersion()
    numbers = [str(first.get(name)) for name in ("counter", "timestamp")]
    if not all(text.isdecimal() and len(text) < 19 for text in numbers):
        return DataVersion()
    counter, timestamp = map(int, numbers)
    return DataVersion(counter=counter, timestamp=timestamp)
