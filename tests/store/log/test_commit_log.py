"""Tests for L{rmqha.store.log.commit_log}: both doors, the ends of files, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from unittest import skipUnless
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.errors import DiskFull, FlushFailed, FrameOffsetMismatch, MessageIllegal, RecordCorrupt
from rmqha.logfiles.reader import LogReader
from rmqha.store.files import mapped
from rmqha.store.log import commit_log
from rmqha.store.log.commit_log import CommitLog, RecordCrossesFile, StartNotAligned
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.encode import blank
from rmqha.wire.log.record import Fault, decode
from tests.support.effort import tries
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, STORED, Disk, LogTestCase, content, encoded, files_of
from tests.support.open_files import open_files


class ReadTests(LogTestCase):
    def test_interface(self) -> None:
        """It is what readers of logs expect."""
        self.assertIsInstance(self.log(), LogReader)

    def test_bounds(self) -> None:
        """Reads are cut at the file's end and the log's, and refused outside."""
        log = self.filled(1500, 1500, 1500)
        self.assertEqual((log.min_offset, log.end), (0, FILE_SIZE + 1500))
        self.assertEqual(len(log.read(FILE_SIZE - 10, 100)), 10)
        self.assertEqual(len(log.read(log.end - 10, 100)), 10)
        self.assertEqual(bytes(log.read(log.end, 100)), b"")
        self.assertTrue(log.read(0, 1).readonly)
        for outside in (-1, log.end + 1):
            with self.assertRaises(ValueError):
                log.read(outside, 1)

    def test_empty(self) -> None:
        """An empty log has nothing to read and begins where it ends."""
        log = self.log()
        self.assertEqual((log.min_offset, bytes(log.read(0, 10))), (0, b""))


class PutTests(LogTestCase):
    def test_places(self) -> None:
        """Offsets, queue offset and time are filled in, and listeners told once a put."""
        log, told = self.log(), []
        log.appended.append(lambda: told.append(log.end))
        self.assertEqual(log.put([encoded(300)], [7], STORED), 0)
        self.assertEqual(log.put([encoded(200), encoded(250)], [8, 9], STORED + 1), 300)
        records = [decode(log.read(at, 300), 0, at) for at in (0, 300, 500)]
        self.assertEqual([r.stored_offset for r in records], [0, 300, 500])
        self.assertEqual([r.queue_offset for r in records], [7, 8, 9])
        self.assertEqual([r.store_timestamp for r in records], [STORED, STORED + 1, STORED + 1])
        self.assertEqual(told, [300, 750])
        self.assertEqual((log.confirmed, log.last_record, log.flushed), (750, 500, 0))

    def test_ends_of_files(self) -> None:
        """A record that leaves 8 bytes or more stays; one that would leave less moves on."""
        for left in range(20):
            log = self.filled(1000, 1000)
            size = FILE_SIZE - 2000 - left
            start = log.put([encoded(size)], [2], STORED)
            if left >= 8:
                self.assertEqual((start, log.end), (2000, FILE_SIZE - left))
                self.assertEqual(len(log.folder.files), 1)
                start = log.put([encoded(500)], [3], STORED)
                self.assertEqual(bytes(log.read(FILE_SIZE - left, 8)), blank(left))
            else:
                self.assertEqual(bytes(log.read(2000, 8)), blank(FILE_SIZE - 2000))
            self.assertEqual((start, log.file_end(start)), (FILE_SIZE, 2 * FILE_SIZE))

    def test_batch_moves_as_a_whole(self) -> None:
        """The records of a batch stay together in one file."""
        log = self.filled(2000)
        start = log.put([encoded(1000), encoded(1000), encoded(90 + 50)], [1, 2, 3], STORED)
        self.assertEqual((start, log.end), (FILE_SIZE, FILE_SIZE + 2140))
        self.assertEqual(log.last_record, FILE_SIZE + 2000)

    def test_never_fits(self) -> None:
        """What no file can hold is refused before anything happens, alone or as a batch."""
        log = self.filled(300)
        before = files_of(log.folder.path)
        self.assertRaises(MessageIllegal, log.put, [encoded(FILE_SIZE - 7)], [1], STORED)
        self.assertRaises(MessageIllegal, log.put, [encoded(FILE_SIZE // 2)] * 2, [1, 2], STORED)
        self.assertEqual((log.end, files_of(log.folder.path)), (300, before))
        log.put([encoded(FILE_SIZE - 8)], [1], STORED)
        self.assertEqual(log.end, 2 * FILE_SIZE - 8)

    def test_listener_fails(self) -> None:
        """A listener that fails does not fail the write, nor keep it from the others."""
        log, told = self.log(), []

        def broken() -> None:
            raise RuntimeError("no")

        log.appended += [broken, lambda: told.append(log.end)]
        log.put([encoded(300)], [0], STORED)
        self.assertEqual((log.end, told), (300, [300]))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)


class FullDiskTests(LogTestCase):
    """No room: nothing changes, and it goes on when there is some."""

    def setUp(self) -> None:
        self.disk = Disk().install(self)

    def no_room(self, log: CommitLog, call: Callable[..., object], *arguments: object) -> None:
        """Make one call on a full disk."""
        before = log.end, log.confirmed, content(log), files_of(log.folder.path)
        self.disk.full = True
        self.assertRaises(DiskFull, call, *arguments)
        self.assertFalse(log.has_room(2000))
        after = log.end, log.confirmed, content(log), files_of(log.folder.path)
        self.assertEqual(before, after)
        self.disk.full = False

    def small_steps(self, log: CommitLog) -> CommitLog:
        """Make blocks run out soon."""
        log.allocator.step = 16
        log.folder.files[0].allocated = log.end - log.folder.files[0].start
        return log

    def test_first(self) -> None:
        """The very first write."""
        log = self.log()
        log.folder.path.mkdir(exist_ok=True)
        self.no_room(log, log.put, [encoded(300)], [0], STORED)
        self.assertTrue(log.has_room(300))
        self.assertEqual(log.put([encoded(300)], [0], STORED), 0)

    def test_put(self) -> None:
        """A write into a file whose blocks end."""
        log = self.small_steps(self.filled(300))
        self.no_room(log, log.put, [encoded(300)], [1], STORED)
        self.assertTrue(log.has_room(300))
        self.assertEqual(log.put([encoded(300)], [1], STORED), 300)

    def test_roll(self) -> None:
        """A write that needs the next file: no blank is left that nothing follows."""
        log = self.filled(2000, 1000)
        self.no_room(log, log.put, [encoded(1500)], [2], STORED)
        self.assertEqual(len(log.folder.files), 1)
        # has_room makes the file, and the write takes it.
        self.assertTrue(log.has_room(1500))
        self.assertEqual(len(log.folder.files), 2)
        self.assertEqual(log.put([encoded(900)], [2], STORED), 3000)
        self.assertEqual(log.put([encoded(1500)], [3], STORED), FILE_SIZE)
        self.assertEqual(len(log.folder.files), 2)

    def test_next_file_without_room(self) -> None:
        """The next file is there, its blocks are not."""
        log = self.filled(2000, 1000)
        log.allocator.step = 16
        self.assertTrue(log.has_room(1100))
        log.folder.files[1].allocated = 0
        self.no_room(log, log.put, [encoded(1200)], [2], STORED)
        self.assertEqual(log.put([encoded(1200)], [2], STORED), FILE_SIZE)

    def test_roll_not_durable(self) -> None:
        """A next file whose name does not get to the disk is an fsync that failed."""
        log = self.filled(2000, 1000)
        real = mapped.fsync_folder

        def broken(folder: object) -> None:
            raise OSError(5, "I/O error")

        self.patch(mapped, "fsync_folder", broken)
        self.assertRaises(FlushFailed, log.put, [encoded(1500)], [2], STORED)
        self.assertEqual((log.end, len(log.folder.files)), (3000, 1))
        self.patch(mapped, "fsync_folder", real)
        self.assertEqual(log.put([encoded(1500)], [2], STORED), FILE_SIZE)

    def test_append_frame(self) -> None:
        """A frame whose second half has no room leaves no byte of its first."""
        source = self.filled(2000, 1000, 1500)
        log = self.log()
        append_frame(log, 0, content(source, 0, 2500))
        data = content(source, 2500)
        self.no_room(log, append_frame, log, 2500, data)
        self.assertEqual(len(log.folder.files), 1)
        append_frame(log, 2500, data)
        self.assertEqual(content(log), content(source))


class FrameTests(LogTestCase):
    def test_not_where_the_log_ends(self) -> None:
        """Only what continues the log is taken."""
        log = self.log()
        append_frame(log, 0, b"x" * 100)
        for offset in (0, 99, 101, -1):
            self.assertRaises(FrameOffsetMismatch, append_frame, log, offset, b"y")
        self.assertEqual(log.end, 100)

    @settings(max_examples=tries(60))
    @given(
        st.lists(st.integers(92, 1500), min_size=1, max_size=14),
        st.lists(st.integers(1, 6000), min_size=1, max_size=10),
        st.booleans(),
    )
    def test_any_chunking(self, sizes: list[int], cuts: list[int], each: bool) -> None:
        """Frames of any size give the bytes that puts gave, and the same confirmed end."""
        source = self.filled(*(max(size, 150) for size in sizes))
        data, log = content(source), self.log()
        position, turn = 0, 0
        while position < len(data):
            size = cuts[turn % len(cuts)]
            turn += 1
            append_frame(log, position, data[position : position + size])
            position = log.end
            if each:
                log.verify()
                self.assertLessEqual(log.confirmed, log.end)
        log.verify()
        self.assertEqual(
            (log.end, log.confirmed, log.last_record), (source.end, source.end, source.last_record)
        )
        self.assertEqual(content(log), data)
        self.assertEqual(files_of(log.folder.path), files_of(source.folder.path))

    def test_in_pieces(self) -> None:
        """Bytes of a frame are log when all of it is there, not before."""
        log = self.log()
        room = log.reserve(0, 300)
        room[:] = b"a" * 300
        log.staged(200)
        self.assertRaises(FrameOffsetMismatch, log.reserve, 300, 1)
        self.assertEqual(log.end, 0)
        log.reserve(200, 100)[:] = b"b" * 100
        log.staged(100)
        log.accept()
        self.assertEqual((log.end, content(log)), (300, b"a" * 200 + b"b" * 100))

    def test_closed(self) -> None:
        """A log that was closed keeps no file open, however much room a frame had been given."""
        log = self.log()
        log.reserve(0, 300)[:] = bytes(300)
        log.staged(300)
        log.accept()
        (path,) = log.folder.path.iterdir()
        self.assertIn(str(path), open_files())
        log.close()
        self.assertNotIn(str(path), open_files())
        self.assertEqual(content(log), bytes(300))

    def test_reserve_ends_with_the_file(self) -> None:
        """Room is cut at a file's end; the next file is made when it is asked for."""
        log = self.log()
        self.assertEqual(len(log.reserve(0, FILE_SIZE + 5)), FILE_SIZE)
        log.staged(FILE_SIZE)
        self.assertEqual((len(log.folder.files), len(log.reserve(FILE_SIZE, 5))), (1, 5))
        log.staged(5)
        log.accept()
        self.assertEqual(log.end, FILE_SIZE + 5)

    def test_discard(self) -> None:
        """What was staged, or only reserved and written to, leaves zeros and no file."""
        data, log = content(self.filled(2000, 1000, 1500, 1500, 1500)), self.log()
        append_frame(log, 0, data[:2100])
        before = files_of(log.folder.path)
        position = 2100
        for size in (500, 1496, 2000):
            room = log.reserve(position, size)
            room[:] = data[position : position + len(room)]
            position += len(room)
            if size != 2000:
                log.staged(len(room))
        log.discard()
        self.assertEqual(files_of(log.folder.path), before)
        append_frame(log, 2100, data[2100:])
        self.assertEqual(content(log), data)

    def test_begin(self) -> None:
        """An empty log may start at any multiple of the file size, as often as one likes."""
        log = self.log()
        self.assertRaises(StartNotAligned, log.begin, FILE_SIZE + 1)
        log.begin(FILE_SIZE)
        log.begin(3 * FILE_SIZE)
        self.assertEqual((log.min_offset, log.end, log.flushed), (3 * FILE_SIZE,) * 3)
        append_frame(log, 3 * FILE_SIZE, b"x" * 10)
        self.assertEqual([file.start for file in log.folder.files], [3 * FILE_SIZE])
        self.assertRaises(ValueError, log.begin, 0)
        log.rewind()
        log.begin(0)
        self.assertEqual((log.folder.files, log.end), ([], 0))


class VerifyTests(LogTestCase):
    def setUp(self) -> None:
        self.source = self.filled(300, 400, 500, file_size=1 << 16)
        self.data = bytearray(content(self.source))

    def received(self, data: bytes | bytearray, file_size: int = 1 << 16) -> CommitLog:
        """A log that was given these bytes as one frame."""
        log = self.log(file_size=file_size)
        append_frame(log, 0, bytes(data))
        return log

    def test_incomplete(self) -> None:
        """A record that has not arrived whole is waited for."""
        for size, confirmed in ((0, 0), (299, 0), (300, 300), (301, 300), (699, 300), (705, 700)):
            log = self.received(self.data[:size])
            log.verify()
            self.assertEqual((log.end, log.confirmed), (size, confirmed))

    def test_bad_record(self) -> None:
        """A bad record stops right before it, and says what is wrong with it."""
        for place, reason in ((304, Fault.MAGIC), (328, Fault.OFFSET), (400, Fault.CRC)):
            data = bytearray(self.data)
            data[place] ^= 1
            log = self.received(data)
            error = self.assertRaises(RecordCorrupt, log.verify)
            self.assertEqual((error.offset, error.reason), (300, reason.value))
            self.assertEqual((log.confirmed, log.last_record, log.end), (300, 0, 1200))
            self.assertRaises(RecordCorrupt, log.verify)

    def test_both_ways_agree(self) -> None:
        """The ways for few records and for many find the same fault at the same place."""
        data = bytearray(content(self.filled(*[1000] * 200, file_size=1 << 20)))
        data[150_500] ^= 1
        slow, fast = (self.received(data, 1 << 20) for _ in range(2))
        self.assertRaises(RecordCorrupt, fast.verify)
        self.patch(commit_log, "SCALAR_BYTES", 1 << 20)
        self.assertRaises(RecordCorrupt, slow.verify)
        self.assertEqual((slow.confirmed, slow.last_record), (150_000, 149_000))
        self.assertEqual((fast.confirmed, fast.last_record), (150_000, 149_000))

    @skipUnless(COMPILED, "the lane is not compiled here")
    @given(
        st.lists(st.integers(120, 700), min_size=1, max_size=8),
        st.integers(0, 5600),
        st.integers(-1, 5600),
        st.integers(0, 7),
    )
    @settings(deadline=None)
    def test_compiled_says_the_same(
        self, sizes: list[int], cut: int, damage: int, bit: int
    ) -> None:
        """Few records are judged alike with and without the compiled pass, cut, damaged or not."""
        data = bytearray(content(self.filled(*sizes, file_size=1 << 16)))
        if 0 <= damage < len(data):
            data[damage] ^= 1 << bit
        # What comes first may end in a record.
        first = min(cut, len(data))
        found = []
        for compiled in (True, False):
            log = self.received(data[:first])
            with patch.object(commit_log, "COMPILED", compiled):
                said = [self.verdict(log)]
                append_frame(log, first, bytes(data[first:]))
                said.append(self.verdict(log))
            found.append((said, log.confirmed, log.last_record))
        self.assertEqual(found[0], found[1])

    def verdict(self, log: CommitLog) -> tuple[int, str] | None:
        """What is said of the first record that is not valid, and where."""
        try:
            log.verify()
        except RecordCorrupt as error:
            return error.offset, error.reason
        return None

    def test_in_steps(self) -> None:
        """A limited check does about so much, and a record larger than that at once."""
        many = self.filled(*[1000] * 100, file_size=1 << 20)
        log = self.received(content(many), 1 << 20)
        log.verify(30_500)
        self.assertEqual(log.confirmed, 30_000)
        while log.confirmed < log.end:
            before = log.confirmed
            log.verify(500)
            self.assertGreater(log.confirmed, before)

    def test_other_file_size(self) -> None:
        """A master whose files are larger or smaller than ours is recognized."""
        larger = self.filled(*[1000] * 5, file_size=2 * FILE_SIZE)
        log = self.received(content(larger), FILE_SIZE)
        error = self.assertRaises(RecordCrossesFile, log.verify)
        self.assertEqual((error.offset, error.size, error.file_size), (4000, 1000, FILE_SIZE))
        smaller = self.filled(*[1000] * 5, file_size=FILE_SIZE)
        log = self.received(content(smaller), 2 * FILE_SIZE)
        error = self.assertRaises(RecordCrossesFile, log.verify)
        self.assertEqual((error.offset, error.size), (4000, 96))

    def test_rewind(self) -> None:
        """What is not confirmed is dropped without a trace, and no flush counts for it."""
        data = bytearray(self.data)
        data[400] ^= 1
        log = self.received(data)
        log.now_flushed(log.end)
        self.assertRaises(RecordCorrupt, log.verify)
        log.rewind()
        self.assertEqual((log.end, log.confirmed, log.flushed, log.rewinds), (300, 300, 300, 1))
        self.assertEqual(files_of(log.folder.path)[300:], bytes((1 << 16) - 300))
        append_frame(log, 300, bytes(self.data[300:]))
        log.verify()
        self.assertEqual(content(log), bytes(self.data))

    def test_rewind_over_a_file(self) -> None:
        """A file that only has bytes nobody confirmed goes with them."""
        source = self.filled(2000, 1000, 1500)
        data = bytearray(content(source))
        data[2100] ^= 1
        log = self.received(data, FILE_SIZE)
        self.assertRaises(RecordCorrupt, log.verify)
        log.rewind()
        self.assertEqual((log.end, len(log.folder.files)), (2000, 1))
        append_frame(log, 2000, content(source, 2000))
        log.verify()
        self.assertEqual((log.confirmed, content(log)), (source.end, content(source)))


class FirstFileTests(LogTestCase):
    def test_never_the_last(self) -> None:
        """The oldest file leaves the log, and readers of it may finish."""
        log = self.filled(2000, 1500, 1500)
        view = log.read(0, 100)
        file = log.drop_first()
        file.remove()
        self.assertEqual((log.min_offset, file.start), (FILE_SIZE, 0))
        self.assertEqual(len(bytes(view)), 100)
        self.assertRaises(ValueError, log.read, 0, 1)
        self.assertRaises(ValueError, log.drop_first)

    def test_listeners_may_leave(self) -> None:
        """A listener may take itself off while it is told."""
        log, told = self.filled(300), []

        def once() -> None:
            log.flush_listeners.remove(once)
            told.append("once")

        log.flush_listeners += [once, lambda: told.append("always")]
        log.now_flushed(100)
        log.now_flushed(50)
        log.now_flushed(300)
        self.assertEqual(told, ["once", "always", "always"])
