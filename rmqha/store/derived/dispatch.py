"""Dispatch: from the log's records to queue units and index entries.

The dispatcher follows the log's confirmed end.  The compiled lane reads runs of usual records, and
what a run brings is written once for each file; what is not usual, and where nothing is compiled
all of it, is read in blocks, where numpy does the work of many records at once.  Both ways write
the same bytes.

What costs close to the end is the way to a queue's file, not the unit: so a run has many records,
and takes several slices of time to be written, where shorter runs would write each queue again.

What is derived can be built anew, so nothing is ever written at a place where it
does not belong: when a queue lacks units or holds others than the log says, the
whole log is dispatched again from its first byte, and what is there already is
compared instead of written.  During such a pass (and in a store that was empty)
the log alone is right: see L{ConsumeQueue.mend}.

Source: docs/protocol/store.rst, Dispatch; docs/architecture.rst, Derived files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import Factory, define, field, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.errors import RecordCorrupt
from rmqha.logfiles.listing import Finding
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.typed_table import Natural
from rmqha.store.derived import unit_files
from rmqha.store.derived.consume_queue import QueueCorrupt
from rmqha.store.derived.consume_queues import ConsumeQueues, Moves
from rmqha.store.derived.dispatch_reading import keys, offsets_from, read_block
from rmqha.store.derived.index import Column, Index
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.log.record_checksums import RecordChecksums, entries_of, entries_of_block
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.queue_units import QueueRun, grouped_units
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.record import Fault
from rmqha.wire.store_layout import UNIT_SIZE

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.dispatch_run import DispatchReader

WINDOW = 4 << 20
"""Most bytes of a block: its columns and the log's pages stay in the cache."""

# Columns of it take some hundred microseconds.
_SMALLEST_WINDOW = 8192
# Records of a run: more of 1 KiB would not stay in the cache.
_FEWEST, _MOST = 8, 1024
# Queues written between two looks at the clock: some 40 us.
_TOGETHER = 32
# Faults kept for the status; all are counted.
_FAULTS_KEPT = 100

OnUnits = Callable[[Moves], None]
"""Told that units came, once for all that came together."""


@frozen(kw_only=True)
class DispatchMark:
    """How far the derived files go: taken before a flush, kept by the store after it.

    A later start with this mark re-dispatches only what came after it, and notices
    queues that lost units meanwhile.

    @ivar offset: Physical offset: all below is in the derived files.
    @ivar queues: Topic, queue id and queue offset just past the last unit of each queue.
    @ivar entries: Entries of the index.
    """

    offset: Natural
    queues: tuple[tuple[str, Natural, Natural], ...] = ()
    entries: Natural = 0


@frozen(kw_only=True)
class DispatchChanges:
    """How far the derived files go, and what is new in it.

    @ivar offset: Physical offset: all below is in the derived files.
    @ivar moved: The ends of queues that changed since the changes before, as in
        L{ConsumeQueues.moved}.
    @ivar passing: Whether a dispatch of the whole log is under way: then what is in the queues
        behind it is not sure.
    @ivar entries: Entries of the index.
    """

    offset: int
    moved: dict[tuple[str, int], int]
    passing: bool
    entries: int


@define(eq=False)
class QueueEnds:
    """Where each queue ended at the last mark, so that the next one costs the reactor nothing for
    queues that did not change.

    @ivar ends: By topic and queue id.
    """

    ends: dict[tuple[str, int], int]

    def marked(self, changes: DispatchChanges) -> DispatchMark:
        """Go on to the next mark.  One caller at a time; it takes time for each queue."""
        self.ends.update(changes.moved)
        rows = () if changes.passing else self.ends.items()
        return DispatchMark(
            offset=changes.offset,
            queues=tuple((*key, end) for key, end in rows if end),
            entries=changes.entries,
        )


@define(eq=False, kw_only=True)
class UnwrittenRun:
    """What records bring that were read, and are not all in queues and index yet.

    @ivar units: Those of the queues, in the order of the log for each.
    @ivar keys: Hash, physical offset and store time of each index entry.
    @ivar checksums: The entries of the records' checksums.
    @ivar end: Physical offset just past the last record.
    @ivar records: How many they are.
    @ivar last_timestamp: Store time of the last, milliseconds.
    @ivar written: How many of C{units} are in their queues.
    """

    units: list[QueueRun]
    keys: tuple[Column, Column, Column]
    checksums: bytes
    end: int
    records: int
    last_timestamp: int
    written: int = field(default=0, init=False)


def _fitting(most: int, budget: float, taken: float) -> int:
    """How many records to read next, when so many at most took so many seconds."""
    growth = 0.75 * budget / taken if taken > 0 else 2.0
    return int(max(_FEWEST, min(_MOST, most * min(2.0, growth))))


@define(eq=False, kw_only=True)
class Dispatcher:
    """Keeps the derived files up with the log.

    @ivar log: What to follow.
    @ivar queues: Loaded and recovered queues, or empty ones.
    @ivar index: The same of the index; C{None} when there is none.
    @ivar clock: For the budget of L{run} alone.
    @ivar window: Bytes of the next block; follows what the budget allows.
    @ivar limit: Physical offset behind which nothing is dispatched, as it may be cut off again;
        C{None} without one.
    @ivar checksums: What is kept of whole records beside the log; C{None} where queues and index
        alone are made.
    @ivar position: Physical offset of the next record to dispatch.
    @ivar last_timestamp: Store time of the last record dispatched, milliseconds.
    @ivar dispatched: Records dispatched since the start, repeated ones included.
    @ivar rebuilds: How often the log was dispatched again from its first byte, because
        a derived file was found wrong.
    @ivar fault_count: How many disagreements were found.
    @ivar faults: The latest of them.
    @ivar on_units: Called with the queues that units came to, at least once a run.
    @ivar on_pause: Called when a run ends, once for all units it brought.
    @ivar urgent: Whether somebody waits whose way is so long that a run should begin at once.
    @ivar awaited: Whether anybody waits at all.
    @ivar on_wait: Called when somebody for whom it is urgent begins to wait.
    """

    _log = Logger()

    log: LogReader
    queues: ConsumeQueues
    index: Index | None
    levels: DelayLevels
    clock: IReactorTime
    window: int = _SMALLEST_WINDOW
    limit: int | None = None
    checksums: RecordChecksums | None = None
    position: int = field(init=False, default=Factory(lambda self: self.log.min_offset, True))
    last_timestamp: int = field(init=False, default=0)
    dispatched: int = field(init=False, default=0)
    rebuilds: int = field(init=False, default=0)
    fault_count: int = field(init=False, default=0)
    faults: list[Finding] = field(init=False, factory=list)
    on_units: list[OnUnits] = field(init=False, factory=list)
    on_pause: list[Callable[[], None]] = field(init=False, factory=list)
    urgent: Callable[[], bool] = field(init=False, default=bool)
    awaited: Callable[[], bool] = field(init=False, default=lambda: True)
    on_wait: Callable[[], None] = field(init=False, default=lambda: None)
    # Where the pass over the whole log began, -1 when this run is none.
    _whole: int = field(init=False, default=-1)
    _passing: bool = field(init=False, default=False)
    # Records that can be read in the budget, as far as is known.
    _most: int = field(init=False, default=_FEWEST)
    # Lies at the position: what is written of it may come again.
    _unwritten: UnwrittenRun | None = field(init=False, default=None)

    # --- starting ---

    def recover(self, *, clean: bool, mark: DispatchMark | None = None) -> None:
        """Load the derived files and find out where dispatch goes on.

        The log must be recovered.  Without a mark, queues of a store that was stopped
        cleanly are believed, and after a crash everything is compared from the log's
        first byte (which is fast: nothing that is right is written again).

        @param clean: Whether the last stop was clean.
        @param mark: The last mark that is known to be on disk.
        """
        peek = RecordReader(self.log, self.levels)
        if mark is not None and not self.log.min_offset <= mark.offset <= self.log.confirmed:
            mark = None
        self.queues.start.offset = self.log.min_offset
        self.queues.load()
        self.queues.recover(peek, durable=clean)
        for topic in self.queues.deleted:
            self.queues.forget_deleted(topic)
        found = list(self.queues.faults)
        trusted = mark.offset if mark is not None else 0
        if self.index is not None:
            self.index.load()
            self.index.recover(peek, clean=clean, trusted=trusted)
            if mark is not None and self.index.total < mark.entries:
                self.index.position = min(self.index.position, max(0, self.index.end_offset))
            found += self.index.faults
        for fault in found:
            self._report(fault)
        self._start_at(self._start(clean, mark))
        if self.checksums is not None:
            self.checksums.end = max(self.checksums.end, self.position)

    def _start(self, clean: bool, mark: DispatchMark | None) -> int:
        """The physical offset below which all derived files are complete."""
        start = self.log.min_offset
        if mark is not None:
            gone = {name for name, end in self.queues.deleted.items() if mark.offset <= end}
            lost = [name for name in mark.queues if name[0] not in gone and self._lost_units(*name)]
            if not lost:
                start = mark.offset
                self.queues.start.marked = True
            for topic, queue_id, end in lost:
                path = f"{self.queues.folder}/{topic}/{queue_id}"
                self._report(Finding(path, end, "units below this one are missing"))
                # The log may have none of its messages any more.
                self.queues.begin(topic, queue_id, end, sure=True)
        elif clean and not self.queues.faults:
            start = max(start, min(self.queues.end_physical, self.log.confirmed))
        if self.index is not None:
            start = max(self.log.min_offset, min(start, self.index.position))
        return start

    def _lost_units(self, topic: str, queue_id: int, end: int) -> bool:
        queue = self.queues.get(topic, queue_id)
        return (queue.max_offset if queue is not None else 0) < end

    def _start_at(self, offset: int) -> None:
        self.position = offset
        self._unwritten = None
        self._whole = -1
        if offset <= self.log.min_offset:
            self._begin_whole()

    def _begin_whole(self) -> None:
        self._unwritten = None
        self.position = self._whole = self.log.min_offset
        self._passing = True
        self.queues.begin_pass()

    def mark(self) -> DispatchMark:
        """Say how far the derived files go now; flush them before keeping it.  It takes time for
        each queue.
        """
        return QueueEnds(self.queues.ends()).marked(self.changes())

    def changes(self) -> DispatchChanges:
        """The same, but of queues only what is new since this was last asked."""
        return DispatchChanges(
            offset=self.position,
            moved=self.queues.take_moved(),
            passing=self._passing,
            entries=self.index.total if self.index is not None else 0,
        )

    # --- following ---

    @property
    def behind(self) -> int:
        """Bytes confirmed and not dispatched, whether they may be or not."""
        return max(0, self.log.confirmed - self.position)

    @property
    def end(self) -> int:
        """Up to which physical offset there is something to dispatch."""
        confirmed, limit = self.log.confirmed, self.limit
        return confirmed if limit is None or limit > confirmed else limit

    def offsets_ahead(self) -> dict[tuple[str, int], int]:
        """Read what is not dispatched, also what may not be: see L{offsets_from}."""
        start = max(self.position, self.log.min_offset)
        return offsets_from(self.log, start, WINDOW, self.levels)

    def run(self, budget: float) -> bool:
        """Dispatch what is confirmed, up to L{limit}, for about C{budget} seconds.

        @param budget: Seconds; at least one record, or the units that a run or a block has for one
            queue, is done whatever it says, and both grow only as far as reading them fits it.
        @return: Whether there is more to do at once.
        @raise RecordCorrupt: There is no valid record where one must be; nothing is skipped.
        @raise DiskFull: There is no room; running again later goes on.
        """
        try:
            return self._run(budget)
        finally:
            for listener in self.on_pause:
                listener()

    def _run(self, budget: float) -> bool:
        deadline = self.clock.seconds() + budget
        while True:
            if self.position < self.log.min_offset:
                self.position = self.log.min_offset
            behind, before = self.end - self.position, self.position
            if behind <= 0:
                self._caught_up()
                return False
            started = self.clock.seconds()
            try:
                if self._unwritten is not None:
                    self._write_on(deadline)
                elif not (COMPILED and self._read_run(budget)):
                    self._run_block(budget)
            except QueueCorrupt as error:
                self._report(error.finding)
                self.rebuilds += 1
                self._log.warn(
                    "Rebuilding consume queues and index from byte {start} on: {fault}",
                    start=self.log.min_offset,
                    fault=error.finding,
                )
                self._begin_whole()
                before = -1
            if self.position == before and self._unwritten is None:
                return False  # the limit is within a record
            now = self.clock.seconds()
            if 2 * now - started >= deadline:  # another one would take as long
                if self.position < self.end:
                    return True
                self._caught_up()
                return False

    def _caught_up(self) -> None:
        if self._passing:
            self._passing = False
            self.queues.end_pass(self._whole, self._report)

    def truncate_to(self, offset: int) -> None:
        """Forget everything at or above a physical offset; call before the log is cut."""
        self.queues.truncate_to(offset)
        if self.index is not None:
            self.index.truncate_to(offset, RecordReader(self.log, self.levels))
        self.position = min(self.position, offset)
        self._unwritten = None

    def _report(self, fault: Finding) -> None:
        self.fault_count += 1
        self.faults.append(fault)
        del self.faults[:-_FAULTS_KEPT]

    # --- reading ---

    def _read_run(self, budget: float) -> bool:
        """Read records that are usual, as many as fit the budget as far as is known, and begin to
        write what they bring.

        @return: Whether there was any.
        """
        behind = self.end - self.position
        buf = self.log.read(self.position, behind)
        limit = min(len(buf), behind)
        started = self.clock.seconds()
        run = DispatchReader(
            buf, self.position, limit, self._most, self.log.file_size, delays=self.levels.delays
        )
        if not run.records:
            return False
        taken = self.clock.seconds() - started
        if run.records == self._most or taken > budget:
            self._most = _fitting(run.records, budget, taken)
        self._unwritten = UnwrittenRun(
            units=run.units(),
            keys=(run.hashes, run.offsets, run.timestamps),
            checksums=b"" if self.checksums is None else entries_of(buf, self.position, run.end),
            end=self.position + run.end,
            records=run.records,
            last_timestamp=run.last_timestamp,
        )
        self._write_on(started + budget)
        return True

    def _run_block(self, budget: float) -> None:
        """Read records as columns, and begin to write what they bring."""
        started = self.clock.seconds()
        buf, block = read_block(self.log, self.position, self.end, self.window)
        if len(block.start):
            rows = fields(buf, block, self.levels)
            self._unwritten = UnwrittenRun(
                units=grouped_units(block, rows),
                keys=keys(block, rows),
                checksums=b"" if self.checksums is None else entries_of_block(buf, block),
                end=block.end,
                records=len(block.start),
                last_timestamp=int(rows.store_timestamp[-1]),
            )
            self._fit_window(block.end - block.base, budget, self.clock.seconds() - started)
            self._write_on(started + budget)
        elif block.fault is None:
            self.position = block.end
        elif block.fault is not Fault.INCOMPLETE or self.end == self.log.confirmed:
            # Otherwise the limit is somewhere in the record.
            reason = f"below the confirmed end {self.log.confirmed}"
            raise RecordCorrupt(block.end, block.fault.value, reason)

    def _fit_window(self, size: int, budget: float, taken: float) -> None:
        """Read as much the next time as fits the budget.

        @param size: Bytes of a block.
        @param taken: Seconds that it took to read.
        """
        if 2 * size > self.window or taken > budget:
            fitting = int(size * (min(4.0, 0.75 * budget / taken) if taken > 0 else 2))
            self.window = max(_SMALLEST_WINDOW, min(WINDOW, fitting))

    # --- writing ---

    def _write_on(self, deadline: float) -> None:
        """Write what a run brings, queue by queue until a moment, and what is left the next
        time.
        """
        run, self._unwritten = self._unwritten, None
        assert run is not None, "only called then"
        news: Moves = {}
        try:
            while run.written < len(run.units):
                run.written = self._some(run.units, run.written, news)
                if self.clock.seconds() >= deadline:
                    self._unwritten = run
                    return
        finally:
            for listener in self.on_units if news else ():
                listener(news)
        if self.index is not None and len(run.keys[0]):
            self.index.put(*run.keys)
        if self.checksums is not None:
            self.checksums.append(run.checksums, self.position)
        self.position, self.last_timestamp = run.end, run.last_timestamp
        self.dispatched += run.records

    def _some(self, units: list[QueueRun], at: int, news: Moves) -> int:
        """Give some of many units to their queues, many in one go where that is compiled.

        @param at: The number of the first.
        @return: The number of the first that is left.
        """
        if unit_files.COMPILED:
            done = self.queues.write_usual(units, at, _TOGETHER, self._whole >= 0, news)
            if done > at:
                return done
        queue, first, raw = units[at]
        self._units(queue, first, raw, news)
        return at + 1

    def _units(self, key: tuple[str, int], first: int, raw: bytes, news: Moves) -> None:
        topic, queue_id = key
        first, raw = self.queues.living(topic, first, raw)
        if not raw:
            return
        queue = self.queues.create(topic, queue_id)
        if queue is None or not self.queues.placeable(queue, first):
            path = f"{self.queues.folder}/{topic}/{queue_id}"
            self._report(Finding(path, first, "left out a unit that no consume queue can hold"))
            return
        before = queue.max_offset
        if self._whole >= 0:
            written = queue.mend(first, raw, self._whole, self._report)
        else:
            written = queue.append(first, raw)
        self.queues.moved[key] = queue.max_offset
        if queue.max_offset > before:
            came = min(written, queue.max_offset - before) * UNIT_SIZE
            self.queues.tally.add(queue, raw[len(raw) - came :])
            news[key] = news.get(key, (before, 0))[0], queue.max_offset
