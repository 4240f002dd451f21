"""What a filter is made of: each part is a function of a message's properties.

A part is a text, a number, a truth or null; truths have three values, as in SQL.  What makes no
sense whatever the properties are is refused when it is put together, by the rules of stock filters.

Source: docs/protocol/remoting.md, Filters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeAlias, cast

from attrs import frozen

from rmqha.wire.sql92.java_values import Long, Value, equal, ordered

Properties: TypeAlias = Mapping[str, str]
"""A message's, by name."""
Evaluate: TypeAlias = Callable[[Properties], Any]
"""Gives a part's value for a message; C{None} is SQL's null."""


class Senseless(Exception):
    """Parts that cannot be put together; the text says why."""


class PartKind(Enum):
    """What a part is known to be before there are properties."""

    CONSTANT = "a constant"
    PROPERTY = "a property"
    TRUTH = "a truth"
    OTHER = "a number"


@frozen(eq=False)
class Part:
    """A part.

    @ivar value: Of a constant.
    @ivar steps: How much work it is at most, in parts.
    @ivar depth: How many parts lie within each other, at most.
    """

    kind: PartKind
    evaluate: Evaluate
    value: Value = None
    steps: int = 1
    depth: int = 1

    @property
    def is_truth(self) -> bool:
        """Whether it can only be true, false or null."""
        constant = self.kind is PartKind.CONSTANT
        return self.kind is PartKind.TRUTH or (constant and type(self.value) in (bool, type(None)))


def _over(kind: PartKind, evaluate: Evaluate, *parts: Part) -> Part:
    return Part(
        kind,
        evaluate,
        steps=1 + sum(part.steps for part in parts),
        depth=1 + max(part.depth for part in parts),
    )


def constant(value: Value) -> Part:
    """A value that stands in the filter."""
    return Part(PartKind.CONSTANT, lambda properties: value, value)


def named(name: str) -> Part:
    """A property; null where the message has none of that name."""
    return Part(PartKind.PROPERTY, lambda properties: properties.get(name))


def truth(part: Part) -> Part:
    """A part as a truth.  A property is a text and so is never true, whatever it says.

    @raise Senseless: If it cannot be one.
    """
    if part.is_truth:
        return part
    if part.kind is not PartKind.PROPERTY:
        raise Senseless(f"{part.kind.value} is neither true nor false")
    evaluate = part.evaluate
    return _over(
        PartKind.TRUTH, lambda properties: None if evaluate(properties) is None else False, part
    )


def negative(part: Part) -> Part:
    """The negative of a number that stands in the filter; of anything else null."""
    evaluate = part.evaluate

    def negated(properties: Properties) -> Value:
        value = evaluate(properties)
        if type(value) is Long:
            return Long(-value)
        return -value if type(value) in (int, float) else None

    return _over(PartKind.OTHER, negated, part)


def opposite(part: Part) -> Part:
    """C{NOT}."""
    part = truth(part)
    evaluate = part.evaluate

    def negated(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else not value

    return _over(PartKind.TRUTH, negated, part)


def joined(parts: list[Part], *, decisive: bool) -> Part:
    """C{OR} and C{AND} of two or more.

    @param decisive: What one of them has to be for the whole to be it: true for C{OR}.
    """
    truths = [truth(part) for part in parts]
    evaluates = [part.evaluate for part in truths]

    def evaluate(properties: Properties) -> bool | None:
        unknown = False
        for each in evaluates:
            value: bool | None = each(properties)
            if value is decisive:
                return decisive
            unknown = unknown or value is None
        return None if unknown else not decisive

    return _over(PartKind.TRUTH, evaluate, *truths)


def same(left: Part, right: Part) -> Part:
    """C{=}."""
    for part in (left, right):
        if part.kind is PartKind.CONSTANT and part.value is None:
            raise Senseless("nothing is equal to NULL: IS NULL asks for it")
    if left.kind is right.kind is PartKind.CONSTANT and left.is_truth and not right.is_truth:
        raise Senseless("TRUE and FALSE are compared with truths")
    one, other = left.evaluate, right.evaluate
    return _over(
        PartKind.TRUTH, lambda properties: equal(one(properties), other(properties)), left, right
    )


def missing(part: Part) -> Part:
    """C{IS NULL}."""
    evaluate = part.evaluate
    return _over(PartKind.TRUTH, lambda properties: evaluate(properties) is None, part)


def compared(left: Part, right: Part, holds: Callable[[int, int], bool]) -> Part:
    """One of C{<}, C{<=}, C{>} and C{>=}.

    @param holds: Whether it is so, of a number that is below 0, 0 or above, and 0.
    """
    for part in (left, right):
        number = type(part.value) in (int, Long, float)
        if part.kind is PartKind.TRUTH or (part.kind is PartKind.CONSTANT and not number):
            raise Senseless("only numbers are less or greater")
    one, other = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> bool | None:
        value = one(properties)
        found = None if value is None else ordered(value, other(properties))
        return None if found is None else holds(found, 0)

    return _over(PartKind.TRUTH, evaluate, left, right)


def check_bounds(low: Part, high: Part) -> None:
    """See whether anything can lie between two parts.

    @raise Senseless: If both stand in the filter and nothing can.
    """
    if low.kind is high.kind is PartKind.CONSTANT:
        least, most = low.value, high.value
        numbers = all(type(value) in (int, Long, float) for value in (least, most))
        if not numbers or cast(float, least) > cast(float, most):
            raise Senseless("BETWEEN takes two numbers, the lower one first")


def one_of(part: Part, texts: frozenset[str]) -> Part:
    """C{IN}."""
    if part.kind is not PartKind.PROPERTY:
        raise Senseless("only a property is IN something")
    evaluate = part.evaluate

    def found(properties: Properties) -> bool | None:
        value = evaluate(properties)
        return None if value is None else value in texts

    return _over(PartKind.TRUTH, found, part)


def texted(part: Part, text: str, has: Callable[[str, str], bool], *, negated: bool) -> Part:
    """C{CONTAINS}, C{STARTSWITH} and C{ENDSWITH}: false, with C{NOT} too, of an empty text, and of
    what is none.

    @param has: Whether a value has the text in it, at the right place.
    """
    evaluate = part.evaluate

    def found(properties: Properties) -> bool:
        value = evaluate(properties)
        return type(value) is str and has(value, text) is not negated

    return _over(PartKind.TRUTH, found if text else lambda properties: False, part)
