"""Tables without Spark: ranges are written one after the other, as tasks would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import plan
from rmqha.pipeline.log.stores import open_stores
from rmqha.pipeline.sinks.parquet import OURS, Gather, WriteRanges
from rmqha.pipeline.sinks.target import Appending, Format, Target
from rmqha.pipeline.sinks.written import WRITTEN, Written, files_from_rows, from_rows


def written(work: WriteRanges, options: ReadOptions) -> list[Written]:
    """What tasks write of a batch."""
    return [
        found
        for each in plan(open_stores(options), options)
        for batch in work(each)
        for found in from_rows(pa.Table.from_batches([batch]))
    ]


def append(target: Target, path: Path, *, commit: bool = True, **options: Any) -> list[Written]:
    """Add what a store has; the batch is committed, or left as a kill would."""
    parsed = ReadOptions.parse({"path": path, "visibility": "log", **options})
    table = Appending(target, parsed)
    try:
        work = table.work()
        found = written(work, parsed)
        gather = Gather.of(work, found)
        pieces = [row for number in range(gather.count) for row in gather(number)]
        if commit:
            table.commit(found, files_from_rows(pa.Table.from_batches(pieces, WRITTEN)))
            gather.clear()
    finally:
        table.close()
    return found


def rows(target: Target) -> pa.Table:
    """The rows of a table, as a reader of its kind sees them, in the order of the log."""
    seen = listed(target) if target.url else found(target.root, target.format)
    return seen.sort_by([("store", "ascending"), PLACE])


def listed(target: Target, columns: list[str] | None = None) -> pa.Table:
    """The rows of a folder of Parquet files, wherever it is, for a reader who only lists it."""
    folder = target.shape.folder
    place, files = folder._base, folder._files
    every = ds.dataset(place, filesystem=files, format="parquet", partitioning="hive")
    return every.to_table(columns)


PLACE = ("physical_offset", "ascending")


def found(root: Path, format: str) -> pa.Table:
    """The rows of a table."""
    if format == Format.DELTA:
        from deltalake import DeltaTable

        return DeltaTable(root).to_pyarrow_table()
    if format == Format.ICEBERG:
        from pyiceberg.catalog import load_catalog

        uri = f"sqlite:///{root / OURS / 'catalog.db'}"
        catalog = load_catalog("seen", type="sql", uri=uri, warehouse=f"file://{root}")
        # The catalog's name is part of its keys.
        catalog.name = "rmqha"
        return catalog.load_table("rmqha.messages").scan().to_arrow()
    return ds.dataset(root, format="parquet", partitioning="hive").to_table()


def offsets(target: Target) -> list[int]:
    """Physical offsets of a table's rows, ascending."""
    places: list[int] = rows(target).column("physical_offset").to_pylist()
    return places


def files(root: Path) -> list[str]:
    """The Parquet files that readers of a folder see."""
    every = (path.relative_to(root) for path in root.rglob("*.parquet"))
    return sorted(str(path) for path in every if path.parts[0] != OURS)
