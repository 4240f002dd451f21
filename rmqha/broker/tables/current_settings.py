"""The settings in force, and which of them may change while the broker runs.

Stock brokers let any client set any field, ignore what they do not know and make false of what is
neither true nor false.  Here only what can change while the broker runs is changed, all of a
request or nothing, and until the next start or the next reload: the file is the operator's.

Source: docs/protocol/remoting.md, Administration; docs/operations.rst, Changing settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from rmqha.config.keys import Key
from rmqha.config.settings import Settings
from rmqha.config.vocabulary import BROKER_FILE, KEYS
from rmqha.errors import RequestRefused
from rmqha.wire.remoting.codes import ResponseCode

_OF_THE_STORE = {
    "cleanFileForciblyEnable",
    "deleteWhen",
    "diskMaxUsedSpaceRatio",
    "diskSpaceCleanForciblyRatio",
    "diskSpaceWarningLevelRatio",
    "fileReservedTime",
    "flushCommitLogLeastPages",
    "flushCommitLogThoroughInterval",
    "flushConsumeQueueLeastPages",
    "flushConsumeQueueThoroughInterval",
    "flushIntervalCommitLog",
    "flushIntervalConsumeQueue",
}

LISTS = frozenset(
    {"adminAllowedPeers", "adminPortAllowedPeers", "clientAllowedPeers", "haAllowedPeers"}
)
"""Keys that say who may do what."""

CHANGEABLE = (
    {key.name for key in KEYS if key.section in ("pull", "registration", "transactions")}
    | {"brokerPermission", "logLevel", "storeReplyMessageEnable"}
    | _OF_THE_STORE
    | LISTS
) - {"defaultQueryMaxNum", "notifyConsumerIdsChangedEnable"}
"""Keys that may change while the broker runs."""

LOCKED = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""Keys without meaning here that stock brokers refuse to change."""


@frozen
class SettingChange:
    """A key that means something else now.

    @ivar before: What it was, as a file would have it.
    @ivar after: What it is.
    """

    key: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.key} from {self.before or 'empty'} to {self.after or 'empty'}"


@define(eq=False)
class CurrentSettings:
    """The settings in force.

    @ivar settings: Replaced by a change, never changed itself.
    @ivar changed: Each is called after a change.
    """

    settings: Settings
    changed: list[Callable[[], None]] = field(factory=list)

    def change(self, texts: Mapping[str, str]) -> tuple[SettingChange, ...]:
        """Change some keys, all or none.

        @param texts: Their new values as a file would have them.
        @return: What is something else now.
        @raise RequestRefused: If one is unknown, needs a restart, or has a bad value.
        """
        self.settings, changes = with_changes(self.settings, texts)
        for listener in tuple(self.changed):
            listener()
        return changes


def with_changes(
    settings: Settings, texts: Mapping[str, str]
) -> tuple[Settings, tuple[SettingChange, ...]]:
    """Settings with some keys changed, and what that changes.

    @raise RequestRefused: As L{CurrentSettings.change}.
    """
    sections: dict[str, dict[str, Any]] = {}
    for name, text in texts.items():
        key = _changeable(name)
        if key is not None:
            sections.setdefault(key.section, {})[key.field] = _value(key, text)
    made = evolve(
        settings,
        **{
            section: evolve(getattr(settings, section), **values)
            for section, values in sections.items()
        },
    )
    return made, changes_between(settings, made)


def changes_between(before: Settings, after: Settings) -> tuple[SettingChange, ...]:
    """The keys that mean something else in other settings."""
    rows = (
        SettingChange(key.name, key.kind.show(key.value_in(before)), key.kind.show(found))
        for key in BROKER_FILE.keys
        if (found := key.value_in(after)) != key.value_in(before)
    )
    return tuple(row for row in rows if row.before != row.after)


def _changeable(name: str) -> Key | None:
    """The key of that name; C{None} for one of RocketMQ's that means nothing here."""
    key = BROKER_FILE.by_name.get(name)
    if key is not None and key.name in CHANGEABLE:
        return key
    if key is not None or name in LOCKED:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"Can not update config in black list. {name} does not change while the broker runs",
        )
    if name not in BROKER_FILE.harmless:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"unknown key {name[:64]!r}")
    return None


def _value(key: Key, text: str) -> Any:
    try:
        return key.kind.parse(text.strip())
    except ValueError:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"{key.name}={text[:64]} is not allowed: {key.kind.allowed}"
        ) from None
