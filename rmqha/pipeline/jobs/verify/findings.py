"""
What a comparison of copies finds, and how it is read from what tasks say.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import pyarrow as pa
from attrs import asdict, evolve, frozen

from rmqha.pipeline.jobs.verify.chunks import Absent, DigestKind
from rmqha.pipeline.jobs.verify.copies import Copy
from rmqha.pipeline.jobs.verify.differing_records import Extent


class ComparisonResult(StrEnum):
    """
    The outcome of a comparison of copies.
    """

    EQUAL = "equal"
    DIFFERENT = "different"


@frozen(kw_only=True)
class ByteDifference:
    """
    Bytes of a copy that are not those of the first one.

    @ivar store: The copy.
    @ivar start: Physical offset of the first byte that differs, or is not there.
    @ivar end: Just past the last one.
    @ivar count: How many differ in between.
    @ivar absent: Why they are not there; C{None} if they are, and are others.
    """

    store: str
    start: int
    end: int
    count: int
    absent: Absent | None = None


@frozen(kw_only=True)
class RecordDifference:
    """
    A record that differs.

    @ivar store: The copy.
    @ivar offset: Physical offset of the record.
    @ivar size: Its bytes.
    @ivar kind: C{differs}: whole in both; C{damaged}: not whole in one; C{missing}: zeros in
        one; C{no record}: these bytes are in none.
    @ivar fields: Its fields that differ, if it is there in both and whole in one.
    @ivar first: Physical offset of the first byte that differs.
    @ivar count: How many do.
    @ivar reference: The record's state in the first copy, C{whole} or what is wrong.
    @ivar other: The same in the copy.
    """

    store: str
    offset: int
    size: int
    kind: str
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    key: str | None
    fields: tuple[str, ...]
    first: int
    count: int
    reference: str | None
    other: str | None


@frozen(kw_only=True)
class Skipped:
    """
    Bytes that were not compared.

    @ivar start: Physical offset of the first.
    @ivar end: Just past the last.
    @ivar reason: Why.
    """

    store: str
    start: int
    end: int
    reason: str


@frozen(kw_only=True)
class ComparisonReport:
    """
    What a comparison found.

    @ivar verdict: Equal only if no byte that could be compared differs, and none is missing.
    @ivar copies: The copies; the first is the one the others were held against.
    @ivar low: Physical offset of the first byte compared.
    @ivar high: Just past the last.
    @ivar chunk: Bytes of a chunk.
    @ivar chunks: How many there were.
    @ivar differences: By copy and place.
    @ivar records: The records they belong to, as far as those were looked for.
    @ivar record_count: How many were found, told or not.
    @ivar skipped: What was not compared.
    @ivar behind: Bytes that each copy lacks at its end to be as long as the longest.
    @ivar seconds: How long it took.
    """

    verdict: ComparisonResult
    copies: tuple[Copy, ...]
    low: int
    high: int
    chunk: int
    sum: DigestKind
    chunks: int
    differences: tuple[ByteDifference, ...]
    records: tuple[RecordDifference, ...]
    record_count: int
    skipped: tuple[Skipped, ...]
    behind: dict[str, int]
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """
        The report as a JSON object, for C{--json}.
        """
        return asdict(self)


# --- what tasks say -----------------------------------------------------------


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    """
    Rows of chunks in the log's order.
    """
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: row["start"])


def read_chunks(
    table: pa.Table, copies: tuple[Copy, ...]
) -> tuple[list[ByteDifference], list[Skipped], list[Extent]]:
    """
    Turn rows of chunks into differences, what was skipped, and extents to look into.
    """
    numbers = {copy.name: number for number, copy in enumerate(copies)}
    differences: list[ByteDifference] = []
    skipped: list[Skipped] = []
    extents: list[Extent] = []
    for row in in_order(table):
        store, number = row["store"], numbers[row["store"]]
        if row["count"]:
            start, end = row["first"], row["last"] + 1
            extents.append(Extent(copy=number, start=start, end=end))
            differences.append(
                ByteDifference(store=store, start=start, end=end, count=row["count"])
            )
        if row["absent"]:
            read_absent(row, differences, skipped)
            if row["absent"] != Absent.DELETED:
                # What the first copy lacks is looked up in the next one.
                extents.append(Extent(copy=number or 1, start=row["absent_at"], end=row["end"]))
    return merged(differences), skipped, extents


def read_absent(
    row: dict[str, Any], differences: list[ByteDifference], skipped: list[Skipped]
) -> None:
    """
    Bytes that are not there are a difference; if they were deleted meanwhile, they are not.
    """
    store, start, end = row["store"], row["absent_at"], row["end"]
    why = Absent(row["absent"])
    if why is Absent.DELETED:
        reason = "deleted while the job ran"
        skipped.append(Skipped(store=store, start=start, end=end, reason=reason))
    else:
        differences.append(
            ByteDifference(store=store, start=start, end=end, count=end - start, absent=why)
        )


def merged(differences: Iterable[ByteDifference]) -> list[ByteDifference]:
    """
    Differences by copy and place, those that follow each other without a gap made one.
    """
    kept: list[ByteDifference] = []
    for found in sorted(differences, key=lambda each: (each.store, each.start)):
        last = kept[-1] if kept else None
        if last and (last.store, last.end, last.absent) == (found.store, found.start, found.absent):
            kept[-1] = evolve(last, end=found.end, count=last.count + found.count)
        else:
            kept.append(found)
    return kept


def read_records(table: pa.Table) -> tuple[tuple[RecordDifference, ...], int]:
    """
    The records, once each, for one may lie in two chunks; and how many there are.
    """
    found: dict[tuple[str, int], RecordDifference] = {}
    untold = 0
    for row in table.to_pylist():
        untold += row.pop("untold")
        names = row.pop("fields")
        record = RecordDifference(fields=tuple(names.split(", ")) if names else (), **row)
        before = found.get((record.store, record.offset))
        if before is not None:
            record = evolve(
                before,
                fields=tuple(dict.fromkeys((*before.fields, *record.fields))),
                first=min(before.first, record.first),
                count=before.count + record.count,
            )
        found[record.store, record.offset] = record
    records = tuple(found[key] for key in sorted(found))
    return records, len(records) + untold


def lagging(copies: Iterable[Copy]) -> dict[str, int]:
    """
    Bytes that copies lack at their end to be as long as the longest.
    """
    ends = {copy.name: copy.end for copy in copies}
    longest = max(ends.values())
    return {name: longest - end for name, end in ends.items() if end < longest}
