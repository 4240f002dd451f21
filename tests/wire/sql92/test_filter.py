"""Filters, beside what stock brokers' say."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import ExpressionInvalid
from rmqha.wire.sql92.filter import LONGEST_KNOWN, MOST_KNOWN, Parser, read_filter
from rmqha.wire.sql92.java_values import Incomparable
from rmqha.wire.sql92.parts import Properties
from tests.support.effort import tries

STOCK = Path(__file__).parents[2] / "data" / "sql92.json"

#: The oldest release that is asked for each, by what the newer ones have.
LATER_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")


def said(text: str, properties: Properties) -> str:
    """What ours says, in the letters of the table."""
    try:
        found = Parser(text).parse().evaluate(properties)
    except Incomparable:
        return "x"
    return {True: "t", False: "f", None: "n"}[found]


class StockTests(SynchronousTestCase):
    """Over four hundred filters and fifty sets of properties of which stock filters were asked."""

    def setUp(self) -> None:
        table = json.loads(STOCK.read_text(encoding="utf-8"))
        self.sets = table["properties"]
        self.newest = {text: answers[-1] for text, answers in table["expressions"].items()}
        self.before = {text: answers[0] for text, answers in table["expressions"].items()}

    def ours(self, text: str) -> str:
        return "".join(said(text, properties) for properties in self.sets)

    def test_size(self) -> None:
        """The table is not a small one."""
        self.assertGreaterEqual(len(self.newest), 200)
        self.assertGreaterEqual(len(self.sets), 50)

    def test_same(self) -> None:
        """Each answer is that of 5.3: true, false, unknown, or the end of the question."""
        differing = {}
        for text, answers in self.newest.items():
            try:
                ours = self.ours(text)
            except ExpressionInvalid:
                continue
            if ours != answers:
                differing[text] = ours, answers
        self.assertEqual({}, differing)

    def test_refused(self) -> None:
        """What 5.3 refuses is refused; what it reads in part too, where it stops."""
        cut = []
        for text, answers in self.newest.items():
            try:
                read_filter(text)
            except ExpressionInvalid as error:
                if answers != "!":
                    self.assertIn("expected an operator or the end", error.fault, text)
                    self.assertEqual(self.ours(text[: error.position - 1]), answers, text)
                    cut.append(text)
            else:
                self.assertNotEqual(answers, "!", text)
        self.assertIn("a = 5 b = 5", cut)
        self.assertLess(len(cut), len(self.newest) // 8)

    def test_of_4(self) -> None:
        """4.9 says the same of all that does not have 5.x's words."""
        for text, answers in self.before.items():
            if not any(word in text.upper() for word in LATER_WORDS):
                self.assertEqual(answers, self.newest[text], text)


class FilterTests(SynchronousTestCase):
    def fault(self, text: str) -> ExpressionInvalid:
        error = self.assertRaises(ExpressionInvalid, read_filter, text)
        again = self.assertRaises(ExpressionInvalid, read_filter, text)
        self.assertEqual(str(error), str(again))
        return error

    def test_matches(self) -> None:
        """Only a true answer is a match."""
        wanted = read_filter("price > 10 AND region IN ('eu', 'us')")
        for properties, match in (
            ({"price": "11", "region": "eu"}, True),
            ({"price": "10", "region": "eu"}, False),
            ({"price": "11", "region": "cn"}, False),
            ({"price": "11"}, False),
            ({"price": "much", "region": "eu"}, False),
            ({}, False),
        ):
            self.assertEqual(wanted.matches(properties), match, properties)

    def test_positions(self) -> None:
        """A fault is told with its place."""
        for text, place, fault in (
            ("", 1, "found the end, expected a value"),
            ("a >", 4, "found the end, expected a value"),
            ("a > 5 AND b ! 6", 13, "nothing begins with '!'"),
            ("a > 5  b", 8, "found 'b', expected an operator or the end"),
            ("b = 1 OR a > 'x'", 12, "only numbers are less or greater"),
            ("a IS NULL > 5", 11, "found '>', expected an operator or the end"),
            ("a = 1 AND 5", 7, "a constant is neither true nor false"),
            ("a = 'it", 5, 'nothing begins with "\'"'),
            ("a IN ('x' 'y')", 11, "found \"'y'\", expected ,"),
            ("(a = 1", 7, "found the end, expected an operator or )"),
            ("a BETWEEN 6 AND 5", 3, "BETWEEN takes two numbers, the lower one first"),
            ("5", 1, "a constant is neither true nor false"),
            ("a = 9223372036854775808", 5, "has more than 64 bits"),
            ("a = " + "9" * 5000, 5, "has more than 64 bits"),
        ):
            error = self.fault(text)
            self.assertEqual(error.position, place, text)
            self.assertIn(fault, error.fault)
            self.assertIn(f"at character {place}: ", str(error))

    def test_bounds(self) -> None:
        """A filter that would take long is refused, soon."""
        hostile = (
            "(" * 100 + "a" + ")" * 100,
            "NOT " * 100 + "a",
            "-" * 100 + "1 = 1",
            "a" + " = b" * 100,
            "a > 1 OR " * 400 + "a > 1",
            "a = 1 AND " * 900,
            "a" * 8193,
            "/*" + "*" * 8000,
            "'" + "''" * 4000,
            " " * 8100 + "?",
            "--" * 4000,
            "(" * 8000,
        )
        begun = perf_counter()
        for text in hostile:
            self.fault(text)
        self.assertLess(perf_counter() - begun, 2)

    def test_long_ones(self) -> None:
        """One that is long and not hostile is read, and asked without being nested."""
        wanted = read_filter(" OR ".join(f"a = '{n}'" for n in range(150)))
        self.assertTrue(wanted.matches({"a": "149"}))
        self.assertGreater(wanted.steps, 450)
        names = read_filter("a IN (" + ", ".join(f"'{n}'" for n in range(1000)) + ")")
        self.assertTrue(names.matches({"a": "999"}))
        self.assertLess(names.steps, 5)

    def test_known(self) -> None:
        """What was said of values is known: of few, and of none that are long."""
        found = read_filter("a > 1 AND b IS NULL")
        self.assertEqual(found.names, (b"a", b"b"))
        for values, wanted in (((b"2", None), True), ((b"2", b"x"), False), ((None, None), False)):
            self.assertIs(found.wants(values), wanted)
            self.assertIs(found.known[values], wanted)
        self.assertFalse(found.wants((b"2", bytes(LONGEST_KNOWN))))
        self.assertEqual(len(found.known), 3)
        for number in range(2 * MOST_KNOWN):
            found.wants((b"%d" % number, None))
            self.assertLessEqual(len(found.known), MOST_KNOWN)

    def test_read_once(self) -> None:
        """A filter that many consumers have is read once."""
        self.assertIs(read_filter("a = 'once'"), read_filter("a = 'once'"))

    @given(st.text(alphabet="ab5.'()=<>-+, \nNOTANDIXorisnull", max_size=40), st.text(max_size=8))
    @settings(max_examples=tries(300))
    def test_anything(self, text: str, value: str) -> None:
        """Whatever is written, it is refused or answers."""
        try:
            wanted = read_filter(text)
        except ExpressionInvalid as error:
            self.assertGreaterEqual(len(text) + 1, error.position)
        else:
            self.assertIn(wanted.matches({"a": value, "b": "5"}), (True, False))
