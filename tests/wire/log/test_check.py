"""Tests for L{rmqha.wire.log.record.check}: what is not a record, and never an exception."""

from __future__ import annotations

from struct import pack, pack_into

from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log import properties
from rmqha.wire.log.encode import blank
from rmqha.wire.log.layout import MAGIC_BLANK, MAGIC_V1, MIN_BLANK, MIN_RECORD
from rmqha.wire.log.record import Fault, Message, check, decode, dispatch_fields
from tests.wire.log.test_record import LEVELS
from tests.wire.records import PLAIN, messages, stored

FILE = 4096
"""Size of the file the records below lie in, in bytes."""
START = 1 << 20
"""Physical offset of that file."""
AT = 1000
"""Where in it the record lies."""
OFFSET = START + AT

RECORD = stored(evolve(PLAIN, properties=properties.encode({"TAGS": "TagA"})), offset=OFFSET)
SIZE = len(RECORD)
BODY = 88
TOPIC_LENGTH = BODY + len(PLAIN.body)


def file_with(data: bytes | bytearray, at: int = AT) -> bytearray:
    """A file of zeros with some bytes in it, cut at its end."""
    buf = bytearray(FILE)
    data = data[: FILE - at]
    buf[at : at + len(data)] = data
    return buf


def verdict(
    data: bytes | bytearray,
    at: int = AT,
    *,
    limit: int = FILE,
    max_size: int = FILE,
    crc: bool = True,
    nul_is_torn: bool = False,
) -> int | Fault:
    """Check bytes in a file, of which only those below C{limit} exist."""
    return check(
        memoryview(bytes(file_with(data, at)[:limit])),
        at,
        limit,
        START + at,
        START + FILE,
        crc=crc,
        max_size=max_size,
        nul_is_torn=nul_is_torn,
    )


def patched(at: int, form: str, value: int) -> bytearray:
    """The record with one number changed."""
    data = bytearray(RECORD)
    pack_into(form, data, at, value)
    return data


class BadHeaderTests(SynchronousTestCase):
    """Every way a log may end has a name."""

    def test_whole(self) -> None:
        """The record itself is whole."""
        self.assertEqual(verdict(RECORD), SIZE)

    def test_nothing_written(self) -> None:
        """Zeros are where nobody has written."""
        self.assertIs(verdict(b""), Fault.NOTHING)

    def test_size(self) -> None:
        """A size no record has is bad: 0, 1, negative, too small, above the limit."""
        for size in (0, 1, -1, -(1 << 31), MIN_RECORD - 1, FILE + 1, (1 << 31) - 1):
            self.assertIs(verdict(patched(0, ">i", size)), Fault.SIZE)
        self.assertIs(verdict(RECORD, max_size=SIZE - 1), Fault.SIZE)
        self.assertEqual(verdict(RECORD, max_size=SIZE), SIZE)

    def test_beyond_the_file(self) -> None:
        """A record that is longer than the rest of its file crosses the file's end."""
        size = FILE - AT + 1
        self.assertIs(verdict(patched(0, ">i", size)), Fault.FILE_END)
        self.assertIs(verdict(patched(0, ">i", size), limit=AT + SIZE), Fault.FILE_END)

    def test_magic(self) -> None:
        """Another magic is no record, nor is a size alone."""
        for magic in (0, 1, -1, MAGIC_V1 + 1, MAGIC_V1 ^ 0x1000000):
            self.assertIs(verdict(patched(4, ">i", magic)), Fault.MAGIC)
        self.assertIs(verdict(pack(">ii", 1, 0)), Fault.MAGIC)

    def test_crc(self) -> None:
        """One flipped bit of the body, or of its CRC, is found; unless nobody asks."""
        for at in (8, 11, BODY, BODY + 4):
            data = bytearray(RECORD)
            data[at] ^= 1
            self.assertIs(verdict(data), Fault.CRC)
            self.assertEqual(verdict(data, crc=False), SIZE)

    def test_crc_zero(self) -> None:
        """A stored CRC of 0 is no excuse for a body whose CRC is another."""
        self.assertIs(verdict(patched(8, ">i", 0)), Fault.CRC)

    def test_legal_crc_zero(self) -> None:
        """A body whose CRC really is 0 is whole, and so is an empty one with any CRC."""
        # CRC-32 of these is 0, and 0x80000000, which is 0 without its sign.
        for body in (bytes.fromhex("9d0ad96d"), bytes.fromhex("4e85ec36")):
            data = bytearray(stored(evolve(PLAIN, body=body), offset=OFFSET))
            self.assertEqual(data[8:12], bytes(4))
            self.assertEqual(verdict(data), len(data))
        data = bytearray(stored(evolve(PLAIN, body=b""), offset=OFFSET))
        data[8:12] = b"\x12\x34\x56\x78"
        self.assertEqual(verdict(data), len(data))

    def test_negative_crc(self) -> None:
        """A stored CRC never has the highest bit, though its other bits are right."""
        data = bytearray(RECORD)
        data[8] |= 0x80
        self.assertIs(verdict(data), Fault.CRC)

    def test_recycled_file(self) -> None:
        """A valid record that says it lies elsewhere is left over from another time."""
        self.assertIs(verdict(stored(PLAIN, offset=OFFSET - FILE)), Fault.OFFSET)
        self.assertIs(verdict(stored(PLAIN, offset=-1)), Fault.OFFSET)

    def test_header_split_at_the_end(self) -> None:
        """Fewer than 8 bytes before the file's end hold neither record nor blank."""
        for left in range(1, MIN_BLANK):
            self.assertIs(verdict(RECORD, FILE - left), Fault.FILE_END)
        record = stored(PLAIN, offset=START + FILE - MIN_BLANK)
        self.assertIs(verdict(record, FILE - MIN_BLANK), Fault.FILE_END)

    def test_lengths(self) -> None:
        """Lengths inside that do not add up to the size are found, however absurd."""
        properties_length = SIZE - 12
        for data in (
            patched(0, ">i", SIZE + 1),
            patched(0, ">i", MIN_RECORD),
            patched(84, ">i", -1),
            patched(84, ">i", 1 << 30),
            patched(84, ">i", -(1 << 31)),
            patched(84, ">i", 6),
            patched(TOPIC_LENGTH, ">b", -1),
            patched(TOPIC_LENGTH, ">b", 127),
            patched(TOPIC_LENGTH, ">b", 7),
            patched(properties_length, ">h", -1),
            patched(properties_length, ">h", 0x7FFF),
            patched(properties_length, ">h", 9),
            patched(properties_length, ">h", 11),
        ):
            self.assertIs(verdict(data), Fault.LENGTHS)
            self.assertIs(verdict(data, limit=AT + max(SIZE, 200)), Fault.LENGTHS)

    def test_hosts_that_do_not_fit(self) -> None:
        """A smallest record that claims IPv6 hosts has no room for its own lengths."""
        data = bytearray(stored(evolve(PLAIN, body=b"", topic="T"), offset=OFFSET))
        for flags in (0x10, 0x20, 0x30):
            data[39] = flags
            self.assertIs(verdict(data), Fault.LENGTHS)
            self.assertIs(verdict(data, limit=AT + len(data)), Fault.LENGTHS)

    def test_topic(self) -> None:
        """A topic that is empty or no UTF-8 is bad."""
        data = bytearray(RECORD)
        data[TOPIC_LENGTH + 1] = 0xFF
        self.assertIs(verdict(data), Fault.TOPIC)
        empty = bytearray(stored(evolve(PLAIN, topic="T"), offset=OFFSET))
        del empty[TOPIC_LENGTH + 1]
        empty[TOPIC_LENGTH] = 0
        pack_into(">i", empty, 0, len(empty))
        self.assertIs(verdict(empty), Fault.TOPIC)

    def test_properties(self) -> None:
        """Properties that end in NUL are a fault only to those who say so."""
        data = bytearray(RECORD)
        data[-1] = 0
        self.assertEqual(verdict(data), SIZE)
        self.assertIs(verdict(data, nul_is_torn=True), Fault.PROPERTIES)
        self.assertEqual(verdict(RECORD, nul_is_torn=True), SIZE)
        without = stored(PLAIN, offset=OFFSET)
        self.assertEqual(without[-1], 0)
        self.assertEqual(verdict(without, nul_is_torn=True), len(without))

    def test_every_fault_is_named_once(self) -> None:
        """No two faults read the same."""
        self.assertEqual(len({fault.value for fault in Fault}), len(Fault.__members__))


class BlankTests(SynchronousTestCase):
    def test_whole(self) -> None:
        """A blank up to the file's end counts, whatever is in it."""
        for at in (0, AT, FILE - MIN_BLANK):
            self.assertEqual(verdict(blank(FILE - at), at), at - FILE)
        self.assertEqual(verdict(blank(FILE - AT) + b"rubbish"), AT - FILE)

    def test_wrong_size(self) -> None:
        """A blank that does not end where the file does is bad."""
        right = FILE - AT
        for size in (0, 7, 8, -1, right - 1, right + 1, (1 << 31) - 1, -right):
            self.assertIs(verdict(pack(">ii", size, MAGIC_BLANK)), Fault.SIZE)

    def test_not_all_there(self) -> None:
        """A blank counts only when all of it has come."""
        for limit in range(AT + MIN_BLANK, FILE, 97):
            self.assertIs(verdict(blank(FILE - AT), limit=limit), Fault.INCOMPLETE)


class TornTests(SynchronousTestCase):
    """A record of 300 bytes, cut at every byte."""

    record = stored(
        evolve(
            PLAIN,
            body=bytes(range(1, 148)),
            properties=properties.encode({"UNIQ_KEY": "0A01", "KEYS": "k" * 36}),
        ),
        offset=OFFSET,
    )

    def test_size(self) -> None:
        """The record is the one the fault list asks for."""
        self.assertEqual(len(self.record), 300)

    def test_bytes_still_to_come(self) -> None:
        """While bytes are missing the record is incomplete, and nothing behind is read."""
        for size in range(300):
            self.assertIs(verdict(self.record, limit=AT + size), Fault.INCOMPLETE)

    def test_zeros_in_place_of_the_rest(self) -> None:
        """Wherever a crash cut it, a record whose rest is zeros is not whole."""
        found = {size: verdict(self.record[:size], nul_is_torn=True) for size in range(301)}
        self.assertEqual(found.pop(300), 300)
        self.assertEqual({size for size in found if found[size] is Fault.NOTHING}, {0, 1, 2})
        self.assertEqual({size for size in found if found[size] is Fault.MAGIC}, set(range(3, 8)))
        for size, fault in found.items():
            self.assertIsInstance(fault, Fault, size)
            self.assertIsNot(fault, Fault.INCOMPLETE)

    def test_only_properties_missing(self) -> None:
        """Without the rule for properties, zeros in their place pass: no CRC covers them."""
        first = 300 - 50
        for size in range(first, 300):
            self.assertEqual(verdict(self.record[:size]), 300)
            self.assertIs(verdict(self.record[:size], nul_is_torn=True), Fault.PROPERTIES)


class AnyBytesTests(SynchronousTestCase):
    """C{check} raises nothing and reads nothing it may not."""

    def judge(self, data: bytes, limit: int, room: int, nul_is_torn: bool) -> None:
        """Check damaged bytes below a limit, with and without more behind it."""
        cut = memoryview(data)[:limit]
        more = memoryview(data + b"\xa5" * 64)
        results = [
            check(buf, 0, len(cut), OFFSET, OFFSET + room, max_size=FILE, nul_is_torn=nul_is_torn)
            for buf in (cut, more, bytes(more))
        ]
        self.assertEqual((results[0], results[0]), (results[1], results[2]))
        size = results[0]
        if isinstance(size, Fault):
            return
        self.assertTrue(MIN_BLANK <= abs(size) <= min(len(cut), room))
        if size > 0:
            record = decode(cut, 0, OFFSET)
            self.assertEqual(record.stored_offset, OFFSET)
            self.assertEqual(dispatch_fields(cut, 0, size, OFFSET, LEVELS).topic, record.topic)

    @given(
        messages(),
        st.lists(st.tuples(st.integers(0, 700), st.binary(min_size=1, max_size=8)), max_size=4),
        st.integers(0, 1000),
        st.integers(0, 1000),
        st.booleans(),
    )
    def test_damaged(
        self,
        message: Message,
        damage: list[tuple[int, bytes]],
        limit: int,
        room: int,
        nul_is_torn: bool,
    ) -> None:
        """A record with bytes changed anywhere is judged alike whatever lies behind the limit."""
        data = bytearray(stored(message, offset=OFFSET))
        size = len(data)
        for at, patch in damage:
            data[at % size : at % size + len(patch)] = patch
        self.judge(bytes(data), limit, room, nul_is_torn)

    @given(
        messages(body=st.binary(max_size=8), properties=st.binary(max_size=8)),
        st.sampled_from([(0, 4), (4, 4), (28, 8), (39, 1), (84, 4), (88, 1), (96, 4), (108, 4)]),
        st.binary(min_size=8, max_size=8),
        st.integers(0, 200),
    )
    def test_damaged_lengths(
        self, message: Message, field: tuple[int, int], value: bytes, limit: int
    ) -> None:
        """So is one whose own numbers are damaged."""
        data = bytearray(stored(message, offset=OFFSET))
        at, width = field
        data[at : at + width] = value[:width]
        self.judge(bytes(data), limit, FILE, False)

    @given(st.binary(max_size=200), st.sampled_from([b"", RECORD[:8], RECORD[:40]]))
    def test_noise(self, data: bytes, head: bytes) -> None:
        """So is noise, with or without the start of a record."""
        self.judge(head + data, len(head + data), FILE, True)
