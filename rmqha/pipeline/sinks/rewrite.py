"""Take rows off a Parquet file: what is left becomes another file, the first stays as it is."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmqha.pipeline.sinks.columns import STORE
from rmqha.pipeline.sinks.encoding import Encoding

_PLACES = {"physical_offset": "rmqha", "physicalOffset": "rocketmq"}


def place_column(names: Collection[str]) -> str:
    """What a table calls the column of the physical offset."""
    return next(name for name in _PLACES if name in names)


def left_of(file: Any, store: str, to: int) -> tuple[pa.Table, int]:
    """The rows of a file without those of a store from an offset on.

    @param file: A path, or an open file of pyarrow's.
    @return: They, and how many the others are.
    """
    rows = pq.ParquetFile(file).read()
    place = rows.column(place_column(rows.schema.names))
    gone = pc.and_(pc.equal(rows.column(STORE), store), pc.greater_equal(place, to))
    left = rows.filter(pc.invert(gone))
    return left, rows.num_rows - left.num_rows


def places_of(file: Any, store: str, start: int, end: int) -> pa.Array:
    """Physical offsets of a file's rows of a store, from one offset up to another.

    @param file: A path, or an open file of pyarrow's.
    """
    read = pq.ParquetFile(file)
    place = place_column(read.schema_arrow.names)
    rows = read.read(columns=[STORE, place])
    chosen = (pc.field(STORE) == store) & (pc.field(place) >= start) & (pc.field(place) < end)
    return rows.filter(chosen).column(place).combine_chunks()


def write(rows: pa.Table, file: Path, encoding: Encoding) -> int:
    """Write such rows.

    @return: The size of the file, in bytes.
    """
    told: list[Any] = []
    file.parent.mkdir(parents=True, exist_ok=True)
    style = _PLACES[place_column(rows.schema.names)]
    with encoding.writer(file, rows.schema, told, style) as writer:
        writer.write_table(rows)
    return file.stat().st_size
