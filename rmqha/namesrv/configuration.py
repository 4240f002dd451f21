"""The configuration as administrators see and change it while the name server runs.

As with a broker, only what can change is changed, all of a request or nothing, and until the
next start: the file is the operator's.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, evolve
from twisted.logger import Logger

from rmqha.config.settings import NamesrvSettings
from rmqha.config.vocabulary import NAMESRV_FILE
from rmqha.errors import RequestRefused
from rmqha.net.remoting import config_changes
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Answer
from rmqha.net.remoting.needs import ADMINISTRATION_BY_TEXT, ANY_PEER, Stated
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command

CHANGEABLE = frozenset({"orderMessageEnable"})
"""Keys that may change while the name server runs."""

LOCKED = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
"""Keys without meaning here that stock name servers refuse to change."""


@define(eq=False)
class NamesrvConfiguration:
    """Answers requests 318 and 319.

    @ivar settings: Those in force: replaced by a change, never changed itself.
    """

    settings: NamesrvSettings

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: (ADMINISTRATION_BY_TEXT, self.update),
            RequestCode.GET_NAMESRV_CONFIG: (ANY_PEER, self.get),
        }

    def update(self, connection: RemotingProtocol, command: Command) -> Answer:
        """318: change some keys until the next start."""
        texts = config_changes.asked(command)
        values: dict[str, Any] = {}
        for key, text in texts.items():
            values |= _change(key, text.strip())
        self.settings = evolve(self.settings, **values)
        changes = [f"{key} to {text.strip()}" for key, text in texts.items()]
        config_changes.tell(self._log, connection.address, changes)
        return None

    def get(self, connection: RemotingProtocol, command: Command) -> Answer:
        """319: all keys as they are."""
        lines = [
            f"{key.name}={key.kind.show(getattr(self.settings, key.field))}\n"
            for key in NAMESRV_FILE.keys
            if key.section == "namesrv"
        ]
        return command.answer(body="".join(lines).encode())


def _change(name: str, text: str) -> dict[str, Any]:
    """A key's change; nothing for one of RocketMQ's that means nothing here."""
    key = NAMESRV_FILE.by_name.get(name)
    if (key is not None and key.name not in CHANGEABLE) or name in LOCKED:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"Can not update config in black list. {name} does not change while the name server "
            "runs",
        )
    if key is None:
        if name not in NAMESRV_FILE.harmless:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"unknown key {name[:64]!r}")
        return {}
    try:
        return {key.field: key.kind.parse(text)}
    except ValueError:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"{name}={text[:64]} is not allowed: {key.kind.allowed}"
        ) from None
