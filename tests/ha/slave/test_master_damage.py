"""Records that are damaged on the master's disk: copied as they are, loudly, once nothing waits."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import succeed

from rmqha.config.ha_settings import BadRecordPolicy
from rmqha.ha.slave import master_damage
from rmqha.ha.slave.connection import SlaveProtocol
from rmqha.ha.slave.master_bounds import MasterBounds, MasterClientPort
from rmqha.logfiles.published import read_copied_damage
from rmqha.store.log import copied_damage_file
from rmqha.store.log.commit_log import CommitLog
from tests.support.following import SIZE, ThreeFilesCase
from tests.support.logs import STORED, content, encoded
from tests.support.scripted_master import Connection

#: A byte of a body in the middle of the log, and the record it is in.
PLACE, RECORD, LENGTH = 1000, 700, 1500


class DamageCase(ThreeFilesCase):
    """A master with a damaged record, and an empty slave."""

    def setUp(self) -> None:
        super().setUp()
        self.kept: list[CommitLog] = []
        self.spoil(PLACE)

    def spoil(self, place: int, bit: int = 1) -> None:
        """Flip a bit on the master's disk."""
        self.theirs.folder.at(place).view[place % SIZE] ^= bit

    def empty(self, **more: Any) -> CommitLog:
        mine = self.log()
        self.follow(mine, **more)
        self.follower.sync.copied = self.kept.append
        return mine

    def fed(self, within: float = 0.0) -> Connection:
        """The next connection gets all the master has, as far as the slave listens."""
        connection = self.accept(within)
        asked = connection.reports()[0]
        connection.feed(self.theirs, asked)
        connection.heartbeat(self.theirs.end)
        return connection

    def assert_before_it(self, mine: CommitLog) -> None:
        """The slave has what lies before the damaged record, has reported no more, and says why."""
        self.assertState("diverged")
        self.assertEqual((mine.end, mine.confirmed), (RECORD, RECORD))
        self.assertIn(f"bad record: no valid record at byte {RECORD}: body crc", self.reason)
        self.assertEqual(len(mine.copied), 0)

    @property
    def reason(self) -> str:
        return self.follower.sync.reason


class CopyTests(DamageCase):
    def test_copied(self) -> None:
        """An empty slave gets everything, the damaged record too, and says which it is."""
        mine = self.empty()
        self.fed()
        self.assert_before_it(mine)
        self.assertIn("copied as it is if it stays the same for 6 s", self.reason)
        self.passes(6)
        while self.follower.sync.state.value != "in-sync":
            self.fed(within=10)
        self.assertEqual(content(mine), content(self.theirs))
        (record,) = mine.copied
        self.assertEqual((record.offset, record.size), (RECORD, LENGTH))
        self.assertEqual((record.reason, record.master), ("body crc", "10.0.0.1:10912"))
        self.assertEqual((self.kept, mine.confirmed), ([mine], self.theirs.end))

    def test_never_reported_before(self) -> None:
        """While a write may wait for the record, it is not reported, however often it comes."""
        mine = self.empty(slave_timeout=5.0)
        began = self.clock.seconds()
        seen = 0
        while self.clock.seconds() - began < 9.5:
            if self.endpoint.waiting:
                connection = self.fed()
                seen += 1
                self.assert_before_it(mine)
                self.assertLessEqual(max(connection.reports()), RECORD)
            self.clock.advance(0.05)
        self.assertGreater(seen, 2)
        while self.follower.sync.state.value != "in-sync":
            self.fed(within=10)
        self.assertGreaterEqual(self.clock.seconds() - began, 10)

    def test_old_by_the_masters_word(self) -> None:
        """What the master told long before the slave came is old: the second try copies."""
        bounds = MasterBounds(0, self.theirs.end, 1)
        mine = self.empty(bounds=lambda: succeed(bounds))
        connection = self.accept()
        connection.feed(self.theirs, 0, RECORD)
        for _ in range(3):
            self.clock.advance(2)
            connection.heartbeat(RECORD)
        connection.feed(self.theirs, RECORD)
        self.assert_before_it(mine)
        self.fed(within=2)
        self.assertState("in-sync")
        self.assertEqual(content(mine), content(self.theirs))

    def test_damaged_on_the_way(self) -> None:
        """What comes otherwise the next time is not the master's log: only what stays is copied."""
        mine = self.empty()
        self.follower.sync.damage.on_end(self.theirs.end)
        self.clock.advance(6)
        for bit in (2, 4):
            self.fed(within=4)
            self.assert_before_it(mine)
            self.spoil(PLACE, bit)
        self.spoil(PLACE, 1 | 2 | 4)
        self.fed(within=10)
        self.assertState("in-sync")
        self.assertEqual(len(mine.copied), 0)

    def test_many(self) -> None:
        """Several damaged records are copied one after the other."""
        for place in (3500, 5000, 9000):
            self.spoil(place)
        mine = self.empty()
        self.follower.sync.damage.on_end(self.theirs.end)
        self.clock.advance(6)
        while self.follower.sync.state.value != "in-sync":
            self.fed(within=20)
        self.assertEqual(len(mine.copied), 4)
        self.assertEqual(content(mine), content(self.theirs))

    def test_too_many(self) -> None:
        """A master with ever more of them has a broken disk: the slave stops."""
        self.patch(master_damage, "MOST", 1)
        self.spoil(5000)
        self.empty()
        self.follower.sync.damage.on_end(self.theirs.end)
        self.clock.advance(6)
        for _ in range(4):
            self.fed(within=20)
        self.assertState("diverged")
        self.assertIn("1 damaged records of this master were copied, and no more", self.reason)

    def test_stop(self) -> None:
        """With C{haBadRecordPolicy=stop} the slave stops before it."""
        mine = self.empty(bad_record=BadRecordPolicy.STOP)
        self.follower.sync.damage.on_end(self.theirs.end)
        self.clock.advance(6)
        for _ in range(3):
            self.fed(within=20)
            self.assert_before_it(mine)
            self.assertIn("haBadRecordPolicy=stop", self.reason)
            self.clock.advance(1)

    def test_broken_structure(self) -> None:
        """Where the next record cannot be found from there, nothing is copied."""
        for place in (RECORD + 2, RECORD + 5, RECORD + 30, RECORD + 84):
            with self.subTest(place=place):
                self.setUp()
                self.spoil(place)
                mine = self.empty()
                self.follower.sync.damage.on_end(self.theirs.end)
                self.clock.advance(6)
                for _ in range(3):
                    self.fed(within=20)
                    self.clock.advance(1)
                self.assertEqual((mine.end, len(mine.copied)), (RECORD, 0))
                self.assertIn(self.follower.sync.state.value, ("diverged", "file-size"))
                if self.follower.sync.state.value == "diverged":
                    self.assertIn("the master's log has to be repaired", self.reason)
                self.stop()

    def test_another_master(self) -> None:
        """What one master has told says nothing of another."""
        mine = self.empty()
        damage = self.follower.sync.damage
        damage.on_end(self.theirs.end)
        self.follower.sync.moved_to(
            MasterClientPort(None, self.clock, "10.0.0.2:10912", self.endpoint)
        )
        self.assertIsNot(self.follower.sync.damage, damage)
        self.assertEqual((self.follower.sync.damage.port.peer, mine.end), ("10.0.0.2:10912", 0))

    def test_after_a_write(self) -> None:
        """A record behind the damaged one is reported only when it is checked itself."""
        mine = self.empty()
        self.follower.sync.damage.on_end(self.theirs.end)
        self.clock.advance(6)
        self.fed()
        connection = self.fed(within=2)
        self.assertState("in-sync")
        end = mine.end
        self.theirs.put([encoded(700)], [0], STORED)
        last = content(self.theirs, end)
        connection.frame(end, last[:300])
        self.assertEqual(max(connection.reports()), end)
        connection.frame(end + 300, last[300:])
        self.assertEqual(max(connection.reports()), self.theirs.end)
        self.assertEqual(mine.confirmed, self.theirs.end)

    def test_unverified(self) -> None:
        """Dispatch finds what became bad after it was checked, and the same rules hold."""
        self.patch(SlaveProtocol, "_verify", lambda connection: None)
        mine = self.empty()
        self.follower.sync.damage.on_end(self.theirs.end)
        self.clock.advance(6)
        for _ in range(2):
            self.fed(within=4)
            self.assertEqual(mine.end, self.theirs.end)
            error = self.failed_check(mine)
            self.follower.bad_record(error)
            self.assertEqual(mine.end, RECORD)
        self.assertEqual(len(mine.copied), 1)
        self.fed(within=4)
        mine.verify()
        self.assertEqual(content(mine), content(self.theirs))
        self.assertEqual(mine.confirmed, self.theirs.end)

    def failed_check(self, log: CommitLog) -> Any:
        try:
            log.verify()
        except Exception as error:
            return error
        raise AssertionError("it checks")


class KeptTests(DamageCase):
    def test_round_trip(self) -> None:
        """It is read as it was written; an empty one leaves no file."""
        mine = self.empty()
        self.follower.sync.damage.on_end(self.theirs.end)
        self.clock.advance(6)
        self.fed()
        self.fed(within=2)
        root = self.folder()
        copied_damage_file.save(root, mine.copied)
        again = read_copied_damage(root)
        self.assertEqual([*again], [*mine.copied])
        self.assertEqual(again.status()["count"], 1)
        self.assertEqual(again.status()["records"][0]["offset"], RECORD)
        self.assertTrue(again.forget([(RECORD, RECORD + 1)]))
        copied_damage_file.save(root, again)
        self.assertEqual([*root.rglob("copied*")], [])
        self.assertFalse(again.keep_within(0, 1))

    def test_unreadable(self) -> None:
        """One that cannot be read lets nothing pass."""
        root = self.folder()
        (root / "rmqha").mkdir()
        for text in ("", "{", '{"records":[{"offset":1}]}', '{"records":7}'):
            (root / "rmqha" / "copied-damage.json").write_text(text)
            self.assertEqual(len(read_copied_damage(root)), 0)
