"""Ending what has several parts: each step is taken, whatever became of the steps before it.

A store that cannot stop its retention still has to flush, to close its files and to give its
lock back, in this order.  So an error is logged where it happens, with the name of its step, and
the shutdown goes on; who asked for it learns at the end which steps failed.  A step that takes
long is named in the log, so that a node that does not end says what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import RmqhaError, ShutdownFailed

P = ParamSpec("P")

NOTICE = 10.0
"""Seconds between two log lines about a step that is not over."""


@define(eq=False)
class Shutdown:
    """One shutdown, for a coroutine that awaits its steps.

    @ivar subject: What is shut down, as log lines name it.
    @ivar clock: Measures how long steps take; without it nobody is told.
    @ivar deadline: Seconds after which a step counts as failed, whatever still runs; C{None} for
        steps that have to be waited for, such as an fsync.
    @ivar failed: Names of the steps that have failed.
    """

    subject: str
    clock: IReactorTime | None = None
    deadline: float | None = None
    failed: list[str] = field(factory=list, init=False)

    _log = Logger()

    def step(
        self, name: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[None]:
        """Take a step at once; steps that need not wait for each other are awaited later.

        @param name: What the step stops or does, as log lines name it.
        @return: Fires when the step is over.  It never fails.
        """
        step = maybeDeferred(function, *args, **kwargs)
        if self.clock is not None and not step.called:
            self._watch(step, name, self.clock)
        return step.addCallbacks(lambda _: None, self._step_failed, errbackArgs=(name,))

    def _watch(self, step: Deferred[object], name: str, clock: IReactorTime) -> None:
        """Say every L{NOTICE} seconds that a step is not over, until it is or its time is."""
        began = clock.seconds()
        pending: list[IDelayedCall] = []

        def again() -> None:
            pending[:] = [clock.callLater(NOTICE, notice)]

        def notice() -> None:
            self._log.warn(
                "Shutdown of {subject}: still waiting for {step} after {seconds:.0f} s",
                subject=self.subject,
                step=name,
                seconds=clock.seconds() - began,
            )
            again()

        def over(result: object) -> object:
            pending[0].cancel()
            return result

        again()
        if self.deadline is not None:
            step.addTimeout(self.deadline, clock, _left)
        step.addBoth(over)

    def _step_failed(self, failure: Failure, name: str) -> None:
        self.failed.append(name)
        if failure.check(ShutdownFailed):
            return  # its own steps are in the log
        if failure.check(_NotOver):
            self._log.error(
                "Shutdown of {subject}: {step} was not over within {deadline:g} s, and is left",
                subject=self.subject,
                step=name,
                deadline=self.deadline,
            )
            return
        text = "Shutdown of {subject}: {step} failed"
        if failure.check(RmqhaError):
            error = failure.value
            self._log.error(text + ": {error}", subject=self.subject, step=name, error=error)
        else:
            self._log.failure(text, failure, subject=self.subject, step=name)

    def finish(self) -> None:
        """Tell whether all went well, when the last step is over.

        @raise ShutdownFailed: If a step failed.
        """
        if self.failed:
            raise ShutdownFailed(self.subject, tuple(self.failed))


class _NotOver(Exception):
    """A step's time is over, and the step is not."""


def _left(_: object, deadline: float) -> None:
    raise _NotOver(deadline)
