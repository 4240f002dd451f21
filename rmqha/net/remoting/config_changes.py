"""What an administrator asks to be changed: requests 25 and 318, whose bodies are Java properties.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.logger import Logger

from rmqha.config import properties
from rmqha.errors import RequestRefused
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command


def asked(command: Command) -> dict[str, str]:
    """The keys to be changed, and their values as they stand there.

    @raise RequestRefused: If the body cannot be read.
    """
    entries = properties.parse(properties.decode(bytes(command.body)))
    for entry in entries:
        if entry.fault:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"string2Properties error: line {entry.line}: {entry.fault}",
            )
    return {entry.key: entry.value for entry in entries}


def tell(log: Logger, who: str, changes: Iterable[object]) -> None:
    """Log each key that was changed, and by whom.

    @param changes: In words that follow C{changed}.
    """
    for change in changes:
        log.info("{who} changed {change}", who=who, change=change)
