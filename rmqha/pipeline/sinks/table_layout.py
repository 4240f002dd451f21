"""How the files of a table lie: folders by day, and by topic where that is wanted.

A folder C{column=value} is a column of the table (Hive's way), which Spark, DuckDB, Polars
and pyarrow know.  Names are percent-encoded, as they expect: a topic may be called
C{%RETRY%group}.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import PurePosixPath
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

DATE = "date"
"""The column of the day of the store time, in UTC."""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name for a folder of rows that have no value there."""

_NAME_MOST = 200
"""Bytes of a folder's name; file systems take 255."""

_DIGITS = 8


class By(StrEnum):
    """What there is a folder for, beside the days."""

    DATE = "date"
    TOPIC = "topic"
    TABLE = "table"
    """A folder for each topic that is a whole table, without C{topic=}."""


@frozen
class Partition:
    """Rows that go to one folder.

    @ivar topic: Their topic, if folders are by topic; C{None} too where there is none.
    @ivar date: Their day, C{None} where no time is known.
    """

    topic: str | None
    date: str | None
    rows: pa.Table

    def values(self, by: By) -> dict[str, str | None]:
        """The columns that folders stand for, with this part's values."""
        topic = {"topic": self.topic} if by is By.TOPIC else {}
        return {**topic, DATE: self.date}

    def folder(self, by: By) -> PurePosixPath:
        table = [encoded(self.topic or NO_VALUE)] if by is By.TABLE else []
        names = [
            f"{name}={NO_VALUE if value is None else encoded(value)}"
            for name, value in self.values(by).items()
        ]
        return PurePosixPath(*table, *names)


def encoded(name: str) -> str:
    """A name as one of a file: no separators, not hidden, of bounded length."""
    text = quote(name, safe="")
    if text[:1] in ("_", "."):  # readers pass over what begins so
        text = f"%{ord(text[0]):02X}{text[1:]}"
    if len(text) > _NAME_MOST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
        text = f"{text[:_NAME_MOST]}-{digest[:_DIGITS]}"
    return text


def parts(rows: pa.Table, topic: str, time: str, by: By) -> Iterator[Partition]:
    """Divide rows by folders; those of each keep the log's order within a topic, and topics
    are sorted.

    @param topic: The column of the topic.
    @param time: The column of the store time.
    """
    rows = _sorted(rows, topic)
    for date, of_day in _by_day(rows, time):
        if by is By.DATE:
            yield Partition(None, date, of_day)
        else:
            for name, of_topic in _by_topic(of_day, topic):
                yield Partition(name, date, of_topic)


def _sorted(rows: pa.Table, topic: str) -> pa.Table:
    names = rows.column(topic)
    if rows.num_rows < 2 or pc.all(pc.equal(names[1:], names[:-1])).as_py():
        return rows
    return rows.take(pc.sort_indices(names))  # which is stable


def _by_day(rows: pa.Table, time: str) -> Iterator[tuple[str | None, pa.Table]]:
    days = pc.cast(pc.floor_temporal(rows.column(time), unit="day"), pa.date32(), safe=False)
    found = pc.unique(days)
    for day in found:
        mine = pc.is_null(days) if not day.is_valid else pc.fill_null(pc.equal(days, day), False)
        name = day.as_py().isoformat() if day.is_valid else None
        yield name, rows if len(found) == 1 else rows.filter(mine)


def _by_topic(rows: pa.Table, topic: str) -> Iterator[tuple[str | None, pa.Table]]:
    """The rows of each topic; they are sorted by it, so that each is one slice."""
    runs = pc.run_end_encode(rows.column(topic).combine_chunks())
    ends = np.asarray(runs.run_ends)
    starts = [0, *ends[:-1].tolist()]
    for name, start, end in zip(runs.values.to_pylist(), starts, ends.tolist(), strict=True):
        yield name, rows.slice(start, end - start)
