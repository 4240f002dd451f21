"""
From bytes that differ to the records they belong to.

Records are followed in both copies from a place where one is known to begin.  Where one
copy is damaged, the records of the other say where the next begins; nothing is searched for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, field, frozen

from rmqha.errors import RecordFault
from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.log_files import LogFiles, opened
from rmqha.logfiles.published import read_splits
from rmqha.logfiles.walk_file import walk_file
from rmqha.pipeline.jobs.verify.chunks import differing, held
from rmqha.pipeline.jobs.verify.copies import Copy
from rmqha.pipeline.jobs.verify.record_fields import names_at
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.layout import FIELDS, MAGIC_BYTES
from rmqha.wire.log.record import check, decode
from rmqha.wire.names import UNIQUE_KEY

WHOLE = "whole"
"""The state of a record that breaks no rule; others are texts of L{Fault}."""

NOT_THERE = "not there"
"""The state of a record of which a copy has only zeros."""

RECORDS = pa.schema(
    [
        ("store", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int64()),
        ("queue_offset", pa.int64()),
        ("key", pa.string()),
        ("fields", pa.string()),
        ("first", pa.int64()),
        ("count", pa.int64()),
        ("reference", pa.string()),
        ("other", pa.string()),
        ("untold", pa.int64()),
    ]
)
"""A row a record that differs.  C{reference} and C{other} are its states in the first copy and
in C{store}; C{first} is the physical offset of the first byte that differs, C{count} how many
do; C{untold} counts records of the extent that got no row, in its last row."""

_MAGIC, _OFFSET = FIELDS["magic"].place, FIELDS["physical_offset"].place
_HEAD = _OFFSET.stop
"""Bytes of a record up to behind its stored physical offset."""


@define(eq=False, kw_only=True)
class Chain:
    """
    The records of one copy in one file, as far as they can be followed.

    @ivar low: Records that end at or below it are not kept.
    @ivar high: Records are followed up to there.
    @ivar position: How far they were followed.
    """

    file: LogFile
    low: int
    high: int
    position: int
    starts: list[Array] = field(factory=list)
    ends: list[Array] = field(factory=list)

    def follow(self) -> None:
        """
        Go on from L{position} until L{high} or a fault.
        """
        for walked in walk_file(self.file, self.position, self.file.end):
            block = walked.block
            kept = block.start + block.size > self.low
            self.starts.append(block.start[kept])
            self.ends.append((block.start + block.size)[kept])
            self.position = block.end
            if block.end >= self.high:
                return

    def leap(self, known: Array) -> bool:
        """
        Go on behind a fault, at the first known place where a record seems to begin.

        @param known: Where the other copy has records, ascending.
        @return: Whether there is one.
        """
        with opened(self.file.path) as fd:
            for place in known[np.searchsorted(known, self.position) :].tolist():
                if place >= self.high:
                    return False
                head = os.pread(fd, _HEAD, place - self.file.start)
                told = int.from_bytes(head[_OFFSET], "big")
                if head[_MAGIC] in MAGIC_BYTES and told == place:
                    self.position = place
                    before = len(self.starts)
                    self.follow()
                    if any(len(part) for part in self.starts[before:]):
                        return True
        return False

    @property
    def records(self) -> tuple[Array, Array]:
        """
        Where records begin and end.
        """
        none = np.empty(0, np.int64)
        return np.concatenate([none, *self.starts]), np.concatenate([none, *self.ends])


def chains(files: tuple[LogFile, LogFile], low: int, high: int, anchor: int) -> list[Chain]:
    """
    Follow the records of two copies of one file.

    @param anchor: Where a record is known to begin, not above C{low}.
    """
    both = [Chain(file=file, low=low, high=high, position=anchor) for file in files]
    for chain in both:
        chain.follow()
    moved = True
    while moved:
        moved = False
        for mine, other in (both, both[::-1]):
            if mine.position < high and mine.leap(other.records[0]):
                moved = True
    return both


@frozen(kw_only=True)
class Extent:
    """
    Bytes of a chunk that differ: from the first such byte to the last.

    @ivar copy: Which copy has other bytes than the first one, by number.
    @ivar start: Physical offset of the first byte.
    @ivar end: Just past the last one.
    """

    copy: int
    start: int
    end: int


@frozen(kw_only=True)
class Drilling:
    """
    The work of a task by its number: the records of one extent.

    @ivar copies: The copies.
    @ivar extents: The extents.
    @ivar most: Most records told of one extent; all are counted.
    """

    copies: tuple[Copy, ...]
    extents: tuple[Extent, ...]
    most: int

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """
        Find the records of an extent.
        """
        extent = self.extents[number]
        two = self.copies[0], self.copies[extent.copy]
        files = tuple(LogFiles.find(Path(copy.root)) for copy in two)
        rows: list[dict[str, Any]] = []
        total = 0
        for file, low, high in files[0].pieces(extent.start, extent.end):
            twin = files[1].at(low)
            if twin is None or twin.start != file.start:
                continue  # told as missing, or files of another size: nothing to pair
            found = _Pair(two, files, (file, twin), low, high)
            for row in found.rows():
                total += 1
                if len(rows) < self.most:
                    rows.append(row)
        for row in rows:
            row["untold"] = 0
        if rows:
            rows[-1]["untold"] = total - len(rows)
        yield pa.RecordBatch.from_pylist(rows, RECORDS)


@define(eq=False)
class _Pair:
    """
    One file of two copies, and the part of it that is looked at.
    """

    copies: tuple[Copy, Copy]
    logs: tuple[LogFiles, ...]
    files: tuple[LogFile, LogFile]
    low: int
    high: int

    def rows(self) -> Iterator[dict[str, Any]]:
        """
        The records that differ, then what differs in no record.
        """
        data = [held(files, self.low, self.high).data for files in self.logs]
        places = differing(*data) + self.low
        taken = np.zeros(len(places), np.bool_)
        both = chains(self.files, self.low, self.high, self._anchor())
        sizes: dict[int, int] = {}
        for chain in reversed(both):  # the first copy's word counts more
            sizes.update(zip(*(a.tolist() for a in chain.records), strict=True))
        for start, end in sorted(sizes.items()):
            first, last = np.searchsorted(places, [start, end]).tolist()
            if first < last:
                taken[first:last] = True
                yield self._record(start, end, places[first:last])
        left = places[~taken]
        if len(left):
            yield self._row(int(left[0]), int(left[-1]) + 1 - int(left[0]), left, "no record")

    def _anchor(self) -> int:
        start = self.files[0].start
        anchors = [
            split.start
            for copy in self.copies
            if copy.published
            for split in read_splits(Path(copy.root), start, self.low + 1)
        ]
        return max([start, *anchors])

    def _record(self, start: int, end: int, places: Array) -> dict[str, Any]:
        both = [held(files, start, end).data for files in self.logs]
        states = [self._state(data, start) for data in both]
        if NOT_THERE in states:
            kind = "missing"
        elif states == [WHOLE, WHOLE]:
            kind = "differs"
        else:
            kind = "damaged"
        row = self._row(start, end - start, places, kind)
        row["reference"], row["other"] = states
        for data, state in zip(both, states, strict=True):
            if state == WHOLE:
                row |= _told(data.data, start, places)
                break
        if kind == "missing":
            row["fields"] = None
        return row

    def _row(self, offset: int, size: int, places: Array, kind: str) -> dict[str, Any]:
        return {
            "store": self.copies[1].name,
            "offset": offset,
            "size": size,
            "kind": kind,
            "first": int(places[0]),
            "count": len(places),
        }

    def _state(self, data: Array, start: int) -> str:
        if not data.any():
            return NOT_THERE
        view, file = data.data, self.files[0]
        verdict = check(
            view, 0, len(view), start, file.end, crc=True, max_size=file.end - file.start
        )
        if not isinstance(verdict, int):
            return verdict.value
        return WHOLE if verdict == len(view) else f"{verdict} bytes long"


def _told(view: memoryview, start: int, places: Array) -> dict[str, Any]:
    """
    What a whole record says of itself, and where it differs.
    """
    try:
        record = decode(view, 0, start)
    except RecordFault:
        return {}
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "key": record.properties.get(UNIQUE_KEY),
        "fields": ", ".join(names_at(view, places - start)),
    }
