"""Tests for L{rmqha.wire.log.properties}."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log.properties import encode, find, parse

_words = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1)
# Few letters, so that separators meet in every way.
_mess = st.lists(st.sampled_from([b"\x01", b"\x02", b"A", b"B", b"\xff"]), max_size=24).map(
    b"".join
)


class PropertiesTests(SynchronousTestCase):
    def test_both_trailing_habits(self) -> None:
        """A separator behind the last pair makes no difference."""
        pairs = {"KEYS": "k1 k2", "TAGS": "TagA"}
        self.assertEqual(parse(b"KEYS\x01k1 k2\x02TAGS\x01TagA"), pairs)
        self.assertEqual(parse(b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02"), pairs)

    def test_always_closed(self) -> None:
        """What we write ends in a separator, so that a torn end shows."""
        self.assertEqual(encode({"A": "b", "C": "d"}), b"A\x01b\x02C\x01d\x02")
        self.assertEqual(encode({}), b"")

    def test_dropped_segments(self) -> None:
        """What has no name, no separator or no value is not a property."""
        self.assertEqual(parse(b"A\x01\x02\x01v\x02word\x02\x02B\x01c"), {"B": "c"})

    def test_empty_value_is_lost(self) -> None:
        """An empty value is written as stock brokers write it, and not read back."""
        self.assertEqual((encode({"A": ""}), parse(encode({"A": ""}))), (b"A\x01\x02", {}))

    def test_last_name_wins(self) -> None:
        """Of equal names the last one with a value counts."""
        raw = b"A\x011\x02A\x012\x02A\x01\x02"
        self.assertEqual((parse(raw), find(raw, b"A")), ({"A": "2"}, b"2"))

    def test_value_with_a_name_end(self) -> None:
        """Only the first separator of a pair counts."""
        self.assertEqual(parse(b"A\x01B\x01c"), {"A": "B\x01c"})
        self.assertIsNone(find(b"A\x01B\x01c", b"B"))

    def test_find_is_not_fooled_by_endings(self) -> None:
        """A name that only ends like the wanted one is another name."""
        self.assertIsNone(find(b"MYKEYS\x01k\x02", b"KEYS"))
        self.assertEqual(find(b"MYKEYS\x01k\x02KEYS\x01j", b"KEYS"), b"j")

    def test_bytes_that_are_no_text(self) -> None:
        """Damaged UTF-8 becomes replacement characters, as in Java."""
        self.assertEqual(parse(b"A\x01\xffb"), {"A": "\ufffdb"})

    @given(st.dictionaries(_words, _words))
    def test_round_trip(self, pairs: dict[str, str]) -> None:
        """What we write is read back, pair by pair and one by one."""
        raw = encode(pairs)
        self.assertEqual(parse(raw), pairs)
        for name, value in pairs.items():
            self.assertEqual(find(raw, name.encode()), value.encode())

    @given(_mess)
    def test_find_reads_like_parse(self, raw: bytes) -> None:
        """One property is the same whether the others are read or not."""
        pairs = parse(raw)
        for name in ("A", "B", "AB", "BA", "AA"):
            found = find(raw, name.encode())
            text = None if found is None else found.decode("utf-8", "replace")
            self.assertEqual(text, pairs.get(name))
