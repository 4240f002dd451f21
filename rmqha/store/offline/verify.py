"""Whether a store is what it should be, and each place where it is not.

A log that ends in the middle of a record after a crash is not at fault: such a torn
tail was never acknowledged as flushed and goes at the next start, so it is a note.
It is a fault when a valid record follows, when the corruption holds a whole record of
another place, when a record crosses the end of its file, and when the store was
stopped cleanly, because then nothing can be torn.

Source: docs/operations.rst, Verify.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from attrs import define, field

from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.follow import Corruption, follow, moved_from
from rmqha.logfiles.listing import Finding, unreadable
from rmqha.logfiles.offline_log import OfflineLog, Progress
from rmqha.logfiles.published import read_copied_damage
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import WINDOW, data_end
from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.dispatch import DispatchMark
from rmqha.store.derived.dispatch_mark import mark_path
from rmqha.store.derived.dispatch_reading import keys, read_block
from rmqha.store.derived.index import Index
from rmqha.store.derived.rebuild import compare, open_derived
from rmqha.store.files.lock import is_locked
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.log.record_checksums import KeptChecksums
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.record_blocks import Block
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.layout import MAGIC_V1, MAGIC_V2, MIN_BLANK, MIN_RECORD
from rmqha.wire.log.record import Fault, magic_at, stored_at
from rmqha.wire.store_layout import ABORT, CHECKPOINT, CONSUMEQUEUE, INDEX, LOCK


@define(eq=False)
class LogCheck:
    """One look at a whole log.

    @ivar raw: Its files.
    @ivar progress: Told how far it is.
    @ivar records: Whole, valid records seen so far.
    @ivar end: Where the log ends, after L{findings}: behind damage, if it goes on there.
    @ivar blank: Bytes of a blank behind the end, which no file follows.
    @ivar reason: What stands at the end.
    @ivar damaged: Whether the log cannot be followed from its first byte to L{end}.
    @ivar notes: What a person should know, though it is no fault.
    @ivar end_missing: Whether the checkpoint of a clean stop knows a later record than the last.
    @ivar bad: The places that are faults; the log's end apart, each has a valid record behind it.
    """

    raw: RawLog
    progress: Progress | None = None
    records: int = field(default=0, init=False)
    end: int = field(default=0, init=False)
    blank: int = field(default=0, init=False)
    reason: str = field(default="end of files", init=False)
    damaged: bool = field(default=False, init=False)
    notes: list[str] = field(factory=list, init=False)
    end_missing: bool = field(default=False, init=False)
    bad: list[Corruption] = field(factory=list, init=False)
    _copied: CopiedDamage = field(init=False)
    _kept: KeptChecksums = field(init=False)
    _last: tuple[int, int] = field(default=(-1, 0), init=False)

    def __attrs_post_init__(self) -> None:
        self._copied = read_copied_damage(self.raw.root)
        self._kept = KeptChecksums(self.raw.root, self.raw.file_size)

    def findings(self) -> Iterator[Finding]:
        """Check everything, and give what is wrong as it is found."""
        raw = self.raw
        self.end, blank = raw.min_offset, 0
        self.damaged = raw.first_finding is not None
        told = len(raw.findings)
        yield from raw.findings[:told]
        for event in follow(raw, raw.min_offset):
            if isinstance(event, Corruption):
                yield from self._bad(event)
                blank = 0
                continue
            view, block = event
            self._block(view, block)
            yield from self._other(view, block)
            blank = block.blank
            if block.end == raw.file_end(block.base) and not blank:
                yield self._at(block.end - 1, "the file ends without a blank: cut, or a wrong size")
            if self.progress is not None:
                self.progress(self.end - raw.min_offset, raw.end - raw.min_offset)
        yield from raw.findings[told:]  # files that could not be read after all
        if blank and self.end == raw.end:
            self.end -= blank
            self.blank = blank
            self.reason = "a blank that no file follows"
        if self.progress is not None:
            self.progress(raw.end - raw.min_offset, raw.end - raw.min_offset)
        yield from self._against_checkpoint()

    def log(self) -> OfflineLog:
        """The log up to its first damage, after L{findings}."""
        return OfflineLog.of(self.raw, None if self.damaged else self.end)

    def _block(self, view: memoryview, block: Block) -> None:
        self.end = block.end
        if len(block.start):
            self.records += len(block.start)
            last = int(block.start[-1])
            self._last = last, stored_at(view, last - block.base)

    def _other(self, view: memoryview, block: Block) -> Iterator[Finding]:
        """Records that are not what they were when their checksums were taken."""
        for row in self._kept.compared(view, block)[0]:
            start, size = int(block.start[row]), int(block.size[row])
            self.damaged = True
            self.bad.append(Corruption(start, Fault.CHECKSUM, start + size))
            yield self._at(start, Fault.CHECKSUM.value)

    def _at(self, offset: int, reason: str) -> Finding:
        return Finding(str(self.raw.at(offset).path), offset, reason)

    def _bad(self, bad: Corruption) -> Iterator[Finding]:
        reason = bad.fault.value
        moved = moved_from(self.raw, bad.offset) if bad.fault is Fault.OFFSET else None
        if moved is not None:
            reason += f": a whole record of byte {moved} stands here"
        if bad.next_valid is not None:
            self.damaged = True
            reason += f"; the next valid record is at byte {bad.next_valid}"
            if self._copied.size_at(self.raw, bad.offset, bad.fault):
                reason += "; it was copied so from the master"
            self.bad.append(bad)
            yield self._at(bad.offset, reason)
            return
        self.end, self.reason = bad.offset, reason
        behind = data_end(self.raw, bad.offset) - bad.offset
        if moved is not None or bad.fault is Fault.FILE_END:
            self.damaged = self.damaged or moved is not None
            self.bad.append(bad)
            yield self._at(bad.offset, f"{reason}; no valid record follows")
        elif behind and self._stopped_cleanly() and not self._begun(bad.offset, behind):
            self.bad.append(bad)
            yield self._at(
                bad.offset,
                f"{reason}; {behind} bytes behind the log's end, though the store was stopped "
                "cleanly",
            )
        elif behind:
            if bad.fault is Fault.PROPERTIES:
                # It is flushed, whoever is right about its end.
                self._last = bad.offset, stored_at(self.raw.read(bad.offset, MIN_RECORD), 0)
                if not self.raw.writer.known:
                    reason += ", which a node that is started as a master takes for whole"
            self.notes.append(f"torn tail at byte {bad.offset}: {reason}, {behind} bytes")

    def _begun(self, offset: int, size: int) -> bool:
        """Whether bytes can be the beginning of one record: a slave may stop in it."""
        if size <= MIN_BLANK:
            return True
        head = self.raw.read(offset, MIN_BLANK)
        announced = int.from_bytes(head[:4], "big", signed=True)
        known = magic_at(head, 0) in (MAGIC_V1, MAGIC_V2)
        return known and max(size, MIN_RECORD) <= announced <= self.raw.file_size

    def _stopped_cleanly(self) -> bool:
        root = self.raw.root
        return root is not None and (root / CHECKPOINT).exists() and not (root / ABORT).exists()

    def _against_checkpoint(self) -> Iterator[Finding]:
        """After a clean stop nothing that was flushed may be missing at the end.

        After a crash it may: a slave cuts its log to follow its master.
        """
        if self.raw.root is None or not (self._stopped_cleanly() or not self.raw.pieces):
            return
        path = self.raw.root / CHECKPOINT
        flushed = Checkpoint.load(path).log
        if flushed > self._last[1]:
            self.end_missing = True
            reason = (
                f"records up to store time {flushed} were flushed, the last one here "
                f"is of {self._last[1]}: the log's end is missing"
            )
            yield Finding(str(path), max(self._last[0], 0), reason)


def running_notes(root: Path | None) -> Iterator[str]:
    """What to say of a store that may change while it is looked at."""
    if root is None:
        return
    if is_locked(root / LOCK):
        yield "a node is running on this store: its end moves, queues and index may be behind"
    elif (root / ABORT).exists():
        yield "the store was not stopped cleanly: queues and index are mended at its next start"


def derived_findings(
    log: OfflineLog,
    settings: StoreSettings,
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda text: None,
) -> Iterator[Finding]:
    """Hold consume queues and index against a log that has no fault itself.

    @param note: Told what is no fault: what a node that was killed, or one that runs, had not
        dispatched yet.
    """
    root = settings.root
    blocked = list(_unreadable(root))
    if blocked:
        yield from blocked
        return
    queues, index = open_derived(root, settings, read_only=True)
    try:
        queues.load()
        queues.inspect(log.min_offset)
        if index is not None and not any((root / INDEX).glob("[0-9]*")):
            index = None
            yield from _without_index(log, settings)
        if index is not None:
            index.load()
        mark = dispatch_mark.load(mark_path(root), log) if (root / ABORT).exists() else None
        waiting = 0
        for fault in compare(log, queues, index, settings, progress):
            if mark is not None and _is_behind(mark, fault, queues, index):
                waiting += 1
            else:
                yield fault
        if mark is not None and waiting:
            note(
                f"{waiting} places of queues and index behind byte {mark.offset}, up to which the "
                "node had dispatched, are not what the log says: its next start mends them"
            )
    except OSError as error:
        yield Finding(error.filename or str(root), 0, f"unreadable: {error.strerror}")
    finally:
        queues.close()
        if index is not None:
            index.close()


def _is_behind(
    mark: DispatchMark, fault: Finding, queues: ConsumeQueues, index: Index | None
) -> bool:
    """Whether a fault speaks of nothing that the node had surely dispatched."""
    if index is not None:
        if fault.path == str(index.folder):
            return fault.offset >= mark.offset
        if fault.path in (file.path for file in index.files):
            # Slots and header are written behind the entries.
            return fault.path == index.files[-1].path and index.total > mark.entries
    # What a queue has lost since cannot be told from it: the mark has its end.
    ends = {f"{queues.folder}/{topic}/{number}": end for topic, number, end in mark.queues}
    is_queue = Path(fault.path).parent.parent == queues.folder
    return bool(ends) and is_queue and fault.offset >= ends.get(fault.path, 0)


def _unreadable(root: Path) -> Iterator[Finding]:
    waiting = [root / CONSUMEQUEUE, root / INDEX]
    while waiting:
        path = waiting.pop()
        if not path.exists():
            continue
        problem = unreadable(path)
        if problem:
            yield Finding(str(path), 0, f"unreadable: {problem}")
        elif path.is_dir():
            waiting += sorted(path.iterdir(), reverse=True)


def _without_index(log: OfflineLog, settings: StoreSettings) -> Iterator[Finding]:
    """No index at all is a fault if any record has a key."""
    levels = DelayLevels.parse(settings.delay_levels)
    position = log.min_offset
    while position < log.confirmed:
        buf, block = read_block(log, position, log.confirmed, WINDOW)
        if len(block.start):
            _, offsets, _ = keys(block, fields(buf, block, levels))
            if len(offsets):
                reason = f"no index file, but the record at byte {int(offsets[0])} has keys"
                yield Finding(str(settings.root / INDEX), 0, reason)
                return
        if block.end == position:
            return
        position = block.end
