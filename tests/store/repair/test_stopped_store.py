"""Repairing a stopped store from a replica's."""

from __future__ import annotations

import errno
import os
import random
import shutil
import stat
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from twisted.internet.defer import ensureDeferred
from twisted.logger import capturedLogs, formatEvent

from lab.harness import golden
from lab.harness.compare_stores import index_files, queue_files
from rmqha.errors import DiskFull, Refused
from rmqha.logfiles.json_table import read, replace
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import scan
from rmqha.store import lost_tail
from rmqha.store.files import mapped
from rmqha.store.log import range_repair
from rmqha.store.log.range_repair import Patch, RepairIntent, pending_repair
from rmqha.store.lost_tail import LostTail
from rmqha.store.offline.verify import LogCheck
from rmqha.store.repair.from_replica import StoreReplica
from tests.store.repair.case import END, SIZE, Dead, RepairCase
from tests.support import damage
from tests.support.effort import tries
from tests.support.logs import LogTestCase

#: What is no record, and not zeros, which some bodies are.
NOISE = random.Random(7).randbytes(4096)

#: Bytes of bodies in the last file, of records far enough apart: 362 bytes at 9856, and others.
BEFORE, HARMED, BEHIND = 9856 + 90, 20_078, 25_110 + 90

#: What cannot be had from a replica: no byte of the log is bad, or it has to be an operator's.
BY_HAND = (
    "grown",
    "a name of nothing",
    "an extra offset",
    "a folder in its place",
    "no log at all",
)

#: What only a user who is not root meets.
UNREADABLE = "unreadable"


class HarmTests(RepairCase):
    def test_every_harm(self) -> None:
        """Whatever is damaged or missing comes back, byte for byte, and the check finds nothing."""
        for harm in damage.HARMS:
            if harm.name in (*BY_HAND, UNREADABLE):
                continue
            with self.subTest(harm.name):
                self.setUp()
                harm.apply(self.store)
                self.assertEqual(self.repaired().not_had, ())
                left = {"4.bak": 1}.get(Path(harm.path).name, 0)
                if left:
                    (self.store / harm.path).unlink()
                self.assert_whole()
                self.assertEqual(list(LogCheck(RawLog.open(self.store)).findings()), [])

    def test_what_no_bytes_mend(self) -> None:
        """What is wrong with names and sizes besides is left, and told."""
        for harm in damage.HARMS:
            if harm.name in BY_HAND[:3]:
                self.setUp()
                harm.apply(self.store)
                self.assertEqual(self.repaired().ranges, ())
                (left,) = self.stopped().findings()
                self.assertIn(harm.reason.split(",")[0], left.reason)

    def test_no_log(self) -> None:
        """Where nothing is left there is nothing to compare with."""
        shutil.rmtree(self.store / "commitlog")
        with self.assertRaises(Refused) as caught:
            self.repaired()
        self.assertIn("an empty slave copies all of it", str(caught.exception))

    def test_several_ranges(self) -> None:
        """A hole in one file, a missing file, and one flipped bit, in one go."""
        damage.overwrite(self.store / damage.name(1), 1000, NOISE)
        (self.store / damage.name(4)).unlink()
        damage.flip(self.store / damage.name(7), 5000)
        self.assertEqual(len(self.repaired().ranges), 3)
        self.assert_whole()
        self.assertEqual(len(self.quarantined()), 2, "the missing file has nothing to keep")

    def test_begins_in_properties(self) -> None:
        """Damage from properties on, which no checksum covers: that record is had as well."""
        path = self.store / damage.name(3)
        base = int(path.name)
        log = OfflineLog(self.store)
        starts = [
            start - base
            for _, block in scan(log, base, base + SIZE)
            for start in block.start.tolist()
        ]
        start = starts[len(starts) // 2]
        log.close()
        damage.overwrite(path, start - 6, NOISE)
        self.assertEqual(self.repaired().not_had, ())
        self.assert_whole()

    def test_ranges_close_together(self) -> None:
        """Bad places in each other's neighbourhood: good records between are compared."""
        path = self.store / damage.name(10)
        for place in (2042, BEFORE, 15_074):
            damage.flip(path, place)
        report = self.repaired()
        self.assertEqual([stop - start for start, stop in report.ranges], [1147, 362, 1139])
        self.assert_whole()

    def test_over_several_files(self) -> None:
        """Damage from the middle of a file to that of a later one, files missing between."""
        damage.overwrite(self.store / damage.name(3), SIZE // 2, bytes(SIZE // 2))
        (self.store / damage.name(4)).unlink()
        (self.store / damage.name(5)).unlink()
        damage.overwrite(self.store / damage.name(6), 0, os.urandom(SIZE // 3))
        self.assertEqual(len(self.repaired().ranges), 1)
        self.assert_whole()

    def test_kept(self) -> None:
        """What stood there is in quarantine, and the file's time of writing is what it was."""
        path = self.store / damage.name(3)
        os.utime(path, ns=(10**18, 10**18))
        damage.overwrite(path, 0, b"x" * SIZE)
        os.utime(path, ns=(10**18, 10**18))
        report = self.repaired()
        name = f"{3 * SIZE:020d}-{4 * SIZE:020d}.log"
        self.assertEqual(report.kept, (f"rmqha/quarantine/{name}",))
        self.assertEqual(self.quarantined(), {name: b"x" * SIZE})
        self.assertEqual(path.stat().st_mtime_ns, 10**18)

    def test_nothing_to_do(self) -> None:
        """A sound store is left alone."""
        report = self.repaired()
        self.assertEqual((report.ranges, report.records, report.kept), ((), 0, ()))
        self.assert_whole()
        self.assertFalse((self.store / "rmqha").exists())


class RefusedTests(RepairCase):
    """What is not brought back, and why."""

    def not_had(self, **more: Any) -> str:
        """Why the only range was not had; nothing was written."""
        harmed = self.log_of(self.store)
        report = self.repaired(**more)
        self.assertEqual((report.ranges, report.kept), ((), ()))
        self.assertEqual(self.log_of(self.store), harmed)
        (missing,) = report.not_had
        return missing.reason

    def test_neighbours_differ(self) -> None:
        """A replica whose log is another one just before or behind the range is not believed."""
        damage.overwrite(self.store / damage.name(10), HARMED, bytes(100))
        harmed = (self.replica / damage.name(10)).read_bytes()
        for place, side in ((BEFORE, "before"), (BEHIND, "behind")):
            damage.flip(self.replica / damage.name(10), place)
            reason = self.not_had()
            self.assertIn(f"byte {10 * SIZE + place}, {side} the range, is another there", reason)
            self.assertIn("the replica's record is damaged, ours is not", reason)
            (self.replica / damage.name(10)).write_bytes(harmed)

    def test_properties_differ(self) -> None:
        """Of a record whose body is damaged that is had; properties stay ours, and are named."""
        damage.flip(self.store / damage.name(10), BEFORE)
        damage.flip(self.replica / damage.name(10), 9856 + 362 - 4)
        report = self.repaired()
        self.assert_whole()
        self.assertEqual(report.not_had, ())
        (other,) = report.differs
        self.assertEqual(other.start, 10 * SIZE + 9856 + 362 - 4)
        (kept,) = self.quarantined().values()
        self.assertLess(len(kept), 362, "the body alone was replaced")

    def test_named_by_a_person(self) -> None:
        """A range that somebody has named, having looked, is taken as the replica has it."""
        damage.flip(self.store / damage.name(10), 9856 + 362 - 4)
        wanted = self.stopped().range_of(10 * SIZE + 9856, 10 * SIZE + 9857)
        report = self.repaired(wanted)
        self.assert_whole()
        self.assertEqual((report.records, report.differs), (1, ()))

    def test_properties_of_our_neighbour_differ(self) -> None:
        """A record before the range whose properties differ is no part of the damage."""
        base = 10 * SIZE
        log = OfflineLog(self.store)
        starts = [start for _, each in scan(log, base, END) for start in each.start.tolist()]
        log.close()
        damaged = max(start for start in starts if start <= base + HARMED)
        damage.overwrite(self.store / damage.name(10), HARMED, bytes(100))
        damage.flip(self.replica / damage.name(10), damaged - base - 4)
        self.assertIn("the record checks on both sides", self.not_had())

    def test_our_neighbour_differs(self) -> None:
        """A named range whose neighbour is damaged here: the text says so."""
        damage.flip(self.store / damage.name(10), BEFORE)
        wanted = self.stopped().range_of(10 * SIZE + HARMED, 10 * SIZE + HARMED + 1)
        self.assertIn("our record is damaged, the replica's is not", self.not_had(ranges=wanted))

    def test_replica_begins_later(self) -> None:
        """A replica that has deleted what lies before the range cannot be compared with."""
        damage.overwrite(self.store / damage.name(3), 0, bytes(SIZE))
        for number in range(4):
            (self.replica / damage.name(number)).unlink()
        self.assertIn(f"it holds [{4 * SIZE}, {END})", self.not_had())

    def test_replica_lacks_the_file(self) -> None:
        """The same file is missing there."""
        (self.store / damage.name(3)).unlink()
        (self.replica / damage.name(3)).unlink()
        self.assertIn("the replica has no record behind byte", self.not_had())

    def test_replica_bad_too(self) -> None:
        """What is good there is taken, the rest is named."""
        damage.overwrite(self.store / damage.name(10), 0, bytes(SIZE // 12))
        damage.flip(self.replica / damage.name(10), BEFORE)
        report = self.repaired()
        (missing,) = report.not_had
        self.assertEqual("the replica's bytes are bad too: body crc", missing.reason)
        self.assertEqual((missing.start - 10 * SIZE, missing.stop - missing.start), (9856, 362))
        self.assertEqual(
            [*report.ranges], [(10 * SIZE, missing.start), (missing.stop, report.ranges[-1][1])]
        )
        whole = self.before[Path(damage.name(10)).name]
        ours = (self.store / damage.name(10)).read_bytes()
        self.assertEqual(ours[: missing.start - 10 * SIZE], whole[: missing.start - 10 * SIZE])
        self.assertEqual(ours[missing.stop - 10 * SIZE :], whole[missing.stop - 10 * SIZE :])

    def test_queue_offsets(self) -> None:
        """Records whose queue offsets do not go on are not written: no other check covers them."""
        damage.overwrite(self.store / damage.name(10), 0, bytes(SIZE // 12))
        path = self.replica / damage.name(10)
        at = path.read_bytes().index(b"GoldenBulk")
        start = path.read_bytes().rindex(b"\xda\xa3\x20\xa7", 0, at) - 4
        damage.overwrite(path, start + 20, (4711).to_bytes(8, "big"))
        self.assertIn("the one before it has 4711", self.not_had())

    def test_replica_ends_earlier(self) -> None:
        """Of a missing end as much is brought as the replica has."""
        (self.store / damage.name(10)).unlink()
        cut = 10 * SIZE + 12_345
        data = (self.replica / damage.name(10)).read_bytes()
        (self.replica / damage.name(10)).write_bytes(data[:12_345].ljust(SIZE, b"\0"))
        (missing,) = self.repaired().not_had
        self.assertEqual(missing.stop, END)
        self.assertLessEqual(missing.start, cut)
        self.assertIn("the replica's log ends at byte", missing.reason)
        check = LogCheck(RawLog.open(self.store))
        self.assertFalse([bad for bad in check.findings() if "checkpoint" not in bad.path])
        self.assertEqual(check.end, missing.start)

    def test_truncation_first(self) -> None:
        """A cut that is under way is not mixed with a repair."""
        replace_into = self.store / "rmqha"
        replace_into.mkdir()
        (replace_into / "truncate.json").write_text("{}")
        with self.assertRaises(Refused):
            self.repaired()

    def test_disk_full(self) -> None:
        """A disk without room changes nothing."""
        damage.overwrite(self.store / damage.name(3), 0, bytes(SIZE))
        harmed = self.log_of(self.store)

        def full(fd: int) -> None:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self.patch(os, "fsync", full)
        stopped = self.stopped()
        replica = StoreReplica(RawLog.open(self.replica))
        fetching = ensureDeferred(stopped.fetch(stopped.damaged_ranges(), replica))
        self.failureResultOf(fetching, DiskFull)
        stopped.forget()
        self.assertEqual(self.log_of(self.store), harmed)
        self.assertEqual([*(self.store / "rmqha").iterdir()], [])


class NamedTests(RepairCase):
    def test_widened(self) -> None:
        """From a record to a record; a bit no check covers is mended so."""
        path = self.store / damage.name(10)
        place = path.read_bytes().index(b"KEYS\x01")
        damage.flip(path, place + 5)
        self.assertEqual(self.stopped().damaged_ranges(), [], "properties have no checksum")
        at = 10 * SIZE + place
        (wanted,) = self.stopped().range_of(at, at + 1)
        self.assertLess(wanted.start, at)
        self.assertGreater(wanted.stop, at)
        self.assertEqual(self.repaired([wanted]).ranges, ((wanted.start, wanted.stop),))
        self.assert_whole()

    def test_end_and_beyond(self) -> None:
        """A range to the log's end, and one beyond it, bring what the replica has."""
        data = (self.store / damage.name(10)).read_bytes()
        (self.store / damage.name(10)).write_bytes(data[:12_345].ljust(SIZE, b"\0"))
        for stop in (END, END + SIZE):
            (wanted,) = self.stopped().range_of(10 * SIZE + 12_300, stop)
            self.assertTrue(wanted.at_end)
        self.assertEqual(self.repaired([wanted]).ranges[-1][1], END)
        self.assert_whole()

    def test_missing_beginning(self) -> None:
        """Files that retention, or a hand, has deleted at the log's start."""
        for number in range(2):
            (self.store / damage.name(number)).unlink()
        self.assertEqual(self.stopped().damaged_ranges(), [])
        report = self.repaired(self.stopped().range_of(0, 2 * SIZE))
        self.assertEqual(report.ranges, ((0, 2 * SIZE),))
        self.assert_whole()

    def test_a_shorter_replica_takes_nothing_away(self) -> None:
        """A replica that is behind must not cut our end."""
        data = (self.replica / damage.name(10)).read_bytes()
        (self.replica / damage.name(10)).write_bytes(data[:12_345].ljust(SIZE, b"\0"))
        report = self.repaired(self.stopped().range_of(10 * SIZE + 100, END))
        self.assertEqual(len(report.not_had), 1)
        self.assert_whole()

    def test_no_range(self) -> None:
        """What is none is refused."""
        with self.assertRaises(Refused):
            self.stopped().range_of(10, 10)


class DerivedTests(RepairCase):
    def setUp(self) -> None:
        super().setUp()
        self.queues, self.index = queue_files(self.store), index_files(self.store)

    def test_left_alone(self) -> None:
        """Where they have what the records call for, nothing is made anew."""
        damage.overwrite(self.store / damage.name(10), 0, bytes(SIZE // 12))
        self.assertFalse(self.repaired().rebuilt)
        self.assertEqual(queue_files(self.store), self.queues)

    def test_made_anew(self) -> None:
        """A unit, or an index entry, of the range that is missing: all are made anew."""
        for name in ("consumequeue/GoldenBulk", "index"):
            self.setUp()
            damage.overwrite(self.store / damage.name(10), 0, bytes(SIZE // 12))
            shutil.rmtree(self.store / name)
            (self.store / "index").mkdir(exist_ok=True)
            self.assertTrue(self.repaired().rebuilt, name)
            self.assertEqual(queue_files(self.store), self.queues)
            self.assertEqual(list(LogCheck(RawLog.open(self.store)).findings()), [])


class KilledTests(RepairCase):
    """The command dies at a step, and is run again; or a node is started first."""

    def setUp(self) -> None:
        super().setUp()
        damage.overwrite(self.store / damage.name(1), 1000, NOISE)
        (self.store / damage.name(4)).unlink()
        # What lies behind the log's end has to go too.
        shutil.copy(self.store / damage.name(2), self.store / damage.name(10))

    def steps(self) -> list[str]:
        """The steps of a run without a kill."""
        said: list[str] = []
        self.repaired(step=said.append)
        self.assert_whole()
        return said

    def die_at(self, number: int) -> None:
        left = number

        def step(name: str) -> None:
            nonlocal left
            if left == 0:
                raise Dead(name)
            left -= 1

        with self.assertRaises(Dead):
            self.repaired(step=step)

    def test_every_step(self) -> None:
        """The next run ends well, whatever was done before."""
        steps = self.steps()
        self.assertEqual(steps[:2], ["quarantined", "intended"])
        for number in range(len(steps)):
            with self.subTest(steps[number]):
                self.setUp()
                self.die_at(number)
                self.repaired()
                self.assert_whole()

    def test_twice(self) -> None:
        """The run that finishes dies too."""
        for first in (1, 2, 4):
            for second in range(4):
                self.setUp()
                self.die_at(first)
                self.die_at(second)
                self.repaired()
                self.assert_whole()

    def test_half_written(self) -> None:
        """A kill in the middle of a write leaves half of a range."""
        real = mapped.write_all

        def half(fd: int, piece: memoryview, offset: int) -> None:
            real(fd, piece[: len(piece) // 2], offset)
            raise Dead("half")

        self.patch(range_repair, "write_all", half)
        with self.assertRaises(Dead):
            self.repaired()
        self.patch(range_repair, "write_all", real)
        self.repaired()
        self.assert_whole()

    def test_dry_run_waits(self) -> None:
        """Looking only would throw away what the unfinished run has fetched."""
        self.die_at(1)
        with self.assertRaises(Refused):
            self.stopped().finish_begun(dry_run=True)


class BeliefTests(RepairCase):
    """An intent is obeyed only if it speaks of this log."""

    def setUp(self) -> None:
        super().setUp()
        damage.overwrite(self.store / damage.name(2), 1000, NOISE)
        self.commitlog = self.store / "commitlog"
        self.path = self.store / "rmqha" / "repair.json"

        def step(name: str) -> None:
            if name == "intended":
                raise Dead(name)

        with self.assertRaises(Dead):
            self.repaired(step=step)
        self.assertIsNotNone(self.pending())

    def pending(self) -> RepairIntent | None:
        return pending_repair(self.store, self.commitlog)

    def assert_ignored(self) -> None:
        """It is put aside, and a repair from the start does it all again."""
        harmed = self.log_of(self.store)
        self.assertIsNone(self.pending())
        self.assertEqual(self.log_of(self.store), harmed)
        aside = self.path.with_name("repair.json.ignored")
        self.assertTrue(aside.exists())
        aside.unlink()
        self.repaired()
        self.assert_whole()

    def test_changed(self) -> None:
        """One digit of it is another."""
        table = read(self.path)
        assert table is not None
        table["patches"][0]["ranges"][0][0] += 1
        replace(self.path, table)
        self.assert_ignored()

    def test_fetched_bytes_changed(self) -> None:
        """The replica's bytes are not what was looked at."""
        (fetched,) = (self.store / "rmqha" / "repair").iterdir()
        damage.flip(fetched, 2 * SIZE + 1000 - int(fetched.name.partition("-")[0]))
        self.assert_ignored()

    def test_fetched_bytes_gone(self) -> None:
        """Or they are gone."""
        shutil.rmtree(self.store / "rmqha" / "repair")
        self.assert_ignored()

    def test_another_log(self) -> None:
        """The log around the range is not the one that was compared."""
        damage.flip(self.store / damage.name(3), 100)
        self.assertIsNone(self.pending())

    def test_deleted(self) -> None:
        """The file went meanwhile, as an old one does: that is what is said."""
        for number in range(3):
            (self.store / damage.name(number)).unlink()
        with capturedLogs() as told:
            self.assertIsNone(self.pending())
        (said,) = (formatEvent(event) for event in told)
        gone = f"the log begins at byte {3 * SIZE} by now, behind what was compared"
        self.assertIn(gone, said)


class IntentCodecTests(LogTestCase):
    @given(
        ranges=st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, 1 << 60)), max_size=4),
        peer=st.text(max_size=20),
        crc=st.integers(0, (1 << 32) - 1),
    )
    @hypothesis_settings(max_examples=tries(50), deadline=None)
    def test_round_trip(self, ranges: list[tuple[int, int]], peer: str, crc: int) -> None:
        """An intent is read as it was written, and not if anything of it is another."""
        patch = Patch(fetched="rmqha/repair/x", crc=crc, ranges=ranges, equal=ranges, clear=ranges)
        intent = RepairIntent(peer=peer, file_size=4096, patches=(patch,), kept=("a", "b"))
        path = self.folder() / "repair.json"
        replace(path, intent.as_table())
        table = read(path)
        assert table is not None
        self.assertEqual(RepairIntent.of_table(table), intent)
        with self.assertRaises(ValueError):
            RepairIntent.of_table({**table, "file_size": 8192})


class WindowTests(RepairCase):
    def test_joined(self) -> None:
        """Ranges that touch are one: between them there is nothing to compare."""
        (self.store / damage.name(4)).unlink()
        damage.overwrite(self.store / damage.name(5), 0, bytes(100))
        (found,) = self.stopped().damaged_ranges()
        self.assertEqual(found.start, 4 * SIZE)
        self.assertGreater(found.stop, 5 * SIZE)
        self.assertEqual(found.reason, "files are missing, nothing written")

    def test_a_blank_at_the_end(self) -> None:
        """A slave's log that ends with a blank lacks nothing; one durable beyond that does."""
        (self.store / damage.name(10)).unlink()
        (self.store / "checkpoint").unlink()
        for to, missing in ((10 * SIZE, 0), (10 * SIZE + 1, 1)):
            lost = LostTail(0, to, "published.json")
            self.patch(lost_tail, "find", lambda root, end, lost=lost: lost)
            self.assertEqual(len(self.stopped().damaged_ranges()), missing)

    def test_a_sound_store(self) -> None:
        """No range, whichever broker wrote it."""
        for version, name in golden.ARCHIVES:
            self.store = golden.store(version, name)
            self.assertEqual(self.stopped().damaged_ranges(), [])
