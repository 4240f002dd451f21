"""Tests for L{rmqha.wire.lane.batch_run}: what L{encode_batch} writes, written in one pass."""

from __future__ import annotations

from typing import Any
from unittest import skipUnless

from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import MessageIllegal
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.encode import MAX_BATCH, MAX_PROPERTIES, BatchForm, encode_batch, place
from rmqha.wire.log.record import Message, offset_msg_id
from tests.wire.log.test_encode import entry
from tests.wire.records import MAX_MESSAGE, PLAIN, messages

if COMPILED:
    from rmqha.wire.lane.batch_run import BatchRun

KEY = ("TopicA", 3)

PIECES = (b"A\x01x\x02", b"A\x01y", b"AA\x01y\x02", b"B\x01\x02", b"\x02", b"\x01", b"B", b"A")
USUAL = (b"UNIQ_KEY\x010A01\x02", b"WAIT\x01true\x02", b"TAGS\x01TagA\x02", b"CLUSTER\x01C\x02")

PROPERTIES = (
    st.lists(st.sampled_from(USUAL), max_size=5).map(b"".join)
    | st.lists(st.sampled_from(PIECES + USUAL), max_size=5).map(b"".join)
    | st.binary(max_size=20)
)
"""Of one message, or of all: usual ones, and such as begin or end like others."""

ENTRIES = st.lists(
    st.builds(entry, st.binary(max_size=40), PROPERTIES, st.integers(-(1 << 31), (1 << 31) - 1)),
    max_size=6,
).map(b"".join)

BROKEN = st.builds(
    lambda body, at, piece: body[: at % (len(body) + 1)] + piece + body[at % (len(body) + 1) + 1 :],
    ENTRIES,
    st.integers(0, 1 << 10),
    st.sampled_from((b"", b"\0", b"\x01", b"\x80", b"\xff", b"\x7f")),
)
"""A byte is another one, or is not there."""

BATCHES = messages(
    sys_flag=st.sampled_from((0, 0x30, 0x101, 0x200)) | st.sampled_from((4, 8, 12)),
    body=ENTRIES | BROKEN | st.binary(max_size=80),
    properties=PROPERTIES | st.sampled_from((b"DELAY\x010\x02", b"DELAY\x013\x02")),
)


def both(
    message: Message, *, queue_offset: int, offset: int, stored: int
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What becomes of a batch, in the usual way and in the short one: bytes, offset of the last
    record and ids, or what is wrong with it.
    """
    found = []
    for way in (_usual, _short):
        try:
            found.append(way(message, queue_offset, offset, stored))
        except MessageIllegal as error:
            found.append((error.field, error.value, error.limit))
    return found[0], found[1]


def _usual(message: Message, queue_offset: int, offset: int, stored: int) -> tuple[Any, ...]:
    log, ids, last = bytearray(), [], offset
    for number, record in enumerate(encode_batch(message, max_message_size=MAX_MESSAGE)):
        last = offset + len(log)
        place(record, queue_offset=queue_offset + number, offset=last, store_timestamp=stored)
        ids.append(offset_msg_id(message.store_host, last))
        log += record
    return bytes(log), last, ",".join(ids)


def _short(message: Message, queue_offset: int, offset: int, stored: int) -> tuple[Any, ...]:
    run = BatchRun.of(BatchForm.of(message, MAX_MESSAGE), KEY)
    if not run.read(message.body, 0, len(message.body)):
        encode_batch(message, max_message_size=MAX_MESSAGE)
        return ("refused", "for nothing")
    count, total = run.fitting(1 << 30)
    file, offsets = bytearray(b"\xaa" * (total + 20)), {KEY: queue_offset}
    last = run.write(
        memoryview(file),
        10,
        offset,
        count=count,
        stored=stored,
        born_host=b"",
        next_offsets=offsets,
    )
    assert (file[:10], file[-10:]) == (b"\xaa" * 10, b"\xaa" * 10), "nothing else is written"
    assert offsets == {KEY: queue_offset + run.count}, "the next offset"
    assert run.queue_offset == queue_offset, "the first offset"
    return bytes(file[10:-10]), last, run.ids().decode()


@skipUnless(COMPILED, "the write lane is not compiled here")
class BatchRunTests(SynchronousTestCase):
    """A batch, with nothing around it."""

    def same(self, message: Message, **places: int) -> None:
        """Both ways make the same of it."""
        places = {"queue_offset": 5, "offset": 1 << 33, "stored": 9} | places
        usual, short = both(message, **places)
        self.assertEqual(usual, short)

    @given(
        message=BATCHES,
        queue_offset=st.integers(0, 1 << 60),
        offset=st.integers(0, (1 << 63) - 1 - 10_000),
        stored=st.integers(0, 1 << 50),
    )
    @example(evolve(PLAIN, body=b""), 0, 0, 0)
    @example(evolve(PLAIN, body=entry(b"", b"")), 0, 0, 0)
    @example(evolve(PLAIN, topic="t" * 127, body=entry(b"1", b"A\x01b")), 0, 0, 0)
    @example(evolve(PLAIN, topic="t" * 128, body=entry(b"1", b"A\x01b")), 0, 0, 0)
    @example(evolve(PLAIN, topic="", body=entry(b"1", b"A\x01b")), 0, 0, 0)
    def test_both_ways(self, message: Message, queue_offset: int, offset: int, stored: int) -> None:
        """Whatever comes: the same records, the same ids, or the same error."""
        self.same(message, queue_offset=queue_offset, offset=offset, stored=stored)

    def test_cut_anywhere(self) -> None:
        """A batch that ends inside a message, wherever it ends."""
        whole = entry(b"first", b"A\x01b") + entry(b"second", b"C\x01d")
        for size in range(len(whole) + 1):
            self.same(evolve(PLAIN, body=whole[:size], properties=b"A\x01c\x02"))

    def test_lengths(self) -> None:
        """Lengths of bodies and properties that are too long by one, very long, or below zero."""
        whole = entry(b"first", b"A\x01b") + entry(b"second", b"C\x01d")
        for length in (0, 4, 5, 6, 38, 39, 40, 41, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            self.same(evolve(PLAIN, body=whole[:16] + length.to_bytes(4, "big") + whole[20:]))
        for length in (0, 2, 3, 4, 33, 34, 35, 36, 0x7FFF, 0x8000, 0xFFFF):
            self.same(evolve(PLAIN, body=whole[:25] + length.to_bytes(2, "big") + whole[27:]))

    def test_most_entries(self) -> None:
        """As many messages as a batch may have, and one more."""
        for count in (255, 256, 257, MAX_BATCH, MAX_BATCH + 1):
            self.same(evolve(PLAIN, body=entry(b"x", b"") * count, properties=b"A\x01b"))

    def test_sum_of_properties(self) -> None:
        """Own properties that with the common ones just fit, or just do not."""
        for size in range(MAX_PROPERTIES - 8, MAX_PROPERTIES + 1):
            body = entry(b"1", b"") + entry(b"2", b"A\x01" + b"x" * (size - 2))
            self.same(evolve(PLAIN, body=body, properties=b"B\x01y\x02"))

    def test_many_common_properties(self) -> None:
        """Of more than there are bits nothing is lost."""
        for count in (31, 32):
            pairs = [b"%d\x01v\x02" % number for number in range(count)]
            body = entry(b"1", pairs[0] + pairs[-1]) + entry(b"2", b"") + entry(b"3", pairs[7][:-1])
            self.same(evolve(PLAIN, body=body, properties=b"".join(pairs)))

    def test_more_common_properties(self) -> None:
        """A batch with more common properties than are known here is left to the usual way."""
        properties = b"".join(b"%d\x01v\x02" % number for number in range(33))
        message = evolve(PLAIN, body=entry(b"1", b""), properties=properties)
        run = BatchRun.of(BatchForm.of(message, MAX_MESSAGE), KEY)
        self.assertFalse(run.read(message.body, 0, len(message.body)))

    def test_all_or_none(self) -> None:
        """A batch fits whole or not at all, and is written only where there is room."""
        message = evolve(PLAIN, body=entry(b"1", b"") * 3)
        run = BatchRun.of(BatchForm.of(message, MAX_MESSAGE), KEY)
        self.assertTrue(run.read(message.body, 0, len(message.body)))
        count, total = run.fitting(1 << 20)
        self.assertEqual((3, total, (0, total)), (count, total, run.fitting(total - 1)))
        file, offsets = memoryview(bytearray(total + 5)), {KEY: 7}
        for position, some in ((6, 3), (-1, 3), (total + 6, 3), (0, 2), (0, 0), (0, 4)):
            with self.assertRaises(ValueError):
                run.write(
                    file, position, 0, count=some, stored=0, born_host=b"", next_offsets=offsets
                )
        self.assertEqual((bytes(total + 5), {KEY: 7}), (bytes(file), offsets))
