"""Stores of a stock 5.3.3 broker, with messages that wait."""

from __future__ import annotations

from pathlib import Path
from struct import unpack_from

from twisted.internet.defer import Deferred

from lab.harness import golden
from rmqha.config.broker_settings import BrokerSettings, TimerSettings
from tests.broker.support import NOW
from tests.broker.timer.support import TimerTestCase

FOLDER = Path(__file__).resolve().parents[2] / "data" / "timer"

SIZES = {
    "file_size": 65536,
    "max_message_size": 30_000,
    "queue_file_size": 6000,
    "index_slots": 200,
    "index_entries": 4000,
}

KILLED = 1_795_580_957_093


class StockStoreTests(TimerTestCase):
    """What waits in one comes at its time, and nothing else."""

    broker_settings = BrokerSettings(name="BN", cluster="C", ip1="10.0.0.9", ip2="10.0.0.9")

    def open(self, name: str, at: int, window: int = 172_800) -> None:
        """Go on with one at a time."""
        golden.unpack(FOLDER / f"{name}.tar.gz", self.root.parent)
        self.jump = at - NOW
        self.timers = TimerSettings(roll_window=window)
        self.had = None
        self.begin(sizes=SIZES, timers=self.timers)

    def later_on(self, ms: int) -> list[bytes]:
        """Let all that is due by then come, from a restart on; what came since the first time."""
        self.stop()
        self.jump += ms
        self.begin(sizes=SIZES, timers=self.timers)
        self.skips(1)
        return self.got("TT")

    def test_killed(self) -> None:
        """Killed while some waited, one was recalled, and others were being stored anew."""
        self.open("killed", KILLED)
        self.assertEqual(self.got("TT"), [b"b-past", b"a-delivered"])
        self.skips(3)
        self.assertEqual(self.got("TT")[2:], [])
        self.skips(8)
        came = [b"c-due-soon-rolled-once", b"g-pending", b"h-same-slot"]
        self.assertEqual(self.got("TT")[2:], came)
        self.assertEqual(self.later_on(3_600_000)[2:], [*came, b"d-hour-rolled"])
        self.assertEqual(self.serving.timers.topics, {"TT": 1})
        self.assertEqual(self.later_on(260_000_000)[2:], [*came, b"d-hour-rolled", b"e-max"])
        self.assertEqual(self.serving.timers.topics, {})

    def test_killed_with_its_window(self) -> None:
        """The same where messages are stored anew as often as they were there."""
        self.open("killed", KILLED, window=10)
        for _ in range(6):
            self.skips(10)
        self.assertEqual(len(self.got("TT")), 5)

    def test_long_ago(self) -> None:
        """All is over when the broker starts: each comes once."""
        self.open("killed", KILLED + 300_000_000)
        self.skips(1)
        self.assertEqual(
            self.got("TT")[2:],
            [b"c-due-soon-rolled-once", b"g-pending", b"h-same-slot", b"d-hour-rolled", b"e-max"],
        )

    def test_stopped(self) -> None:
        """Stored anew several times, and closed cleanly."""
        self.open("stopped", KILLED + 130_000)
        before = self.got("TT")
        self.assertEqual(len(before), 5)
        self.skips(3)
        self.assertEqual(self.got("TT"), before)
        self.assertEqual(self.serving.timers.topics, {"TT": 3}, "one is recalled")
        came = self.later_on(300_000_000)
        self.assertEqual(came[5:], [b"d-hour-rolled", b"e-max"])

    def test_way_back(self) -> None:
        """What a stock broker needs to know is there: the first that may wait, and the next."""
        self.open("killed", KILLED)
        self.skips(12)
        checkpoint = self.serving._timercheck
        self.stop()
        self.successResultOf(Deferred.fromCoroutine(checkpoint.stop()))
        data = (self.root / "config" / "timercheck").read_bytes()
        self.assertEqual(len(data), 4096)
        last_read, flushed, low, end, *_ = unpack_from(">7q", data)
        self.assertEqual((flushed, low, end), (520, 2, 10), "d waits, and is the first")
        self.assertLess(KILLED + 6000, last_read)
        self.assertEqual(last_read % 1000, 0)
