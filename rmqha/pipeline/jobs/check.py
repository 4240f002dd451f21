"""Prove a table: each record that a log has below the table's position is one row of it.

The rows are those of the files that the table has now, whatever its commits say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray

from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.jobs.spark_work import Path, Stores, options_for
from rmqha.pipeline.log.errors import LogEndsBefore
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range, ranges_between
from rmqha.pipeline.log.reading import MessageReader
from rmqha.pipeline.log.stores import StoreView
from rmqha.pipeline.sinks.columns import TableColumns
from rmqha.pipeline.sinks.position import TablePosition, selection_of
from rmqha.pipeline.sinks.table import IcebergPlace, LakeTable
from rmqha.pipeline.sinks.target import found_at

Told = Callable[[int, int], object]
"""Takes the bytes of the log that are compared, and those that have to be."""

Offsets = NDArray[np.int64]


@frozen(kw_only=True)
class Checked:
    """What a comparison of a table with the log of one store found; offsets are physical ones.

    @ivar rows: How many rows were compared.
    @ivar missing: Records without a row.
    @ivar double: Records with several.
    @ivar foreign: Rows without a record that was chosen.
    @ivar uncompared: Parts of the log, up to the table's position, that are not there any more.
    """

    store: str
    start: int
    end: int
    rows: int
    missing: tuple[int, ...]
    double: tuple[int, ...]
    foreign: tuple[int, ...]
    uncompared: tuple[tuple[int, int], ...]

    @property
    def right(self) -> bool:
        """Whether all that was compared is in the table once."""
        return not (self.missing or self.double or self.foreign)


def check(
    stores: Stores,
    table: Path,
    *,
    iceberg: IcebergPlace | None = None,
    told: Told = lambda done, total: None,
    **options: object,
) -> list[Checked]:
    """Compare a table with logs; it needs no Spark.

    @param table: The folder or URL of a table of ours.
    @param iceberg: Where an Iceberg table is listed, if that is not beside its files.
    @param options: Those that the table was written with: they choose the records.
    @raise TableRefused: If it is no table of ours, or holds nothing of a store with these options.
    @raise LogEndsBefore: If a log ends before the table's position.
    @raise CopyBehind: If a copy does before the point that it published.
    @raise NotThisLog: If one is another log; also its siblings.
    """
    parsed = ReadOptions.parse({**options_for(stores), **options})
    with closing(found_at(table, iceberg)) as opened:
        sources = opened.sources()
        held = {name: each for (of, name), each in sources.items() if of == selection_of(parsed)}
        if unknown := [name for name in parsed.names if name not in held]:
            known = ", ".join(sorted({name for _, name in sources})) or "nothing"
            raise TableRefused(
                opened.shape.place,
                f"it has no rows of {', '.join(unknown)} that were chosen by these options, only "
                f"of {known}; give each --option that it was written with, and the stores' names",
            )
        # What others chose from the same log is in the same files.
        alone = {name: sum(store == name for _, store in sources) == 1 for name in held}
        total, done = sum(held[name].end - held[name].first for name in parsed.names), 0
        found = []
        for name, path in parsed.stores:
            view = StoreView.open(name, path, parsed, held[name].end)
            if not view.verify(held[name].position):
                raise LogEndsBefore(name, held[name].end, view.end)
            shown = partial(lambda before, read: told(before + read, total), done)
            found.append(_compared(view, opened, held[name], parsed, alone[name], shown))
            done += held[name].end - held[name].first
        return found


def _compared(
    view: StoreView,
    table: LakeTable,
    held: TablePosition,
    options: ReadOptions,
    alone: bool,
    told: Callable[[int], object],
) -> Checked:
    """Compare the rows of one store, a range of its log after the other."""
    lost = tuple(view.files.missing(held.first, held.end))
    # What went is told, and the rest compared.
    options = evolve(options, fail_on_data_loss=False)
    rows, missing, double, foreign = 0, list[int](), list[int](), list[int]()
    ranges = ranges_between(view, held.first, held.end, options, held.position)
    for start, end, mine in _pieces(ranges, held, lost, options):
        theirs, counts = np.unique(
            _numbers(table.places(view.name, start, end)), return_counts=True
        )
        rows += int(counts.sum())
        missing += np.setdiff1d(mine, theirs).tolist()
        if alone:
            double += theirs[counts > 1].tolist()
            foreign += np.setdiff1d(theirs, mine).tolist()
        told(end - held.first)
    if alone:
        foreign += table.places(view.name, held.end, 1 << 62).to_pylist()
    return Checked(
        store=view.name,
        start=held.first,
        end=held.end,
        rows=rows,
        missing=tuple(missing),
        double=tuple(double),
        foreign=tuple(sorted(foreign)),
        uncompared=lost,
    )


def _pieces(
    ranges: Iterable[Range],
    held: TablePosition,
    lost: tuple[tuple[int, int], ...],
    options: ReadOptions,
) -> Iterator[tuple[int, int, Offsets]]:
    """All that a table is about but what is lost, in pieces: from where up to where, and the
    records there that are chosen.  Between two ranges lies what has none.
    """
    place = TableColumns.of(options).place
    reader, none = MessageReader(options, (place,)), np.array([], np.int64)
    at = held.first
    for each in ranges:
        yield from ((low, high, none) for low, high in _without(at, each.start, lost))
        found = [_numbers(batch.column(place)) for batch in reader.read(each)]
        yield each.start, each.end, np.concatenate([none, *found])
        at = each.end
    yield from ((low, high, none) for low, high in _without(at, held.end, lost))


def _without(start: int, end: int, lost: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int]]:
    for low, high in lost:
        if start < min(low, end):
            yield start, min(low, end)
        start = max(start, high) if low < end else start
    if start < end:
        yield start, end


def _numbers(column: pa.Array) -> Offsets:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)
