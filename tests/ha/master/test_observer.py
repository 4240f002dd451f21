"""A peer that only compares, on the side that is asked, and lag in seconds."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.ha.master import replicas
from rmqha.ha.master.replicas import Timeline
from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.states import Standing
from rmqha.wire.ha_frame import OBSERVER, encode_report
from tests.ha.master.test_master import MasterCase, Received


class ObserverTests(MasterCase):
    """It is sent all there is, and counts for nothing."""

    def observer(self, *reports: int) -> tuple[Any, Any]:
        protocol, transport = self.connect("10.0.0.7")
        for report in (OBSERVER, *reports):
            protocol.dataReceived(encode_report(report))
        return protocol, transport

    def test_everything(self) -> None:
        """Without proof, to the last byte, with a heartbeat there, though it may be but a part."""
        self.build(end=250_000)
        self.ledger.start = 1000
        self.factory.standing = lambda: Standing.PART
        _, transport = self.observer(200_000)
        received = Received(transport.value())
        self.assertEqual(bytes(received.body), bytes(self.log.read(200_000, 50_000)))
        self.assertEqual(received.heartbeats, [250_000])
        self.fed(200_000)
        self.assertEqual(self.factory.closed["unproven"], 1)

    def test_in_pieces(self) -> None:
        """It says what it is in any pieces, and nothing is sent before it has asked."""
        protocol, transport = self.connect("10.0.0.7")
        said = encode_report(OBSERVER) + encode_report(249_000)
        for place in range(len(said)):
            self.assertEqual(transport.value(), b"")
            protocol.dataReceived(said[place : place + 1])
        self.assertEqual(len(Received(transport.value()).body), 1000)

    def test_counts_for_nothing(self) -> None:
        """It acknowledges no write, is no row of the status, holds no file, leaves no mark."""
        protocol, _ = self.observer(1)
        protocol.dataReceived(encode_report(250_000))
        waiting = self.transfer.wait(249_000, 250_000)
        self.assertEqual(self.successResultOf(waiting), PutStatus.SLAVE_NOT_AVAILABLE)
        good, _ = self.fed(host="10.0.0.1")
        self.log.put(b"x" * 100)
        waiting = self.transfer.wait(250_000, 250_100)
        protocol.dataReceived(encode_report(250_100))
        self.assertNoResult(waiting)
        good.dataReceived(encode_report(250_100))
        self.assertEqual(self.successResultOf(waiting), PutStatus.PUT_OK)
        self.assertEqual([row.address[:8] for row in self.factory.replicas()], ["10.0.0.1"])
        self.lose(good)
        self.assertIsNone(self.factory.held_from())
        self.lose(protocol)
        self.assertEqual(list(self.ledger.all_marks()), ["10.0.0.1"])

    def test_refused(self) -> None:
        """It may not ask for what there is not, nor say twice what it is, and is no verdict."""
        for reason, reports in {"ahead": [250_001], "negative": [OBSERVER]}.items():
            protocol, transport = self.observer(*reports)
            self.assertTrue(transport.disconnected, reason)
            self.assertEqual(self.factory.closed[reason], 1)
            self.lose(protocol)
        self.assertEqual(self.factory.replicas(), [])

    def test_silent(self) -> None:
        """One that never asks is closed like any peer that reports nothing."""
        self.observer()
        self.clock.pump([1.0] * 21)
        self.assertEqual(self.factory.closed["no-report"], 1)

    def test_doubtful(self) -> None:
        """A log that may be another's is not shown."""
        self.factory.standing = lambda: Standing.DOUBTFUL
        self.assertIsNone(self.factory.buildProtocol(None))

    def test_known(self) -> None:
        """Replicas that acknowledge what they were sent are told; observers are not."""
        told: list[str] = []
        self.factory.known = told.append
        observer, _ = self.observer(1000)
        observer.dataReceived(encode_report(250_000))
        stranger, _ = self.fed(0, "10.0.0.9")
        stranger.dataReceived(encode_report(0))
        empty, _ = self.fed(0, "10.0.0.2")
        self.assertEqual(told, [])
        empty.dataReceived(encode_report(32768))
        empty.dataReceived(encode_report(65536))
        self.assertEqual(told, ["10.0.0.2"])


STEPS = st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), min_size=1, max_size=60)


class TimelineTests(SynchronousTestCase):
    def test_old(self) -> None:
        """What was there before is at least as old as the timeline."""
        timeline = Timeline()
        self.assertEqual(timeline.age(5, 1.0), 0.0)
        timeline.note(1000, 10.0)
        self.assertEqual(timeline.age(999, 12.0), 2.0)
        self.assertTrue(timeline.before(999))
        self.assertFalse(timeline.before(1000))

    @given(STEPS, st.integers(0, 3000))
    def test_age(self, steps: list[tuple[float, int]], offset: int) -> None:
        """The age is right up to one step, and never negative."""
        timeline = Timeline()
        now, end = 0.0, 10
        timeline.note(end, now)
        appended = None
        for wait, size in steps:
            now += wait
            end += size
            if appended is None and end > offset >= 10:
                appended = now
            timeline.note(end, now)
        if appended is not None:
            now += 0.5
            timeline.note(end, now)
            age = timeline.age(offset, now)
            self.assertLessEqual(age, now - appended + 1e-9)
            # A point not taken is told by the next one, at most one wait later.
            self.assertGreaterEqual(age, now - appended - 3.0 - replicas.STEP)

    def test_thinning(self) -> None:
        """A long run keeps its points within bounds, and rather tells too much."""
        self.patch(replicas, "MOST_POINTS", 64)
        timeline = Timeline()
        for second in range(10_000):
            timeline.note(second + 1, float(second))
        self.assertLessEqual(len(timeline._ends), 65)
        self.assertEqual(len(timeline._ends), len(timeline._times))
        self.assertEqual(timeline._ends, sorted(timeline._ends))
        for offset in (9_999, 9_970, 5_000, 20):
            self.assertGreaterEqual(timeline.age(offset, 10_000.0), 10_000.0 - offset)
        self.assertLessEqual(timeline.age(9_980, 10_000.0), 22.0)

    def test_clock_that_stands(self) -> None:
        """A clock that steps back gives no negative lag."""
        timeline = Timeline()
        timeline.note(10, 100.0)
        timeline.note(20, 200.0)
        self.assertEqual(timeline.age(15, 150.0), 0.0)
