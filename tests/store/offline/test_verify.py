"""Every harm is named with its path and its reason, and nothing else is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.logfiles import json_table
from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.listing import Finding
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.dispatch_mark import mark_path
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.log.truncate import quarantine
from rmqha.store.offline.detect_sizes import offline_settings
from rmqha.store.offline.verify import LogCheck, derived_findings, running_notes
from tests.support import damage
from tests.support.logs import LogTestCase, message

VERSION = golden.VERSIONS[0]
CLEAN = ("store", "ipv6")


def check(path: Path) -> tuple[LogCheck, list[Finding]]:
    """Check a log: what was seen, and what is wrong."""
    made = LogCheck(RawLog.open(path))
    return made, list(made.findings())


def deep(store: Path) -> list[Finding]:
    """Compare what is derived with the log."""
    made, found = check(store)
    settings = offline_settings(store, store / "commitlog", made.raw.file_size)
    return found + list(derived_findings(made.log(), settings))


def first_records(version: str, name: str) -> list[dict[str, int]]:
    """The whole records of a store, from its truth file."""
    rows = golden.jsonl(version, golden.truth(name, "expected.jsonl"))
    return [row for row in rows if "blank" not in row and "torn" not in row]


class GoldenStores(SynchronousTestCase):
    def test_clean(self) -> None:
        """A store that a stock broker closed has no fault, derived files included."""
        for version in golden.VERSIONS:
            for name in CLEAN:
                store = golden.store(version, name)
                made, found = check(store)
                self.assertEqual((found, made.notes), ([], []), (version, name))
                self.assertEqual(deep(store), [])
                self.assertEqual(made.records, len(first_records(version, name)))

    def test_no_damage_anywhere(self) -> None:
        """The log of a killed broker has no fault; a torn tail is a note with its reason."""
        torn = {
            "slave-killed": "torn tail",
            "slave-torn-lengths": "lengths do not add up, 97 bytes",
            "slave-torn-props": "end in NUL",
        }
        for version, name in golden.ARCHIVES:
            made, found = check(golden.store(version, name))
            self.assertEqual(found, [], (version, name))
            self.assertFalse(made.damaged)
            wanted = torn.get(name)
            self.assertEqual(len(made.notes), wanted is not None, (version, name))
            self.assertIn(wanted or "", "".join(made.notes))

    def test_progress(self) -> None:
        """It ends at all of the bytes."""
        told: list[tuple[int, int]] = []
        made = LogCheck(
            RawLog.open(golden.store(VERSION)), lambda done, total: told.append((done, total))
        )
        list(made.findings())
        self.assertEqual(told[-1], (11 * damage.SIZE, 11 * damage.SIZE))
        self.assertEqual(told, sorted(told))

    def test_running_notes(self) -> None:
        """A store that was not closed is said to be so."""
        self.assertEqual(list(running_notes(golden.store(VERSION))), [])
        notes = list(running_notes(golden.store(VERSION, "killed")))
        self.assertIn("not stopped cleanly", notes[0])
        self.assertEqual(list(running_notes(None)), [])


class TornTails(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store(VERSION, "ipv6")
        (self.store / "abort").touch()
        rows = first_records(VERSION, "ipv6")
        self.last = rows[-1]["physicalOffset"]
        self.size = rows[-1]["size"]
        self.count = len(rows)
        self.path = damage.log_file(self.store, 0)

    def test_every_cut(self) -> None:
        """A last record cut at any byte is a torn tail: named, no fault, dropped whole."""
        whole = self.path.read_bytes()
        for kept in range(self.size):
            torn = bytearray(whole)
            torn[self.last + kept : self.last + self.size] = bytes(self.size - kept)
            if torn == whole:
                continue  # it ends in zeros
            self.path.write_bytes(torn)
            made, found = check(self.store)
            self.assertEqual(found, [], kept)
            self.assertEqual((made.end, made.records), (self.last, self.count - 1), kept)
            behind = bytes(torn[self.last :]).rstrip(b"\0")
            self.assertEqual(
                [f", {len(behind)} bytes" in note for note in made.notes],
                [True] if behind else [],
                kept,
            )

    def test_begun_at_clean_stop(self) -> None:
        """A slave may be stopped in the middle of a record."""
        (self.store / "abort").unlink()
        (self.store / "checkpoint").unlink()
        Checkpoint().save(self.store / "checkpoint")
        damage.overwrite(self.path, self.last + 100, bytes(self.size - 100))
        made, found = check(self.store)
        self.assertEqual(found, [])
        self.assertIn("torn tail", made.notes[0])

    def test_garbage_after_clean_stop(self) -> None:
        """After a clean stop nothing but zeros may stand behind the log."""
        (self.store / "abort").unlink()
        damage.overwrite(self.path, self.last + self.size + 1, b"x" * 500)
        _, found = check(self.store)
        self.assertEqual(len(found), 1)
        self.assertEqual((found[0].path, found[0].offset), (str(self.path), self.last + self.size))
        self.assertIn("501 bytes behind the log's end", found[0].reason)

    def test_cut_at_a_record(self) -> None:
        """A last file that ends just behind a record was cut: there is always a blank."""
        os.truncate(self.path, self.last + self.size)
        _, found = check(self.store)
        self.assertIn("ends without a blank", found[0].reason)

    def test_crosses_the_end(self) -> None:
        """A record that does not fit its file is never a torn one."""
        os.truncate(self.path, self.last + self.size - 1)
        _, found = check(self.store)
        self.assertEqual(found[0].offset, self.last)
        self.assertIn("crosses the file's end", found[0].reason)


class BadHeaders(SynchronousTestCase):
    def test_reasons(self) -> None:
        """Each bad header at a log's end is named, and the end is the last whole record's."""
        rows = first_records(VERSION, "ipv6")
        last, size = rows[-1]["physicalOffset"], rows[-1]["size"]
        body = last + 88 + 24
        cases = [
            ("nothing written", 0, bytes(8)),
            ("bad magic", 4, bytes(4)),
            ("bad magic", 4, b"\x12\x34\x56\x78"),
            ("bad size", 0, (90).to_bytes(4, "big")),
            ("bad size", 0, b"\xff\xff\xff\xff"),
            ("bad size", 0, b"\x7f\xff\xff\xff"),
            ("body crc", body - last, b"\0"),
            ("body crc", 8, bytes(4)),
            ("stored offset is another", 28, (last + 1).to_bytes(8, "big")),
            ("lengths do not add up", 84 + 24, b"\0\0\xff\xff"),
            ("bad size", 0, (64).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"),
        ]
        for reason, place, data in cases:
            store = golden.store(VERSION, "ipv6")
            (store / "abort").touch()
            damage.overwrite(damage.log_file(store, 0), last + place, data)
            made, found = check(store)
            told = [*made.notes, *(finding.reason for finding in found)]
            self.assertEqual(made.end, last, reason)
            self.assertEqual(len(told), 1, (reason, told))
            self.assertIn(reason, told[0])
            # A whole record with another offset was never torn.
            self.assertEqual(len(found), reason.startswith("stored"), told)
        self.assertGreater(size, 0)


class Damage(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store(VERSION)
        self.rows = first_records(VERSION, "store")

    def test_bit_flips(self) -> None:
        """One flipped bit in a body is found, its record named, and the next one too."""
        rows = [row for row in self.rows if row["bodyLength"]]
        for number in range(0, len(rows) - 1, 97):
            row = rows[number]
            following = self.rows[self.rows.index(row) + 1]["physicalOffset"]
            file = row["physicalOffset"] // damage.SIZE
            path = damage.log_file(self.store, file)
            ip6 = 12 * bin(row["sysFlag"] >> 4 & 3).count("1")
            place = row["physicalOffset"] % damage.SIZE + 88 + ip6 + row["bodyLength"] // 2
            damage.flip(path, place, number % 8)
            _, found = check(self.store)
            reason = f"body crc; the next valid record is at byte {following}"
            self.assertEqual(found, [Finding(str(path), row["physicalOffset"], reason)])
            damage.flip(path, place, number % 8)

    def test_many_flips(self) -> None:
        """All bad records are found, each on its own, and the rest of the log is counted."""
        rows = [row for row in self.rows if row["bodyLength"]][3::50]
        for row in rows:
            ip6 = 12 * bin(row["sysFlag"] >> 4 & 3).count("1")
            file, place = divmod(row["physicalOffset"] + 88 + ip6, damage.SIZE)
            damage.flip(damage.log_file(self.store, file), place)
        made, found = check(self.store)
        self.assertEqual(
            [finding.offset for finding in found], [row["physicalOffset"] for row in rows]
        )
        self.assertEqual(made.records, len(self.rows) - len(rows))
        self.assertTrue(made.damaged)
        self.assertLess(made.log().end, made.end)

    def test_full_of_magics(self) -> None:
        """The next valid record is found in a file full of what looks like one."""
        path = damage.log_file(self.store, 3)
        row = next(row for row in self.rows if row["physicalOffset"] > 3 * damage.SIZE + 90_000)
        inside = row["physicalOffset"] - 3 * damage.SIZE
        for size in (4, 28, 100):
            fake = b"\xda\xa3\x20\xa7".ljust(size, b"\0")
            damage.overwrite(path, 0, (fake * (inside // size + 1))[:inside])
            _, found = check(self.store)
            self.assertEqual([finding.offset for finding in found], [3 * damage.SIZE])
            self.assertIn(f"next valid record is at byte {row['physicalOffset']}", str(found[0]))

    def test_copied_chunk(self) -> None:
        """A chunk of a file copied over another place is found by the stored offsets."""
        store = golden.store(VERSION, "killed")
        path = damage.log_file(store, 2)
        damage.copy_chunk(path, 16 << 10, 128 << 10)
        _, found = check(store)
        self.assertTrue(found)
        for finding in found:
            self.assertEqual(finding.path, str(path))
            inside = finding.offset % damage.SIZE
            self.assertTrue((112 << 10) < inside < (144 << 10), finding)
            self.assertIn("next valid record", finding.reason)

    def test_harms(self) -> None:
        """Each harm to a log's files is told with its exact path and reason."""
        for harm in damage.HARMS:
            for version in golden.VERSIONS:
                store = golden.store(version)
                harm.apply(store)
                if harm.name == "unreadable":
                    damage.deny(self, store / harm.path)  # root reads everything
                _, found = check(store)
                told = [str(finding) for finding in found]
                named = [
                    finding
                    for finding in found
                    if finding.path == str(store / harm.path) and harm.reason in finding.reason
                ]
                self.assertTrue(named, (harm.name, told))

    def test_unreadable(self) -> None:
        """A read that fails is a finding too, once for each file."""
        raw = RawLog.open(self.store)
        real = os.preadv

        def failing(fd: int, buffers: list[memoryview], place: int) -> int:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(f"{3 * damage.SIZE:020d}"):
                raise OSError(5, "bad disk")
            return real(fd, buffers, place)

        self.patch(os, "preadv", failing)
        found = [*LogCheck(raw).findings()]
        path = str(damage.log_file(self.store, 3))
        failed = [finding for finding in found if "Input/output error" in finding.reason]
        self.assertEqual([finding.path for finding in failed], [path])

    def test_written_meanwhile(self) -> None:
        """A place that a running node fills while it is looked at is no fault."""
        path = damage.log_file(self.store, 0)
        row = self.rows[5]
        whole = path.read_bytes()
        damage.overwrite(path, row["physicalOffset"], bytes(row["size"]))
        raw = RawLog.open(self.store)
        extents = raw.extents

        class Late(RawLog):
            def extents(self, offset: int) -> Iterator[tuple[int, int]]:
                path.write_bytes(whole)
                return extents(offset)

        late = Late(
            path=raw.path,
            root=raw.root,
            file_size=raw.file_size,
            pieces=raw.pieces,
            findings=raw.findings,
            writer=raw.writer,
        )
        events = list(follow(late, 0))
        self.assertEqual(
            [event.next_valid for event in events if isinstance(event, Corruption)], [None]
        )

    def test_quarantine(self) -> None:
        """A quarantine file is a log as well, whatever it begins with."""
        folder = LogFolder.load(self.store / "commitlog", damage.SIZE)
        row = self.rows[40]
        end = self.rows[400]["physicalOffset"]
        path = quarantine(self.store, folder, row["physicalOffset"], end)
        made, found = check(path)
        self.assertEqual((found, made.records), ([], 360))
        damage.flip(path, 8)
        made, found = check(path)
        self.assertEqual([finding.offset for finding in found], [row["physicalOffset"]])


class DerivedFiles(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store(VERSION)
        self.queue = self.store / "consumequeue" / "GoldenBulk" / "0"

    def only(self, path: Path, reason: str) -> Finding:
        found = deep(self.store)
        self.assertEqual(len(found), 1, [str(finding) for finding in found])
        self.assertEqual(found[0].path, str(path))
        self.assertIn(reason, found[0].reason)
        return found[0]

    def test_unit(self) -> None:
        """One wrong unit is named by its queue offset."""
        damage.flip(sorted(self.queue.iterdir())[0], 20 * 7 + 19)
        self.assertEqual(self.only(self.queue, "the log says").offset, 7)

    def test_missing_queue(self) -> None:
        """A queue that is not there lacks all of its units."""
        shutil.rmtree(self.queue)
        found = deep(self.store)
        self.assertEqual({finding.path for finding in found}, {str(self.queue)})
        self.assertTrue(all("missing" in finding.reason for finding in found))

    def test_cut_queue_file(self) -> None:
        """A queue file of another size is named itself."""
        path = sorted(self.queue.iterdir())[0]
        os.truncate(path, 400)
        found = deep(self.store)
        self.assertIn(Finding(str(path), 0, "400 bytes, expected 6000"), found)

    def test_extra_files(self) -> None:
        """What does not belong there is named."""
        extra = self.queue / "x"
        extra.touch()
        self.only(extra, "not a consume queue file")

    def test_index_entry(self) -> None:
        """One wrong entry of the index is found."""
        path = sorted((self.store / "index").iterdir())[0]
        damage.flip(path, 40 + 800 + 20 * 5)
        found = deep(self.store)
        self.assertIn("not indexed", str(found))
        self.assertTrue(all(str(self.store / "index") in finding.path for finding in found))

    def test_no_index(self) -> None:
        """An index that is gone is one finding, not one for each record."""
        shutil.rmtree(self.store / "index")
        self.only(self.store / "index", "no index file, but the record at byte 0 has keys")

    def test_unreadable(self) -> None:
        """A derived file nobody can open is named."""
        path = sorted(self.queue.iterdir())[0]
        path.chmod(0)
        damage.deny(self, path)  # root reads everything
        self.only(path, "unreadable")


class NoStore(SynchronousTestCase):
    def test_empty_log(self) -> None:
        """A store whose log was never begun is in order."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "lock").touch()
        made, found = check(folder)
        self.assertEqual((made.end, found), (0, []))


class SnapshotTests(LogTestCase):
    """A copy of the store of a node that runs: its log is ahead of its queues."""

    def setUp(self) -> None:
        """Five messages that were dispatched and marked, three that were not."""
        clock = Clock()
        store = self.opened(self.folder() / "store", settings={"file_size": 1 << 16}, clock=clock)
        for _ in range(5):
            store.put(message(300))
        clock.advance(0.01)
        mark = store.dispatcher.mark()
        dispatch_mark.save(mark_path(store.settings.root), store.log, mark, store.log.flushed)
        self.root = self.crash(store)
        for _ in range(3):
            store.put(message(300))
        store.put(message(300, topic="TopicB"))
        shutil.copytree(store.settings.commitlog, self.root / "commitlog", dirs_exist_ok=True)
        self.notes: list[str] = []

    def deep(self) -> list[Finding]:
        """Compare what is derived with the log."""
        made, found = check(self.root)
        settings = offline_settings(self.root, self.root / "commitlog", made.raw.file_size)
        return found + list(derived_findings(made.log(), settings, note=self.notes.append))

    def test_behind(self) -> None:
        """O7: what is behind the point up to which the node had dispatched is a note."""
        self.assertEqual([], self.deep())
        (text,) = self.notes
        self.assertIn("behind byte 1500, up to which the node had dispatched", text)

    def test_before(self) -> None:
        """What is before it is a fault, and so is what cannot be read behind that."""
        damage.flip(self.root / "consumequeue" / "TopicA" / "0" / ("0" * 20), 20 * 3 + 7)
        self.assertEqual([3, 4], [finding.offset for finding in self.deep()])

    def test_lost_units(self) -> None:
        """Units that were there when the mark was taken are missed, whole queues as well."""
        queue = self.root / "consumequeue" / "TopicA" / "0"
        with open(queue / ("0" * 20), "r+b") as file:
            file.seek(20 * 3)
            file.write(bytes(20 * 2))
        self.assertIn(3, [finding.offset for finding in self.deep()])
        shutil.rmtree(queue.parent)
        self.assertEqual([str(queue)], [finding.path for finding in self.deep()])

    def test_mark_of_a_pass(self) -> None:
        """A mark that names no queue, as a pass over the whole log leaves it, excuses none."""
        path = mark_path(self.root)
        table = json_table.read(path) or {}
        json_table.replace(path, {**table, "queues": []})
        shutil.rmtree(self.root / "consumequeue" / "TopicA")
        self.assertNotEqual([], self.deep())

    def test_stopped(self) -> None:
        """A store that was stopped has nothing left to dispatch."""
        (self.root / "abort").unlink()
        self.assertNotEqual([], self.deep())
        self.assertEqual([], self.notes)

    def test_another_log(self) -> None:
        """A mark of another log excuses nothing."""
        path = mark_path(self.root)
        path.write_text(path.read_text().replace('"crc": ', '"crc": 1'), encoding="ascii")
        path.with_name(path.name + ".bak").unlink(missing_ok=True)
        self.assertNotEqual([], self.deep())
