"""A DataFrame of a store with a filter, of which the source does what it can.

    >>> from rmqha.pipeline.read import read
    >>> read(spark, "/data/store", where="topic = 'orders' AND queue_id IN (0, 1) AND size > 5")

Spark does not hand its filters to a source in Python so that one could rely on them.  So those
that options can say become options; and Spark applies all of them again, so that the rows are
those of the filter whatever was understood of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from os import PathLike, fspath
from typing import TYPE_CHECKING

from rmqha.pipeline.log.option_values import as_text
from rmqha.pipeline.spark.source import NAME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'[^'\\]*')|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>\d+)|"
    r"(?P<sign>[<>=!]+|[(),]))",
    re.ASCII,
)
_BEYOND = frozenset(("or", "case", "between", "when", "then", "else", "end"))
"""Words beside which an C{AND} may not be one of the whole filter."""

Token = tuple[str, str]


def read(
    spark: SparkSession,
    path: str | PathLike[str] | None = None,
    *,
    where: str | None = None,
    **options: object,
) -> DataFrame:
    """The rows of a store, or of several.

    @param path: The store's root; or none, and C{stores} says which there are.
    @param where: A filter as Spark's SQL has it.  Comparisons of C{topic}, C{tags} and C{queue_id}
        with C{=} and C{IN}, and C{store_timestamp >=} a text with a zone, are done by the source if
        C{AND} is between them and all the rest.
    @param options: Options of the data source, which win; values may be Python's.
    """
    given = {name.lower() for name in options}
    taken = {} if where is None or given & _OTHER_ROWS else options_of(where)
    if given & _TOPICS:
        taken.pop("topic", None)
    found = {name: value for name, value in taken.items() if name.lower() not in given}
    told = {name: as_text(value) for name, value in options.items() if value is not None}
    reader = spark.read.format(NAME).options(**found, **told)
    rows = reader.load() if path is None else reader.load(fspath(path))
    return rows if where is None else rows.where(where)


_OTHER_ROWS = {"columnstyle", "table", "startingoffsets", "startingoffsetsbytimestamp"}
"""Options with which columns mean something else, or that may not stand beside a time."""

_TOPICS = {"topic", "subscribe", "subscribepattern", "assign"}


def options_of(where: str) -> dict[str, str]:
    """The options that let nothing by of what a filter would not let by, and all that it would;
    none, if it is not understood.
    """
    tokens = list(_tokens(where))
    if not tokens or any(kind == "word" and text.lower() in _BEYOND for kind, text in tokens):
        return {}
    found: dict[str, str] = {}
    for part in _parts(tokens):
        for name, value in _option(part):
            found.setdefault(name, value)
    return found


def _tokens(where: str) -> Iterator[Token]:
    """The tokens of a filter; none if it has others than these."""
    found, place, text = list[Token](), 0, where.rstrip()
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            return
        kind = str(match.lastgroup)
        found.append((kind, match[kind]))
        place = match.end()
    yield from found


def _parts(tokens: list[Token]) -> Iterator[list[Token]]:
    """What lies between the C{AND}s of the whole filter."""
    part, depth = list[Token](), 0
    for kind, text in tokens:
        depth += (text == "(") - (text == ")") if kind == "sign" else 0
        if kind == "word" and text.lower() == "and" and not depth:
            yield part
            part = []
        else:
            part.append((kind, text))
    yield part


def _option(part: list[Token]) -> Iterator[tuple[str, str]]:
    """What one comparison says; nothing if it is none that options can say."""
    if len(part) < 3 or part[0][0] != "word":
        return
    column, sign, values = part[0][1].lower(), part[1][1].lower(), part[2:]
    if sign == "in":
        if values[0][1] != "(" or values[-1][1] != ")":
            return
        commas = values[2:-1:2]
        if any(text != "," for _, text in commas) or len(values) % 2 == 0:
            return
        values = values[1:-1:2]
    elif sign not in ("=", "==", ">=") or len(values) != 1:
        return
    make = _MAKES.get((column, "=" if sign in ("=", "==", "in") else sign))
    made = None if make is None else make(values)
    if made is not None:
        yield made


def _texts(values: list[Token], forbidden: str) -> list[str] | None:
    texts = [text[1:-1] for kind, text in values if kind == "text"]
    plain = all(t and t == t.strip() and forbidden not in t and "�" not in t for t in texts)
    return texts if plain and len(texts) == len(values) else None


def _topic(values: list[Token]) -> tuple[str, str] | None:
    texts = _texts(values, ",")
    return None if texts is None else ("topic", ",".join(texts))


def _tags(values: list[Token]) -> tuple[str, str] | None:
    texts = _texts(values, "||")
    return None if texts is None or "*" in texts else ("tags", " || ".join(texts))


def _queue(values: list[Token]) -> tuple[str, str] | None:
    numbers = [text for kind, text in values if kind == "number" and len(text) <= 9]
    return ("queueIds", ",".join(numbers)) if len(numbers) == len(values) else None


def _since(values: list[Token]) -> tuple[str, str] | None:
    texts = _texts(values, ",") or [""]
    try:
        zoned = datetime.fromisoformat(texts[0]).tzinfo is not None
    except ValueError:
        return None
    return ("startingTimestamp", texts[0]) if zoned else None


_MAKES: dict[tuple[str, str], Callable[[list[Token]], tuple[str, str] | None]] = {
    ("topic", "="): _topic,
    ("tags", "="): _tags,
    ("queue_id", "="): _queue,
    ("store_timestamp", ">="): _since,
}
