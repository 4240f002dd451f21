"""Tests for L{rmqha.store.log.recovery}: where a log ends, why, and what that means."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.errors import LogCorrupt
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.scan import next_valid
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.recovery import (
    PIECE,
    FolderReader,
    Recovery,
    cut,
    first_file,
    first_stored_at,
    last_record_of,
    recover,
)
from rmqha.wire.log.encode import blank, encode, place
from rmqha.wire.log.layout import MAGIC_V1
from rmqha.wire.log.record import Fault
from tests.support.effort import tries
from tests.support.logs import (
    FILE_SIZE,
    OVERHEAD,
    STORED,
    LogTestCase,
    content,
    encoded,
    files_of,
    message,
)

SIZE = 1 << 16
HEAD = struct.Struct(">ii")


class EndTestCase(LogTestCase):
    """Tests that damage a log's files and look where it ends."""

    def setUp(self) -> None:
        self.path = self.folder()

    def write(self, *sizes: int, file_size: int = SIZE) -> CommitLog:
        return self.filled(*sizes, file_size=file_size, folder=self.path)

    def overwrite(self, offset: int, data: bytes, file_size: int = SIZE) -> None:
        """Change bytes on the disk, and free what lies behind the file's end."""
        start = offset - offset % file_size
        with open(self.path / file_name(start), "rb+") as file:
            file.seek(offset - start)
            file.write(data)

    def found(self, file_size: int = SIZE, nul_from: int = 0) -> Recovery:
        folder = LogFolder.load(self.path, file_size)
        self.addCleanup(folder.close)
        return recover(folder, 0, nul_is_torn_from=nul_from)

    def assert_end(
        self, end: int, reason: Fault | None, *, file_size: int = SIZE, nul_from: int = 0
    ) -> Recovery:
        """The log ends there, for that reason, and that is no damage."""
        found = self.found(file_size, nul_from)
        self.assertEqual((found.end, found.reason, found.corrupt), (end, reason, None))
        return found


class TornTests(EndTestCase):
    """The last write was cut by a crash."""

    def torn_everywhere(self, before: int, record: bytearray, reasons: set[Fault]) -> None:
        """Tear a record at each byte: what had arrived is there, the rest is zero."""
        log = self.write(before) if before else self.write()
        place(record, queue_offset=1, offset=before, store_timestamp=STORED)
        if not before:
            log.folder.create_next(0)
        seen = set()
        for arrived in range(len(record)):
            self.overwrite(before, bytes(record[:arrived]).ljust(len(record), b"\0"))
            if record[arrived:].count(0) == len(record) - arrived:
                continue  # only zeros are missing: that is the record
            found = self.found()
            self.assertEqual((found.end, found.corrupt), (before, None), f"torn at {arrived}")
            self.assertEqual(found.last_record, 0 if before else -1 if found.records == 0 else 0)
            seen.add(found.reason)
        self.assertEqual(seen, reasons)
        self.overwrite(before, bytes(record))
        self.assert_end(before + len(record), Fault.NOTHING)

    def test_every_byte(self) -> None:
        """A record of 300 bytes torn anywhere ends the log before it, at a page's edge too."""
        # A tear in the body shows as a topic of no length.
        reasons = {
            Fault.NOTHING,
            Fault.MAGIC,
            Fault.OFFSET,
            Fault.LENGTHS,
            Fault.TOPIC,
            Fault.PROPERTIES,
        }
        for before in (4096 - 300, 4096 - 150, 4096 - 91, 4096 - 4, 4096, 1000):
            self.path = self.folder()
            self.torn_everywhere(before, encoded(300), reasons)

    def test_without_properties(self) -> None:
        """Without properties it is the topic that shows the tear."""
        reasons = {Fault.NOTHING, Fault.MAGIC, Fault.OFFSET, Fault.TOPIC}
        self.torn_everywhere(1000, encoded(300, properties=b""), reasons)

    def test_lost_pages(self) -> None:
        """A page that never got to the disk, the ones around it did, ends the log as well."""
        record = encoded(20_000)
        self.write(1000)
        place(record, queue_offset=1, offset=1000, store_timestamp=STORED)
        for page in range(5):
            data = bytearray(record)
            start, stop = max(0, page * 4096 - 1000), page * 4096 + 3096
            data[start:stop] = bytes(len(data[start:stop]))
            self.overwrite(1000, data)
            self.assert_end(1000, Fault.NOTHING if page == 0 else Fault.CRC)

    def test_nul_ends_properties_of_stock_records(self) -> None:
        """A stock master's record may end in NUL; ours cannot, nor one that is not the last."""
        odd = encoded(200, properties=b"K\x01v\0")
        for record, end in ((odd, 500), (encoded(200), 500)):
            self.path = self.folder()
            log = self.write(300)
            log.put([record], [1], STORED)
            self.assert_end(end, Fault.NOTHING, nul_from=301)
            torn = record is odd
            self.assert_end(
                300 if torn else end, Fault.PROPERTIES if torn else Fault.NOTHING, nul_from=300
            )
            log.put([encoded(150)], [2], STORED)
            self.assert_end(650, Fault.NOTHING, nul_from=0)

    def test_nul_where_nobody_says_who_wrote(self) -> None:
        """Who does not say who wrote the log gets none with NUL at its end, be it one record."""
        log = self.write()
        log.put([encoded(200, properties=b"K\x01v\0")], [0], STORED)
        self.assertEqual(recover(log.folder, 0).end, 0)

    def test_nul_before_a_blank(self) -> None:
        """What a blank follows was written whole."""
        log = self.write(3000, file_size=FILE_SIZE)
        log.put([encoded(1000, properties=b"K\x01v\0")], [1], STORED)
        log.put([encoded(200)], [2], STORED)
        self.overwrite(FILE_SIZE, bytes(200), FILE_SIZE)
        self.assert_end(FILE_SIZE, Fault.NOTHING, file_size=FILE_SIZE)

    @settings(max_examples=tries(40))
    @given(st.lists(st.integers(150, 2000), min_size=1, max_size=12), st.data())
    def test_any_log_any_tear(self, sizes: list[int], data: st.DataObject) -> None:
        """Whatever is zeroed at the end, the log ends at the last whole record."""
        self.path = self.folder()
        log = self.write(*sizes, file_size=FILE_SIZE)
        starts, position = [0], 0
        for size in sizes:
            if FILE_SIZE - position % FILE_SIZE < size + 8:
                position += FILE_SIZE - position % FILE_SIZE
                starts.append(position)
            position += size
            starts.append(position)
        tear = data.draw(st.integers(0, log.end))
        # A record always ends in 0x02 here, so that each missing byte shows.
        cut(log.folder, tear)
        log.folder.close()
        if not any(self.path.iterdir()):
            return
        found = self.found(FILE_SIZE)
        self.assertIsNone(found.corrupt)
        expected = max(start for start in starts if start <= tear)
        if expected % FILE_SIZE == 0 and expected and expected == found.start + FILE_SIZE:
            return
        last = (self.path / file_name(expected - expected % FILE_SIZE)).exists()
        if last:
            self.assertEqual(found.end, expected)
        else:
            self.assertLess(found.end, expected)


class BadEndTests(EndTestCase):
    """A bad header behind the last good record: each has its own reason."""

    def setUp(self) -> None:
        super().setUp()
        self.write(300, 400)
        self.record = encoded(500)
        place(self.record, queue_offset=2, offset=700, store_timestamp=STORED)

    def assert_bad(self, data: bytes | bytearray, reason: Fault) -> None:
        """With these bytes behind it the log ends at 700."""
        self.overwrite(700, bytes(data))
        found = self.assert_end(700, reason)
        self.assertEqual((found.records, found.last_record), (2, 300))
        self.overwrite(700, bytes(len(data)))

    def head(self, size: int, magic: int = MAGIC_V1) -> bytearray:
        data = bytearray(self.record)
        HEAD.pack_into(data, 0, size, magic)
        return data

    def test_whole(self) -> None:
        """Nothing is wrong with the record itself."""
        self.overwrite(700, bytes(self.record))
        self.assert_end(1200, Fault.NOTHING)

    def test_sizes(self) -> None:
        """0, 1, less than any record, negative, more than the file, more than is left."""
        for size in (0, 1, 90, -1, -(1 << 31), SIZE + 1, (1 << 31) - 1):
            self.assert_bad(self.head(size), Fault.SIZE)
        self.assert_bad(self.head(SIZE - 699), Fault.FILE_END)
        self.assert_bad(self.head(499), Fault.LENGTHS)
        self.assert_bad(self.head(501), Fault.LENGTHS)

    def test_magic(self) -> None:
        """A magic of nobody, also with size 0, and size without magic."""
        self.assert_bad(self.head(500, 0x1234), Fault.MAGIC)
        self.assert_bad(self.head(0, 0x1234), Fault.MAGIC)
        self.assert_bad(self.head(500, 0), Fault.MAGIC)

    def test_nothing(self) -> None:
        """Zeros are no record and no fault of anybody."""
        self.assert_end(700, Fault.NOTHING)

    def test_crc(self) -> None:
        """A flipped bit in the body or in the stored CRC."""
        for place_ in (8, 11, 95, 300):
            data = bytearray(self.record)
            data[place_] ^= 0x10
            self.assert_bad(data, Fault.CRC)

    def test_crc_of_zero(self) -> None:
        """A CRC of 0 is a value like any other: right for the body whose CRC it is."""
        self.assert_bad(self.record[:8] + bytes(4) + self.record[12:], Fault.CRC)
        data = encoded(OVERHEAD + 104, body=_with_crc(0, b"b" * 100))
        self.assertEqual(data[8:12], bytes(4))
        place(data, queue_offset=2, offset=700, store_timestamp=STORED)
        self.overwrite(700, bytes(data))
        self.assert_end(700 + len(data), Fault.NOTHING)

    def test_offset_of_another_place(self) -> None:
        """A whole record that says it is elsewhere: a recycled file, a copied chunk."""
        place(self.record, queue_offset=2, offset=701, store_timestamp=STORED)
        self.assert_bad(self.record, Fault.OFFSET)

    def test_chunk_copied(self) -> None:
        """16 KiB copied from elsewhere in the file, on a record's start, are not log."""
        self.path = self.folder()
        data = content(self.write(*[1024] * 20))
        self.overwrite(20 * 1024, data[:16384])
        self.assert_end(20 * 1024, Fault.OFFSET)

    def test_blank_of_wrong_size(self) -> None:
        """A blank reaches just to the file's end."""
        for size in (8, SIZE - 701, SIZE - 699, 0, -8):
            self.assert_bad(
                HEAD.pack(size, int.from_bytes(blank(8)[4:], "big", signed=True)), Fault.SIZE
            )

    def test_topic(self) -> None:
        """A topic of no bytes, or of bytes that are no text."""
        at = 700 + 88 + 500 - OVERHEAD
        self.overwrite(700, bytes(self.record))
        self.overwrite(at + 1, b"\xff")
        self.assert_end(700, Fault.TOPIC)
        self.overwrite(at, b"\0")
        self.assert_end(700, Fault.TOPIC)


def _with_crc(wanted: int, head: bytes) -> bytes:
    """Four more bytes, found by meeting in the middle, that give a CRC-32."""
    table = [zlib.crc32(bytes([i ^ 0xFF])) ^ 0xFF000000 for i in range(256)]
    by_top = {row >> 24: i for i, row in enumerate(table)}
    state = wanted ^ 0xFFFFFFFF
    order = []
    for _ in range(4):
        row = by_top[state >> 24]
        order.append(row)
        state = ((state ^ table[row]) << 8) & 0xFFFFFFFF
    now, found = zlib.crc32(head) ^ 0xFFFFFFFF, bytearray()
    for row in reversed(order):
        found.append((now ^ row) & 0xFF)
        now = (now >> 8) ^ table[row]
    return head + bytes(found)


class FileEndTests(EndTestCase):
    def test_blanks(self) -> None:
        """A blank of any legal size is log when a file follows, and not when none does."""
        for left in (8, 9, 16, 500):
            self.path = self.folder()
            log = self.write(FILE_SIZE - left, file_size=FILE_SIZE)
            self.assert_end(FILE_SIZE - left, Fault.NOTHING, file_size=FILE_SIZE)
            self.overwrite(FILE_SIZE - left, blank(left), FILE_SIZE)
            found = self.assert_end(FILE_SIZE - left, None, file_size=FILE_SIZE)
            self.assertEqual(found.tail, FILE_SIZE - left + 8)
            log.folder.create_next(0)
            self.assert_end(FILE_SIZE, Fault.NOTHING, file_size=FILE_SIZE)

    def test_less_than_a_blank(self) -> None:
        """A record that leaves 7 bytes or none is one of a broker with larger files."""
        for left in (0, 1, 7):
            self.path = self.folder()
            log = self.write(200, file_size=FILE_SIZE)
            record = encoded(FILE_SIZE - left - 200)
            place(record, queue_offset=1, offset=200, store_timestamp=STORED)
            self.overwrite(200, bytes(record), FILE_SIZE)
            log.folder.create_next(0)
            # With none left there is nothing wrong: the next file goes on.
            end, reason = (FILE_SIZE - left, Fault.FILE_END if left else Fault.NOTHING)
            self.assert_end(end, reason, file_size=FILE_SIZE)

    def test_header_split_by_the_end(self) -> None:
        """A header that does not fit the file is none."""
        self.write(FILE_SIZE - 9, file_size=FILE_SIZE)
        self.overwrite(FILE_SIZE - 9, bytes(encoded(300)[:9]), FILE_SIZE)
        self.assert_end(FILE_SIZE - 9, Fault.FILE_END, file_size=FILE_SIZE)

    def test_file_of_one_blank(self) -> None:
        """A last file that is nothing but a blank ends where it starts."""
        self.write(3000, 2000, file_size=FILE_SIZE)
        self.overwrite(FILE_SIZE, blank(FILE_SIZE) + bytes(2000), FILE_SIZE)
        self.assert_end(FILE_SIZE, None, file_size=FILE_SIZE)

    def test_torn_blank(self) -> None:
        """A blank whose header is torn is not there."""
        self.write(3000, 2000, file_size=FILE_SIZE)
        self.overwrite(FILE_SIZE, bytes(2000), FILE_SIZE)
        for arrived in range(1, 8):
            self.overwrite(3000, blank(1096)[:arrived].ljust(8, b"\0"), FILE_SIZE)
            found = self.found(FILE_SIZE)
            self.assertEqual((found.end, found.corrupt), (3000, None))

    def test_empty(self) -> None:
        """No files, or one of zeros, is an empty log."""
        found = self.found()
        self.assertEqual((found.end, found.last_record, found.reason), (0, -1, None))
        LogFolder.load(self.path, SIZE).create_next(3 * SIZE)
        found = self.found()
        self.assertEqual((found.end, found.last_record), (3 * SIZE, -1))


class ReaderTests(EndTestCase):
    def test_whole_files(self) -> None:
        """From the first file's first byte to the last one's last; of none, nothing."""
        folder = self.write(*[3000] * 3, file_size=FILE_SIZE).folder
        folder.files.pop(0)
        for found, bounds in (
            (folder, (FILE_SIZE, 3 * FILE_SIZE, 3 * FILE_SIZE)),
            (LogFolder(self.folder(), SIZE), (0, 0, 0)),
        ):
            reader = FolderReader(found)
            self.assertEqual((reader.min_offset, reader.end, reader.confirmed), bounds)


class DamageTests(EndTestCase):
    """What is behind the bad place decides."""

    def assert_damage(self, at: int, reason: Fault, following: int, file_size: int = SIZE) -> None:
        """It is damage at a place, with a valid record behind it."""
        found = self.found(file_size)
        assert isinstance(found.corrupt, LogCorrupt)
        damage = found.corrupt
        self.assertEqual(
            (found.end, damage.offset, damage.reason, damage.next_valid),
            (at, at, reason.value, following),
        )
        self.assertEqual(damage.path, str(self.path / file_name(at - at % file_size)))

    def test_each_field(self) -> None:
        """A flipped bit in any checked field of a record with one behind it."""
        for at, reason in (
            (300, Fault.FILE_END),
            (303, Fault.LENGTHS),
            (304, Fault.MAGIC),
            (309, Fault.CRC),
            (335, Fault.OFFSET),
            (339, Fault.LENGTHS),
            (500, Fault.CRC),
        ):
            self.path = self.folder()
            byte = self.write(300, 400, 500).read(at, 1)[0]
            self.overwrite(at, bytes([byte ^ (0x20 if at != 300 else 0x01)]))
            damaged = self.found()
            assert damaged.corrupt is not None
            self.assertEqual((damaged.end, damaged.corrupt.next_valid), (300, 700), str(at))
            if at != 300:
                self.assertEqual(damaged.reason, reason)

    def test_zeroed_page(self) -> None:
        """A zeroed page with records behind it is damage, though it looks like the end."""
        self.write(*[1000] * 20)
        self.overwrite(4096, bytes(4096))
        self.assert_damage(4000, Fault.TOPIC, 9000)

    def test_in_an_earlier_file(self) -> None:
        """The valid record may be files away."""
        self.write(3000, 3000, 3000, 3000, file_size=FILE_SIZE)
        self.overwrite(100, b"?", FILE_SIZE)
        self.overwrite(FILE_SIZE, bytes(FILE_SIZE), FILE_SIZE)
        self.assert_damage(0, Fault.CRC, 2 * FILE_SIZE, FILE_SIZE)

    def test_record_inside_a_body(self) -> None:
        """A message about messages does not make a torn tail damage."""
        inner = encoded(300)
        place(inner, queue_offset=0, offset=0, store_timestamp=STORED)
        outer = encoded(OVERHEAD + 900, body=bytes(inner) * 3)
        log = self.write(200)
        log.put([outer], [1], STORED)
        self.overwrite(log.end - 1, b"\0")
        self.assert_end(200, Fault.PROPERTIES)

    def test_tail_is_measured(self) -> None:
        """It is known how far bytes go that would be cut."""
        log = self.write(3000, 3000, 2000, file_size=FILE_SIZE)
        self.overwrite(100, b"?", FILE_SIZE)
        self.assertEqual(self.found(FILE_SIZE).tail, log.end)

    def test_found_across_pieces(self) -> None:
        """A magic that lies across two pieces of the search is seen, forwards and backwards."""
        size = 4 * PIECE
        for start in (PIECE - 7, PIECE - 5, PIECE - 4, PIECE, 2 * PIECE - 6):
            self.path = self.folder()
            log = self.log(self.path, size)
            file = log.folder.create_next(0)
            record = encoded(300)
            place(record, queue_offset=0, offset=start, store_timestamp=STORED)
            file.view[start : start + 300] = record
            reader = FolderReader(log.folder)
            self.assertEqual((next_valid(reader, 1), next_valid(reader, start)), (start, start))
            self.assertIsNone(next_valid(reader, start + 1))
            self.assertEqual(last_record_of(file), start)

    def test_no_map(self) -> None:
        """Files are looked at without a map: a hole on a full tmpfs would end the process."""
        self.write(1000, 500, 3000, file_size=FILE_SIZE).folder.close()
        folder = LogFolder.load(self.path, FILE_SIZE)
        self.addCleanup(folder.close)
        first_file(folder, crashed=True, safe_time=STORED)
        cut(folder, recover(folder, 0).end)
        last_record_of(folder.files[0])
        self.assertEqual([file.map_ref() for file in folder.files], [None, None])

    def test_last_record(self) -> None:
        """The last record of a file is found behind a blank, and not inside a body."""
        log = self.write(1000, 500, 3000, file_size=FILE_SIZE)
        self.assertEqual(last_record_of(log.folder.files[0]), 1000)
        self.assertEqual(last_record_of(log.folder.files[1]), FILE_SIZE)
        self.assertIsNone(last_record_of(log.folder.create_next(0)))
        # A body with the head of a record that says just the place where it stands.
        head = encoded(300)
        place(head, queue_offset=0, offset=1200, store_timestamp=STORED)
        self.overwrite(1200, bytes(head[:64]), FILE_SIZE)
        self.assertEqual(last_record_of(log.folder.files[0]), 1000)

    def test_bodies_tell_no_time(self) -> None:
        """A file of damaged bodies is as old as it was: what retention asks, and a start."""
        log = self.write(1000, 500, 3000, file_size=FILE_SIZE)
        for at in (200, 1200):
            self.overwrite(at, b"?", FILE_SIZE)
        file = log.folder.files[0]
        self.assertEqual((first_stored_at(file), last_record_of(file)), (STORED, 1000))


class FirstFileTests(EndTestCase):
    def test_clean(self) -> None:
        """After a clean stop the last three files are checked."""
        folder = self.write(*[3000] * 5, file_size=FILE_SIZE).folder
        self.assertEqual(first_file(folder, crashed=False, safe_time=0), 2)
        self.assertEqual(first_file(LogFolder(self.folder(), 1), crashed=False, safe_time=0), 0)

    def test_crashed(self) -> None:
        """After a crash it is the newest file whose first record is surely flushed."""
        folder = self.write(*[3000] * 5, file_size=FILE_SIZE).folder
        folder.create_next(0)
        for safe, row in ((0, 0), (STORED - 1, 0), *((STORED + n, n) for n in (1, 2, 4))):
            self.assertEqual(first_file(folder, crashed=True, safe_time=safe), row)
        self.assertEqual(first_file(folder, crashed=True, safe_time=STORED + 9), 4)

    def test_longer_addresses(self) -> None:
        """The times of records that IPv6 clients sent stand elsewhere, and count as well."""
        log, host = self.write(file_size=FILE_SIZE), ("::1", 40000)
        for number in range(3):
            sent = message(3000, born_host=host, store_host=host)
            log.put([encode(sent, max_message_size=1 << 20)], [number], STORED + number)
        self.assertEqual(first_file(log.folder, crashed=True, safe_time=STORED + 1), 1)

    def test_clock_was_set_back(self) -> None:
        """A file not on the disk at the last checkpoint is not believed for its time."""
        folder = self.write(*[3000] * 5, file_size=FILE_SIZE).folder
        for durable, row in ((0, 4), (1, 0), (2 * FILE_SIZE, 2), (9 * FILE_SIZE, 4)):
            found = first_file(folder, crashed=True, safe_time=STORED + 9, durable=durable)
            self.assertEqual(found, row)

    def test_earlier_files_are_believed(self) -> None:
        """Damage before that is for C{verify} to find, not for every start."""
        log = self.write(*[3000] * 5, file_size=FILE_SIZE)
        self.overwrite(100, b"?", FILE_SIZE)
        found = recover(log.folder, 2)
        self.assertEqual((found.start, found.end), (2 * FILE_SIZE, log.end))
        self.assertEqual((found.records, found.corrupt), (3, None))

    def test_progress(self) -> None:
        """Whoever wants to know hears of every byte checked."""
        log, told = self.write(*[3000] * 5, file_size=FILE_SIZE), []
        recover(log.folder, 0, progress=told.append)
        self.assertEqual(sum(told), log.end)


class CutTests(EndTestCase):
    def test_stale_tail_stays_away(self) -> None:
        """A record of equal size written over the first one cut does not bring back the rest."""
        log = self.write(*[300] * 5)
        old = content(log)
        log.folder.close()
        cut(LogFolder.load(self.path, SIZE), 300)
        again = self.log(self.path, SIZE, end=300)
        again.put([encoded(300)], [1], STORED + 1)
        self.assertEqual(content(again), old[:600])
        self.assertEqual(files_of(self.path)[600:], bytes(SIZE - 600))
        self.assert_end(600, Fault.NOTHING)

    def test_files(self) -> None:
        """Later files go, the one that starts just at the end stays and is zeroed."""
        for end, left in ((0, 1), (100, 1), (FILE_SIZE, 2), (FILE_SIZE + 1, 2), (3 * FILE_SIZE, 4)):
            self.path = self.folder()
            log = self.write(*[3000] * 4, file_size=FILE_SIZE)
            before = files_of(self.path)
            cut(log.folder, end)
            cut(log.folder, end)
            names = sorted(path.name for path in self.path.iterdir())
            self.assertEqual(names, [file_name(i * FILE_SIZE) for i in range(left)])
            self.assertEqual(files_of(self.path), before[:end].ljust(left * FILE_SIZE, b"\0"))

    def test_every_byte_goes(self) -> None:
        """What stands at the very begin of the file that starts at the end goes too."""
        log = self.write(3000, 3000, file_size=FILE_SIZE)
        self.overwrite(FILE_SIZE, b"\xff" * 3000, FILE_SIZE)
        cut(log.folder, FILE_SIZE)
        self.assertEqual(files_of(self.path)[FILE_SIZE:], bytes(FILE_SIZE))

    def test_on_the_disk(self) -> None:
        """What is left of a cut file is on the disk when it ends: the file at whose first byte
        the log ends too, and after a crash all that was checked; and nothing is waited for besides.
        """
        for end, checked_from, synced in (
            (FILE_SIZE + 1, None, [1]),
            (2 * FILE_SIZE, None, [2]),
            (2 * FILE_SIZE, FILE_SIZE, [1, 2]),
            (3 * FILE_SIZE + 1000, 2 * FILE_SIZE + 5, [2, 3]),
        ):
            self.path = self.folder()
            log = self.write(*[3000] * 5, file_size=FILE_SIZE)
            inodes = {os.stat(file.path).st_ino: file for file in log.folder.files}
            started: list[int] = []
            self.patch(os, "fsync", lambda fd, to=started: to.append(os.fstat(fd).st_ino))
            cut(log.folder, end, changed_from=checked_from)
            found = [inodes[inode].start // FILE_SIZE for inode in started if inode in inodes]
            self.assertEqual(found, synced)

    def test_nothing_there(self) -> None:
        """An empty log is cut already."""
        cut(LogFolder(Path("/nowhere/at/all"), SIZE), 0)
