"""Tests for L{rmqha.store.derived.index} and L{rmqha.store.derived.index_file}."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st

from lab.harness.compare_stores import index_files
from rmqha.errors import DiskFull
from rmqha.store.derived import index as index_module
from rmqha.store.derived import index_file
from rmqha.store.derived.index import Index, file_name
from rmqha.store.derived.index_file import ENTRY, ENTRY_SIZE, HEADER, IndexFile, IndexShape
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.files.descriptors import Descriptors
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import key_hash
from tests.support.derived import DerivedTestCase
from tests.support.logs import Disk
from tests.support.memorylog import MemoryLog

SHAPE = IndexShape(10, 20)
TIME = 1_700_000_000_000
FOREVER = (1 << 63) - 1

# docs/protocol/store.rst, Index files: what RocketMQ's own classes wrote.
UPSTREAM_TIME = 0x1A1F880ECD2
UPSTREAM_KEYS = ("0A010203000118B4AAC27F8A4B2C0000", "k1", "k2")
UPSTREAM = (
    bytes.fromhex(
        "000001a1f880ecd2000001a1f880ecd2000000000000000000000000000000000000000200000004"
    )
    + struct.pack(">10i", 0, 0, 0, 0, 0, 0, 0, 0, 3, 2)
    + bytes(20)
    + bytes.fromhex(
        "581d10c8000000000000000000000000" + "00000000"
        "717125c9000000000000000000000000" + "00000000"
        "717125c8000000000000000000000000" + "00000001"
    )
    + bytes(320)
)

Row = tuple[int, int, int]

ROWS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 2), st.integers(-1500, 5000)), max_size=80
)


def rows_of(draws: list[tuple[int, int, int]]) -> list[Row]:
    """Key hash, offset and time of each entry: offsets rise, times mostly."""
    rows, offset, time = [], 100, TIME
    for value, step, later in draws:
        offset, time = offset + 50 * step, time + later * (step > 0)
        rows.append((value, offset, time))
    return rows


def put(index: Index, hashes: list[int], offset: int, time: int) -> int:
    """Add the keys of one message."""
    return index.put(hashes, [offset] * len(hashes), [time] * len(hashes))


class IndexTestCase(DerivedTestCase):
    def setUp(self) -> None:
        self.root = self.folder()

    def index(self, root: Path | None = None, shape: IndexShape = SHAPE) -> Index:
        made = Index(root or self.root, shape)
        self.addCleanup(made.close)
        return made

    def put_all(self, index: Index, rows: list[Row]) -> None:
        for value, offset, time in rows:
            known = index._tail if offset == index.end_offset else 0
            put(index, [-1] * known + [value], offset, time)

    def put_blocks(self, index: Index, rows: list[Row], cuts: list[int]) -> None:
        edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
        start = 0
        for stop in edges:
            # a block holds whole messages, as dispatch gives them
            while 0 < stop < len(rows) and rows[stop][1] == rows[stop - 1][1]:
                stop += 1
            if stop > start:
                part = np.array(rows[start:stop], np.int64)
                index.put(part[:, 0], part[:, 1], part[:, 2])
                start = stop


class PutTests(IndexTestCase):
    def test_upstream_bytes(self) -> None:
        """The file is RocketMQ's, byte for byte."""
        put(self.index(), [key_hash("TopicA", key) for key in UPSTREAM_KEYS], 0, UPSTREAM_TIME)
        self.assertEqual(index_files(self.root), [UPSTREAM])

    def test_upstream_bytes_in_a_block(self) -> None:
        """A block writes the same file."""
        index = self.index()
        hashes = np.array([key_hash("TopicA", key) for key in UPSTREAM_KEYS])
        self.patch(index_module, "COMPILED", False)
        index.put(hashes, np.zeros(3, np.int64), np.full(3, UPSTREAM_TIME))
        self.assertEqual(index_files(self.root), [UPSTREAM])

    @given(ROWS, st.lists(st.integers(0, 80), max_size=5))
    @run_settings(deadline=None)
    def test_blocks_equal_single_puts(
        self, draws: list[tuple[int, int, int]], cuts: list[int]
    ) -> None:
        """However entries are cut into blocks, the files and their names are the same."""
        rows = rows_of(draws)
        roots = one, few, many = self.folder(), self.folder(), self.folder()
        self.put_all(self.index(one), rows)
        self.put_blocks(self.index(few), rows, cuts)
        with patch.object(index_module, "COMPILED", False):
            self.put_blocks(self.index(many), rows, cuts)
        for root in roots:
            self.assert_same_files(one, root)
        names = [sorted(path.name for path in (root / "index").glob("*")) for root in roots]
        self.assertEqual(names, names[:1] * len(roots))

    def test_messages_offered_again(self) -> None:
        """A message that is indexed already, wholly or in part, gets no entry twice."""
        index = self.index()
        put(index, [1, 2], 100, TIME)
        put(index, [3, 4], 200, TIME)
        before = index_files(self.root)
        self.assertEqual((put(index, [1, 2], 100, TIME), put(index, [3, 4], 200, TIME)), (0, 0))
        self.assertEqual(
            index.put(np.array([1, 2, 3, 4]), np.array([100, 100, 200, 200]), np.full(4, TIME)), 0
        )
        self.assertEqual(index_files(self.root), before)
        self.assertEqual(put(index, [3, 4, 5], 200, TIME), 1)

    def test_full_disk_in_a_block(self) -> None:
        """When the next file has no room, offering the block again goes on in it."""
        rows = [(value, 100 * (value // 3), TIME + value) for value in range(30)]
        whole = self.folder()
        self.put_all(self.index(whole), rows)
        index = self.index()
        columns = np.array(rows, np.int64).T
        made = IndexFile.create.__func__
        calls = []

        def full(cls: type, path: str, *args: object) -> IndexFile:
            calls.append(path)
            if len(calls) == 2:
                raise DiskFull(path, 1)
            return made(cls, path, *args)

        with patch.object(IndexFile, "create", classmethod(full)):
            self.assertRaises(DiskFull, index.put, *columns)
            self.assertEqual(index.total, 19)
            self.assertEqual(index.put(*columns), 11)
        self.assert_same_files(self.root, whole)

    def test_blocks_before_entries(self) -> None:
        """An entry is only stored where the disk gave blocks; put again, it goes on."""
        disk = Disk().install(self)
        self.patch(index_file, "ROOM", 0)
        shape = IndexShape(slots=2000, entries=2000)
        for values in ([7], list(range(1, 100))):
            index, whole = self.index(self.folder(), shape), self.index(self.folder(), shape)
            for made in (index, whole):
                put(made, list(range(1, 7)), 100, TIME)  # up to the end of a page
            (file,) = index.files
            put(whole, values, 200, TIME)
            before = file.count, Path(file.path).read_bytes()
            disk.full = True
            self.assertRaises(DiskFull, put, index, values, 200, TIME)
            self.assertEqual((file.count, Path(file.path).read_bytes()), before)
            disk.full = False
            put(index, values, 200, TIME)
            self.assert_same_files(index.root, whole.root)

    def test_whole_pages(self) -> None:
        """Slots and entries get blocks for whole pages, as what is stored through the map needs."""
        asked: list[int] = []
        real = os.posix_fallocate

        def allocate(fd: int, start: int, size: int) -> None:
            asked.append(start + size)
            real(fd, start, size)

        self.patch(os, "posix_fallocate", allocate)
        self.patch(index_file, "ROOM", 0)
        put(self.index(self.folder(), IndexShape(slots=2000, entries=2000)), [7] * 7, 100, TIME)
        self.assertEqual(asked, [8192, 12288])

    def test_less_room(self) -> None:
        """Where there is no room for many entries there may be for the next one."""
        real = os.posix_fallocate
        asked: list[int] = []

        def little(fd: int, start: int, size: int) -> None:
            asked.append(size)
            if size > 20_000:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(fd, start, size)

        index = self.index(self.folder(), IndexShape(slots=1000, entries=1 << 17))
        self.patch(os, "posix_fallocate", little)
        put(index, [1], 100, TIME)
        self.assertEqual((index.total, len(asked)), (1, 3))

    def test_names(self) -> None:
        """A file is named after its first message's store time in UTC, later than the last."""
        index = self.index()
        for number in range(41):
            put(index, [1], number, TIME)
        names = [Path(file.path).name for file in index.files]
        self.assertEqual(names, ["20231114221320000", "20231114221320001", "20231114221320002"])
        self.assertEqual(file_name(1 << 62), "99991231235959999")
        self.assertEqual(file_name(-5), "19700101000000000")

    def test_names_never_sort_before_the_last(self) -> None:
        """After a step back of the clock, or a broker in another time zone, order is kept."""
        (self.root / "index").mkdir()
        for last in ("20991231235959999", "99991231235959999", "20239999999999999"):
            index = self.index()
            index._files.append(IndexFile(path=f"x/{last}", shape=SHAPE, descriptors=Descriptors()))
            self.assertGreater(int(index._new_name(TIME)), int(last))


class QueryTests(IndexTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.live = self.index()
        self.value = key_hash("T", "k")
        for number in range(50):
            keys = [self.value] if number % 2 else [self.value + 10, 7]
            put(self.live, keys, 100 * number, TIME + 1000 * number)

    def test_newest_first(self) -> None:
        """Offsets come newest first, over all files, up to the limit."""
        self.assertEqual(self.live.query("T", "k", 64, 0, FOREVER), list(range(4900, 0, -200)))
        self.assertEqual(self.live.query("T", "k", 3, 0, FOREVER), [4900, 4700, 4500])
        self.live.max_num = 2
        self.assertEqual(self.live.query("T", "k", 64, 0, FOREVER), [4900, 4700])
        self.assertEqual(self.live.query("T", "other", 64, 0, FOREVER), [])

    def test_time_range(self) -> None:
        """Only messages stored in the range are found, to the second."""
        found = self.live.query("T", "k", 64, TIME + 5000, TIME + 11500)
        self.assertEqual(found, [1100, 900, 700, 500])

    def test_chain_that_runs_in_a_circle(self) -> None:
        """A damaged chain ends the search; it never goes on for ever."""
        file = self.live.files[-1]
        last = file.count - 1
        raw = ENTRY.pack(self.value, 1, 0, last)
        file.descriptors.write(file.path, raw, SHAPE.entries_at + ENTRY_SIZE * (last - 1))
        self.assertLess(len(self.live.query("T", "k", 64, 0, FOREVER)), 30)


class StoreTestCase(IndexTestCase):
    """An index over a log, with three files and one that is not full."""

    shape = SHAPE

    def setUp(self) -> None:
        super().setUp()
        self.log = MemoryLog()
        self.rows: list[Row] = []
        for number in range(30):
            time = TIME + 700 * number
            count = number % 4
            start = self.log.put("T", queue_offset=number, store_timestamp=time)
            self.rows += [(key_hash("T", f"{number}-{i}"), start, time) for i in range(count)]
        self.peek = RecordReader(self.log, DelayLevels.parse("1s"))

    def filled(self, root: Path, rows: list[Row]) -> Index:
        index = self.index(root, self.shape)
        self.put_all(index, rows)
        return index

    def again(self, root: Path, *, clean: bool, trusted: int = 0) -> Index:
        index = self.index(root, self.shape)
        index.load()
        index.recover(self.peek, clean=clean, trusted=trusted)
        return index

    def finish(self, index: Index) -> None:
        """Offer every message from the recovered position on."""
        for start in self.log.starts:
            mine = [row for row in self.rows if row[1] == start]
            if start >= index.position and mine:
                put(index, [row[0] for row in mine], start, mine[0][2])

    def assert_rebuilt(self, root: Path) -> None:
        fresh = self.folder()
        self.filled(fresh, self.rows)
        self.assert_same_files(root, fresh)


class CutTests(StoreTestCase):
    def test_truncate_to_every_record(self) -> None:
        """An index cut at any record has the bytes of one that never had more."""
        for start in [*self.log.starts, self.log.end]:
            root, fresh = self.folder(), self.folder()
            index = self.filled(root, self.rows)
            index.truncate_to(start, self.peek)
            rows = [row for row in self.rows if row[1] < start]
            self.filled(fresh, rows)
            self.assert_same_files(root, fresh)
            self.assertEqual(index.end_offset, rows[-1][1] if rows else -1)
            self.put_all(index, self.rows[len(rows) :])
            self.assert_rebuilt(root)

    def test_delete_before(self) -> None:
        """Files of deleted messages go, the newest stays."""
        index = self.filled(self.root, self.rows)
        self.assertEqual(len(index.files), 3)
        self.assertEqual(index.delete_before(index.files[0].end_offset), 0)
        self.assertEqual(index.delete_before(index.files[0].end_offset + 1), 1)
        self.assertEqual((index.delete_before(1 << 40), len(index_files(self.root))), (1, 3))
        index.descriptors.remove_doomed()
        self.assertEqual(len(index_files(self.root)), 1)


class RecoverTests(StoreTestCase):
    def test_clean(self) -> None:
        """After a clean stop nothing is changed, and only the last message is offered again."""
        self.filled(self.root, self.rows)
        before = index_files(self.root)
        index = self.again(self.root, clean=True)
        self.assertEqual((index.position, index.faults), (self.rows[-1][1], []))
        self.finish(index)
        self.assertEqual(index_files(self.root), before)

    def test_after_a_crash(self) -> None:
        """After a crash the last message is taken out and indexed again, no key is lost."""
        self.filled(self.root, self.rows)
        index = self.again(self.root, clean=False)
        before = [offset for _, offset, _ in self.rows if offset < self.rows[-1][1]]
        self.assertEqual(index.end_offset, before[-1])
        self.finish(index)
        self.assert_rebuilt(self.root)

    def test_any_damage_to_the_tail(self) -> None:
        """Slots of an older time, torn entries and a header behind: the result is a rebuild's."""
        random = Random(self.id())
        for _ in range(60):
            root, older = self.folder(), self.folder()
            index = self.filled(root, self.rows)
            count = random.randrange(1, len(self.rows))
            self.filled(older, self.rows[:count])
            old_paths = sorted((older / "index").iterdir())
            last = len(old_paths) - 1
            path = Path(index.files[last].path)
            for later in index.files[last + 1 :]:
                Path(later.path).unlink()
            now, then = bytearray(path.read_bytes()), old_paths[-1].read_bytes()
            if random.random() < 0.5:  # the header is behind
                now[:40] = then[:40]
            for slot in range(40, self.shape.entries_at, 4):  # slots are behind
                if random.random() < 0.5:
                    now[slot : slot + 4] = then[slot : slot + 4]
            torn = random.randrange(self.shape.entries_at + 20, len(now))
            now[torn:] = bytes(len(now) - torn)
            path.write_bytes(now)
            self.finish(self.again(root, clean=False))
            self.assert_rebuilt(root)

    def test_header_says_more_than_there_is(self) -> None:
        """Entries count, not the header's word for them."""
        path = Path(self.filled(self.root, self.rows).files[-1].path)
        raw = bytearray(path.read_bytes())
        first = self.shape.entries_at + 2 * ENTRY_SIZE
        raw[first:] = bytes(len(raw) - first)
        path.write_bytes(raw)
        again = self.again(self.root, clean=False)
        self.assertIn("header says", str(again.faults[0]))
        self.finish(again)
        self.assert_rebuilt(self.root)

    def test_a_file_in_the_middle_is_torn(self) -> None:
        """What follows a cut file is dropped and indexed again."""
        path = Path(self.filled(self.root, self.rows).files[1].path)
        raw = bytearray(path.read_bytes())
        raw[self.shape.entries_at + 100 : self.shape.entries_at + 120] = bytes(20)
        path.write_bytes(raw)
        again = self.again(self.root, clean=False)
        self.assertEqual(len(again.files), 2)
        self.finish(again)
        self.assert_rebuilt(self.root)

    def test_trusted_files_are_not_read(self) -> None:
        """Files below the trusted offset are taken as they are, whatever is in them."""
        index = self.filled(self.root, self.rows)
        path = Path(index.files[0].path)
        raw = bytearray(path.read_bytes())
        raw[self.shape.entries_at + 100 : self.shape.entries_at + 120] = bytes(20)
        path.write_bytes(raw)
        trusted = index.files[0].end_offset + 1
        self.assertEqual(len(self.again(self.root, clean=False, trusted=trusted).files), 3)

    def test_entries_above_the_log(self) -> None:
        """Entries of records the log has lost go."""
        for clean in (True, False):
            root = self.folder()
            self.filled(root, self.rows)
            log, self.log = self.log, MemoryLog(data=bytearray(self.log.data))
            self.log.starts = list(log.starts)
            self.log.cut(log.starts[20])
            self.peek = RecordReader(self.log, DelayLevels.parse("1s"))
            rows, self.rows = self.rows, [r for r in self.rows if r[1] < self.log.end]
            self.finish(self.again(root, clean=clean))
            self.assert_rebuilt(root)
            self.log, self.rows = log, rows

    def test_of_another_log(self) -> None:
        """An index that points nowhere in this log is dropped."""
        self.filled(self.root, [(value, offset + 7, time) for value, offset, time in self.rows])
        self.finish(self.again(self.root, clean=False))
        self.assert_rebuilt(self.root)

    def test_files_nobody_can_read(self) -> None:
        """A file of a wrong size is set aside with all later ones; other names are left alone."""
        Path(self.filled(self.root, self.rows).files[1].path).write_bytes(b"short")
        (self.root / "index" / "notes").write_text("x")
        again = self.again(self.root, clean=True)
        self.assertEqual(len(again.files), 1)
        self.assertEqual(len(list((self.root / "rmqha" / "aside").iterdir())), 2)
        self.assertIn("5 bytes, expected", str(again.faults[-1]))
        (self.root / "index" / "notes").unlink()
        self.finish(again)
        self.assert_rebuilt(self.root)

    def test_crash_before_the_first_entry(self) -> None:
        """A file without entries is deleted."""
        index = self.filled(self.root, self.rows)
        IndexFile.create(
            str(self.root / "index" / "29991231000000000"),
            self.shape,
            index.descriptors,
            index.files[-1],
        )
        for clean in (True, False):
            self.finish(self.again(self.root, clean=clean))
            self.assert_rebuilt(self.root)

    def test_header_of_nonsense(self) -> None:
        """A header with impossible numbers is put right from the entries."""
        index = self.filled(self.root, self.rows)
        index.files[-1].descriptors.write(
            index.files[-1].path, HEADER.pack(-1, -1, -1, -1, -1, 0x7FFFFFFF), 0
        )
        self.finish(self.again(self.root, clean=False))
        self.assert_rebuilt(self.root)

    def test_more_slots_than_there_are(self) -> None:
        """After a clean stop a header is believed, unless impossible: entries are added."""
        half = len(self.rows) // 2
        file = self.filled(self.root, self.rows[:half]).files[-1]
        fields = HEADER.unpack(file.descriptors.read(file.path, HEADER.size, 0))
        file.descriptors.write(file.path, HEADER.pack(*fields[:4], 0x7FFFFFFF, fields[5]), 0)
        index = self.again(self.root, clean=True)
        self.put_all(index, self.rows[half:])
        self.assertLessEqual(index.files[-1].used_slots, self.shape.slots + half)


class FewSlotsTests(RecoverTests):
    """The same where every key shares its slot with others."""

    shape = IndexShape(2, 17)
