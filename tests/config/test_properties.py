"""Java's .properties text, corner by corner."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.config.properties import Entry, decode, parse

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def java_escape(text: str, key: bool) -> str:
    """Escape as C{Properties.store} does: pure ASCII, blanks of keys, leading blanks of values."""
    out = []
    for position, char in enumerate(text):
        if char == " " and (key or position == 0):
            out.append("\\ ")
        elif char in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif char in "=:#!\\":
            out.append("\\" + char)
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be")
            out.extend(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(out)


def pairs(text: str) -> list[tuple[str, str]]:
    """Keys and values without their lines."""
    return [(entry.key, entry.value) for entry in parse(text)]


TABLE: list[tuple[str, str, list[tuple[str, str]]]] = [
    ("a second separator belongs to the value", "a==b", [("a", "=b")]),
    ("so it does behind blanks", "a = = b", [("a", "= b")]),
    ("and behind a blank alone", "a b=c", [("a", "b=c")]),
    ("a list of addresses is a value", "namesrvAddr=h:1;g:2", [("namesrvAddr", "h:1;g:2")]),
    ("a backslash takes a separator's meaning away", r"a\=b\:c\ d=e", [("a=b:c d", "e")]),
    ("a key without a separator has an empty value", "a\nb=\n", [("a", ""), ("b", "")]),
    ("blanks behind a value are part of it, as in Java", "a=b  ", [("a", "b  ")]),
    (
        "both comment signs count only at the start of a line, behind blanks too",
        "# a=1\n! b=2\n\n   \t\n  # c=3\nd=4 # not a comment\n",
        [("d", "4 # not a comment")],
    ),
    ("two backslashes are one character", "a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
    ("three are one and a continuation", "a=1\\\\\\\n  2", [("a", "1\\2")]),
    ("a continued line is never a comment", "a=1\\\n#2", [("a", "1#2")]),
    ("a comment is never continued", "# a \\\nb=2", [("b", "2")]),
    ("a blank line ends a continuation", "a=1\\\n   \nb=2", [("a", "1"), ("b", "2")]),
    ("a last backslash continues into nothing", "a=1\\", [("a", "1")]),
    ("so it does alone", "\\", []),
    ("a continuation may cut a key", "bro\\\n   kerId=0", [("brokerId", "0")]),
    ("which of equal keys counts is not decided here", "a=1\na=2", [("a", "1"), ("a", "2")]),
    (
        "other white space, and other line ends of Unicode, are ordinary characters",
        "a=\v1\x85\u2028",
        [("a", "\v1\x85\u2028")],
    ),
    (
        "four letters are control characters; before anything else a backslash vanishes",
        r"a=\t\r\n\f\z\"\b\0",
        [("a", '\t\r\n\fz"b0')],
    ),
    ("what Java does to a path of Windows happens here too", r"a=C:\store", [("a", "C:store")]),
    (
        "four hex digits are one UTF-16 unit; pairs become one character",
        r"\u00e9=\u4E2D\uD83D\uDE00",
        [("é", "中😀")],
    ),
    ("half a pair becomes the replacement character", r"a=\ud83dx", [("a", "\ufffdx")]),
]
"""What is so, a text, and the keys and values in it."""


class ParseTests(SynchronousTestCase):
    def test_table(self) -> None:
        """Each text has its keys and values."""
        for what, text, expected in TABLE:
            self.assertEqual(pairs(text), expected, what)

    def test_every_separator(self) -> None:
        """An equals sign, a colon and blanks all separate, with blanks around them."""
        for line in ("a=b", "a:b", "a b", "a\tb", "a = b", "a : b", "  a  b", "\ta\f=\tb"):
            self.assertEqual(pairs(line), [("a", "b")], line)

    def test_line_numbers(self) -> None:
        """An entry knows the line it starts on, whatever ends the lines."""
        for end in ("\n", "\r", "\r\n"):
            entries = parse(end.join(["# x", "a=1\\", "  2", "", "b=3"]))
            self.assertEqual(entries, [Entry("a", "12", 2), Entry("b", "3", 5)], repr(end))

    def test_malformed_unicode_is_a_fault(self) -> None:
        """Too few hex digits spoil their line and no other."""
        first, second = parse("a=\\u12G4\nb=1")
        self.assertEqual(first.line, 1)
        self.assertIn("u12G4", first.fault)
        self.assertEqual(second, Entry("b", "1", 2))
        self.assertTrue(parse("a=\\u12")[0].fault)


class DecodeTests(SynchronousTestCase):
    def test_both_charsets(self) -> None:
        """UTF-8 is recognised, with its mark or without; all else is Latin-1."""
        self.assertEqual(decode("é".encode()), "é")
        self.assertEqual(decode(b"\xef\xbb\xbfa=1"), "a=1")
        self.assertEqual(decode(b"\xe9"), "é")

    @given(st.binary(max_size=200))
    def test_any_bytes(self, raw: bytes) -> None:
        """No bytes break the reader."""
        for entry in parse(decode(raw)):
            entry.key.encode()
            entry.value.encode()


class RoundTripTests(SynchronousTestCase):
    @given(
        st.lists(st.tuples(TEXTS.filter(bool), TEXTS), max_size=5), st.sampled_from(["\n", "\r\n"])
    )
    def test_round_trip(self, written: list[tuple[str, str]], end: str) -> None:
        """Any keys and values survive Java's own escaping."""
        text = "".join(
            f"{java_escape(key, True)}={java_escape(value, False)}{end}" for key, value in written
        )
        self.assertEqual(pairs(text), written)

    @given(TEXTS.filter(bool), TEXTS, st.data())
    def test_round_trip_with_continuations(self, key: str, value: str, data: st.DataObject) -> None:
        """A line may be cut anywhere outside an escape."""
        cut = data.draw(st.integers(0, len(value)))
        head, tail = java_escape(value[:cut], False), java_escape(value[cut:], True)
        text = f"{java_escape(key, True)}={head}\\\n   {tail}"
        self.assertEqual(pairs(text), [(key, value)])
