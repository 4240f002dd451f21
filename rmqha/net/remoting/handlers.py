"""Which handler answers which request, and what is answered without one.

A handler is a callable, found by the request's code.  Its answer goes to who asked, in the
kind of header the request came with; for a one-way request it is dropped.

Source: docs/protocol/remoting.md, Answers of the system.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from twisted.internet.defer import Deferred

from rmqha.net.remoting.calls import Calls, RefusedRequests
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting.answers import Answer, code_of
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command

Handler = Callable[[RemotingProtocol, Command], Answer | Deferred[Answer]]
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
        calls.add(code, code_of(answer), begun)
        return answer
