"""What groups pop in order, as it was when its last writer ended: the table, and the journal of
what happened since, which it shares with consumers' offsets.

Source: docs/protocol/store.rst, The journal of consumer offsets.
"""

from __future__ import annotations

from attrs import evolve, frozen

from rmqha.errors import BodyInvalid
from rmqha.store.tables import offset_segments
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_segments import ORDERED, ORDERED_MARK, OffsetChange
from rmqha.store.tables.table_verdict import TableRead
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.pop_order import OrderedBatch, OrderTable
from rmqha.wire.store_layout import POP_ORDER

Told = dict[str, dict[int, OrderedBatch | None]]
"""What a master tells, by C{topic@group} and queue id; C{None} where nothing is known any more."""


@frozen(kw_only=True)
class OrdersRead:
    """The batches of a store.

    @ivar table: They; C{None} if there are none.
    @ivar file: How it stands with the file.
    @ivar replayed: How many records of the journal counted.
    """

    table: OrderTable | None
    file: TableRead
    replayed: int = 0


def read_orders(tables: CheckedTables, *, own: bool = False) -> OrdersRead:
    """Read the batches of a store.  Blocking.

    @param own: Whether the caller is the one who writes the table next, as in L{read_offsets
        <rmqha.store.tables.offset_table.read_offsets>}.
    @raise FileUnreadable: If the system does not let the table, or the journal, be read.
    @raise TableUnreadable: If there is a table and it makes no sense.
    @raise BodyInvalid: If it is no such table.
    """
    path = tables.path(POP_ORDER)
    file = tables.load(path) if own else tables.read(path)
    found = None if file.table is None else tables.body(path, OrderTable, file.table)
    if file.journal is None:
        return OrdersRead(table=found, file=file)
    base = found or OrderTable()
    table = {key: dict(batches) for key, batches in base.table.items()}
    replayed = 0
    for segment in offset_segments.read(offset_segments.folder_of(tables.root), file.journal):
        for change in segment.changes:
            if change.kind & ORDERED:
                _apply(table, change)
                replayed += 1
    if not replayed:
        return OrdersRead(table=found, file=file)
    return OrdersRead(table=evolve(base, table=table), file=file, replayed=replayed)


def record_of(key: str, queue_id: int, batch: OrderedBatch | None) -> OffsetChange:
    """The journal's record of what is known of a queue."""
    text = "" if batch is None else json_body.write(batch).decode()
    return OffsetChange(ORDERED, key + ORDERED_MARK + text, queue_id, 0)


def _apply(table: dict[str, dict[int, OrderedBatch]], change: OffsetChange) -> None:
    key, _, text = change.key.partition(ORDERED_MARK)
    try:
        batch = json_body.read(OrderedBatch, text.encode()) if text else None
    except BodyInvalid:
        # A later release's: what it says is not known, and so nothing is.
        batch = None
    batches = table.setdefault(key, {})
    batches.pop(change.queue_id, None)
    if batch is not None:
        batches[change.queue_id] = batch
    elif not batches:
        del table[key]


def merged(ours: OrderTable, theirs: OrderTable) -> OrderTable:
    """What two brokers of one name know together: of each queue the later pop."""
    table = {key: dict(batches) for key, batches in ours.table.items()}
    for key, batches in theirs.table.items():
        mine = table.setdefault(key, {})
        for queue_id, batch in batches.items():
            mine[queue_id] = later(mine.get(queue_id), batch)
    return evolve(ours, table=table)


def later(ours: OrderedBatch | None, theirs: OrderedBatch) -> OrderedBatch:
    """Of two batches of one queue the one that was popped later; if that is the same, with what
    either knows to be acknowledged.
    """
    if ours is None or theirs.pop_time > ours.pop_time:
        return theirs
    if theirs.pop_time < ours.pop_time or theirs.places != ours.places:
        return ours
    return evolve(theirs, acked=ours.acked | theirs.acked)
