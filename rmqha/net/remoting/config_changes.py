"""
What an administrator asks to be changed: requests 25 and 318, whose bodies are Java properties.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from twisted.logger import Logger

from rmqha.config import properties
from rmqha.errors import RequestRefused
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command


def asked(command: Command) -> dict[str, str]:
    """
    The keys to be changed, and their values as they stand there.

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


def tell(log: Logger, who: str, changed: dict[str, str]) -> None:
    """
    Log each key that an administrator has set, and who it was.
    """
    for key, text in changed.items():
        log.info("{who} set {key}={text} until the next start", who=who, key=key, text=text)
