"""
The configuration as administrators see and change it while the broker runs.

Stock brokers let anybody set any field, ignore what they do not know and make false of what is
neither true nor false.  Here only what can change while the broker runs is changed, all of a
request or nothing, and until the next start: the file is the operator's.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, evolve, field
from twisted.logger import Logger

from rmqha.broker.tables.topics import Topics
from rmqha.config.foreign import HARMLESS
from rmqha.config.keys import BY_NAME, PULL, REGISTRATION, TRANSACTIONS, Key
from rmqha.config.load import describe
from rmqha.config.settings import Settings
from rmqha.errors import RequestRefused
from rmqha.net.remoting import config_changes as changes
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Answer, Handler
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.admin import VersionAnswer

CHANGEABLE = (
    {key.name for key in (*PULL, *REGISTRATION, *TRANSACTIONS)}
    | {"brokerPermission", "storeReplyMessageEnable"}
) - {"defaultQueryMaxNum", "notifyConsumerIdsChangedEnable"}
"""Keys that may change while the broker runs."""

LOCKED = frozenset({"brokerConfigPath", "configBlackList", "rocketmqHome"})
"""Keys without meaning here that stock brokers refuse to change."""


FOR_TOOLS = {
    "useTLS": "false",
    "filterServerNums": "0",
    "clientCallbackExecutorThreads": str(os.cpu_count()),
}
"""Keys without meaning here that mqadmin's exports do not do without: whether this broker is a
client with TLS, how many filter servers it has, and how many processors there are."""


@define(eq=False)
class Current:
    """
    The settings in force.

    @ivar settings: Replaced by a change, never changed itself.
    @ivar changed: Each is called after a change.
    """

    settings: Settings
    changed: list[Callable[[], None]] = field(factory=list)

    def change(self, texts: Mapping[str, str]) -> None:
        """
        Change some keys, all or none.

        @param texts: Their new values as a file would have them.
        @raise RequestRefused: If one is unknown, needs a restart, or has a bad value.
        """
        sections: dict[str, dict[str, Any]] = {}
        for name, text in texts.items():
            key = _changeable(name)
            if key is not None:
                sections.setdefault(key.section, {})[key.field] = _value(key, text)
        self.settings = evolve(
            self.settings,
            **{
                section: evolve(getattr(self.settings, section), **values)
                for section, values in sections.items()
            },
        )
        for listener in tuple(self.changed):
            listener()


def _changeable(name: str) -> Key | None:
    """
    The key of that name; C{None} for one of RocketMQ's that means nothing here.
    """
    key = BY_NAME.get(name)
    if key is not None and key.name in CHANGEABLE:
        return key
    if key is not None or name in LOCKED:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"Can not update config in black list. {name} does not change while the broker runs",
        )
    if name not in HARMLESS:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"unknown key {name[:64]!r}")
    return None


def _value(key: Key, text: str) -> Any:
    try:
        return key.kind.parse(text.strip())
    except ValueError:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"{key.name}={text[:64]} is not allowed: {key.kind.allowed}",
        ) from None


@define(eq=False)
class BrokerConfiguration:
    """
    Answers requests 25 and 26.
    """

    current: Current
    topics: Topics

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Handler]:
        """
        What answers which request.
        """
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def update(self, connection: RemotingProtocol, command: Command) -> Answer:
        """
        25: change some keys.
        """
        texts = changes.asked(command)
        self.current.change(texts)
        changes.tell(self._log, connection.address, texts)
        return None

    def get(self, connection: RemotingProtocol, command: Command) -> Answer:
        """
        26: all keys as they are.
        """
        texts = {row.key: row.value for row in describe(self.current.settings)} | FOR_TOOLS
        body = "".join(f"{key}={text}\n" for key, text in texts.items()).encode()
        version = json_body.write(self.topics.version).decode()
        return command.answer(header=VersionAnswer(version=version), body=body)
