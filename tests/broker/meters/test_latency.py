"""
How long writes take, as administrators are shown it.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.meters.latency import SPAN, Durations, TimedPuts
from rmqha.errors import FlushFailed, NotWritable
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import PutStatus
from rmqha.store.store import Receipt

RESULT = PutResult(PutStatus.FLUSH_SLAVE_TIMEOUT, Receipt(0, 100, 0, "id"))


class DurationsTests(SynchronousTestCase):
    """
    Durations of the last minutes.
    """

    def test_classes(self) -> None:
        """
        They are shown in stock brokers' classes, which end at their upper bound.
        """
        durations = Durations()
        for seconds in (0.0, 0.0005, 0.002, 0.010, 0.04, 0.3, 7.0, 60.0):
            durations.add(seconds)
        self.assertEqual(
            durations.distribution(),
            "[<=0ms]:2 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:1 "
            "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:1 [10s~]:1 ",
        )
        self.assertEqual(durations.longest, 60.0)

    def test_shares(self) -> None:
        """
        A share's bound is right to a fifth, and never above the longest.
        """
        durations = Durations()
        self.assertEqual(durations.below(0.99), 0.0)
        for n in range(1000):
            durations.add(0.001 if n < 990 else 0.1)
        self.assertTrue(0.001 <= durations.below(0.99) <= 0.0012, durations.below(0.99))
        self.assertEqual(durations.below(0.999), 0.1)

    def test_spans(self) -> None:
        """
        What is older than two spans is not shown any more; the longest stays.
        """
        durations = Durations()
        durations.tick(0.0)
        durations.add(0.5)
        durations.tick(SPAN)
        self.assertGreater(durations.below(0.99), 0.4)
        durations.tick(SPAN + 1)
        self.assertGreater(durations.below(0.99), 0.4)
        durations.tick(2 * SPAN)
        self.assertEqual((durations.below(0.99), durations.longest), (0.0, 0.5))


class TimedPutsTests(SynchronousTestCase):
    """
    A writer that is watched.
    """

    def setUp(self) -> None:
        """
        A writer that does what the test says.
        """
        self.clock = Clock()
        self.outcome: Any = succeed(RESULT)
        self.asked: list[Any] = []
        self.puts = TimedPuts(self, self.clock.seconds, Durations())

    def put(self, message: Any, *, batch: bool = False, wait: bool = True) -> Deferred[PutResult]:
        """
        The writer's side.
        """
        self.asked.append((message, batch, wait))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def test_waited(self) -> None:
        """
        A write takes until it is answered, whatever the answer is.
        """
        self.outcome = Deferred()
        stored = self.puts.put("message", batch=True, wait=False)
        self.assertEqual(self.asked, [("message", True, False)])
        self.clock.advance(0.25)
        self.assertNoResult(stored)
        self.outcome.callback(RESULT)
        self.assertIs(self.successResultOf(stored), RESULT)
        self.assertEqual((self.puts.durations.longest, self.puts.failed), (0.25, 0))

    def test_failed(self) -> None:
        """
        What was not stored, and what nobody knows of, is counted.
        """
        self.outcome = NotWritable("full", "no room")
        self.assertRaises(NotWritable, self.puts.put, "message")
        self.outcome = Deferred()
        stored = self.puts.put("message")
        self.outcome.errback(FlushFailed("disk", "gone"))
        self.failureResultOf(stored, FlushFailed)
        self.assertEqual(self.puts.failed, 2)
