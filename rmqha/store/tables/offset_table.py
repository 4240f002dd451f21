"""The table of consumer offsets as it was when its last writer ended: the file, and the journal of
what happened since.

Source: docs/protocol/store.rst, The journal of consumer offsets.
"""

from __future__ import annotations

from attrs import evolve, field, frozen

from rmqha.store.tables import offset_segments
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_segments import BACK, BY_CLIENT, DROPPED, ORDERED, Segment
from rmqha.store.tables.table_verdict import TableRead
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets
from rmqha.wire.remoting.json_body import to_json
from rmqha.wire.store_layout import CONSUMER_OFFSETS


@frozen(kw_only=True)
class OffsetsRead:
    """The offsets of a store.

    @ivar offsets: They; C{None} if there are none.
    @ivar file: How it stands with the file.
    @ivar replayed: How many records of the journal changed what was in the file.
    @ivar torn: Bytes at the end of the journal that are no whole batch, as a crash leaves them.
    @ivar damaged: The files of the journal with other bytes that are no whole batch.
    @ivar next_segment: A number that no file of the journal has, nor had since the table was
        written.
    @ivar by_clients: Offsets in the journal that clients committed to this broker, by queue id by
        C{topic@group}.
    """

    offsets: ConsumerOffsets | None
    file: TableRead
    replayed: int = 0
    torn: int = 0
    damaged: tuple[Segment, ...] = ()
    next_segment: int = 1
    by_clients: dict[str, dict[int, int]] = field(factory=dict)


def read_offsets(tables: CheckedTables, *, own: bool = False) -> OffsetsRead:
    """Read the offsets of a store.  Blocking.

    @param own: Whether the caller is the one who writes the table next: then what is wrong with
        the file is said in the log, and a file that is not taken is moved aside.
    @raise FileUnreadable: If the system does not let the table, or its journal, be read.
    @raise TableUnreadable: If there is a table and it makes no sense.
    @raise BodyInvalid: If it is no table of offsets.
    """
    path = tables.path(CONSUMER_OFFSETS)
    file = tables.load(path) if own else tables.read(path)
    folder = offset_segments.folder_of(tables.root)
    there = offset_segments.numbers_in(folder)
    first = file.journal
    unused = max(there[-1] if there else 0, first or 0) + 1
    found = None if file.table is None else tables.body(path, ConsumerOffsets, file.table)
    if first is None or not there or there[-1] < first:
        return OffsetsRead(offsets=found, file=file, next_segment=unused)
    base = found or ConsumerOffsets()
    table = {key: dict(queues) for key, queues in base.offset_table.items()}
    replayed = 0
    by_clients: dict[str, dict[int, int]] = {}
    segments = list(offset_segments.read(folder, first))
    for segment in segments:
        replayed += offset_segments.apply(table, segment.changes)
        for change in segment.changes:
            if change.kind & ORDERED:
                continue
            if change.kind & DROPPED:
                by_clients.pop(change.key, None)
            elif change.kind & BY_CLIENT:
                by_clients.setdefault(change.key, {})[change.queue_id] = change.offset
            elif change.kind & BACK:
                by_clients.get(change.key, {}).pop(change.queue_id, None)
    return OffsetsRead(
        offsets=evolve(base, offset_table=table),
        file=file,
        replayed=replayed,
        torn=segments[-1].torn,
        damaged=tuple(
            each for each in segments if each.damaged or (each.torn and each is not segments[-1])
        ),
        next_segment=unused,
        by_clients=by_clients,
    )


def write_offsets(tables: CheckedTables, offsets: ConsumerOffsets, read: OffsetsRead) -> None:
    """Write the table of a store on which no node runs; what the journal says is in it.  Blocking.

    @param read: What was read before, with C{own}.
    @raise DiskFull: If there is no room.
    """
    path = tables.path(CONSUMER_OFFSETS)
    tables.replace(path, to_json(offsets), journal=read.next_segment)
    tables.settle()
