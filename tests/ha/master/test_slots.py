"""
Retention slots: what is kept for replicas that went away.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.ha_settings import ReplicaIdentity
from rmqha.errors import DiskFull
from rmqha.ha.master import slots as slots_module
from rmqha.ha.master.slots import REFRESH, RetentionSlots
from rmqha.logfiles import json_table
from rmqha.wire.ha_frame import encode_report
from tests.ha.master.test_master import MasterCase

FILE = 1000


class SlotsCase(SynchronousTestCase):
    """
    Slots with a file, and a clock whose zero is at 1,000,000 s since 1970.
    """

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slots-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "slots.json"
        self.lines: list[str] = []

        def note(event: Any) -> None:
            if event.get("log_namespace") == "rmqha.ha.master.slots.RetentionSlots":
                self.lines.append(formatEvent(event))

        globalLogPublisher.addObserver(note)
        self.addCleanup(globalLogPublisher.removeObserver, note)
        self.clock = Clock()
        self.lost_time = 0.0
        self.writes = 0
        self.slots = self.begin()

    def begin(self, **more: Any) -> RetentionSlots:
        """
        A run of a node.
        """
        given: dict[str, Any] = {"grace": 3600.0, "most_bytes": 100_000, "save": self.save, **more}
        self.slots = RetentionSlots(
            clock=self.clock,
            wall=lambda: 1_000_000 + self.lost_time + self.clock.seconds(),
            **given,
        )
        self.slots.read(self.path)
        return self.slots

    def save(self, table: json_table.Table) -> Deferred[None]:
        """
        Write it, at once.
        """
        self.writes += 1
        json_table.replace(self.path, table)
        return succeed(None)

    def sweep(self, seconds: float = 1.0, end: int = 50_000, **held: int) -> None:
        """
        Time passes.
        """
        self.clock.advance(seconds)
        self.slots.sweep(held, 0, end, FILE)


class LifeTests(SlotsCase):
    """
    A slot's beginning and its end.
    """

    def test_grace(self) -> None:
        """
        It holds from the end of the connection until the grace is over, and says so.
        """
        self.slots.proved("a", 100)
        self.sweep(a=700)
        self.assertIsNone(self.slots.held_from())
        self.slots.left("a", 750)
        self.assertEqual(self.slots.held_from(), 750)
        self.sweep(3599.0)
        self.assertEqual(self.slots.held_from(), 750)
        self.assertTrue(self.slots.known("a"))
        self.sweep()
        self.assertIsNone(self.slots.held_from())
        self.assertFalse(self.slots.known("a"))
        self.assertIn("for replica a, which needs bytes from 750 on", self.lines[0])
        self.assertIn("haRetentionGrace", self.lines[0])

    def test_back(self) -> None:
        """
        A replica that acknowledges again has its claim for it.
        """
        self.slots.proved("a", 100)
        self.slots.left("a", 100)
        self.slots.proved("a", 150)
        self.assertIsNone(self.slots.held_from())
        self.sweep(10_000.0, a=900)
        self.assertTrue(self.slots.known("a"))
        self.assertEqual(self.lines, [])

    def test_unknown(self) -> None:
        """
        Who never acknowledged anything leaves nothing behind.
        """
        self.slots.left("a", 100)
        self.assertIsNone(self.slots.held_from())
        self.assertEqual(self.slots.rows(1000), [])

    def test_bytes(self) -> None:
        """
        More than the bound is not kept.
        """
        self.slots.proved("a", 100)
        self.slots.left("a", 100)
        self.sweep(end=100_100)
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep(end=100_101)
        self.assertIsNone(self.slots.held_from())
        self.assertIn("haRetentionGraceBytes", self.lines[0])

    def test_passed(self) -> None:
        """
        What the disk made go is not held, nor what a cut took away.
        """
        for offset in (999, 50_001):
            self.slots.proved("a", offset)
            self.slots.left("a", offset)
            self.clock.advance(1.0)
            self.slots.sweep({}, 1000, 50_000, FILE)
            self.assertFalse(self.slots.known("a"), offset)

    def test_dropped(self) -> None:
        """
        An operator ends one of a replica that is away, and no other.
        """
        self.slots.proved("a", 100)
        self.assertFalse(self.slots.drop("a"))
        self.slots.left("a", 100)
        self.assertFalse(self.slots.drop("b"))
        self.assertTrue(self.slots.drop("a"))
        self.assertIsNone(self.slots.held_from())
        self.assertFalse(self.slots.drop("a"))
        self.assertIn("an operator dropped it", self.lines[0])

    def test_two_behind_one_address(self) -> None:
        """
        The one that is furthest behind counts while it is away.
        """
        for offset in (100, 900):
            self.slots.proved("a", offset)
        self.slots.left("a", 100)
        self.sweep(a=900)
        self.slots.left("a", 900)
        self.assertEqual(self.slots.held_from(), 100)

    def test_rows(self) -> None:
        """
        The status says for whom, from where, how much, since when and until when.
        """
        self.slots.proved("b", 900)
        self.slots.proved("a", 100)
        self.clock.advance(5.0)
        self.slots.left("a", 200)
        self.assertEqual(
            self.slots.rows(1000),
            [
                {
                    "address": "a",
                    "connected": False,
                    "offset": 200,
                    "bytes": 800,
                    "since": 1_000_005_000,
                    "until": 1_003_605_000,
                },
                {
                    "address": "b",
                    "connected": True,
                    "offset": 900,
                    "bytes": 100,
                    "since": None,
                    "until": None,
                },
            ],
        )

    def test_bounded(self) -> None:
        """
        The one that is away longest is forgotten for a new one; who is connected never is.
        """
        self.patch(slots_module, "MOST_SLOTS", 2)
        self.slots.proved("a", 1)
        self.slots.proved("b", 2)
        self.slots.proved("c", 3)
        self.assertEqual([self.slots.known(name) for name in "abc"], [True, True, False])
        self.slots.left("b", 2)
        self.slots.proved("c", 3)
        self.assertEqual([self.slots.known(name) for name in "abc"], [True, False, True])


class RestartTests(SlotsCase):
    """
    The node is started again.
    """

    def test_who_was_away(self) -> None:
        """
        Its time goes on, also while the node is down.
        """
        self.slots.proved("a", 100)
        self.slots.left("a", 100)
        self.sweep()
        self.lost_time = 3000.0
        self.begin()
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep(599.0)
        self.assertIsNone(self.slots.held_from())

    def test_who_was_connected(self) -> None:
        """
        After a crash it has the whole grace to come back, from the start on.
        """
        self.slots.proved("a", 100)
        self.sweep(a=100)
        self.lost_time = 100_000.0
        self.begin()
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep(3599.0)
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep(2.0)
        self.assertIsNone(self.slots.held_from())

    def test_clean_stop(self) -> None:
        """
        The same after a stop, which ends all connections.
        """
        self.slots.proved("a", 100)
        self.sweep(a=100)
        self.slots.we_leave("a", 300)
        self.successResultOf(self.slots.flush())
        self.lost_time = 100_000.0
        self.begin()
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep()
        self.assertEqual(self.slots.held_from(), 100)

    def test_written_rarely(self) -> None:
        """
        Replicas that go on write a file's number a minute, at most; idle ones nothing.
        """
        self.slots.proved("a", 0)
        self.sweep(a=0)
        self.assertEqual(self.writes, 1)
        for second in range(1, int(REFRESH)):
            self.sweep(a=second * FILE)
        self.assertEqual(self.writes, 1)
        self.sweep(a=60 * FILE)
        self.assertEqual(self.writes, 2)
        for _ in range(100):
            self.sweep(a=60 * FILE + 1)
        self.assertEqual(self.writes, 2)
        self.begin()
        self.assertEqual(self.slots.held_from(), 60 * FILE)

    def test_cannot_be_written(self) -> None:
        """
        A full disk is said once, and tried again.
        """
        broken = True

        def save(table: json_table.Table) -> Deferred[None]:
            return fail(DiskFull("slots.json", 10)) if broken else self.save(table)

        self.begin(save=save)
        self.slots.proved("a", 0)
        for _ in range(3):
            self.sweep(a=0)
        self.assertEqual(len(self.lines), 1)
        broken = False
        self.sweep(a=0)
        self.assertEqual(self.writes, 1)

    def test_cannot_be_read(self) -> None:
        """
        Whatever is in the file, the node begins, and says that nothing is held.
        """
        for text in (b"\0" * 100, b'{"slots": 5}', b'{"slots": {"a": {"offset": "x"}}}', b"[]"):
            self.path.write_bytes(text)
            self.lines.clear()
            self.begin()
            self.assertIsNone(self.slots.held_from(), text)
            self.assertEqual(len(self.lines), 1, text)
        self.path.write_bytes(b"{}")
        self.begin()
        self.assertEqual(len(self.lines), 1)


class MasterTests(MasterCase):
    """
    What a master's connections make of it.
    """

    def build(self, end: int = 250_000, needed: int = 1, **settings: Any) -> None:
        """
        A master that keeps files for who is away.
        """
        super().build(end, needed, **settings)
        self.slots = self.factory.slots = RetentionSlots(clock=self.clock)

    def replica(self, offset: int, host: str = "10.0.0.1") -> Any:
        """
        One that has acknowledged what it was sent up to an offset.
        """
        replica, _ = self.fed(200_000, host)
        replica.dataReceived(encode_report(offset))
        return replica

    def test_held_from(self) -> None:
        """
        What a replica had acknowledged is held from there when it is gone.
        """
        good = self.replica(240_000)
        self.assertEqual(self.factory.held_from(), 240_000)
        self.lose(good)
        self.assertEqual(self.factory.held_from(), 240_000)
        self.replica(245_000)
        self.assertEqual(self.factory.held_from(), 245_000)

    def test_strangers(self) -> None:
        """
        Nothing is kept for who never acknowledged anything, nor does it end a slot.
        """
        self.lose(self.replica(240_000))
        stranger, _ = self.fed(0)
        self.assertEqual(self.factory.held_from(), 0)
        self.lose(stranger)
        self.assertEqual(self.factory.held_from(), 240_000)
        other, _ = self.fed(0, "10.0.0.2")
        self.lose(other)
        self.assertEqual(self.factory.held_from(), 240_000)

    def test_ghost(self) -> None:
        """
        A dead connection that ends while the replica is back leaves nothing behind.
        """
        ghost = self.replica(240_000)
        self.replica(249_000)
        self.lose(ghost)
        self.assertEqual(self.factory.held_from(), 249_000)
        self.assertTrue(self.slots.rows(250_000)[0]["connected"])

    def test_several_by_connection(self) -> None:
        """
        Where connections are replicas, each that ends is one that is away.
        """
        self.build(replica_identity=ReplicaIdentity.CONNECTION)
        behind = self.replica(240_000)
        self.replica(249_000)
        self.lose(behind)
        self.assertEqual(self.factory.held_from(), 240_000)

    def test_our_stop(self) -> None:
        """
        A stop ends no replica's time.
        """
        self.replica(240_000)
        self.factory.stop()
        (row,) = self.slots.rows(250_000)
        self.assertEqual((row["connected"], row["offset"]), (True, 240_000))

    def test_a_known_address_makes_no_room(self) -> None:
        """
        Strangers from elsewhere do not crowd out a connection from where a replica was.
        """
        self.build(max_connections=3)
        self.lose(self.replica(240_000))
        back, _ = self.fed(250_000)
        strangers = [self.fed(0, f"10.0.1.{number}")[0] for number in range(5)]
        self.assertIsNotNone(back.claim)
        self.assertEqual([each.claim is None for each in strangers], [True] * 3 + [False] * 2)
