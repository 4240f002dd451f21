"""A slave that compares its whole log with its master's while it has nothing else to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from twisted.internet.task import Clock
from twisted.logger import LogLevel

from lab.harness import golden
from rmqha.ha import cold_comparison
from rmqha.ha.cold_comparison import AGAIN, BUSY, IDLE, ColdComparison
from rmqha.ha.fetch_range import MasterReplica
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.store.store import Store
from rmqha.wire.ha_frame import OBSERVER
from tests.support import damage
from tests.support.log_lines import log_lines
from tests.support.logs import LogTestCase
from tests.support.memorylog import MemoryLog
from tests.support.scripted_master import Connection, PuppetEndpoint
from tests.support.unreadable import make_unreadable

SIZE = golden.LOG_FILE_SIZE
END = 2652010
WINDOWS = 11

#: A record in the second file, and a byte of its properties, of which nothing is checked.
FAR, FAR_LENGTH = SIZE, 102611
PLACE = FAR + FAR_LENGTH - 3

HOUR = 3600.0


class ComparisonTests(LogTestCase):
    """A golden store that is open, and a master played by hand that has the same log."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = PuppetEndpoint(self.clock)
        self.root = golden.store(golden.VERSIONS[0])
        self.theirs = MemoryLog.of_store(golden.store(golden.VERSIONS[0]), END, SIZE)
        self.patch(os, "fsync", lambda fd: None)
        self.store = self.open()
        self.in_sync = True
        self.errors = log_lines(self, least=LogLevel.error)

    def open(self) -> Store:
        """Open the store, whose scrubber is switched off."""
        clock = self.clock
        return self.opened(
            self.root,
            master=False,
            settings={"scrub_rate": 0, "scrub_interval": HOUR},
            now_ms=lambda: int(clock.seconds() * 1000) + 1_700_000_000_000,
        )

    def begin(self, rate: int = 8 << 20) -> ColdComparison:
        """Begin to look; the first pass is due in an hour."""
        self.comparison = ColdComparison(
            store=self.store,
            master=lambda: self.master() if self.in_sync else None,
            rate=rate,
            clock=self.clock,
            in_thread=self.store.environment.in_thread,
        )
        self.comparison.start()
        self.addCleanup(self.ended)
        self.passes(2 * IDLE)
        return self.comparison

    def ended(self) -> None:
        stopped = self.comparison.stop()
        self.clock.advance(0)
        self.successResultOf(stopped)
        self.assertEqual(self.endpoint.waiting, [])

    def master(self) -> MasterReplica:
        return MasterReplica(
            port=MasterClientPort(None, self.clock, "10.0.0.1:10912", self.endpoint),
            file_size=SIZE,
        )

    def passes(self, seconds: float, step: float = 0.5) -> None:
        self.clock.pump([step] * int(seconds / step))

    def test_no_descriptor(self) -> None:
        """Without a descriptor the last pass is read again: no failure, nothing forgotten."""
        mark = self.store.settings.root / "rmqha" / "compared.json"
        mark.parent.mkdir(exist_ok=True)
        mark.write_text("{}")
        unreadable = make_unreadable(self, mark, errno.EMFILE)
        comparison = self.begin()
        job = comparison.looking
        self.assertEqual((job.runs > 1, job.failures), (True, 0))
        self.assertIsNone(comparison.status()["position"])
        unreadable.restore()
        self.passes(HOUR + IDLE)
        self.assertEqual(comparison.status()["position"], 0)
        self.answered()

    def answered(self) -> Connection:
        """The master sends what is asked for."""
        connection = self.endpoint.accept()
        first, start = connection.reports()
        self.assertEqual(first, OBSERVER % (1 << 64))
        connection.feed(self.theirs, start, batch=32768)
        self.assertFalse(connection.open)
        self.clock.advance(0)
        return connection

    def whole_pass(self) -> list[int]:
        """Answer until a pass is over, and return what was asked for."""
        asked = []
        self.passes(HOUR, IDLE)
        while self.comparison.status()["position"] is not None:
            if self.endpoint.waiting:
                asked.append(self.answered().reports()[1])
            self.passes(1.0)
            self.assertLess(len(asked), 50)
        return asked

    def harm(self, place: int) -> Path:
        """Turn a bit of our log over."""
        path = self.root / damage.name(place // SIZE)
        damage.flip(path, place % SIZE)
        return path

    def test_equal(self) -> None:
        """Every byte is asked for once, in short connections without acks; later again."""
        comparison = self.begin()
        self.assertEqual(self.endpoint.waiting, [])
        self.assertEqual(self.whole_pass(), [1, *range(SIZE, END, SIZE)])
        status = comparison.status()
        self.assertEqual((status["comparedBytes"], status["differences"]), (END, []))
        self.assertLess(status["lastPassAge"], 60)
        self.assertEqual(list(comparison.health()), [])
        self.passes(HOUR / 2, IDLE)
        self.assertEqual(self.endpoint.waiting, [])

    def test_difference(self) -> None:
        """A bit that no checksum covers is named once, both versions kept, and gone when mended."""
        path = self.harm(PLACE)
        comparison = self.begin()
        for _ in range(2):
            self.whole_pass()
            (difference,) = comparison.status()["differences"]
            self.assertEqual((difference["offset"], difference["file"]), (PLACE, str(path)))
            self.assertIn("records decode on both sides; no checksum", difference["reason"])
            self.assertEqual(len(self.errors), 1)
        (reason,) = comparison.health()
        self.assertEqual(reason.name, "cold-difference")
        self.assertIn(f"byte {PLACE} differs from the master's", reason.text)
        kept = sorted(each.name for each in (self.root / "rmqha" / "quarantine").iterdir())
        self.assertEqual(
            kept, [f"{FAR:020d}-{FAR + FAR_LENGTH:020d}.{side}.log" for side in ("master", "ours")]
        )
        damage.flip(path, PLACE % SIZE)
        self.whole_pass()
        self.assertEqual((comparison.status()["differences"], list(comparison.health())), ([], []))

    def test_resumed(self) -> None:
        """A pass goes on after a restart where it was, with what differs known at once."""
        self.harm(PLACE)
        self.begin()
        self.passes(HOUR, IDLE)
        for _ in range(3):
            self.answered()
            self.passes(1.0)
        position = self.comparison.status()["position"]
        self.assertGreater(position, 2 * SIZE)
        self.endpoint.accept().close()
        self.ended()
        self.close_store(self.store)
        self.store = self.open()
        self.begin()
        self.assertEqual(len(self.comparison.status()["differences"]), 1)
        self.assertEqual(self.comparison.status()["position"], position)
        self.assertEqual(self.answered().reports()[1], position)

    def test_only_idle(self) -> None:
        """While bytes come, or the slave is not in sync, or without a rate, nobody is asked."""
        self.begin()
        log = self.store.log
        real = log.end
        for number in range(int(HOUR / IDLE) + 20):
            log.end = real + (number % 2) * 2 * BUSY
            self.clock.advance(IDLE)
        log.end = real
        self.assertEqual(self.endpoint.waiting, [])
        self.in_sync = False
        self.passes(60)
        self.assertEqual(self.endpoint.waiting, [])
        self.in_sync = True
        self.passes(20)
        self.assertEqual(self.answered().reports()[1], 1)
        self.endpoint.waiting.clear()
        self.ended()
        self.begin(rate=0)
        self.passes(2 * HOUR, IDLE)
        self.assertEqual(self.endpoint.waiting, [])

    def test_master_leaves(self) -> None:
        """A window that was not had is asked for again later, and is no difference."""
        comparison = self.begin()
        self.passes(HOUR, IDLE)
        connection = self.endpoint.accept()
        connection.feed(self.theirs, 1, 5000)
        connection.close()
        self.assertIn("bytes 0 to ", comparison.status()["trouble"])
        self.passes(AGAIN - 5)
        self.assertEqual(self.endpoint.waiting, [])
        self.passes(10)
        self.assertEqual(self.answered().reports()[1], 1)
        self.assertEqual((comparison.status()["trouble"], self.errors), ("", []))

    def test_master_has_less(self) -> None:
        """What the master has deleted is passed over."""
        self.patch(
            MasterReplica, "begins", lambda _: self.store.environment.in_thread(lambda: 3 * SIZE)
        )
        self.begin()
        self.assertEqual(self.whole_pass(), [*range(3 * SIZE, END, SIZE)])

    def test_log_moves(self) -> None:
        """Retention, and a log that was cut, are no differences."""
        self.harm(PLACE)
        comparison = self.begin()
        self.whole_pass()
        self.assertEqual(len(comparison.differences), 1)
        for _ in range(2):
            self.store.log.drop_first().remove()
        self.passes(2 * IDLE)
        self.assertEqual((comparison.differences, self.whole_pass()[0]), ({}, 2 * SIZE))

    def test_rate(self) -> None:
        """Windows come no faster than the rate."""
        self.patch(cold_comparison, "WINDOW", 64 << 10)
        self.begin(rate=32 << 10)
        self.passes(HOUR, IDLE)
        count = 0
        for _ in range(100):
            if self.endpoint.waiting:
                self.answered()
                count += 1
            self.clock.advance(0.5)
        self.assertTrue(20 <= count <= 27, count)
        self.assertEqual(self.comparison.status()["position"], count * (64 << 10))
