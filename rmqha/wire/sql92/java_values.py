"""How two values of a filter compare: as Java's do, of which the stock filters are made.

A property is a text, and is read as whatever it is compared with: C{a = 5} reads an C{int}, as
which neither C{5.0} nor C{3000000000} can be read.  That is no answer but an end: the message does
not match, whatever else the filter says.

Source: docs/protocol/remoting.md, Filters.
"""

from __future__ import annotations

import re
from math import copysign, isnan
from typing import TypeAlias

Value: TypeAlias = "str | bool | int | float | None"
"""What an expression can be: Java's String, Boolean, Integer, Long (L{Long}), Double and null."""

INTS = range(-(1 << 31), 1 << 31)
"""What Java's C{int} holds."""
LONGS = range(-(1 << 63), 1 << 63)
"""What its C{long} holds."""

_WHOLE = re.compile(r"[+-]?0*\d{1,19}")
_DIGITS = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_HEX = r"0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+"
_REAL = re.compile(
    rf"(?P<sign>[+-]?)(?:(?P<name>NaN|Infinity)|(?:(?P<hex>{_HEX})|(?P<digits>{_DIGITS}))[fFdD]?)"
)
_TRIMMED = "".join(map(chr, range(33)))


class Incomparable(Exception):
    """Two values have nothing to do with each other: the message does not match."""


class Long(int):
    """A whole number that a text is read as with 64 bits, not 32."""


def whole(text: str, bounds: range) -> int:
    """A text as a number of Java's that is one of C{bounds}.

    @raise Incomparable: If it is none.
    """
    found = int(text) if _WHOLE.fullmatch(text) else None
    if found is None or found not in bounds:
        raise Incomparable
    return found


def real(text: str) -> float:
    """A text as Java's C{double}.

    @raise Incomparable: If it is none.
    """
    found = _REAL.fullmatch(text.strip(_TRIMMED))
    if found is None:
        raise Incomparable
    if found["name"]:
        size = float(found["name"])
    elif found["digits"]:
        size = float(found["digits"])
    else:
        try:
            size = float.fromhex(found["hex"])
        except OverflowError:
            size = float("inf")
    return -size if found["sign"] == "-" else size


def equal(left: Value, right: Value) -> bool | None:
    """Whether two values are equal; null if only the left one is.

    @raise Incomparable: If they cannot be compared.
    """
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if type(left) is str and type(right) is str:
        return left == right
    return compared(left, right) == 0


def ordered(left: Value, right: Value) -> int | None:
    """How two values stand, as L{compared} says it; null if one is.  Two texts have to be numbers.

    @raise Incomparable: If they cannot be compared.
    """
    if left is None or right is None:
        return None
    if type(left) is str and type(right) is str:
        return _of_reals(real(left), real(right))
    return compared(left, right)


def compared(left: str | float, right: str | float) -> int:
    """Below 0, 0 or above, as the left value is less, equal or greater.  What is no number, or no
    truth beside one, is less.

    @raise Incomparable: If a text is not what it has to be, or is right of a truth.
    """
    if type(left) is bool:
        if type(right) is str:
            raise Incomparable
        return int(left) - int(right) if type(right) is bool else -1
    if type(right) is bool:
        return int(_read(left, right)) - int(right) if type(left) is str else -1
    if type(left) is str:
        left = _read(left, right)
    elif type(right) is str:
        right = _read(right, left)
    if type(left) is float or type(right) is float:
        return _of_reals(float(left), float(right))
    return (left > right) - (left < right)  # type: ignore[operator]


def _read(text: str, like: str | float) -> float:
    """A text as a value of another's kind."""
    if type(like) is bool:
        return text.lower() == "true"
    if type(like) is float:
        return real(text)
    return whole(text, LONGS if type(like) is Long else INTS)


def _of_reals(left: float, right: float) -> int:
    """Java's order: NaN is equal to itself and above all, -0.0 is below 0.0."""
    if left == right:
        return int(copysign(1, left) - copysign(1, right))
    if isnan(left) or isnan(right):
        return isnan(left) - isnan(right)
    return 1 if left > right else -1
