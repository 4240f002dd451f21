"""Take rows off a table that a log has lost.

A log that was cut back has other records behind the cut than those that were read, or
none.  Rows from the cut on go, and the table is as far as the cut again.
"""

from __future__ import annotations

from contextlib import closing

from rmqha.pipeline.errors import TableRefused
from rmqha.pipeline.jobs.spark_work import Path
from rmqha.pipeline.sinks.table import IcebergPlace, LakeTable, Taken
from rmqha.pipeline.sinks.target import found_at


def rewind(
    table: Path, to: int, *, store: str | None = None, iceberg: IcebergPlace | None = None
) -> Taken:
    """Remove the rows whose records lie at or above an offset.  It needs no Spark.

    @param table: The folder of a table of ours.
    @param to: A physical offset between two records, as the error of a stream names it.
    @param store: Whose rows; it need not be said if the table has those of one only.
    @param iceberg: Where an Iceberg table is listed, if that is not beside its files.
    @raise TableRefused: If it is no table of ours, is in use, or has nothing of the store.
    """
    with closing(found_at(table, iceberg)) as opened:
        return opened.take_off(store if store is not None else only_store(opened), to)


def only_store(table: LakeTable) -> str:
    """The store that a table has rows of.

    @raise TableRefused: If there are several, or none.
    """
    names = sorted({store for _, store in table.sources()})
    if not names:
        raise TableRefused(table.shape.place, "it has no rows yet")
    if len(names) > 1:
        found = ", ".join(names)
        raise TableRefused(table.shape.place, f"give --store: the table has rows of {found}")
    return names[0]
