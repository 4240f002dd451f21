"""
Ending what has several parts: each step is taken, whatever became of the steps before it.

A store that cannot stop its retention still has to flush, to close its files and to give its
lock back, in this order.  So an error is logged where it happens, with the name of its step, and
the shutdown goes on; who asked for it learns at the end which steps failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import RmqhaError, ShutdownFailed

P = ParamSpec("P")


@define(eq=False)
class Shutdown:
    """
    One shutdown, for a coroutine that awaits its steps.

    @ivar subject: What is shut down, as log lines name it.
    @ivar failed: Names of the steps that have failed.
    """

    subject: str
    failed: list[str] = field(factory=list, init=False)

    _log = Logger()

    def step(
        self, name: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs
    ) -> Deferred[None]:
        """
        Take a step at once; steps that need not wait for each other are awaited later.

        @param name: What the step stops or does, as log lines name it.
        @return: Fires when the step is over.  It never fails.
        """
        return maybeDeferred(function, *args, **kwargs).addCallbacks(
            lambda _: None, self._step_failed, errbackArgs=(name,)
        )

    def _step_failed(self, failure: Failure, name: str) -> None:
        self.failed.append(name)
        if failure.check(ShutdownFailed):
            return  # its own steps are in the log
        text = "Shutdown of {subject}: {step} failed"
        if failure.check(RmqhaError):
            error = failure.value
            self._log.error(text + ": {error}", subject=self.subject, step=name, error=error)
        else:
            self._log.failure(text, failure, subject=self.subject, step=name)

    def finish(self) -> None:
        """
        Tell whether all went well, when the last step is over.

        @raise ShutdownFailed: If a step failed.
        """
        if self.failed:
            raise ShutdownFailed(self.subject, tuple(self.failed))
