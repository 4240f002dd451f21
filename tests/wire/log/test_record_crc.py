"""Tests for L{rmqha.wire.log.record_crc}."""

from __future__ import annotations

import zlib

from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log.record_crc import crc_property, whole_crc_holds


class WholeCrcTests(SynchronousTestCase):
    """A record that ends with its own CRC."""

    def test_digits(self) -> None:
        """Name, digits from the last to the first, and zeros up to ten of them."""
        self.assertEqual(crc_property(b"hello"), b"__CRC32#\x01" + b"0780607090" + b"\x02")
        for number in range(3000):
            data = b"%d" % number
            crc = zlib.crc32(data) & 0x7FFFFFFF
            digits = crc_property(data)[9:19]
            self.assertEqual((int(digits[::-1]), len(crc_property(data))), (crc, 20))

    def test_holds(self) -> None:
        """Any bit that turns over is seen, in the record or in the CRC itself."""
        record = b"record" * 20 + b"\x02"
        whole = record + crc_property(record)
        self.assertIs(whole_crc_holds(whole), True)
        self.assertIs(whole_crc_holds(memoryview(whole)), True)
        for bit in range(8 * (len(record) + 9), 8 * (len(whole) - 1)):
            harmed = bytearray(whole)
            harmed[bit // 8] ^= 1 << bit % 8
            self.assertIs(whole_crc_holds(harmed), False, bit)
        for bit in range(8 * len(record)):
            harmed = bytearray(whole)
            harmed[bit // 8] ^= 1 << bit % 8
            self.assertIs(whole_crc_holds(harmed), False, bit)

    def test_absent(self) -> None:
        """Most records have none, and short ones cannot have one."""
        for record in (b"", b"short", b"x" * 200, b"x" * 100 + b"__CRC32#\x01" + b"1" * 11):
            self.assertIsNone(whole_crc_holds(record))
