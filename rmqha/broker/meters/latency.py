"""How long writes take, and how they end.

Source: docs/protocol/remoting.md, Runtime information.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmqha.durations import Durations
from rmqha.ha.master.put_service import PutResult, Putter, at_once
from rmqha.ha.master.transfer import Done, PutStatus
from rmqha.store.log.record_run import RequestRun
from rmqha.wire.log.record import Message

ALONE = 0
"""The request code of a write that did not come in a run."""


@define(eq=False)
class PutTimes:
    """How long writes took until they were answered, and how they ended.

    @ivar took: By the request code of a run, or L{ALONE}, and the status; without a status those
        that were not stored, or of which it is not known.
    """

    took: dict[tuple[int, PutStatus | None], Durations] = field(factory=dict, init=False)

    def add(self, code: int, status: PutStatus | None, seconds: float, count: int = 1) -> None:
        """Writes ended."""
        took = self.took.get((code, status))
        if took is None:
            took = self.took[code, status] = Durations()
        took.add(seconds, count)

    def tick(self, now: float) -> None:
        """Begin a new span, if it is time.

        @param now: In the clock's seconds.
        """
        for took in self.took.values():
            took.tick(now)

    def all(self) -> Durations:
        """How long writes took, however they ended."""
        return Durations.merged(self.took.values())

    def results(self) -> Counter[PutStatus]:
        """How many were stored, by their status."""
        found: Counter[PutStatus] = Counter()
        for (_, status), took in self.took.items():
            if status is not None:
                found[status] += took.count
        return found

    def status(self) -> dict[str, Any]:
        """How many writes were answered with which status, and how long those of the last minute or
        two took.
        """
        took = self.all()
        return {
            "writes": {status.value: count for status, count in self.results().items()},
            "putMillis": {
                "p50": took.below(0.5) * 1000,
                "p99": took.below(0.99) * 1000,
                "max": took.longest * 1000,
            },
        }


@define(eq=False)
class TimedPuts:
    """Passes writes on, and measures how they end.

    @ivar seconds: The clock's.
    @ivar times: Is told how long each took.
    @ivar failed: Writes that were not stored, or of which it is not known.
    """

    writer: Putter
    seconds: Callable[[], float]
    times: PutTimes
    failed: int = field(default=0, init=False)

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        """Store a message as the writer below does, and measure how long the answer took."""
        begun = self.seconds()
        try:
            stored = self.writer.put(message, batch=batch, wait=wait)
        except Exception:
            self.failed += 1
            raise
        done = at_once(stored)
        if done is not None:
            self.times.add(ALONE, done.status, self.seconds() - begun)
            return stored
        return stored.addCallbacks(
            self._stored, self._not_stored, callbackArgs=(begun,), errbackArgs=(begun,)
        )

    def put_run(self, run: RequestRun, born_host: bytes, done: Done) -> None:
        """Store the messages of a run as the writer below does, and measure how long the answers
        took.
        """
        begun, code, later = self.seconds(), run.code, 0

        def ended(status: PutStatus) -> None:
            count = later or run.waits
            self.times.add(code, status, self.seconds() - begun, count)
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                self.failed += count
            done(status)

        self.writer.put_run(run, born_host, ended)
        # By then the run is another one's.
        later = run.waits
        for code, count in run.unwaited:
            self.times.add(code, PutStatus.PUT_OK, self.seconds() - begun, count)

    def _stored(self, result: PutResult, begun: float) -> PutResult:
        self.times.add(ALONE, result.status, self.seconds() - begun)
        return result

    def _not_stored(self, failure: Failure, begun: float) -> Failure:
        self.failed += 1
        self.times.add(ALONE, None, self.seconds() - begun)
        return failure
