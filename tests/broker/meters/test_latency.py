"""How long writes take, as administrators are shown it."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.broker.meters.latency import PutTimes, TimedPuts
from rmqha.errors import FlushFailed, NotWritable
from rmqha.ha.master.put_service import PutResult
from rmqha.ha.master.transfer import PutStatus
from rmqha.store.store import Receipt

RESULT = PutResult(PutStatus.FLUSH_SLAVE_TIMEOUT, Receipt(0, 100, 0, "id"))


class TimedPutsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A writer that does what the test says."""
        self.clock = Clock()
        self.outcome: Any = succeed(RESULT)
        self.asked: list[Any] = []
        self.puts = TimedPuts(self, self.clock.seconds, PutTimes())

    def put(self, message: Any, *, batch: bool = False, wait: bool = True) -> Deferred[PutResult]:
        self.asked.append((message, batch, wait))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def test_waited(self) -> None:
        """A write takes until it is answered, whatever the answer is."""
        self.outcome = Deferred()
        stored = self.puts.put("message", batch=True, wait=False)
        self.assertEqual(self.asked, [("message", True, False)])
        self.clock.advance(0.25)
        self.assertNoResult(stored)
        self.outcome.callback(RESULT)
        self.assertIs(self.successResultOf(stored), RESULT)
        self.assertEqual((self.puts.times.all().longest, self.puts.failed), (0.25, 0))
        self.assertEqual(self.puts.times.results(), {PutStatus.FLUSH_SLAVE_TIMEOUT: 1})

    def test_failed(self) -> None:
        """What was not stored, and what nobody knows of, is counted."""
        self.outcome = NotWritable("full", "no room")
        self.assertRaises(NotWritable, self.puts.put, "message")
        self.outcome = Deferred()
        stored = self.puts.put("message")
        self.outcome.errback(FlushFailed("disk", "gone"))
        self.failureResultOf(stored, FlushFailed)
        self.assertEqual(self.puts.failed, 2)
