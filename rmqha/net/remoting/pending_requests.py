"""The requests one side of a connection has asked, until they are answered or late.

Source: docs/protocol/remoting.md, Requests and answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmqha.wire.remoting.command import Command

_WRAP = 1 << 32
_SIGN = 1 << 31


@frozen
class PendingRequest:
    """One request that waits.

    @ivar code: The request's code.
    @ivar timeout: Seconds it may wait.
    @ivar deadline: Until when, in the clock's seconds.
    @ivar answered: Fires with the answer.
    """

    code: int
    timeout: float
    deadline: float
    answered: Deferred[Command]


@define
class PendingRequests:
    """Number requests and find them again by their answers.

    There is one timer for all of them, at or before the earliest deadline: a request that is
    answered in time does not touch it.

    @ivar expired: Called with each request whose time is over, which is forgotten by then.
    """

    _clock: IReactorTime
    expired: Callable[[PendingRequest], None]
    _opaque: int = field(default=0, init=False)
    _questions: dict[int, PendingRequest] = field(factory=dict, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _due: float = field(default=0.0, init=False)

    def __len__(self) -> int:
        return len(self._questions)

    def number(self) -> int:
        """The next request's number: signed, 32 bits, wrapping around."""
        opaque = self._opaque
        self._opaque = (opaque + 1 + _SIGN) % _WRAP - _SIGN
        return opaque

    def ask(self, opaque: int, code: int, timeout: float) -> Deferred[Command]:
        """Wait for an answer.

        @param opaque: The request's L{number}.
        @param timeout: For so many seconds.
        @return: What L{answer} finds.  Cancelling it forgets the request.
        """
        answered: Deferred[Command] = Deferred(partial(self._forget, opaque))
        deadline = self._clock.seconds() + timeout
        self._questions[opaque] = PendingRequest(code, timeout, deadline, answered)
        if self._timer is None or deadline < self._due:
            self._set(deadline)
        return answered

    def answer(self, command: Command) -> bool:
        """Hand an answer to the request it belongs to.

        @return: Whether there is one that still waits.
        """
        question = self._questions.pop(command.opaque, None)
        if question is None:
            return False
        question.answered.callback(command)
        return True

    def fail(self, error: Exception) -> None:
        """There will be no more answers."""
        questions, self._questions = self._questions, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for question in questions.values():
            if not question.answered.called:  # who heard of another may have given this one up
                question.answered.errback(error)

    def _forget(self, opaque: int, _: Deferred[Command]) -> None:
        self._questions.pop(opaque, None)

    def _set(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = self._clock.callLater(max(0.0, due - self._clock.seconds()), self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        late = [item for item in self._questions.items() if item[1].deadline <= now]
        for opaque, _ in late:
            del self._questions[opaque]
        if self._questions:
            self._set(min(question.deadline for question in self._questions.values()))
        for _, question in late:
            if not question.answered.called:
                self.expired(question)
