"""
How long writes and reads take, as administrators are shown it.

Source: docs/protocol/remoting.md, Runtime information.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from rmqha.ha.master.put_service import PutResult, Putter
from rmqha.ha.master.transfer import Done, PutStatus
from rmqha.store.log.record_run import RecordRun
from rmqha.wire.log.record import Message

SHOWN = (
    (0.001, "<=0ms"),
    (0.010, "0~10ms"),
    (0.050, "10~50ms"),
    (0.100, "50~100ms"),
    (0.200, "100~200ms"),
    (0.500, "200~500ms"),
    (1.0, "500ms~1s"),
    (2.0, "1~2s"),
    (3.0, "2~3s"),
    (4.0, "3~4s"),
    (5.0, "4~5s"),
    (10.0, "5~10s"),
    (float("inf"), "10s~"),
)
"""The classes of a distribution: below how many seconds, and their names."""

_FINE = tuple(0.000_010 * 2 ** (step / 4) for step in range(90))
_EDGES = tuple(sorted({*_FINE, *(edge for edge, _ in SHOWN)}))

SPAN = 60.0
"""Seconds after which what is shown begins anew; the span before stays in it."""


@define(eq=False)
class Durations:
    """
    How long something took, in seconds, lately.

    @ivar longest: Since the start.
    """

    longest: float = 0.0
    _now: list[int] = field(init=False, factory=lambda: [0] * len(_EDGES))
    _before: list[int] = field(init=False, factory=lambda: [0] * len(_EDGES))
    _began: float | None = field(init=False, default=None)

    def add(self, seconds: float, count: int = 1) -> None:
        """
        It took so long once, or for several together.
        """
        self._now[bisect_left(_EDGES, seconds)] += count
        if seconds > self.longest:
            self.longest = seconds

    def tick(self, now: float) -> None:
        """
        Begin a new span, if it is time.

        @param now: In the clock's seconds.
        """
        if self._began is None or now - self._began >= SPAN:
            self._began = now
            self._before, self._now = self._now, [0] * len(_EDGES)

    def _counts(self) -> list[int]:
        return [now + before for now, before in zip(self._now, self._before, strict=True)]

    def below(self, share: float) -> float:
        """
        What a share of all was not longer than, to a fifth of it; 0 if there was nothing.

        @param share: 0.99 for all but the slowest hundredth.
        """
        counts = self._counts()
        wanted = share * sum(counts)
        seen = 0
        for edge, count in zip(_EDGES, counts, strict=True):
            seen += count
            if count and seen >= wanted:
                return min(edge, self.longest)
        return 0.0

    def distribution(self) -> str:
        """
        How many were in each class, as stock brokers write it.
        """
        counts = self._counts()
        text, at = "", 0
        for edge, name in SHOWN:
            end = _EDGES.index(edge) + 1
            text += f"[{name}]:{sum(counts[at:end])} "
            at = end
        return text


@define(eq=False)
class TimedPuts:
    """
    Passes writes on, and measures how they end.

    @ivar seconds: The clock's.
    @ivar durations: Is told how long each took.
    @ivar failed: Writes that were not stored, or of which it is not known.
    """

    writer: Putter
    seconds: Callable[[], float]
    durations: Durations
    failed: int = field(default=0, init=False)

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
            if status is PutStatus.SERVICE_NOT_AVAILABLE:
                self.failed += count
            done(status)

        self.writer.put_run(run, born_host, ended)
        # By then the run is another one's.
        later = run.count

    def _stored(self, result: PutResult, begun: float) -> PutResult:
        self.durations.add(self.seconds() - begun)
        return result

    def _not_stored(self, failure: Failure, begun: float) -> Failure:
        self.failed += 1
        self.durations.add(self.seconds() - begun)
        return failure
