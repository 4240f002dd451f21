"""Tests for L{rmqha.wire.log.hashing}."""

from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log.hashing import body_crc, java_hash, key_hash, tags_code


class JavaHashTests(SynchronousTestCase):
    def test_stock_tag_hash(self) -> None:
        """The tag of the stock consume queue has the hash a stock broker wrote."""
        self.assertEqual(tags_code("TagA"), 0x27A807)

    def test_no_tags(self) -> None:
        """A message without tags has the code 0."""
        self.assertEqual(tags_code(""), 0)

    def test_astral_characters_are_two_units(self) -> None:
        """A character beyond 16 bits counts as its two surrogates."""
        self.assertEqual(java_hash("🔑"), 31 * 0xD83D + 0xDD11)

    def test_signed(self) -> None:
        """A hash with the highest bit set is negative, as in Java."""
        self.assertEqual(java_hash("TopicA#k1"), -1903240649)

    @given(st.text())
    def test_definition(self, text: str) -> None:
        """Any text hashes to its UTF-16 units as digits of a number of base 31."""
        raw = text.encode("utf-16-be")
        units = [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]
        total = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
        self.assertEqual(java_hash(text) % (1 << 32), total % (1 << 32))
        self.assertTrue(-(1 << 31) <= java_hash(text) < 1 << 31)


class KeyHashTests(SynchronousTestCase):
    """What an index entry keeps of a key."""

    def test_stock_index(self) -> None:
        """The keys of the stock index file have the hashes a stock broker wrote."""
        for key, expected in [
            ("0A010203000118B4AAC27F8A4B2C0000", 0x581D10C8),
            ("k1", 0x717125C9),
            ("k2", 0x717125C8),
        ]:
            self.assertEqual(key_hash("TopicA", key), expected)

    def test_slots_of_the_stock_index(self) -> None:
        """With 10 slots the stock keys fall into slots 8, 9 and 8."""
        keys = ["0A010203000118B4AAC27F8A4B2C0000", "k1", "k2"]
        self.assertEqual([key_hash("TopicA", key) % 10 for key in keys], [8, 9, 8])

    def test_hash_without_a_positive_counterpart(self) -> None:
        """The one number that has no absolute value in Java becomes 0."""
        # Five letters behind "T#", as digits of a number of base 31.
        wanted = ((1 << 31) - java_hash("T#") * 31**5) % (1 << 32)
        key = ""
        for power in range(4, -1, -1):
            digit, wanted = divmod(wanted, 31**power)
            key += chr(digit)
        self.assertEqual(java_hash(f"T#{key}"), -(1 << 31))
        self.assertEqual(key_hash("T", key), 0)

    @given(st.text(max_size=20), st.text(max_size=20))
    def test_never_negative(self, topic: str, key: str) -> None:
        """A key's hash can be taken modulo the number of slots."""
        self.assertTrue(0 <= key_hash(topic, key) < 1 << 31)


class BodyCRCTests(SynchronousTestCase):
    def test_stock_body(self) -> None:
        """The stock example has the checksum a stock broker wrote."""
        self.assertEqual(body_crc(b"hello"), 0x3610A686)

    def test_empty(self) -> None:
        """No body has the checksum 0."""
        self.assertEqual(body_crc(b""), 0)

    @given(st.binary())
    def test_without_the_sign(self, body: bytes) -> None:
        """It is CRC-32 without its highest bit, of any kind of buffer."""
        expected = zlib.crc32(body) & 0x7FFFFFFF
        self.assertEqual((body_crc(body), body_crc(memoryview(body))), (expected, expected))
