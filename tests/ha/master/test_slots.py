"""Retention slots: what is kept for replicas that went away."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.ha_settings import ReplicaIdentity
from rmqha.errors import DiskFull
from rmqha.ha.master import slots as slots_module
from rmqha.ha.master.slots import REFRESH, RetentionSlot, RetentionSlots
from rmqha.logfiles import json_table
from rmqha.wire.ha_frame import encode_report
from tests.ha.master.test_master import MasterCase
from tests.support.effort import tries
from tests.support.log_lines import log_lines

FILE = 1000

NUMBERS = st.integers(0, 5000)


class SlotsCase(SynchronousTestCase):
    """Slots with a file, and a clock whose zero is at 1,000,000 s since 1970."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slots-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = self.folder / "slots.json"
        self.lines = log_lines(self, namespace="rmqha.ha.master.slots.RetentionSlots")
        self.clock = Clock()
        self.lost_time = 0.0
        self.writes = 0
        self.by: dict[str, RetentionSlot] = {}
        self.slots = self.begin()

    def begin(self, **more: Any) -> RetentionSlots:
        given: dict[str, Any] = {"grace": 3600.0, "most_bytes": 100_000, "save": self.save, **more}
        self.slots = RetentionSlots(
            clock=self.clock,
            wall=lambda: 1_000_000 + self.lost_time + self.clock.seconds(),
            **given,
        )
        self.slots.read(self.path)
        return self.slots

    def save(self, table: json_table.Table) -> Deferred[None]:
        self.writes += 1
        json_table.replace(self.path, table)
        return succeed(None)

    def proved(self, name: str, offset: int, began: int = 1, opened: float | None = None) -> None:
        """A connection, whose name begins with its address, acknowledges what it is sent from its
        first
        report on; it was opened now, by default.
        """
        at = self.clock.seconds() if opened is None else opened
        slot = self.slots.proved(name[0], offset, began=began, opened=at)
        if slot is not None:
            self.by[name] = slot

    def left(
        self, name: str, offset: int, sent: int | None = None, heard: float | None = None
    ) -> None:
        """It ends; by default it has just reported."""
        self.slots.left(
            self.by[name],
            offset,
            sent=offset if sent is None else sent,
            heard=self.clock.seconds() if heard is None else heard,
        )

    def away(self, address: str = "a") -> list[int]:
        """What is kept for those of an address that are away."""
        rows = self.slots.rows(0)
        return [row["offset"] for row in rows if row["address"] == address and row["since"]]

    def sweep(self, seconds: float = 1.0, end: int = 50_000, **held: int) -> None:
        """Time passes, in which connections acknowledge."""
        self.clock.advance(seconds)
        for name, offset in held.items():
            self.by[name].offset = offset
        self.slots.sweep(0, end, FILE)


class LifeTests(SlotsCase):
    def test_grace(self) -> None:
        """It holds from the connection's end until the grace is over, whoever is connected."""
        self.proved("b", 100)
        self.proved("a", 100)
        self.sweep(a=700)
        self.assertIsNone(self.slots.held_from())
        self.left("a", 750)
        self.assertEqual(self.slots.held_from(), 750)
        self.sweep(3599.0)
        self.assertEqual(self.slots.held_from(), 750)
        self.assertTrue(self.slots.known("a"))
        self.sweep()
        self.assertIsNone(self.slots.held_from())
        self.assertFalse(self.slots.known("a"))
        self.assertIn("for replica a, which needs bytes from 750 on", self.lines[0])
        self.assertIn("haRetentionGrace", self.lines[0])

    def test_no_grace(self) -> None:
        """Without a grace nothing is kept, not for a moment."""
        self.begin(grace=0.0)
        self.proved("a", 100)
        self.left("a", 100)
        self.assertIsNone(self.slots.held_from())

    def test_back(self) -> None:
        """A replica that acknowledges again has its claim for it."""
        self.proved("a", 100)
        self.left("a", 100)
        self.proved("a", 150)
        self.assertIsNone(self.slots.held_from())
        self.sweep(10_000.0, a=900)
        self.assertTrue(self.slots.known("a"))
        self.assertEqual(self.lines, [])

    def test_away(self) -> None:
        """Who is away is told later, unless that address is connected: maybe it, emptied."""
        self.clock.advance(1000)
        for address in "ab":
            self.proved(address, 100)
            self.left(address, 100)
        self.clock.advance(3)
        self.assertEqual(self.slots.away(3), [])
        self.clock.advance(1)
        self.assertEqual([slot.address for slot in self.slots.away(3)], ["a", "b"])
        self.slots.proved("a", 0, began=0, opened=self.clock.seconds())
        self.assertEqual([slot.address for slot in self.slots.away(3)], ["b"])
        self.slots.drop("b")
        self.assertEqual(self.slots.away(3), [])

    def test_bytes(self) -> None:
        """More than the bound is not kept."""
        self.proved("a", 100)
        self.left("a", 100)
        self.sweep(end=100_100)
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep(end=100_101)
        self.assertIsNone(self.slots.held_from())
        self.assertIn("lacks 100001 bytes, more than 100000 (haRetentionGraceBytes", self.lines[0])

    def test_passed(self) -> None:
        """What retention or a cut took is not held; the first byte left is, or the end."""
        for offset, held in ((999, False), (1000, True), (50_000, True), (50_001, False)):
            self.begin()
            self.proved("a", offset)
            self.left("a", offset)
            self.clock.advance(1.0)
            self.slots.sweep(1000, 50_000, FILE)
            self.assertEqual(self.slots.known("a"), held, offset)
            self.slots.drop("a")
            self.successResultOf(self.slots.flush())

    def test_dropped(self) -> None:
        """An operator ends one of a replica that is away, and no other."""
        self.proved("a", 100)
        self.assertFalse(self.slots.drop("a"))
        self.left("a", 100)
        self.assertFalse(self.slots.drop("b"))
        self.assertTrue(self.slots.drop("a"))
        self.assertIsNone(self.slots.held_from())
        self.assertFalse(self.slots.drop("a"))
        self.assertIn("an operator dropped it", self.lines[0])

    def test_two_behind_one_address(self) -> None:
        """Each has its own: nothing one does ends what another needs, in any order."""
        for first, second in (("a1", "a2"), ("a2", "a1")):
            for began in ({"a1": 1, "a2": 1}, {"a1": 170, "a2": 7200}):
                self.begin()
                self.proved("a1", 100)
                self.proved("a2", 900)
                self.left("a1", 150, 180)
                self.sweep(1800.0, a2=5000)
                self.assertEqual(self.away(), [150])
                self.left("a2", 7000, 7500)
                self.assertEqual(self.away(), [150, 7000])
                self.proved(first, 7000, began=began[first])
                self.assertEqual(self.away(), [150])
                self.sweep(1000.0)
                self.assertEqual(self.away(), [150])
                if first == "a1":  # the other one's grace is longer
                    self.sweep(1000.0)
                    self.assertEqual(self.away(), [150])
                self.proved(second, 7000, began=began[second])
                self.assertEqual(self.away(), [])

    def test_first_seen_while_another_is_away(self) -> None:
        """One never seen takes up nothing: it is empty, or has more than the absent one got."""
        self.proved("a1", 40_000)
        self.left("a1", 40_000, 41_000)
        self.proved("a2", 100, began=0)
        self.proved("a3", 45_000, began=42_000)
        self.assertEqual(self.away(), [40_000])

    def test_ghost(self) -> None:
        """A dead connection whose end is seen late, when its replica is back, leaves nothing
        behind; the next one that ends does, and so does one that still reported.
        """
        self.proved("a1", 500)
        self.clock.advance(10.0)
        self.proved("a2", 700)
        self.clock.advance(10.0)
        self.left("a1", 500, heard=5.0)
        self.assertEqual(self.away(), [])
        self.left("a2", 700, heard=5.0)
        self.assertEqual(self.away(), [700])
        self.proved("a2", 800)
        self.proved("a3", 900)
        self.left("a2", 800)
        self.assertEqual(self.away(), [800])

    def test_ghost_beside_its_like(self) -> None:
        """Of two that need the same the one whose connection was dead goes, and not the other."""
        self.proved("a1", 500, began=0)
        self.proved("a2", 500, began=0)
        self.clock.advance(10.0)
        self.proved("a3", 700)
        self.left("a2", 500, heard=5.0)
        self.left("a1", 600)
        self.assertEqual(self.away(), [600])

    def test_no_ghost(self) -> None:
        """One that opened its connection empty, or that ended a slot, is not the replica of a
        connection that was dead by then: what that one needs stays.
        """
        self.proved("a1", 500)
        self.clock.advance(10.0)
        self.proved("a2", 100, began=0)
        self.left("a1", 500, heard=5.0)
        self.assertEqual(self.away(), [500])
        self.proved("a3", 700, began=500)
        self.left("a2", 300, heard=5.0)
        self.assertEqual(self.away(), [300])

    def test_rows(self) -> None:
        """The status says for whom, from where, how much, since when and until when."""
        self.proved("b", 900)
        self.proved("a", 100)
        self.clock.advance(5.0)
        self.left("a", 200)
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
        self.assertEqual([row["bytes"] for row in self.slots.rows(200)], [0, 0])

    def test_bounded(self) -> None:
        """The one that is away longest is forgotten for a new one; who is connected never is."""
        self.patch(slots_module, "MOST_SLOTS", 2)
        self.proved("a", 1)
        self.proved("b", 2)
        self.proved("c", 3)
        self.assertEqual([self.slots.known(name) for name in "abc"], [True, True, False])
        self.left("b", 2)
        self.proved("c", 3)
        self.assertEqual([self.slots.known(name) for name in "abc"], [True, False, True])
        self.assertIn("for replica b, which needs bytes from 2 on: there are 2", self.lines[0])

    def test_ended(self) -> None:
        """Each that ends without its replica is counted by why, and the last one is told."""
        self.proved("a", 100)
        self.left("a", 100)
        self.proved("a", 100)
        self.assertEqual((self.slots.ended, self.slots.last_ended), ({}, ""))
        for name, address in enumerate("abcd"):
            self.proved(address, 100 + name)
            self.left(address, 100 + name)
        self.slots.drop("b")
        self.sweep(end=100_102)
        self.assertEqual(self.slots.ended, {"dropped": 1, "bytes": 1})
        self.assertIn("a, which needs bytes from 100 on: it lacks 100002", self.slots.last_ended)
        self.slots.sweep(104, 50_000, FILE)
        self.assertEqual(self.slots.ended["passed"], 2)
        self.proved("e", 700)
        self.left("e", 700)
        self.sweep(3600.0)
        self.assertEqual(self.slots.ended["grace"], 1)

    @given(st.lists(st.tuples(st.sampled_from("paldst"), st.sampled_from("abc"), NUMBERS)))
    @run_settings(max_examples=tries(150), deadline=None)
    def test_nothing_goes_before_it_is_said(self, steps: list[tuple[str, str, int]]) -> None:
        """Retention finds no byte free that a replica needs whose slot is not counted as ended."""
        self.patch(slots_module, "MOST_SLOTS", 2)
        self.begin(most_bytes=20_000, save=None)
        self.lines.clear()
        connected: dict[str, int] = {}
        needed: dict[str, int] = {}
        end, first = 1000, 0
        for what, name, number in steps:
            if what == "p" and name not in connected:
                at = needed.get(name, end)
                if at < first:
                    needed.pop(name)  # below-min
                    continue
                self.proved(name, at)
                if self.slots.known(name):
                    needed.pop(name, None)
                    connected[name] = at
            elif what == "a" and name in connected:
                connected[name] = min(end, connected[name] + number)
            elif what == "l" and name in connected:
                needed[name] = connected.pop(name)
                self.left(name, needed[name], end)
            elif what == "d":
                end += number * 10
            elif what == "s":
                self.slots.sweep(first, end, FILE)
            elif what == "t":
                self.clock.advance(number)
            held = self.slots.held_from()
            first = max(first, min([*connected.values(), end if held is None else held]))
            for name, at in needed.items():
                told = f"for replica {name}, which needs bytes from {at} on"
                said = any(told in line for line in self.lines)
                self.assertTrue(at >= first or said, (name, at, first, self.lines))
        self.assertEqual(sum(self.slots.ended.values()), len(self.lines))


class RestartTests(SlotsCase):
    def test_who_was_away(self) -> None:
        """Its time goes on, also while the node is down."""
        self.proved("a", 100)
        self.left("a", 100)
        self.sweep()
        self.lost_time = 3000.0
        self.begin()
        self.assertEqual(self.slots.held_from(), 100)
        self.assertEqual(self.slots.rows(0)[0]["since"], 1_000_000_000)
        self.sweep(599.0)
        self.assertIsNone(self.slots.held_from())

    def test_the_time_was_set_back(self) -> None:
        """Who left later than it is now has the whole grace, and no more."""
        self.proved("a", 100)
        self.left("a", 100)
        self.sweep()
        self.lost_time = -90_000.0
        self.begin()
        self.sweep(3599.0)
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep()
        self.assertIsNone(self.slots.held_from())

    def test_who_was_connected(self) -> None:
        """After a crash it has the whole grace to come back, from the start on."""
        self.proved("a", 100)
        self.sweep(a=100)
        self.lost_time = 100_000.0
        self.begin()
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep(3599.0)
        self.assertEqual(self.slots.held_from(), 100)
        self.sweep(2.0)
        self.assertIsNone(self.slots.held_from())

    def test_clean_stop(self) -> None:
        """The same after a stop, which ends all connections."""
        self.proved("a", 100)
        self.sweep(a=100)
        self.sweep(a=290)
        self.slots.we_leave(self.by["a"], 300)
        self.successResultOf(self.slots.flush())
        self.lost_time = 100_000.0
        self.begin()
        self.assertEqual(self.slots.held_from(), 290)
        self.sweep()
        self.assertEqual(self.slots.held_from(), 290)

    def test_two_behind_one_address(self) -> None:
        """Each has the grace if connected, its own if away; whoever is back ends its own."""
        self.proved("a1", 100)
        self.proved("a2", 900)
        self.left("a1", 100, 120)
        self.sweep(a2=900)
        self.lost_time = 100.0
        self.begin()
        self.assertEqual(self.away(), [100, 900])
        self.proved("a2", 2000)
        self.assertEqual(self.away(), [100])

    def test_of_before(self) -> None:
        """A file with one slot for each address is understood."""
        self.path.write_bytes(b'{"slots": {"a": {"offset": 70, "since": 999999000}}}')
        self.begin()
        self.assertEqual(self.away(), [70])
        self.proved("a", 90, began=80)
        self.assertEqual(self.away(), [])

    def test_written_rarely(self) -> None:
        """Replicas that go on write a file's number a minute at most; idle ones nothing."""
        self.sweep()
        self.assertEqual(self.writes, 0)
        self.proved("a", 0)
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

    def kept(self) -> list[tuple[str, int]]:
        """What a run would begin with after a crash a second from now."""
        self.sweep()
        rows = (json_table.read(self.path) or {})["slots"]
        return [(row["address"], row["offset"]) for row in rows]

    def test_comings_and_goings_are_written(self) -> None:
        """Who comes, goes or is dropped is written at once, however often that is."""
        self.proved("a", 100)
        self.assertEqual(self.kept(), [("a", 100)])
        self.proved("b", 200)
        self.assertEqual(self.kept(), [("a", 100), ("b", 200)])
        self.left("b", 250)
        self.assertEqual(self.kept(), [("a", 100), ("b", 250)])
        self.slots.drop("b")
        self.assertEqual(self.kept(), [("a", 100)])

    def test_cannot_be_written(self) -> None:
        """A full disk is said once each time, and tried again."""
        broken = True

        def save(table: json_table.Table) -> Deferred[None]:
            return fail(DiskFull("slots.json", 10)) if broken else self.save(table)

        self.begin(save=save)
        self.proved("a", 0)
        for _ in range(3):
            self.sweep(a=0)
        self.assertEqual(len(self.lines), 1)
        broken = False
        self.sweep(a=0)
        self.assertEqual(self.writes, 1)
        broken = True
        self.left("a", 0)
        for _ in range(3):
            self.sweep()
        self.assertEqual((len(self.lines), self.writes), (2, 1))
        broken = False
        self.sweep()
        self.assertEqual(self.writes, 2)

    def test_cannot_be_read(self) -> None:
        """Whatever is in the file, the node begins, and says that nothing is held."""
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
    """What a master's connections make of it."""

    def build(self, end: int = 250_000, needed: int = 1, **settings: Any) -> None:
        """A master that keeps files for who is away."""
        super().build(end, needed, **settings)
        self.slots = self.factory.slots = RetentionSlots(clock=self.clock)

    def replica(self, offset: int, began: int = 200_000) -> Any:
        """One that has acknowledged what it was sent up to an offset, from its first report on."""
        replica, _ = self.fed(began)
        replica.dataReceived(encode_report(offset))
        return replica

    def test_held_from(self) -> None:
        """What a replica had acknowledged is held from there when it is gone."""
        good = self.replica(240_000)
        self.assertEqual(self.factory.held_from(), 240_000)
        self.lose(good)
        self.assertEqual(self.factory.held_from(), 240_000)
        self.replica(245_000)
        self.assertEqual(self.factory.held_from(), 245_000)

    def test_strangers(self) -> None:
        """Nothing is kept for who never acknowledged anything, nor does it end a slot."""
        self.lose(self.replica(240_000))
        stranger, _ = self.fed(0)
        self.assertEqual(self.factory.held_from(), 0)
        self.lose(stranger)
        self.assertEqual(self.factory.held_from(), 240_000)
        other, _ = self.fed(0, "10.0.0.2")
        self.lose(other)
        self.assertEqual(self.factory.held_from(), 240_000)

    def test_ghost(self) -> None:
        """A dead connection that ends while the replica is back leaves nothing behind."""
        ghost = self.replica(240_000)
        self.clock.advance(1.0)
        self.replica(249_000, began=245_000)
        self.lose(ghost)
        self.assertEqual(self.factory.held_from(), 249_000)
        self.assertTrue(self.slots.rows(250_000)[0]["connected"])

    def test_two_behind_one_address(self) -> None:
        """Whatever counts as a replica for writes, one that is away keeps what it needs while
        another behind its address is connected, acknowledges, and comes and goes; both are seen.
        """
        for identity in ReplicaIdentity:
            self.build(replica_identity=identity)
            behind, ahead = self.replica(210_000), self.replica(249_000)
            self.assertEqual([210_000, 249_000], [row.acked for row in self.factory.replicas()])
            behind.factory.log.put(bytes(500))
            behind.dataReceived(encode_report(211_000))
            self.lose(behind)
            ahead.dataReceived(encode_report(250_500))
            self.clock.advance(2.0)
            self.assertEqual(self.factory.held_from(), 211_000, identity)
            self.lose(ahead)
            again, _ = self.fed(250_500)
            again.factory.log.put(bytes(500))
            again.dataReceived(encode_report(251_000))
            self.assertEqual(self.factory.held_from(), 211_000, identity)
            connected = [row["connected"] for row in self.slots.rows(251_000)]
            self.assertEqual(connected, [False, True])

    def test_emptied(self) -> None:
        """An empty replica is a new one, and what was kept for one of its address stays; one that
        asks from the beginning because its bytes are deleted here is the one that was away.
        """
        self.log.min_offset = 100_000
        self.lose(self.replica(240_000))
        empty, _ = self.fed(0)
        empty.dataReceived(encode_report(250_000))
        self.assertEqual(self.factory.held_from(), 240_000)
        self.lose(empty)
        self.factory.slots.drop("10.0.0.1")
        self.lose(self.replica(240_000))
        self.fed(1)
        again, _ = self.fed(0)
        again.dataReceived(encode_report(250_000))
        self.assertEqual(self.factory.held_from(), 250_000)

    def test_our_stop(self) -> None:
        """A stop ends no replica's time."""
        self.replica(240_000)
        self.factory.stop()
        (row,) = self.slots.rows(250_000)
        self.assertEqual((row["connected"], row["offset"]), (True, 240_000))

    def test_a_known_address_makes_no_room(self) -> None:
        """Strangers from elsewhere do not crowd out a connection from where a replica was."""
        self.build(max_connections=3)
        self.lose(self.replica(240_000))
        back, _ = self.fed(250_000)
        strangers = [self.fed(0, f"10.0.1.{number}")[0] for number in range(5)]
        self.assertIsNotNone(back.claim)
        self.assertEqual([each.claim is None for each in strangers], [True] * 3 + [False] * 2)
