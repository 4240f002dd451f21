"""Which handler answers which request, and what is answered without one or when it fails.

A handler is a callable, found by the request's code.  Its answer goes to who asked, in the
kind of header the request came with; for a one-way request it is dropped.

Source: docs/protocol/remoting.md, Answers of the system.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmqha.errors import RequestRefused, RmqhaError
from rmqha.net.remoting.calls import Calls, RefusedRequests
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command

if TYPE_CHECKING:
    from rmqha.net.remoting.connection import RemotingProtocol

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

Handler = Callable[["RemotingProtocol", Command], Answer | Deferred[Answer]]
"""
Answers one request now or later.  A Deferred is cancelled when its connection ends.  Raising
L{RequestRefused} answers with its code and remark, any other error with code 1.
"""


class Lane(Protocol):
    """Serves runs of frames without making commands of them."""

    @property
    def serves(self) -> Collection[int]:
        """The codes of all that it may serve."""

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        """How many requests of each code the last run had that was served."""

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        """Serve frames as L{Registry.serve_run} says."""


class Registry:
    """The handlers of one port.

    @ivar lanes: Are asked first, in this order.
    @ivar calls: How long answers took.
    @ivar refused: What came and has no handler.
    """

    def __init__(
        self,
        together: Callable[[], AbstractContextManager[None]] = nullcontext,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """@param together: Gives what surrounds requests that came together: what can be done for
            all of them at once is done at its end.
        @param seconds: A clock's, which must not jump.
        """
        self.calls = Calls(seconds)
        self.refused = RefusedRequests()
        self._handlers: dict[int, Handler] = {}
        self.together = together
        self.lanes: list[Lane] = []

    def register(self, code: int, handler: Handler) -> None:
        """Answer a code's requests with this handler.

        @raise ValueError: If another one does already.
        """
        if self._handlers.setdefault(int(code), handler) is not handler:
            raise ValueError(f"request code {code} already has a handler")

    def handles(self, code: int) -> bool:
        """Whether a code's requests have a handler."""
        return code in self._handlers

    def codes(self) -> frozenset[int]:
        return frozenset(self._handlers)

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        """Have frames answered in one go, if they are of a kind for which there is a way to do so.

        @param at: Where in C{data} the first one begins.
        @param stop: None is served that begins here or later.
        @return: How many were served, and where the first one begins that was not.
        """
        for lane in self.lanes:
            count, end = lane.serve_run(connection, data, at, stop)
            if count:
                return count, end
        return 0, at

    def serve(self, connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        """Have a request answered.  Whatever the handler raises comes out of here."""
        code, calls = command.code, self.calls
        handler = self._handlers.get(code)
        if handler is None:
            self.refused.add(code, connection.host)
            return command.answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {code} not supported"
            )
        begun = calls.seconds()
        try:
            answer = handler(connection, command)
        except Exception as error:
            calls.failed(code, begun, error)
            raise
        if isinstance(answer, Deferred):
            return calls.later(code, begun, answer)
        calls.answered(code, begun, answer)
        return answer


def overloaded(command: Command) -> Command:
    """The answer to a request that is one too many."""
    return command.answer(ResponseCode.SYSTEM_BUSY, OVERLOAD)


def failed(command: Command, failure: Failure) -> Command:
    """The answer to a request whose handler failed.

    Our own errors speak for themselves; of all others the class says more than the text.
    """
    error = failure.value
    if isinstance(error, RequestRefused):
        return command.answer(error.code, error.remark and error.remark[:REMARK_LIMIT])
    text = str(error)
    if not isinstance(error, RmqhaError):
        text = f"{type(error).__name__}: {text}"
    return command.answer(ResponseCode.SYSTEM_ERROR, text[:REMARK_LIMIT])
