"""The journal of consumer offsets on the disk, torn at every place, and applied to any table."""

from __future__ import annotations

import copy
import os

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import FileUnreadable
from rmqha.store.tables import offset_segments as segments
from rmqha.store.tables.offset_segments import (
    ALL_QUEUES,
    BACK,
    BY_CLIENT,
    DROPPED,
    OffsetChange,
    SegmentWriter,
    decode,
    encode_batch,
    encode_head,
)
from tests.support.effort import tries
from tests.support.logs import LogTestCase

KEYS = st.sampled_from(["A@g", "B@g", "%RETRY%g@g"])

#: What happens to offsets: a group moves on, is set, or is deleted.
EVENTS = st.lists(
    st.tuples(st.sampled_from(["on", "set", "drop"]), KEYS, st.integers(0, 2), st.integers(0, 99)),
    max_size=30,
)

Table = dict[str, dict[int, int]]


def happen(table: Table, event: tuple[str, str, int, int]) -> list[OffsetChange]:
    """Let an event happen, and return its records."""
    what, key, queue_id, offset = event
    if what == "drop":
        table.pop(key, None)
        return [OffsetChange(DROPPED, key, ALL_QUEUES, 0)]
    queues = table.setdefault(key, {})
    if what == "on":
        offset = max(offset, queues.get(queue_id, 0))
    queues[queue_id] = offset
    return [OffsetChange(BACK if what == "set" else 0, key, queue_id, offset)]


class FormatTests(SynchronousTestCase):
    CHANGES = (
        OffsetChange(BY_CLIENT, "Orders@billing", 3, 1 << 40),
        OffsetChange(BACK, "T\u00f6pfe@g", 0, 0),
        OffsetChange(DROPPED, "A@g", ALL_QUEUES, 0),
    )

    def test_bytes(self) -> None:
        """A file of one batch of one record, byte for byte."""
        data = encode_head(7) + encode_batch([OffsetChange(4, "T@g", 2, 300)])
        payload = bytes.fromhex("04 00000002 000000000000012c 0003") + b"T@g"
        self.assertEqual(
            data,
            b"RMQHAOJ1" + (7).to_bytes(8, "big") + bytes.fromhex("00000012 016b8063") + payload,
        )

    def test_read_again(self) -> None:
        """What was written is read, in its order; a file under another's number is not."""
        data = encode_head(7) + encode_batch(self.CHANGES[:1]) + encode_batch(self.CHANGES[1:])
        self.assertEqual((decode(7, data).changes, decode(7, data).torn), (self.CHANGES, 0))
        self.assertEqual(decode(8, data).changes, ())

    def test_torn(self) -> None:
        """A file cut anywhere, or in zeros, has its whole batches, and says what is left."""
        first = encode_head(1) + encode_batch(self.CHANGES[:1])
        data = first + encode_batch(self.CHANGES[1:])
        for end in range(len(data)):
            for zeros in (0, 5, 100):
                found = decode(1, data[:end] + bytes(zeros))
                whole = len(first) if end >= len(first) else 16 if end >= 16 else 0
                batches = 1 if end >= len(first) else 0
                self.assertEqual(found.changes, self.CHANGES[:batches], (end, zeros))
                self.assertEqual(found.torn, end + zeros - whole)

    def test_flipped(self) -> None:
        """A batch in which a bit is wrong does not count, and what follows it does."""
        first = encode_head(1) + encode_batch(self.CHANGES[:1])
        data = first + encode_batch(self.CHANGES[1:])
        for at in range(16, len(data)):
            for bit in (1, 128):
                wrong = bytearray(data)
                wrong[at] ^= bit
                found = decode(1, bytes(wrong))
                hit = at < len(first)
                self.assertEqual(found.changes, self.CHANGES[1:] if hit else self.CHANGES[:1], at)
                self.assertEqual((found.damaged > 0, found.torn > 0), (hit, not hit))

    def test_impossible(self) -> None:
        """What the form has no place for is left out, and a batch of nothing is no bytes."""
        batch = [
            OffsetChange(0, "T@g", 0, 1 << 63),
            OffsetChange(0, "T@g", 1 << 31, 1),
            OffsetChange(0, "T" * 70_000, 0, 1),
        ]
        self.assertEqual(encode_batch(batch), b"")
        self.assertEqual(encode_batch([*batch, *self.CHANGES]), encode_batch(self.CHANGES))


class ApplyTests(SynchronousTestCase):
    @given(EVENTS, st.integers(0, 30), st.integers(0, 30))
    @run_settings(max_examples=tries(300), deadline=None)
    def test_any_table_between(
        self, events: list[tuple[str, str, int, int]], first: int, place: int
    ) -> None:
        """A journal leads from the table where it begins, and from any later one, to the last
        state: what was set back or deleted stays so, what moved on does not go back.
        """
        first, place = sorted(min(each, len(events)) for each in (first, place))
        table: Table = {}
        records: list[OffsetChange] = []
        between: Table = {}
        for number, event in enumerate(events):
            if number == place:
                between = copy.deepcopy(table)
            happened = happen(table, event)
            if number >= first:
                records += happened
        if place == len(events):
            between = copy.deepcopy(table)
        segments.apply(between, records)
        self.assertEqual(between, table)

    def test_counted(self) -> None:
        """Only what changes the table is counted."""
        table = {"A@g": {0: 5}}
        changes = [
            OffsetChange(0, "A@g", 0, 4),
            OffsetChange(0, "A@g", 0, 6),
            OffsetChange(BACK, "A@g", 0, 2),
            OffsetChange(BACK, "A@g", 0, 2),
            OffsetChange(DROPPED, "B@g", ALL_QUEUES, 0),
            OffsetChange(DROPPED, "A@g", ALL_QUEUES, 0),
        ]
        self.assertEqual((segments.apply(table, changes), table), (3, {}))


class FolderTests(LogTestCase):
    def setUp(self) -> None:
        self.path = self.folder() / "rmqha" / "offsets"
        self.patch(os, "fdatasync", lambda fd: None)

    def test_files(self) -> None:
        """A new number is a new file; files are read from a number on, and forgotten before one."""
        self.assertEqual(segments.numbers_in(self.path), [])
        writer = SegmentWriter(self.path)
        for number, offset in ((3, 1), (3, 2), (4, 3), (6, 4)):
            writer.append(number, [OffsetChange(0, "T@g", 0, offset)])
        writer.close()
        (self.path / "note.txt").write_text("not ours")
        self.assertEqual(segments.numbers_in(self.path), [3, 4, 6])
        self.assertEqual(writer.size, (self.path / f"{6:020}.journal").stat().st_size)
        found = [
            [change.offset for change in segment.changes] for segment in segments.read(self.path, 3)
        ]
        self.assertEqual(found, [[1, 2], [3], [4]])
        self.assertEqual([each.number for each in segments.read(self.path, 4)], [4, 6])
        segments.forget(self.path, 6)
        self.assertEqual(segments.numbers_in(self.path), [6])

    def test_nothing(self) -> None:
        """A batch of nothing makes no file."""
        SegmentWriter(self.path).append(1, [])
        self.assertEqual(segments.numbers_in(self.path), [])

    def test_unreadable(self) -> None:
        """A file that the system does not let be read ends it: what follows would be older."""
        writer = SegmentWriter(self.path)
        writer.append(1, [OffsetChange(0, "T@g", 0, 1)])
        writer.close()
        segments.path_of(self.path, 2).mkdir()
        error = self.assertRaises(FileUnreadable, list, segments.read(self.path, 1))
        self.assertEqual(error.path, str(segments.path_of(self.path, 2)))
