"""A filter that is ready to be asked about messages.

Source: docs/protocol/remoting.md, Filters.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from rmqha.errors import ExpressionInvalid
from rmqha.wire.sql92.java_values import Incomparable
from rmqha.wire.sql92.parser import MOST_LENGTH, Parser
from rmqha.wire.sql92.parts import Evaluate, Properties

SQL92 = "SQL92"
"""The kind of expression that a subscription calls it."""

REMEMBERED = 100
"""Most filters, and texts that are none, that are kept as they were read: the largest take 256 KiB
each, and 4 ms to read again; those of usual length 3 KiB and 0.1 ms."""


@frozen(eq=False)
class Filter:
    """Says of a message's properties whether a consumer wants it.

    @ivar text: As the consumer wrote it.
    @ivar steps: How much work one message is, at most, in parts of the filter.
    """

    text: str
    steps: int
    _evaluate: Evaluate

    def matches(self, properties: Properties) -> bool:
        """Whether a message is wanted: it is not where something is unknown, or a property is not
        of the kind that it is compared as.
        """
        try:
            return self._evaluate(properties) is True
        except Incomparable:
            return False


def read_filter(text: str) -> Filter:
    """Read a filter.

    @raise ExpressionInvalid: If it is none, or too large.
    """
    found = _read(text) if len(text) <= MOST_LENGTH else _parsed(text)
    if isinstance(found, ExpressionInvalid):
        raise ExpressionInvalid(found.position, found.fault)
    return found


def _parsed(text: str) -> Filter | ExpressionInvalid:
    try:
        whole = Parser(text).parse()
    except ExpressionInvalid as error:
        return error
    return Filter(text, whole.steps, whole.evaluate)


_read = lru_cache(REMEMBERED)(_parsed)
