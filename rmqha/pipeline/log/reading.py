"""Read ranges: the bytes of one file in, batches of rows out.

Every range is proved while it is read: its first record must be the planned one, its
last has to end exactly at its end, and the log must not have been cut below that end
before the rows are given away.

Queues whose offsets leap: a record of theirs is not where it should be.

Nothing else shows it when a blank in the middle of a log file hides the rest of it, as a damaged
disk may leave one: every reader of RocketMQ's takes a blank for the file's end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from logging import getLogger
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, evolve, frozen

from rmqha.errors import NotAStore, RecordCorrupt
from rmqha.logfiles.blocks.blocks import Blocks, KindReads
from rmqha.logfiles.blocks.open_file import OpenLogFile
from rmqha.logfiles.log_files import LogFiles, opened_log
from rmqha.logfiles.published import fingerprint, read_point
from rmqha.pipeline.log.cached_splits import believed_splits
from rmqha.pipeline.log.damage import behind, corrupt_column, corrupt_row, in_schema, with_corrupt
from rmqha.pipeline.log.errors import (
    CopyBehind,
    DataLost,
    LogCopiedAnew,
    LogCutBack,
    NotThisLog,
    RangeBroken,
)
from rmqha.pipeline.log.options import Mode, PointFile, ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.log.selection import Selection
from rmqha.pipeline.log.topic_parts import Parts, chosen_topics, larger_batches, spans_of
from rmqha.tier.joined_log import find_log
from rmqha.wire.columnar.decoder import Decoder, all_columns, columns_of
from rmqha.wire.log.published import CutReason

if TYPE_CHECKING:
    import pyarrow as pa

import numpy as np
from attrs import field

from rmqha.logfiles.pread_log import PreadLog
from rmqha.logfiles.scan import next_valid
from rmqha.pipeline.log.errors import QueueGap
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.vectors import Array

Keep = Callable[[FixedFields], Array]
"""Says for each record whether it is a row."""


@define
class QueueOffsetsFollow:
    """Looks at the records of one range before any is left out, and then lets another choose.

    A queue may begin again at a lower offset: its topic was deleted and made anew.

    @ivar store: The store's name.
    @ivar keep: The other; C{None} takes all.
    """

    store: str
    keep: Keep | None
    _next: dict[tuple[str, int], int] = field(factory=dict)

    def __call__(self, heads: FixedFields) -> Array:
        """@raise QueueGap: If queue offsets are left out."""
        rows = np.flatnonzero(heads.has_unit)
        names, numbers = heads.topics
        topic = numbers[rows]
        queue, offset = heads.column("queue_id")[rows], heads.column("queue_offset")[rows]
        order = np.lexsort((rows, queue, topic))
        topic, queue, offset = topic[order], queue[order], offset[order]
        follows = (topic[1:] == topic[:-1]) & (queue[1:] == queue[:-1])
        for row in (np.flatnonzero(follows & (offset[1:] > offset[:-1] + 1)) + 1).tolist():
            self._gap(names[topic[row]], int(queue[row]), int(offset[row - 1]) + 1, offset[row])
        ends = np.flatnonzero(~follows) + 1
        for start, end in zip([0, *ends], [*ends, len(order)], strict=True):
            if start < end:
                key = names[topic[start]], int(queue[start])
                expected = self._next.get(key)
                if expected is not None and offset[start] > expected:
                    self._gap(*key, expected, offset[start])
                self._next[key] = int(offset[end - 1]) + 1
        return np.ones(len(heads), np.bool_) if self.keep is None else self.keep(heads)

    def _gap(self, topic: str, queue: int, expected: int, found: int) -> None:
        raise QueueGap(self.store, topic, queue, expected, int(found))


def require_nothing_hidden(wanted: Range, files: LogFiles, last: int) -> None:
    """Look behind the blank that ends a range, if its file's end does.

    @param files: Those of the log, or the range's alone.
    @param last: Where the last record before it begins, -1 if there is none.
    @raise RangeBroken: If there is a whole record in this file.
    """
    if wanted.end < wanted.file_end or last < 0:
        return
    with PreadLog(files) as log:
        end = last + int.from_bytes(log.read(last, 4), "big", signed=True)
        found = next_valid(log, end + 1)
    if found is not None and found < wanted.file_end:
        reason = f"a blank that hides a whole record at byte {found}"
        raise RangeBroken(wanted.path, end, wanted.end, reason)


PATIENCE = 10.0
"""Seconds a task waits for its host's copy to reach the end of its range."""

_HEADERS = "headers"
"""The column that Spark's Kafka source has only where C{includeHeaders} is set."""

SHORT = "the file ends here"

_POLL = 0.1

_log = getLogger(__name__)


def reads_of(options: ReadOptions) -> KindReads:
    """How one task reads a log file."""
    return KindReads(options.keep_page_cache, options.max_read_bytes_per_second)


def chosen_columns(options: ReadOptions) -> tuple[str, ...]:
    """The columns of a read, by the names of its style.

    @raise ColumnUnknown: If one is none of the style's.
    """
    style = options.column_style.value
    extra = corrupt_column(options)
    if options.columns is None:
        names = all_columns(style)
        if not options.include_headers:
            names = tuple(name for name in names if name != _HEADERS)
        return (*names, *extra)
    columns_of([name for name in options.columns if name not in extra], style)
    return options.columns


@define
class Passed:
    """What a read has passed.

    @ivar last: Where the last whole record starts, chosen or not; -1 if there is none.
    """

    last: int = -1


@frozen
class MessageReader:
    """Makes rows of ranges.

    @ivar columns: Which columns, by the names of the style.
    """

    options: ReadOptions
    columns: tuple[str, ...]

    def decoder(self, broker: str | None, store: str = "", seen: int = 0) -> Decoder:
        """A decoder for one range of one broker's log.

        @param seen: As a range has it.
        """
        options = self.options
        selection = Selection(options, seen)
        keep: Keep | None = None if selection.everything else selection.keep
        if options.fail_on_queue_gap:
            keep = QueueOffsetsFollow(store, keep)
        extra = corrupt_column(options)
        return Decoder(
            [name for name in self.columns if name not in extra],
            verify_crc=options.verify_crc,
            decompress=options.decompress,
            style=options.column_style.value,
            broker_name=broker,
            delay_levels=options.message_delay_level,
            max_decompressed=options.max_decompressed_bytes,
            keep=keep,
        )

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch."""
        return with_corrupt(self.decoder(None).schema, self.columns)

    def read(self, wanted: Range, passed: Passed | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a range; batches without rows are left out.

        @param passed: Is told what has been read.
        @raise PipelineError: If they cannot be had, or must not be believed.
        """
        guard = RangeProof(wanted, self.options)
        guard.await_copy()
        try:
            with opened_log(wanted.file(self._tier(wanted))) as file:
                guard.prove()
                for batch in self._pieces(wanted, file, passed or Passed()):
                    guard.check_cuts()
                    if batch.num_rows:
                        yield batch
                guard.check_cuts()
        except RangeBroken:
            guard.check_cuts()  # the better reason, if there is one
            raise
        except FileNotFoundError as error:
            guard.check_cuts()
            lost = guard.data_loss()
            if self.options.fail_on_data_loss:
                raise lost from error
            _log.warning("skipping bytes of the log: %s", lost)

    def _pieces(self, wanted: Range, file: OpenLogFile, passed: Passed) -> Iterator[pa.RecordBatch]:
        """The batches of a range, or only those of its parts that have a wanted topic."""
        takes = chosen_topics(self.options)
        if takes is None:
            yield from self._batches(wanted, file, passed)
            return
        files, start, end = wanted.files(self._tier(wanted)), wanted.start, wanted.end
        splits = believed_splits(files, wanted.pointed, start, end)
        spans = spans_of(files, wanted.file_start, splits)
        parts = Parts.between(files, spans, start, end, takes)
        pieces = (evolve(wanted, start=low, end=high) for low, high in parts.places)
        yield from larger_batches(
            batch for piece in pieces for batch in self._batches(piece, file, passed)
        )
        passed.last = max(passed.last, parts.last)

    def _tier(self, wanted: Range) -> str:
        return self.options.tier_of(wanted.store)

    def _batches(
        self, wanted: Range, file: OpenLogFile, passed: Passed
    ) -> Iterator[pa.RecordBatch]:
        """All batches of a range, those without rows too."""
        decoder = self.decoder(wanted.broker, wanted.store, wanted.seen)
        schema = with_corrupt(decoder.schema, self.columns)
        start, reads = wanted.start, reads_of(self.options)
        while start < wanted.end:
            blocks = Blocks(partial(reads, file), wanted.file_start, start, wanted.end)
            try:
                for batch in self._sound(wanted, decoder, blocks):
                    passed.last = max(passed.last, decoder.last)
                    yield in_schema(batch, schema)
                if self.options.fail_on_queue_gap:
                    require_nothing_hidden(wanted, wanted.files(self._tier(wanted)), passed.last)
                return
            except RecordCorrupt as error:
                if self.options.mode is Mode.FAILFAST:
                    raise self._broken(wanted, error.offset, str(error)) from error
                start = behind(error, wanted)
                _log.warning("%s, continuing at byte %d", error, start)
                if self.options.mode is Mode.PERMISSIVE:
                    yield corrupt_row(error, schema, self.options)

    def _sound(self, wanted: Range, decoder: Decoder, blocks: Blocks) -> Iterator[pa.RecordBatch]:
        """The batches up to the range's end, or to damage.

        @raise RecordCorrupt: If there is some; a record that goes beyond the range's end is
            taken for one whose size is damaged.
        @raise RangeBroken: If the file's blank crosses the range's end.
        """
        used = 0
        while blocks.base + used < wanted.end:
            if not blocks.more(used) and not used:
                raise RecordCorrupt(
                    blocks.base, SHORT, f"an incomplete record of {len(blocks.view)} bytes"
                )
            batch, used = decoder.decode(blocks.view, blocks.base, file_end=wanted.file_end)
            if not used and blocks.at_end:
                raise RecordCorrupt(blocks.base, "bad size", "the record would end after its range")
            if blocks.base + used > wanted.end:
                raise self._broken(wanted, blocks.base, "a record crosses the end of the range")
            yield batch

    @staticmethod
    def _broken(wanted: Range, offset: int, reason: str) -> RangeBroken:
        return RangeBroken(wanted.path, offset, wanted.end, reason)


@frozen
class RangeProof:
    """What has to be true of a store for the rows of a range to be believed."""

    wanted: Range
    options: ReadOptions
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def await_copy(self) -> None:
        """Wait until this host's copy reaches the end of the range.

        @raise NotAStore: If this host has no copy: another one has to do the task.
        @raise CopyBehind: If it does not in time.
        """
        wanted = self.wanted
        limit = self.clock() + PATIENCE
        while True:
            confirm = self._confirmed()
            if confirm is None or confirm >= wanted.end:
                return
            if not os.path.exists(wanted.root):
                raise NotAStore(wanted.root, "this host has no such folder")
            if self.clock() >= limit:
                raise CopyBehind(wanted.store, wanted.end, confirm)
            self.sleep(_POLL)

    def check_cuts(self) -> None:
        """@raise LogCutBack: If the log was cut below the range's end after it was planned.
        @raise LogCopiedAnew: If it was put aside, to be copied anew.
        @raise CopyBehind: If the store does not say any more how far its log is final.
        """
        if self._confirmed() == 0:
            raise CopyBehind(self.wanted.store, self.wanted.end, 0)

    def data_loss(self) -> DataLost:
        """The loss that a file is which is not there.

        @raise NotAStore: If this host has no such store.
        @raise CopyBehind: If its copy does not have the file yet.
        """
        wanted = self.wanted
        limit = self._files().limit
        if limit <= wanted.start:
            raise CopyBehind(wanted.store, wanted.end, limit)
        return DataLost(wanted.store, wanted.start, wanted.end)

    def _confirmed(self) -> int | None:
        """How far this host's copy is final; C{None} if that is not asked for."""
        wanted, unread = self.wanted, self.options.point_file is PointFile.IGNORE
        point = None if unread else read_point(Path(wanted.root))
        if point is None:
            return 0 if wanted.pointed else None
        cuts = list(point.cuts)
        known = [row for row, cut in enumerate(cuts) if cut in wanted.cuts[-1:]]
        for cut in cuts[known[-1] + 1 if known else 0 :]:
            if cut.at < wanted.end:
                if cut.why is CutReason.COPY:
                    raise LogCopiedAnew(wanted.store, cut.time, wanted.end)
                raise LogCutBack(wanted.store, cut.at, cut.time, wanted.end)
        return point.confirm

    def prove(self) -> None:
        """Compare this host's records with those the range was planned with.

        @raise NotThisLog: If they are others.
        """
        files = self._files()
        for offset, expected in self.wanted.proofs:
            found = fingerprint(files, offset)
            if found != expected and files.at(offset) is not None:
                store = self.wanted.store
                raise NotThisLog(store, self.wanted.end, offset, expected, found)

    def _files(self) -> LogFiles:
        wanted = self.wanted
        return find_log(Path(wanted.root), self.options.tier_of(wanted.store))
