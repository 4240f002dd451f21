"""Copies that no machine sees both of: the digests of one's chunks, made where it lies, are
compared where the other one does.

Source: docs/guide/jobs.rst, Verify.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from attrs import asdict, frozen
from pyspark.sql import SparkSession

from rmqha.logfiles.log_files import settled
from rmqha.pipeline.errors import DigestsInvalid
from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.spark_work import Stores, spread
from rmqha.pipeline.jobs.verify.chunks import CHUNK, CHUNKS, Comparing, DigestKind, edges
from rmqha.pipeline.jobs.verify.copies import Copy, check_common, check_uncut, copy_of, options_of
from rmqha.pipeline.jobs.verify.findings import (
    ByteDifference,
    ComparisonReport,
    Skipped,
    in_order,
    merged,
    read_absent,
)
from rmqha.pipeline.log.errors import DataLost
from rmqha.pipeline.log.options import ONLY, ReadOptions

VERSION = 1

PART = "a part of a chunk, which has no digest of its own"
"""Why bytes at the ends of what two copies have in common are not compared."""


@frozen(kw_only=True)
class Digests:
    """What one site knows of its copy.

    @ivar store: What the copy is called there.
    @ivar broker: The broker's name, if it is known.
    @ivar low: Physical offset of the first byte with a digest.
    @ivar high: Just past the last one.
    @ivar chunk: Bytes of a chunk; chunks lie at multiples of it.
    @ivar digests: One a chunk.
    """

    store: str
    broker: str | None
    low: int
    high: int
    chunk: int
    sum: DigestKind
    digests: tuple[str, ...]

    @property
    def edges(self) -> list[int]:
        """Where chunks begin, and where the last one ends."""
        return edges(self.low, self.high, self.chunk)

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a file.

        @raise DigestsInvalid: If it is none, or not whole.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            version = fields.pop("version")
            fields["sum"] = DigestKind(fields["sum"])
            fields["digests"] = tuple(map(str, fields["digests"]))
            found = cls(**fields)
            sound = version == VERSION and 0 <= found.low <= found.high and found.chunk > 0
            chunks = max(0, len(found.edges) - 1) if sound else -1
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DigestsInvalid(f"{type(error).__name__}: {error}") from error
        if not sound:
            raise DigestsInvalid("it has an unknown version or invalid numbers")
        if len(found.digests) != chunks:
            raise DigestsInvalid(f"it has {len(found.digests)} digests of {chunks}")
        return found


def digest(
    spark: SparkSession,
    store: Stores,
    *,
    chunk: int = CHUNK,
    sum: DigestKind = DigestKind.CRC32,
    end: int | None = None,
    point_file: str = "use",
    shown: Shown = silent,
) -> Digests:
    """The digests of one copy's chunks, for L{against} elsewhere.

    @param store: Its root, or the one store by its name.
    @param end: Only below this physical offset.
    @raise DataLost: If some of it cannot be read.
    @raise LogCutBack: If it was cut meanwhile.
    """
    copy, options = _only(store, point_file)
    high = copy.end if end is None else max(copy.first, min(copy.end, end))
    work = Comparing((copy,), edges(copy.first, high, chunk), chunk, sum, options)
    rows = in_order(spread(spark, work.tasks, work, CHUNKS, shown))
    for row in rows:
        if row["absent"]:
            raise DataLost(copy.name, row["absent_at"], row["end"])
    check_uncut((copy,), high, options)
    return Digests(
        store=copy.name,
        broker=copy.broker,
        low=copy.first,
        high=high,
        chunk=chunk,
        sum=sum,
        digests=tuple(row["digest"] for row in rows),
    )


def against(
    spark: SparkSession,
    store: Stores,
    digests: Digests,
    *,
    point_file: str = "use",
    shown: Shown = silent,
) -> ComparisonReport:
    """Compare one copy with the digests of another one that was read elsewhere.

    Chunks that lie in both as a whole are compared; what differs is only known as a chunk.

    @param store: The copy's root, or the one store by its name.
    @param digests: What L{digest} made at the other site.
    @raise NothingInCommon: If no chunk lies in both.
    @raise LogCutBack: If the copy was cut meanwhile.
    """
    begun = time.monotonic()
    copy, options = _only(store, point_file)
    if copy.name == digests.store:
        raise DigestsInvalid(
            f"they are of a copy that is also named {copy.name}: give this one another name"
        )
    theirs = Copy(
        name=digests.store,
        root="",
        broker=digests.broker,
        first=digests.low,
        end=digests.high,
        whole=digests.high,
        published=True,
    )
    copies = theirs, copy
    chunks = {
        start: (end, told)
        for (start, end), told in zip(pairwise(digests.edges), digests.digests, strict=True)
        if copy.first <= start and end <= copy.end
    }
    common = max(copy.first, digests.low), min(copy.end, digests.high)
    check_common(copies, *(common if chunks or common[0] > common[1] else (common[0],) * 2))
    places = [*chunks, *(end for end, _ in list(chunks.values())[-1:])]
    low, high = (places[0], places[-1]) if places else (common[0], common[0])
    work = Comparing((copy,), places, digests.chunk, digests.sum, options)
    differences: list[ByteDifference] = []
    skipped: list[Skipped] = []
    for row in in_order(spread(spark, work.tasks, work, CHUNKS, shown)):
        start, (end, told) = row["start"], chunks[row["start"]]
        if row["absent"]:
            read_absent(row, differences, skipped)
        elif row["digest"] != told:
            found = ByteDifference(store=copy.name, start=start, end=end, count=end - start)
            differences.append(found)
    check_uncut((copy,), high, options)
    for start, end in ((common[0], low), (high, common[1])):
        if start < end:
            skipped.append(Skipped(store=copy.name, start=start, end=end, reason=PART))
    return ComparisonReport.of(work, copies, (low, high), merged(differences), skipped, begun)


def _only(store: Stores, point_file: str) -> tuple[Copy, ReadOptions]:
    named = store if isinstance(store, Mapping) else {ONLY: store}
    options = options_of(named, point_file)
    ((name, path),) = named.items()
    return settled(lambda: copy_of(name, Path(path), options)), options
