"""Bytes against bytes, and the first byte of all."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.ha.slave.compare_bytes import first_difference, missing_first_byte
from rmqha.wire.log.encode import blank, encode
from rmqha.wire.log.layout import HEAD_MOST
from rmqha.wire.log.record import Message
from tests.support.logs import FILE_SIZE, encoded
from tests.support.sending_log import MemoryLog

V4 = ("127.0.0.1", 10911)
V6 = ("2001:db8::1", 10911)


class DifferenceTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A log of three files that starts in the middle."""
        self.log = MemoryLog(end=100, min_offset=100, file_size=100)
        self.bytes = bytes(i % 250 for i in range(250))
        self.log.put(self.bytes)

    def test_equal(self) -> None:
        """Equal bytes have no difference, over all files."""
        self.assertIsNone(first_difference(self.log, 100, memoryview(self.bytes)))

    def test_every_place(self) -> None:
        """One other byte is found wherever it is."""
        for place in range(250):
            data = bytearray(self.bytes)
            data[place] ^= 1
            found = first_difference(self.log, 100, memoryview(bytes(data)))
            self.assertEqual(found, 100 + place)

    def test_first_of_many(self) -> None:
        """The first one counts."""
        data = memoryview(bytes(50))
        self.assertEqual(first_difference(self.log, 195, data), 195)


class FirstByteTests(SynchronousTestCase):
    """L{missing_first_byte}: computed, never assumed."""

    def test_records(self) -> None:
        """Records with hosts of both kinds give their own first byte."""
        for born, stored in ((V4, V4), (V6, V4), (V4, V6), (V6, V6)):
            record = encode(
                Message(
                    topic="T",
                    queue_id=0,
                    body=b"b" * 40,
                    born_timestamp=1,
                    born_host=born,
                    store_host=stored,
                ),
                max_message_size=1 << 20,
            )
            self.assertEqual(missing_first_byte(bytes(record[1:]), 1 << 30), record[0])

    def test_too_short(self) -> None:
        """Nothing is said before the lengths are there."""
        record = encoded(300)
        for size in range(HEAD_MOST):
            self.assertIsNone(missing_first_byte(bytes(record[1 : 1 + size]), FILE_SIZE))
        self.assertEqual(missing_first_byte(record[1 : 1 + HEAD_MOST], FILE_SIZE), 0)

    def test_blank_first(self) -> None:
        """A blank is as long as the file."""
        for size in (1 << 30, (1 << 24) + 5, 262144):
            head = blank(size) + bytes(200)
            self.assertEqual(missing_first_byte(head[1:], size), head[0])

    @given(
        st.integers(0, (1 << 31) - 1 - 200_000),
        st.integers(0, 65_000),
        st.sampled_from([0, 0x10, 0x20, 0x30]),
    )
    def test_any_size(self, body: int, rest: int, flags: int) -> None:
        """Bodies of any size: the record's size is its lengths and at most 64 KiB more."""
        hosts = 12 * bin(flags).count("1")
        total = 91 + hosts + body + rest
        head = bytearray(HEAD_MOST + 1)
        head[0:4] = total.to_bytes(4, "big")
        head[4:8] = (0xDAA320A7).to_bytes(4, "big")
        head[36:40] = flags.to_bytes(4, "big")
        head[84 + hosts : 88 + hosts] = body.to_bytes(4, "big")
        self.assertEqual(missing_first_byte(bytes(head[1:]), 1 << 30), head[0])

    @given(st.binary(min_size=HEAD_MOST, max_size=HEAD_MOST))
    def test_garbage(self, head: bytes) -> None:
        """Whatever comes, a byte is a byte."""
        found = missing_first_byte(head, 1 << 30)
        assert found is not None
        self.assertIn(found, range(256))

    def test_a_body_no_record_has(self) -> None:
        """Lengths at the top of their range do not raise."""
        self.assertIn(missing_first_byte(b"\xff" * HEAD_MOST, 1 << 30), range(256))
