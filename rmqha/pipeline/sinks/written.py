"""What a task says about the files it wrote: all that travels back to who commits them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
from attrs import asdict, field, frozen

from rmqha.pipeline.log.positions import Position
from rmqha.wire.log.log_identity import LogIdentity

WRITTEN = pa.schema([("written", pa.string())])
"""One row a range: JSON for L{from_rows}."""


@frozen(kw_only=True)
class WrittenFile:
    """A file with rows.

    @ivar path: Below the table's folder, with C{/} between names.
    @ivar waiting: Where it is until it is committed, if it is not there yet.
    @ivar values: The columns its folders stand for.
    @ivar rows: How many it has.
    @ivar bytes: Its size.
    @ivar topics: Rows, and bytes of their records in the log, by topic.
    @ivar stats: Statistics as Delta has them.
    @ivar table: Which of several tables it belongs to, by topic.
    """

    path: str
    values: Mapping[str, str | None]
    rows: int
    bytes: int
    topics: Mapping[str, tuple[int, int]]
    stats: Mapping[str, Any] = field(factory=dict)
    table: str | None = None
    waiting: str = ""


@frozen
class Written:
    """What became of one range.

    @ivar store: The store's name.
    @ivar planned: Where the range began, a physical offset.
    @ivar position: The position at its end.
    @ivar files: Its files; none if it had no rows, or all were there before.
    @ivar aside: Where its rows wait to be gathered with those of other ranges, C{""} if none do.
    """

    store: str
    planned: int
    position: Position
    files: tuple[WrittenFile, ...] = ()
    aside: str = ""

    @property
    def end(self) -> int:
        """Physical offset of the range's end."""
        return self.position.offset


def to_row(written: Written) -> pa.RecordBatch:
    """As a row for L{WRITTEN}."""
    return pa.RecordBatch.from_pylist([{"written": json.dumps(asdict(written))}], WRITTEN)


def file_row(file: WrittenFile) -> pa.RecordBatch:
    """A file as a row, of the same schema."""
    return pa.RecordBatch.from_pylist([{"written": json.dumps(asdict(file))}], WRITTEN)


def files_from_rows(rows: pa.Table) -> list[WrittenFile]:
    """Read the rows that L{file_row} made in tasks."""
    return [_file(json.loads(text)) for text in rows.column("written").to_pylist()]


def from_rows(rows: pa.Table) -> list[Written]:
    """Read the rows that L{to_row} made in tasks."""
    return [_read(json.loads(text)) for text in rows.column("written").to_pylist()]


def _read(found: dict[str, Any]) -> Written:
    files = tuple(map(_file, found["files"]))
    place = found["position"]
    position = Position(**{**place, "log": LogIdentity.from_json(place["log"])})
    return Written(found["store"], found["planned"], position, files, found["aside"])


def _file(found: dict[str, Any]) -> WrittenFile:
    topics = {name: (rows, size) for name, (rows, size) in found["topics"].items()}
    return WrittenFile(**{**found, "topics": topics})


def range_of(path: str) -> tuple[str, int, int] | None:
    """What the name of a file of ours says of its rows: the store as a name of files, where the
    first record begins and where the last one ends; C{None} of a file that is not ours.
    """
    found = PurePosixPath(path).stem.rsplit("-", 3)
    if not path.endswith(".parquet") or len(found) != 4:
        return None
    name, start, end, _ = found
    return (name, int(start), int(end)) if start.isdigit() and end.isdigit() else None


def files_of(written: Iterable[Written]) -> Iterator[WrittenFile]:
    """All files, in the order of the log."""
    for each in sorted(written, key=lambda each: (each.store, each.planned)):
        yield from each.files
