"""The tables of two nodes of one broker made one, offline.

When roles change, each node may know what the other does not: a master what was committed in its
last moments, a slave what was committed to it since.  Offsets only grow, so the higher is the
later.  Topics, groups and request modes have versions: of a row that both have the newer table's
counts, and none is left out, but for a topic that the other node has deleted in this very log.

Source: docs/operations.rst, Changing roles.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, evolve, field

from rmqha.errors import Refused
from rmqha.logfiles import json_table
from rmqha.logfiles.published import DeletedTopic, deleted_behind, read_deleted_topics
from rmqha.logfiles.reader import LogReader
from rmqha.store.tables import order_table
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_table import read_offsets, write_offsets
from rmqha.store.tables.order_table import read_orders
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets, DelayOffsets
from rmqha.wire.remoting.bodies.pop_order import OrderTable
from rmqha.wire.remoting.bodies.request_modes import RequestModes
from rmqha.wire.remoting.bodies.tables import GroupTable, TopicTable
from rmqha.wire.remoting.json_body import from_json, to_json
from rmqha.wire.store_layout import (
    CONFIG,
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    OWN_FOLDER,
    POP_ORDER,
    REQUEST_MODES,
    SUBSCRIPTION_GROUPS,
    TOPICS,
)

NAMES = (TOPICS, SUBSCRIPTION_GROUPS, REQUEST_MODES, CONSUMER_OFFSETS, POP_ORDER, DELAY_OFFSETS)
"""The tables that are merged."""

B = TypeVar("B", bound=Any)


@define(kw_only=True)
class MergedTables:
    """What two nodes know together.

    @ivar source: Where the other's tables are.
    @ivar offsets: The offsets of groups; C{None} if neither has any.
    @ivar delays: The offsets of delay levels, the same.
    @ivar orders: What groups pop in order, if that is not the store's.
    @ivar moved: How many offsets of groups are higher than in the store, or new.
    @ivar moved_delays: How many of delay levels.
    @ivar changed: Tables of topics, groups or modes that are not the store's, by file name.
    @ivar topics: The names of topics that only the other had.
    @ivar groups: The names of groups, the same.
    @ivar deleted: Topics that the other has deleted, and the store has not, where the log is known
        for the one in which that was.
    @ivar not_deleted: The names of those that were deleted behind the log's end: they stay.
    @ivar of_longer_log: Whether the other's tables say that its log went further.
    @ivar faults: What is wrong with the other's files.
    """

    source: Path
    offsets: ConsumerOffsets | None = None
    delays: DelayOffsets | None = None
    orders: OrderTable | None = None
    moved: int = 0
    moved_delays: int = 0
    changed: dict[str, Any] = field(factory=dict)
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    deleted: dict[str, DeletedTopic] = field(factory=dict)
    not_deleted: tuple[str, ...] = ()
    of_longer_log: bool = False
    faults: list[str] = field(factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "from": str(self.source),
            "offsets": self.moved,
            "delayOffsets": self.moved_delays,
            "topics": self.topics,
            "groups": self.groups,
            "changed": sorted(self.changed),
            "deletedTopics": sorted(self.deleted),
            "notDeletedTopics": self.not_deleted,
            "faults": self.faults,
        }


def merge_tables(root: Path, other: Path, log: LogReader | None = None) -> MergedTables:
    """Read two nodes' tables, and change nothing.  Blocking.

    @param root: The store's root.
    @param other: The other node's store, a copy of it, or a folder with its tables alone.
    @param log: The store's log; without it nothing is said of topics that the other has deleted.
    @raise Refused: If there are no tables, or they are the store's own.
    @raise FileUnreadable: If the system does not let one be read.
    @raise TableUnreadable: If a table is there and makes no sense.
    @raise BodyInvalid: If one is not of its kind.
    """
    ours, theirs = CheckedTables(root), _Other(other)
    if theirs.folder.resolve() == (root / CONFIG).resolve():
        raise Refused("merge", f"{other} has the store's own tables")
    if not any((theirs.folder / name).exists() for name in NAMES):
        raise Refused("merge", f"{other} has none of {', '.join(NAMES)}")
    merged = MergedTables(source=other)
    deleted: Collection[str] = ()
    if log is not None and theirs.root is not None:
        deleted = _merge_deleted(merged, root, theirs.root, log)
    merged.topics, gone = _merge_rows(merged, ours, theirs, TOPICS, TopicTable, deleted)
    merged.groups, _ = _merge_rows(merged, ours, theirs, SUBSCRIPTION_GROUPS, GroupTable)
    _merge_rows(merged, ours, theirs, REQUEST_MODES, RequestModes, gone)
    _merge_offsets(merged, ours, theirs, gone)
    _merge_orders(merged, ours, theirs, gone)
    end = _merge_delays(merged, ours, theirs)
    merged.of_longer_log = log is not None and end > log.confirmed
    merged.faults += theirs.faults
    return merged


def write_merged(root: Path, merged: MergedTables) -> None:
    """Make them the tables of a store on which no node runs.  Blocking.

    @raise DiskFull: If there is no room; what was not written yet is as it was.
    """
    tables = CheckedTables(root)
    own = read_offsets(tables, own=True)
    if merged.offsets is not None and merged.offsets != own.offsets:
        write_offsets(tables, merged.offsets, own)
    if merged.orders is not None:
        read_orders(tables, own=True)
        path = tables.path(POP_ORDER)
        tables.replace(path, to_json(merged.orders), journal=own.next_segment)
    if merged.moved_delays and merged.delays is not None:
        _write(tables, DELAY_OFFSETS, merged.delays)
    for name, table in merged.changed.items():
        _write(tables, name, table)
    tables.settle()


class _Other:
    """The tables of the other node.

    @ivar folder: Where they are.
    @ivar root: Its store's root, C{None} where there is none.
    @ivar faults: What is wrong with them.
    """

    def __init__(self, path: Path) -> None:
        if path.name == CONFIG and (path.parent / OWN_FOLDER).is_dir():
            path = path.parent
        self._store = CheckedTables(path) if (path / CONFIG).is_dir() else None
        self.root = None if self._store is None else path
        self.folder = path if self._store is None else path / CONFIG
        self.faults: list[str] = []

    def read(self, name: str) -> json_table.Table | None:
        if self._store is None:
            found = json_table.read_generation(self.folder / name)
            table, fault = found.table, found.fault
        else:
            read = self._store.read(self.folder / name)
            table, fault = read.table, read.fault
        if fault and table is not None:
            self.faults.append(fault)
        return table

    def offsets(self) -> ConsumerOffsets | None:
        """The offsets of groups; with a store also what its journal has."""
        table = self.read(CONSUMER_OFFSETS)
        if self._store is not None:
            return read_offsets(self._store).offsets
        return None if table is None else from_json(ConsumerOffsets, table)

    def orders(self) -> OrderTable:
        """What groups pop in order, the same."""
        table = self.read(POP_ORDER)
        if self._store is not None:
            return read_orders(self._store).table or OrderTable()
        return from_json(OrderTable, table or {})


def _merge_deleted(
    merged: MergedTables, root: Path, other: Path, log: LogReader
) -> Collection[str]:
    """Merge what each has deleted.

    @return: The topics of which the other knows the last deletion.
    """
    ours, theirs = (read_deleted_topics(each, log, log.confirmed) for each in (root, other))
    ends = {name: ours[name].end if name in ours else 0 for name in theirs}
    merged.deleted = {name: each for name, each in theirs.items() if each.end > ends[name]}
    merged.not_deleted = deleted_behind(other, log.confirmed)
    return {name for name, each in theirs.items() if each.end >= ends[name]}


def _merge_offsets(
    merged: MergedTables, ours: CheckedTables, theirs: _Other, gone: Collection[str]
) -> None:
    own, others = read_offsets(ours).offsets, theirs.offsets()
    base = own if own is not None else others
    if base is None:
        return
    table = {key: dict(queues) for key, queues in own.offset_table.items()} if own else {}
    for key, queues in others.offset_table.items() if others else ():
        mine = table.setdefault(key, {})
        higher = _higher(mine, queues)
        merged.moved += len(higher)
        mine |= higher
    table = {key: mine for key, mine in table.items() if key.partition("@")[0] not in gone}
    merged.offsets = evolve(base, offset_table=table)


def _merge_orders(
    merged: MergedTables, ours: CheckedTables, theirs: _Other, gone: Collection[str]
) -> None:
    own, others = read_orders(ours).table or OrderTable(), theirs.orders()
    whole = order_table.merged(own, others)
    table = {
        key: batches for key, batches in whole.table.items() if key.partition("@")[0] not in gone
    }
    if table != own.table:
        merged.orders = evolve(whole, table=table)


def _merge_delays(merged: MergedTables, ours: CheckedTables, theirs: _Other) -> int:
    """Merge how far delay levels are.

    @return: Where the other's log ended, in the words of its table; 0 if it does not say.
    """
    found = ours.read(ours.path(DELAY_OFFSETS)).table, theirs.read(DELAY_OFFSETS)
    own, others = (None if table is None else from_json(DelayOffsets, table) for table in found)
    base = own if own is not None else others
    if base is None or others is None:
        merged.delays = base
        return 0
    mine = dict(own.offset_table) if own is not None else {}
    higher = _higher(mine, others.offset_table)
    merged.moved_delays = len(higher)
    # Where the other's log had to end says nothing of this one.
    merged.delays = base.at(None, mine | higher) if higher else base
    return others.log_end or 0


def _higher(mine: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    return {number: at for number, at in others.items() if at > mine.get(number, -1)}


def _merge_rows(
    merged: MergedTables,
    ours: CheckedTables,
    theirs: _Other,
    name: str,
    cls: type[B],
    deleted: Collection[str] = (),
) -> tuple[tuple[str, ...], Collection[str]]:
    """Merge the tables of topics, of groups, or of modes by topic.

    @param deleted: What the other has deleted, and may have made again.
    @return: The names of the rows that only the other has, and of those that it has no more.
    """
    found = ours.read(ours.path(name)).table, theirs.read(name)
    own, others = (from_json(cls, table or {}) for table in found)
    mine, more = _rows(own), _rows(others)
    new = tuple(sorted(more.keys() - mine.keys()))
    gone = set(deleted) - more.keys() if found[1] is not None else set()
    newer, older = (
        (others, own) if others.data_version.age > own.data_version.age else (own, others)
    )
    both = _rows(older) | _rows(newer)
    if cls is RequestModes:
        both = {topic: _rows(older).get(topic, {}) | modes for topic, modes in both.items()}
    rows = {name: row for name, row in both.items() if name not in gone}
    version = newer.data_version
    if rows != _rows(newer):
        # It is a table that neither node had, so slaves must see it as a new one.
        version = version.changed(max(version.timestamp, older.data_version.timestamp))
    whole = evolve(newer, **{_member(newer): rows}, data_version=version)
    if whole != own:
        merged.changed[name] = whole
    return new, gone


_MEMBERS = {
    TopicTable: "topic_config_table",
    GroupTable: "subscription_group_table",
    RequestModes: "message_request_mode_map",
}


def _member(table: object) -> str:
    return _MEMBERS[type(table)]


def _rows(table: object) -> dict[str, Any]:
    rows: dict[str, Any] = getattr(table, _member(table))
    return rows


def _write(tables: CheckedTables, name: str, table: Any) -> None:
    path = tables.path(name)
    tables.load(path)
    tables.replace(path, to_json(table))
