"""Logs read from disk, in whatever state they are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import NotAStore
from rmqha.logfiles.listing import likely_size
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.quarantine_file import in_quarantine
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.reader import LogReader
from rmqha.store.derived.index_file import IndexShape
from rmqha.store.derived.rebuild import rebuild
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import FolderReader, recover
from rmqha.store.log.truncate import quarantine
from rmqha.store.offline.detect_sizes import index_shape, offline_settings, queue_file_size
from tests.support import damage
from tests.support.derived import settings

VERSION = golden.VERSIONS[0]


class Reading(SynchronousTestCase):
    def test_interface(self) -> None:
        """Both faces can be read like any log."""
        store = golden.store(VERSION, "ipv6")
        self.assertIsInstance(OfflineLog(store), LogReader)
        self.assertIsInstance(RawLog.open(store), LogReader)

    def test_let_go(self) -> None:
        """A log that nobody closed leaves no descriptor open: there are many."""
        store = golden.store(VERSION)
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            self.assertGreater(OfflineLog(store).end, 0)
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)

    def test_ends(self) -> None:
        """A log of which nobody tells who wrote it ends where a slave's recovery ends it."""
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name)
            folder = LogFolder.load(store / "commitlog", golden.LOG_FILE_SIZE)
            wanted = recover(folder, 0)
            log = OfflineLog(store)
            self.assertEqual((log.min_offset, log.end), (wanted.start, wanted.end))
            self.assertEqual((log.confirmed, log.findings, log.root), (log.end, [], store))
            self.assertEqual(log.file_size, golden.LOG_FILE_SIZE)
            folder.close()

    def test_bytes(self) -> None:
        """Its bytes are those of the files, cut at file ends and at the log's end."""
        store = golden.store(VERSION)
        log = OfflineLog(store)
        mapped = FolderReader(LogFolder.load(store / "commitlog", golden.LOG_FILE_SIZE))
        size = golden.LOG_FILE_SIZE
        for offset in (0, 1, size - 5, size, log.end - 3):
            wanted = bytes(mapped.read(offset, min(1000, log.end - offset)))
            self.assertEqual(bytes(log.read(offset, 1000)), wanted)
            self.assertEqual(log.file_end(offset), mapped.file_end(offset))
        self.assertEqual(bytes(log.read(log.end, 10)), b"")
        for outside in (-1, log.end + 1):
            self.assertRaises(ValueError, log.read, outside, 1)
        log.close()
        self.assertEqual(len(log.read(0, 10)), 10)

    def test_given_end(self) -> None:
        """A given end is believed, nothing is read to find another."""
        log = OfflineLog(golden.store(VERSION), end=532)
        self.assertEqual((log.end, len(log.read(500, 100))), (532, 32))

    def test_cut_while_read(self) -> None:
        """A file that is cut under a reader reads as zeros: no signal, no error."""
        store = golden.store(VERSION)
        log = OfflineLog(store)
        log.read(0, 100)
        os.truncate(damage.log_file(store, 0), 10)
        self.assertEqual(bytes(log.read(8, 4))[2:], b"\0\0")
        self.assertEqual(bytes(log.read(1000, 4)), bytes(4))

    def test_deleted_while_read(self) -> None:
        """A file that goes before it is opened is told, not raised."""
        store = golden.store(VERSION)
        log = OfflineLog(store, end=600_000)
        path = damage.log_file(store, 1)
        path.unlink()
        self.assertEqual(bytes(log.read(damage.SIZE, 4)), bytes(4))
        self.assertEqual([finding.path for finding in log.findings], [str(path)])

    def test_gap(self) -> None:
        """The log ends where a file is missing; what lies behind can still be read raw."""
        store = golden.store(VERSION)
        damage.log_file(store, 4).unlink()
        log = OfflineLog(store)
        self.assertEqual(log.end, 4 * damage.SIZE)
        raw = log.raw
        self.assertFalse(raw.has(4 * damage.SIZE))
        self.assertRaises(ValueError, raw.at, 4 * damage.SIZE)
        self.assertEqual(raw.next_start(4 * damage.SIZE), 5 * damage.SIZE)
        self.assertEqual(raw.run_end(0), 4 * damage.SIZE)
        assert raw.first_finding is not None
        self.assertIn("missing", raw.first_finding.reason)

    def test_places(self) -> None:
        """A root, its log's folder and a folder of another name are all taken."""
        store = golden.store(VERSION, "ipv6")
        ends = {OfflineLog(store).end, OfflineLog(store / "commitlog").end}
        self.assertEqual(OfflineLog(store / "commitlog").root, store)
        aside = store / "commitlog.aside"
        (store / "commitlog").rename(aside)
        log = OfflineLog(aside)
        self.assertEqual((log.root, ends), (None, {log.end}))

    def test_no_store(self) -> None:
        """What is no store is refused with the reason."""
        folder = Path(self.mktemp())
        self.assertIn("does not exist", str(self.assertRaises(NotAStore, OfflineLog, folder)))
        folder.mkdir()
        self.assertIn("neither", str(self.assertRaises(NotAStore, OfflineLog, folder)))
        (folder / "x").touch()
        self.assertIn("quarantine", str(self.assertRaises(NotAStore, OfflineLog, folder / "x")))


class Sizes(SynchronousTestCase):
    def test_likely_size(self) -> None:
        """Names and sizes vote; a cut or empty file is outvoted by the names."""
        self.assertEqual((likely_size({}), likely_size({0: 0})), (1 << 30, 1 << 30))
        self.assertEqual(likely_size({0: 4096}), 4096)
        self.assertEqual(likely_size({0: 100, 4096: 4096}), 4096)
        self.assertEqual(likely_size({0: 4096, 4096: 100}), 4096)
        self.assertEqual(likely_size({0: 4096, 4096: 0, 8192: 7}), 4096)
        self.assertEqual(likely_size({0: 4096, 12288: 4096}), 4096)

    def test_golden(self) -> None:
        """The sizes of a stock broker's derived files are found without its configuration."""
        for version, name in golden.ARCHIVES:
            store = golden.store(version, name)
            self.assertEqual(queue_file_size(store / "consumequeue"), golden.QUEUE_FILE_SIZE)
            shape = IndexShape(golden.INDEX_SLOTS, golden.INDEX_ENTRIES)
            self.assertEqual(index_shape(store / "index"), shape)

    def test_odd_shapes(self) -> None:
        """Any number of slots and entries is found by what the entries say."""
        log = OfflineLog(golden.store(VERSION))
        for slots, entries in ((7, 5000), (1000, 300), (333, 4), (1, 2000)):
            root = Path(self.mktemp())
            rebuild(log, root, settings(root, index_slots=slots, index_entries=entries))
            self.assertEqual(index_shape(root / "index"), IndexShape(slots, entries))

    def test_nothing_there(self) -> None:
        """Without files there is nothing to learn, and the usual sizes are taken."""
        root = Path(self.mktemp())
        root.mkdir()
        self.assertIsNone(index_shape(root / "index"))
        self.assertIsNone(queue_file_size(root / "consumequeue"))
        made = offline_settings(root, root / "commitlog", 1 << 30)
        self.assertEqual((made.queue_file_size, made.index_slots), (6_000_000, 5_000_000))

    def test_strange_index(self) -> None:
        """A file that makes no sense tells nothing."""
        root = Path(self.mktemp())
        (root / "index").mkdir(parents=True)
        (root / "index" / "20260101000000000").write_bytes(b"x" * 1000)
        self.assertIsNone(index_shape(root / "index"))


class Quarantined(SynchronousTestCase):
    def setUp(self) -> None:
        self.store = golden.store(VERSION)
        rows = golden.jsonl(VERSION, "expected.jsonl")
        self.rows = [row for row in rows if "blank" not in row]
        folder = LogFolder.load(self.store / "commitlog", damage.SIZE)
        self.start = self.rows[30]["physicalOffset"]
        self.end = self.rows[600]["physicalOffset"]
        self.path = quarantine(self.store, folder, self.start, self.end)
        self.wanted = b"".join(
            path.read_bytes() for path in sorted((self.store / "commitlog").iterdir())
        )[self.start : self.end]

    def held(self, log: OfflineLog) -> bytes:
        data = b""
        while log.min_offset + len(data) < log.end:
            data += log.read(log.min_offset + len(data), 1 << 20)
        return data

    def test_in_its_store(self) -> None:
        """The log beside it tells the size of the files it was cut from."""
        log = OfflineLog(self.path)
        self.assertEqual((log.min_offset, log.end), (self.start, self.end))
        self.assertEqual((self.held(log), log.file_size), (self.wanted, damage.SIZE))

    def test_alone(self) -> None:
        """Elsewhere its blanks tell where files ended."""
        alone = Path(self.mktemp())
        alone.mkdir()
        log = OfflineLog(Path(shutil.copy(self.path, alone)))
        self.assertEqual((log.min_offset, log.end), (self.start, self.end))
        self.assertEqual(self.held(log), self.wanted)

    def test_cut(self) -> None:
        """A quarantine file that is not as long as its name says is told."""
        os.truncate(self.path, 1000)
        found = in_quarantine(self.path, damage.SIZE).findings
        self.assertIn("1000 bytes, its name says", found[0].reason)
        self.assertRaises(ValueError, in_quarantine, self.store / "checkpoint")

    def test_second_of_a_name(self) -> None:
        """A file that was numbered, because its name was taken, is read too."""
        folder = LogFolder.load(self.store / "commitlog", damage.SIZE)
        second = quarantine(self.store, folder, self.start, self.end)
        self.assertNotEqual(second, self.path)
        self.assertEqual(self.held(OfflineLog(second)), self.wanted)
