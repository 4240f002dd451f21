"""
How long writes take, and how they end.

Source: docs/protocol/remoting.md, Runtime information.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmqha.durations import Durations
from rmqha.ha.master.put_service import PutResult, Putter
from rmqha.ha.master.transfer import Done, PutStatus
from rmqha.store.log.record_run import RecordRun
from rmqha.wire.log.record import Message


@define(eq=False)
class TimedPuts:
    """
    Passes writes on, and measures how they end.

    @ivar seconds: The clock's.
    @ivar durations: Is told how long each took.
    @ivar failed: Writes that were not stored, or of which it is not known.
    @ivar results: How many of the others ended with which status.
    """

    writer: Putter
    seconds: Callable[[], float]
    durations: Durations
    failed: int = field(default=0, init=False)
    results: Counter[PutStatus] = field(factory=Counter, init=False)

    def put(
        self, message: Message, *, batch: bool = False, wait: bool = True
    ) -> Deferred[PutResult]:
        """
        Store a message as the writer below does, and measure how long the answer took.
        """
        begun = self.seconds()
        try:
            stored = self.writer.put(message, batch=batch, wait=wait)
        except Exception:
            self.failed += 1
            raise
        if stored.called and isinstance(stored.result, PutResult):
            # Nothing was waited for: a callback would take longer than all else here.
            self.durations.add(self.seconds() - begun)
            self.results[stored.result.status] += 1
            return stored
        return stored.addCallbacks(
            self._stored, self._not_stored, callbackArgs=(begun,), errbackArgs=(begun,)
        )

    def put_run(self, run: RecordRun, born_host: bytes, done: Done) -> None:
        """
        Store the messages of a run as the writer below does, and measure how long the answers took.
        """
        begun, later = self.seconds(), 0

        def ended(status: PutStatus) -> None:
            count = later or run.count
            self.durations.add(self.seconds() - begun, count)
            self.results[status] += count
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                self.failed += count
            done(status)

        self.writer.put_run(run, born_host, ended)
        # By then the run is another one's.
        later = run.count

    def _stored(self, result: PutResult, begun: float) -> PutResult:
        self.durations.add(self.seconds() - begun)
        self.results[result.status] += 1
        return result

    def _not_stored(self, failure: Failure, begun: float) -> Failure:
        self.failed += 1
        self.durations.add(self.seconds() - begun)
        return failure
