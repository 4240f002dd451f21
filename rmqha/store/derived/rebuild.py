"""Derived files made anew from a log, and derived files held against one.

Source: docs/operations.rst, Rebuild and Verify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from attrs import define, field, frozen
from twisted.internet.task import Clock

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import RecordCorrupt, Refused
from rmqha.logfiles.listing import Finding
from rmqha.logfiles.offline_log import Progress
from rmqha.logfiles.published import read_deleted_topics
from rmqha.logfiles.reader import LogReader
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.dispatch import WINDOW, Dispatcher
from rmqha.store.derived.dispatch_reading import keys, read_block
from rmqha.store.derived.index import MOST_OPEN, Index
from rmqha.store.derived.index_file import HEADER_SIZE, SLOT_SIZE, IndexFile, IndexShape
from rmqha.store.files.descriptors import Descriptors
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.queue_units import BLANK_UNIT, UNIT, UNIT_TYPE, grouped_units
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.store_layout import CONSUMEQUEUE, INDEX, UNIT_SIZE

_READ_ENTRIES = 1 << 18


def open_derived(
    root: Path, settings: StoreSettings, *, read_only: bool = False
) -> tuple[ConsumeQueues, Index | None]:
    """Give the queues and the index of a store; nothing is loaded yet."""
    queues = ConsumeQueues(root, settings.queue_file_size, Descriptors(read_only=read_only))
    if not settings.index_enable:
        return queues, None
    shape = IndexShape(settings.index_slots, settings.index_entries)
    few = min(MOST_OPEN, queues.descriptors.limit)
    descriptors = Descriptors(limit=few, read_only=read_only)
    return queues, Index(root, shape, settings.max_msgs_num_batch, descriptors)


@frozen(kw_only=True)
class RebuiltFiles:
    """What a rebuild made.

    @ivar records: Records read.
    @ivar queues: Queues made.
    @ivar units: Queue offsets given, blanks included.
    @ivar entries: Index entries.
    @ivar faults: What the log itself lacks or contradicts.
    @ivar fault_count: How many of those there were.
    """

    records: int
    queues: int
    units: int
    entries: int
    faults: tuple[Finding, ...]
    fault_count: int


def rebuild(
    log: LogReader,
    root: Path,
    settings: StoreSettings,
    progress: Progress | None = None,
    *,
    ends: Iterable[tuple[str, int, int]] = (),
) -> RebuiltFiles:
    """Make all derived files of a log in a folder that has none.

    They are on disk when this returns.

    @param root: Where C{consumequeue} and C{index} go.
    @param settings: Of the store that the log is of.
    @param progress: Called with bytes done and bytes in all.
    @param ends: Topic, queue id and the queue offset where the queue went on before, of queues of
        which the log may have no message any more.
    @raise Refused: There are derived files already.
    @raise RecordCorrupt: The log holds something that is no record.
    """
    for folder in (root / CONSUMEQUEUE, root / INDEX):
        if folder.is_dir() and any(folder.iterdir()):
            raise Refused("rebuild", f"{folder} is not empty")
    queues, index = open_derived(root, settings)
    queues.note_deleted(read_deleted_topics(settings.root, log, log.confirmed))
    levels = DelayLevels.parse(settings.delay_levels)
    # The clock stands still and the budget is 0: each run is one block of a full window.
    maker = Dispatcher(
        log=log, queues=queues, index=index, levels=levels, clock=Clock(), window=WINDOW
    )
    maker.recover(clean=True)
    start, total = log.min_offset, log.confirmed - log.min_offset
    try:
        while maker.run(0.0):
            if progress is not None:
                progress(maker.position - start, total)
        if progress is not None:
            progress(total, total)
        for end in ends:
            queues.begin(*end, sure=True)
        queues.flush()
        if index is not None:
            index.flush()
    finally:
        queues.close()
        if index is not None:
            index.close()
    return RebuiltFiles(
        records=maker.dispatched,
        queues=len(queues),
        units=sum(queue.max_offset for queue in queues),
        entries=index.total if index is not None else 0,
        faults=tuple(maker.faults),
        fault_count=maker.fault_count,
    )


def compare(
    log: LogReader,
    queues: ConsumeQueues,
    index: Index | None,
    settings: StoreSettings,
    progress: Progress | None = None,
) -> Iterator[Finding]:
    """Hold loaded queues and index against every record of the log.

    Found are units and entries that are missing, wrong, or of no record, and broken
    chains in index files.  An entry that is there twice is none (a stock broker indexes
    its last message again after a restart).

    @param queues: Loaded; L{ConsumeQueues.inspect} is enough.
    @param index: Loaded, or C{None} when there is none.
    @raise RecordCorrupt: The log holds something that is no record.
    """
    levels = DelayLevels.parse(settings.delay_levels)
    queues.note_deleted(read_deleted_topics(queues.root, log, log.confirmed))
    held = _HeldQueues(queues, log.min_offset)
    entries = _HeldEntries(index) if index is not None else None
    if index is not None:
        yield from index.faults
        for file in index.files:
            yield from _chain_faults(file)
    yield from queues.faults
    position = log.min_offset
    while position < log.confirmed:
        buf, block = read_block(log, position, log.confirmed, WINDOW)
        if block.fault is not None and block.end == position:
            raise RecordCorrupt(position, block.fault.value)
        if len(block.start):
            rows = fields(buf, block, levels)
            for queue, first, raw in grouped_units(block, rows):
                held.check(queue, first, raw)
            if entries is not None:
                yield from entries.check(block, *keys(block, rows)[:2])
        position = block.end
        if progress is not None:
            progress(position - log.min_offset, log.confirmed - log.min_offset)
    yield from held.rest()
    if entries is not None:
        yield from entries.rest()


@define
class _HeldQueues:
    """Compares queues, in which a later record may have taken an earlier one's place."""

    queues: ConsumeQueues
    log_min: int
    _next: dict[tuple[str, int], int] = field(init=False, factory=dict)
    _faults: dict[tuple[str, int], list[Finding]] = field(init=False, factory=dict)

    def check(self, name: tuple[str, int], first: int, raw: bytes) -> None:
        """Compare one run of units with what the queue holds."""
        first, raw = self.queues.living(name[0], first, raw)
        if not raw:
            return
        queue = self.queues.get(*name)
        expected = self._next.get(name)
        if expected is None and queue is not None:
            self._before(queue, first)
        elif expected is not None and first < expected:
            faults = self._faults.get(name, [])
            self._faults[name] = [fault for fault in faults if fault.offset < first]
        elif expected is not None and first > expected:
            self._run(name, expected, BLANK_UNIT * (first - expected))
        self._run(name, first, raw)
        self._next[name] = first + len(raw) // UNIT_SIZE

    def rest(self) -> Iterator[Finding]:
        """Give all faults, units behind the log's last one included."""
        for queue in self.queues:
            name = queue.topic, queue.queue_id
            end = self._next.get(name)
            if end is None:
                self._before(queue, queue.max_offset)
            elif queue.max_offset > end:
                more = queue.max_offset - end
                self._add(name, queue.folder, end, f"{more} units belong to no record")
        for name in sorted(self._faults):
            yield from sorted(self._faults[name], key=lambda fault: fault.offset)

    def _before(self, queue: ConsumeQueue, first: int) -> None:
        """Units before the first record of a queue may only be of deleted records."""
        start = queue.min_offset  # the first unit at or above the log's first byte
        if start < min(first, queue.max_offset):
            name = queue.topic, queue.queue_id
            self._add(name, queue.folder, start, f"units up to {first} belong to no record")

    def _run(self, name: tuple[str, int], first: int, raw: bytes) -> None:
        queue = self.queues.get(*name)
        count = len(raw) // UNIT_SIZE
        held = queue.units(first, count) if queue is not None else b""
        if held == raw:
            return
        folder = f"{self.queues.folder}/{name[0]}/{name[1]}"
        there = len(held) // UNIT_SIZE
        ours = np.frombuffer(raw, UNIT_TYPE, there)
        for row in np.flatnonzero(ours != np.frombuffer(held, UNIT_TYPE)).tolist():
            has = UNIT.unpack_from(held, row * UNIT_SIZE)
            wants = UNIT.unpack_from(raw, row * UNIT_SIZE)
            self._add(name, folder, first + row, f"unit is {has}, the log says {wants}")
        if there < count:
            self._add(name, folder, first + there, f"{count - there} units are missing")

    def _add(self, name: tuple[str, int], folder: str, offset: int, reason: str) -> None:
        self._faults.setdefault(name, []).append(Finding(folder, offset, reason))


@define
class _HeldEntries:
    """Reads the entries of all index files in order, as the log's records come by."""

    index: Index
    _file: int = field(init=False, default=0)
    _number: int = field(init=False, default=1)

    def check(self, block: Block, hashes: Array, offsets: Array) -> Iterator[Finding]:
        """Compare the entries of one block's messages."""
        has_hashes, has_offsets = self._upto(block.end, block.base)
        if np.array_equal(has_hashes, hashes) and np.array_equal(has_offsets, offsets):
            return
        wanted = Counter(zip(offsets.tolist(), hashes.tolist(), strict=True))
        held = Counter(zip(has_offsets.tolist(), has_hashes.tolist(), strict=True))
        path = str(self.index.folder)
        for offset, count in sorted(Counter(key[0] for key in (wanted - held)).items()):
            yield Finding(path, offset, f"{count} keys of this record are not indexed")
        for offset, value in sorted(held.keys() - wanted.keys()):
            yield Finding(path, offset, f"entry of hash {value} belongs to no record here")

    def rest(self) -> Iterator[Finding]:
        """What is left when the log has ended."""
        _, offsets = self._upto(1 << 62, 0)
        if len(offsets):
            reason = f"{len(offsets)} entries behind the log's end"
            yield Finding(str(self.index.folder), int(offsets[0]), reason)

    def _upto(self, limit: int, start: int) -> tuple[Array, Array]:
        """Take the entries of offsets in C{[start, limit)}; those below are of deleted records."""
        hashes, offsets = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while self._file < len(self.index.files):
            piece = self.index.files[self._file].entries(self._number, _READ_ENTRIES)
            if not len(piece):
                self._file, self._number = self._file + 1, 1
                continue
            found = piece["offset"].astype(np.int64)
            above = found >= limit
            size = int(above.argmax()) if above.any() else len(found)
            kept = found[:size] >= start
            hashes.append(piece["hash"][:size].astype(np.int64)[kept])
            offsets.append(found[:size][kept])
            self._number += size
            if size < len(found):
                break
        return np.concatenate(hashes), np.concatenate(offsets)


def _chain_faults(file: IndexFile) -> Iterator[Finding]:
    """Check that every entry of a file can be reached from its slot."""
    sound = file.sound_count()
    if sound < file.count:
        yield Finding(file.path, sound, f"entry is wrong, the header says {file.count}")
    slots = np.zeros(file.shape.slots, np.int64)
    for first in range(1, file.count, _READ_ENTRIES):
        hashes = file.entries(first, _READ_ENTRIES)["hash"].astype(np.int64)
        slots[hashes % file.shape.slots] = np.arange(first, first + len(hashes))
    raw = file.descriptors.read(file.path, SLOT_SIZE * file.shape.slots, HEADER_SIZE)
    wrong = np.flatnonzero(np.frombuffer(raw, ">i4") != slots)
    if len(wrong):
        yield Finding(file.path, int(wrong[0]), f"{len(wrong)} slots point to wrong entries")
