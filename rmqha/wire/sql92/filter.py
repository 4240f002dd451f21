"""A filter that is ready to be asked about messages.

It is read by a climber of precedences over one table of operators.  The grammar is that of stock
filters of 5.x, which have C{CONTAINS}, C{STARTSWITH} and C{ENDSWITH} besides those of 4.9.  In it
C{NOT} and the signs bind closest: C{NOT a = b} is C{(NOT a) = b}.  Stock filters read as far as
they understand and say nothing of the rest; here the rest is an error.

Source: docs/protocol/remoting.md, Filters.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TypeAlias

from attrs import define, field, frozen

from rmqha.errors import ExpressionInvalid
from rmqha.wire.sql92 import parts
from rmqha.wire.sql92.java_values import INTS, LONGS, Incomparable, Long, Value
from rmqha.wire.sql92.parts import Evaluate, Part, Properties, Senseless

MOST_LENGTH = 8192
"""Most characters of a filter."""

MOST_STEPS = 1000
"""Most parts of one."""

MOST_DEPTH = 60
"""How deep they may lie within each other.  Each is some frames of Python when it is read, and one
when it is asked."""

OR, AND, EQUALITY, COMPARISON = range(4)
"""How close operators bind."""

_RESERVED = "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH"

_WORDS = frozenset(_RESERVED.split())

_SKIPPED = r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*+(?:[^*/][^*]*\*+)*/)*"

_TOKEN = re.compile(
    _SKIPPED
    + r"""
    (?:
        (?P<real> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
                | [0-9]+[eE][+-]?[0-9]+ )
      | (?P<whole> 0 | [1-9][0-9]*[lL]? )
      | (?P<text> '(?:''|[^'])*' )
      | (?P<name> [A-Za-z_$][A-Za-z0-9_$]* )
      | (?P<sign> <> | <= | >= | [-+=<>(),] )
      | (?P<end> \Z )
    )
    """,
    re.VERBOSE,
)

_BLANK = re.compile(_SKIPPED)


@frozen
class _Token:
    """@ivar kind: What it is: a group of the pattern.
    @ivar what: A reserved word in capitals, a sign, or the kind.
    @ivar at: The character it begins at, from 0.
    """

    kind: str
    what: str
    text: str
    at: int


@define(eq=False)
class Parser:
    """Reads one filter.

    @ivar names: The properties in it, each once.
    """

    text: str
    names: dict[bytes, None] = field(init=False, factory=dict)
    _token: _Token = field(init=False)
    _end: int = field(init=False, default=0)
    _within: int = field(init=False, default=0)

    def parse(self) -> Part:
        """The whole filter.

        @raise ExpressionInvalid: If it is none.
        """
        if len(self.text) > MOST_LENGTH:
            raise ExpressionInvalid(MOST_LENGTH + 1, f"it has more than {MOST_LENGTH} characters")
        self._advance()
        found = self._expression(OR)
        if self._token.kind != "end":
            raise self._unexpected("an operator or the end")
        try:
            return parts.truth(found)
        except Senseless as error:
            raise ExpressionInvalid(1, str(error)) from None

    # --- precedences ------------------------------------------------------------------

    def _expression(self, least: int) -> Part:
        """A left side, and all that binds at least so close to it, but no closer than what came
        before: behind C{a IS NULL} there is no C{>}.
        """
        left, most = self._unary(), COMPARISON
        while True:
            name, at = self._operator(), self._token.at
            binds, make = OPERATORS.get(name, _NONE)
            if not least <= binds <= most:
                return left
            most = binds
            for _ in name.split():
                self._advance()
            try:
                left = make(self, left)
            except Senseless as error:
                raise self._wrong(str(error), at) from None
            if left.steps > MOST_STEPS or left.depth > MOST_DEPTH:
                raise self._wrong(
                    f"up to here it has more than {MOST_STEPS} parts, or more than {MOST_DEPTH} "
                    "within each other"
                )

    def _operator(self) -> str:
        """What comes as an operator, which may be two words."""
        what = self._token.what
        return f"NOT {self._peek().what}" if what == "NOT" else what

    def _unary(self) -> Part:
        self._within += 1
        token = self._token
        if self._within > MOST_DEPTH:
            raise self._wrong(f"it is nested more than {MOST_DEPTH} deep")
        if token.what not in ("+", "-", "NOT"):
            found = self._primary()
        else:
            self._advance()
            found = self._unary()
            try:
                found = _PREFIXES[token.what](found)
            except Senseless as error:
                raise self._wrong(str(error), token.at) from None
        self._within -= 1
        return found

    def _primary(self) -> Part:
        token = self._token
        if token.what == "(":
            self._advance()
            found = self._expression(OR)
            if self._token.what != ")":
                raise self._unexpected("an operator or )")
        elif token.what in _CONSTANTS:
            found = parts.constant(_CONSTANTS[token.what])
        elif token.what == "name":
            self.names[token.text.encode()] = None
            found = parts.named(token.text)
        elif token.what == "text":
            found = parts.constant(_unquoted(token.text))
        elif token.what in ("whole", "real"):
            found = parts.constant(self._number(token))
        else:
            raise self._unexpected("a value")
        self._advance()
        return found

    # --- behind an operator -----------------------------------------------------------

    def joined(self, left: Part, word: str, binds: int) -> Part:
        """A chain of C{OR} or C{AND}, which is one part however long it is."""
        chain = [left, self._expression(binds + 1)]
        while self._token.what == word:
            self._advance()
            chain.append(self._expression(binds + 1))
        return parts.joined(chain, decisive=word == "OR")

    def equal(self, left: Part) -> Part:
        """Behind C{=} and C{<>}."""
        return parts.same(left, self._expression(COMPARISON))

    def missing(self, left: Part) -> Part:
        """Behind C{IS}."""
        negated = self._token.what == "NOT"
        if negated:
            self._advance()
        if self._token.what != "NULL":
            raise self._unexpected("NULL" if negated else "NULL or NOT NULL")
        self._advance()
        found = parts.missing(left)
        return parts.opposite(found) if negated else found

    def compared(self, left: Part, holds: Callable[[int, int], bool]) -> Part:
        """Behind C{<}, C{<=}, C{>} and C{>=}.

        @param holds: What is asked of both sides.
        """
        return parts.compared(left, self._unary(), holds)

    def between(self, left: Part, *, negated: bool) -> Part:
        """Behind C{BETWEEN} and C{NOT BETWEEN}: both bounds belong to it."""
        low = self._unary()
        if self._token.what != "AND":
            raise self._unexpected("AND")
        self._advance()
        high = self._unary()
        if not negated:
            parts.check_bounds(low, high)
        holds = (operator.lt, operator.gt) if negated else (operator.ge, operator.le)
        bounds = zip((low, high), holds, strict=True)
        sides = [parts.compared(left, bound, hold) for bound, hold in bounds]
        return parts.joined(sides, decisive=negated)

    def one_of(self, left: Part) -> Part:
        """Behind C{IN}."""
        texts: list[str] = []
        expected = "("
        while not texts or self._token.what != ")":
            if self._token.what != expected:
                raise self._unexpected(expected)
            self._advance()
            texts.append(self._text())
            expected = ","
        self._advance()
        return parts.one_of(left, frozenset(texts))

    def texted(self, left: Part, has: Callable[[str, str], bool], *, negated: bool) -> Part:
        """Behind C{CONTAINS}, C{STARTSWITH} and C{ENDSWITH}.

        @param has: What is asked of the value and the text.
        """
        return parts.texted(left, self._text(), has, negated=negated)

    # --- tokens -----------------------------------------------------------------------

    def _text(self) -> str:
        token = self._token
        if token.kind != "text":
            raise self._unexpected("a text in single quotes")
        self._advance()
        return _unquoted(token.text)

    def _number(self, token: _Token) -> float:
        if token.kind == "real":
            real = float(token.text)
            if not 0 < real < float("inf"):
                raise self._wrong(f"{token.text[:32]} is out of range, as 0.0 is for stock filters")
            return real
        digits = token.text.rstrip("lL")
        number = int(digits) if len(digits) < 20 else LONGS.stop
        if number not in LONGS:
            raise self._wrong(f"{token.text[:32]} has more than 64 bits")
        return number if number in INTS else Long(number)

    def _advance(self) -> None:
        self._token = token = self._peek()
        self._end = token.at + len(token.text)

    def _peek(self) -> _Token:
        """The token behind the present one."""
        found = _TOKEN.match(self.text, self._end)
        if found is None or found.lastgroup is None:
            blank = _BLANK.match(self.text, self._end)
            at = self._end if blank is None else blank.end()
            raise self._wrong(f"nothing begins with {self.text[at]!r}", at)
        kind, text = found.lastgroup, found[found.lastgroup]
        word = text.upper()
        what = text if kind == "sign" else word if word in _WORDS else kind
        return _Token(kind, what, text, found.start(kind))

    def _unexpected(self, expected: str) -> ExpressionInvalid:
        shown = self._token.text[:32]
        found = "the end" if self._token.kind == "end" else repr(shown)
        return self._wrong(f"found {found}, expected {expected}")

    def _wrong(self, fault: str, at: int | None = None) -> ExpressionInvalid:
        return ExpressionInvalid((self._token.at if at is None else at) + 1, fault)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


_Make: TypeAlias = Callable[[Parser, Part], Part]


def _not(make: _Make) -> _Make:
    """What an operator makes behind C{NOT}."""
    return lambda parser, left: parts.opposite(make(parser, left))


def _compared(holds: Callable[[int, int], bool]) -> tuple[int, _Make]:
    return COMPARISON, partial(Parser.compared, holds=holds)


def _texted(has: Callable[[str, str], bool], *, negated: bool = False) -> tuple[int, _Make]:
    return COMPARISON, partial(Parser.texted, has=has, negated=negated)


OPERATORS: Mapping[str, tuple[int, _Make]] = {
    "OR": (OR, partial(Parser.joined, word="OR", binds=OR)),
    "AND": (AND, partial(Parser.joined, word="AND", binds=AND)),
    "=": (EQUALITY, Parser.equal),
    "<>": (EQUALITY, _not(Parser.equal)),
    "IS": (EQUALITY, Parser.missing),
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "BETWEEN": (COMPARISON, partial(Parser.between, negated=False)),
    "NOT BETWEEN": (COMPARISON, partial(Parser.between, negated=True)),
    "IN": (COMPARISON, Parser.one_of),
    "NOT IN": (COMPARISON, _not(Parser.one_of)),
    "CONTAINS": _texted(operator.contains),
    "NOT CONTAINS": _texted(operator.contains, negated=True),
    "STARTSWITH": _texted(str.startswith),
    "NOT STARTSWITH": _texted(str.startswith, negated=True),
    "ENDSWITH": _texted(str.endswith),
    "NOT ENDSWITH": _texted(str.endswith, negated=True),
}
"""What may follow a left side: how close it binds, and what reads on and makes a part."""

_NONE: tuple[int, _Make] = (-1, lambda parser, left: left)

_CONSTANTS: Mapping[str, Value] = {"TRUE": True, "FALSE": False, "NULL": None}

_PREFIXES: Mapping[str, Callable[[Part], Part]] = {
    "+": lambda part: part,
    "-": parts.negative,
    "NOT": parts.opposite,
}


SQL92 = "SQL92"
"""The kind of expression that a subscription calls it."""

REMEMBERED = 100
"""Most filters, and texts that are none, that are kept as they were read: the largest take 256 KiB
each, and 4 ms to read again; those of usual length 3 KiB and 0.1 ms."""


WORK = 20_000
"""How much work a filter may make in one reading, a part of it asked once being 1: about 5 ms."""

LOOK = 20
"""The work to find a message's properties in the log."""

BYTES = 4
"""How many bytes of properties are as much work as a part of a filter."""

MOST_KNOWN, LONGEST_KNOWN = 1000, 256
"""Most values of properties of which a filter knows what it said, and most bytes of one."""

Values: TypeAlias = tuple[bytes | None, ...]
"""Of the properties that a filter asks for, as they stand in the log."""


@frozen(eq=False)
class Filter:
    """Says of a message's properties whether a consumer wants it.

    @ivar text: As the consumer wrote it.
    @ivar steps: How much work one message is, at most, in parts of the filter.
    @ivar names: The properties that it asks for.
    @ivar known: What it said of values: messages that are filtered have few different ones.
    """

    text: str
    steps: int
    names: tuple[bytes, ...]
    _evaluate: Evaluate
    known: dict[Values, bool] = field(factory=dict, init=False)

    def matches(self, properties: Properties) -> bool:
        """Whether a message is wanted: it is not where something is unknown, or a property is not
        of the kind that it is compared as.
        """
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False

    def wants(self, values: Values) -> bool:
        """As L{matches}, of the values of its L{names}; they are L{known} then."""
        found = self.matches(
            {
                self.names[at].decode(): value.decode("utf-8", "replace")
                for at, value in enumerate(values)
                if value is not None
            }
        )
        if sum(len(value or b"") for value in values) <= LONGEST_KNOWN:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[values] = found
        return found

    @property
    def costs(self) -> tuple[int, int, int]:
        """How much work it may make, what a message costs, and how many bytes of its properties
        are 1 more.
        """
        return WORK, LOOK + self.steps, BYTES


def read_filter(text: str) -> Filter:
    """Read a filter.

    @raise ExpressionInvalid: If it is none, or too large.
    """
    found = _read(text) if len(text) <= MOST_LENGTH else _parsed(text)
    if isinstance(found, ExpressionInvalid):
        raise ExpressionInvalid(found.position, found.fault)
    return found


def _parsed(text: str) -> Filter | ExpressionInvalid:
    parser = Parser(text)
    try:
        whole = parser.parse()
    except ExpressionInvalid as error:
        return error
    return Filter(text, whole.steps, tuple(parser.names), whole.evaluate)


_read = lru_cache(REMEMBERED)(_parsed)
