"""What a request is answered with, and what a node answers by itself.

Source: docs/protocol/remoting.md, Answers of the system.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rmqha.errors import RequestRefused, RmqhaError
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command

REMARK_LIMIT = 1024
"""Most characters of an error's text in an answer: it may quote what was sent."""

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"
"""The remark, with C{SYSTEM_BUSY}, where too many requests are in progress."""


@frozen
class Scattered:
    """A command whose body lies in several places, such as adjacent records of two files.

    @ivar command: The command; its own body is not sent.
    @ivar body: Views that must not change until they are sent.
    """

    command: Command
    body: Sequence[memoryview]


Answer = Command | Scattered | None
"""What is sent back.  C{None} is success with nothing to say."""


def code_of(answer: Answer) -> int:
    """The code that an answer is sent with."""
    if answer is None:
        return ResponseCode.SUCCESS
    return int(answer.code if isinstance(answer, Command) else answer.command.code)


def overloaded(command: Command) -> Command:
    """The answer to a request that is one too many."""
    return command.answer(ResponseCode.SYSTEM_BUSY, OVERLOAD)


def failed(command: Command, error: BaseException | None) -> Command:
    """The answer to a request whose handler failed.

    Our own errors speak for themselves; of all others the class says more than the text.
    """
    if isinstance(error, RequestRefused):
        return command.answer(error.code, error.remark and error.remark[:REMARK_LIMIT])
    text = str(error)
    if not isinstance(error, RmqhaError):
        text = f"{type(error).__name__}: {text}"
    return command.answer(ResponseCode.SYSTEM_ERROR, text[:REMARK_LIMIT])
