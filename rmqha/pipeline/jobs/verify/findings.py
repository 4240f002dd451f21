"""What a comparison of copies finds, and how it is read from what tasks say."""

from __future__ import annotations

import time
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Self

import pyarrow as pa
from attrs import asdict, evolve, frozen

from rmqha.pipeline.jobs.verify.chunks import Absent, Comparing, DigestKind
from rmqha.pipeline.jobs.verify.copies import Copy


class ComparisonResult(StrEnum):
    """The outcome of a comparison of copies."""

    EQUAL = "equal"
    DIFFERENT = "different"


@frozen(kw_only=True)
class ByteDifference:
    """Bytes of a copy that are not those of the first one.

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
class Skipped:
    """Bytes that were not compared.

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
    """What a comparison found.

    @ivar verdict: Equal only if no byte that could be compared differs, and none is missing.
    @ivar copies: The copies; the first is the one the others were held against.
    @ivar low: Physical offset of the first byte compared.
    @ivar high: Just past the last.
    @ivar chunk: Bytes of a chunk.
    @ivar chunks: How many there were.
    @ivar differences: By copy and place.
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
    skipped: tuple[Skipped, ...]
    behind: dict[str, int]
    seconds: float

    @classmethod
    def of(
        cls,
        work: Comparing,
        copies: tuple[Copy, ...],
        between: tuple[int, int],
        differences: Iterable[ByteDifference],
        skipped: Iterable[Skipped],
        begun: float,
    ) -> Self:
        """What came of a comparison.

        @param between: The physical offsets between which chunks were compared.
        @param begun: When it was begun, in seconds of C{time.monotonic}.
        """
        found = tuple(differences)
        return cls(
            verdict=ComparisonResult.DIFFERENT if found else ComparisonResult.EQUAL,
            copies=copies,
            low=between[0],
            high=between[1],
            chunk=work.chunk,
            sum=work.sum,
            chunks=work.chunks,
            differences=found,
            skipped=tuple(skipped),
            behind=lagging(copies),
            seconds=time.monotonic() - begun,
        )

    def to_json(self) -> dict[str, Any]:
        """The report as a JSON object, for C{--json}."""
        return asdict(self)

    @property
    def summary(self) -> str:
        """It in a sentence or three."""
        size = self.high - self.low
        text = (
            f"{size} bytes from {self.low} to {self.high}, in {self.chunks} chunks of "
            f"{self.chunk} bytes, were compared in {self.seconds:.1f} s."
        )
        if self.differences:
            places = len(self.differences)
            text += f" They differ at {places} place{'s' if places > 1 else ''}."
        left_out = sum(each.end - each.start for each in self.skipped)
        if left_out:
            text += f" {left_out} bytes were not compared."
        for name, lag in self.behind.items():
            text += f" {name} ends {lag} bytes before the longest copy."
        return text


# --- what tasks say -----------------------------------------------------------


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of chunks in the log's order."""
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: row["start"])


def read_chunks(table: pa.Table) -> tuple[list[ByteDifference], list[Skipped]]:
    """Turn rows of chunks into differences and what was skipped."""
    differences: list[ByteDifference] = []
    skipped: list[Skipped] = []
    for row in in_order(table):
        if row["count"]:
            start, end = row["first"], row["last"] + 1
            differences.append(
                ByteDifference(store=row["store"], start=start, end=end, count=row["count"])
            )
        if row["absent"]:
            read_absent(row, differences, skipped)
    return merged(differences), skipped


def read_absent(
    row: dict[str, Any], differences: list[ByteDifference], skipped: list[Skipped]
) -> None:
    """Bytes that are not there are a difference; if they were deleted meanwhile, they are not."""
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
    """Differences by copy and place, those that follow each other without a gap made one."""
    kept: list[ByteDifference] = []
    for found in sorted(differences, key=lambda each: (each.store, each.start)):
        last = kept[-1] if kept else None
        if last and (last.store, last.end, last.absent) == (found.store, found.start, found.absent):
            kept[-1] = evolve(last, end=found.end, count=last.count + found.count)
        else:
            kept.append(found)
    return kept


def lagging(copies: Iterable[Copy]) -> dict[str, int]:
    """Bytes that copies lack at their end to be as long as the longest."""
    ends = {copy.name: copy.end for copy in copies}
    longest = max(ends.values())
    return {name: longest - end for name, end in ends.items() if end < longest}
