"""The split index: where records begin every some MiB of log, and how many lie between.  With it
grows the topic index: which topics they have.

Readers cut a log into parts at these places and plan by the counts and times without
looking at the log.  It is made by walking the log behind the published point, a piece at a
time, and can be thrown away.  What lies below the place where it begins is read file by
file.

Source: docs/protocol/store.rst, The split index and The topic index.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from time import sleep

from attrs import define, field

from rmqha.logfiles.blocks.open_file import opened
from rmqha.logfiles.json_table import replace_bytes
from rmqha.logfiles.reader import LogReader
from rmqha.store.published import topic_index
from rmqha.wire.columnar import kernels
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.record_blocks import walk
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.published import SPAN_SIZE, Span, parse_spans, render_spans
from rmqha.wire.log.record import check
from rmqha.wire.log.split_spans import SpanMaker
from rmqha.wire.log.topic_runs import TopicRunsMaker
from rmqha.wire.store_layout import OWN_FOLDER, SPLITS

MOST_BACKLOG = 1 << 30
"""Bytes of log that are walked to make an index where there is none; with more, it begins
at the last file."""

STEP = (1024 if COMPILED else 256) << 10
"""Bytes walked without a rest: the interpreter is held for a third of a millisecond."""

REST = 0.0005
"""Seconds of a rest."""


def path_of(root: Path) -> Path:
    """Where a store keeps its split index."""
    return root / OWN_FOLDER / SPLITS


def load(root: Path) -> list[Span]:
    """The spans of a store; none if there is no index."""
    try:
        return parse_spans(path_of(root).read_bytes())
    except FileNotFoundError:
        return []


def save(root: Path, spans: list[Span]) -> None:
    """Replace a whole index, so that readers find the old or the new one."""
    replace_bytes(path_of(root), render_spans(spans))


def truncate_to(root: Path, at: int) -> None:
    """Forget the spans that reach above a physical offset."""
    spans = load(root)
    kept = sum(span.end <= at for span in spans)
    if kept < len(spans):
        _keep(root, kept)
    topic_index.truncate_to(root, at)


def _keep(root: Path, count: int) -> None:
    """Cut an index behind its first spans, durably."""
    try:
        with open(path_of(root), "r+b") as file:
            file.truncate(count * SPAN_SIZE)
            os.fsync(file.fileno())
    except FileNotFoundError:
        pass


@define(eq=False)
class SplitIndex:
    """The index of an open store, being continued.  Everything here blocks.

    @ivar spans: Makes what is added, from where the index ends.
    @ivar file_size: Bytes of a file of the log.
    @ivar held: How many spans the file has.
    @ivar position: How far the log was walked.
    """

    root: Path
    _spans: SpanMaker
    file_size: int
    held: int = 0
    position: int = field(init=False)
    _topics: TopicRunsMaker = field(factory=TopicRunsMaker, init=False)

    def __attrs_post_init__(self) -> None:
        self.position = self._spans.start

    @property
    def start(self) -> int:
        """Where the span begins that is being made."""
        return self._spans.start

    @classmethod
    def open(cls, root: Path, log: LogReader) -> SplitIndex:
        """Go on where the index ends, if that is a place in the log, or begin one."""
        held = [span for span in load(root) if span.end <= log.confirmed]
        while held and held[-1].end > log.min_offset and not _begins(log, held[-1].end):
            held.pop()
        end = held[-1].end if held else 0
        if not log.min_offset < end or log.confirmed - end > MOST_BACKLOG:
            held = []
        _keep(root, len(held))
        gone = sum(span.end <= log.min_offset for span in held)
        if gone > len(held) // 2:
            try:
                save(root, held[gone:])
                held = held[gone:]
            except OSError:
                pass  # longer than it has to be, and as good
        topic_index.truncate_to(root, held[-1].end if held else 0)
        topic_index.forget_below(root, log.min_offset)
        if held:
            last = held[-1]
            spans = SpanMaker(last.end, last.ordinal + last.count)
            return cls(root, spans, log.file_size, len(held))
        start = log.min_offset
        if log.confirmed - start > MOST_BACKLOG:
            start = max(start, log.confirmed - log.confirmed % log.file_size)
        return cls(root, SpanMaker(start), log.file_size)

    def advance(self, view: memoryview, file_end: int) -> bool:
        """Walk records from L{position} on, resting now and then so that others get the
        interpreter.

        @param view: Bytes of the log from there on, all of them final.
        @param file_end: Physical offset of the end of their file.
        @return: Whether the walk came further; if not, it needs a longer view.
        """
        begun, size = self.position, STEP
        while view:
            before = self.position
            if self._step(view[:size], file_end):
                view = view[self.position - before :]
                size = STEP
                if view:
                    sleep(REST)
            elif size < len(view):
                size *= 4
            else:
                break
        return self.position > begun

    def _step(self, view: memoryview, file_end: int) -> bool:
        base = self.position
        left = file_end - base
        fields = None
        if kernels.chosen().compiled:
            fields = kernels.heads(view, base, min(len(view), left), False, left, False, False)
        sound = None if fields is None else fields.chain
        block = walk(view, base, base + len(view), file_end, crc=False, max_size=left, sound=sound)
        if block.end == base:
            return False
        if fields is not None and len(fields.chain) != len(block.start) + 1:
            fields = None
        heads = FixedFields(view, block.start - base, block.size, fields)
        done = self._spans.add(block.start + block.size, heads.store_timestamp)
        self.position = block.end
        if block.end == file_end > self.start:
            done.append(self._spans.close(block.end))
        entries = self._topics.add(block.start, block.size, heads.topics, done)
        if done:
            topic_index.append(self.root, file_end - self.file_size, entries)
            self._append(render_spans(done))
        return True

    def _append(self, raw: bytes) -> None:
        with opened(path_of(self.root), os.O_WRONLY | os.O_CREAT) as fd:
            if os.pwrite(fd, raw, self.held * SPAN_SIZE) < len(raw):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.held += len(raw) // SPAN_SIZE


def _begins(log: LogReader, offset: int) -> bool:
    """Whether records may be followed from a place: what is there says so itself."""
    if offset == log.confirmed:
        return True
    verdict = check(
        log.read(offset, log.file_size),
        0,
        min(log.confirmed, log.file_end(offset)) - offset,
        offset,
        log.file_end(offset),
        max_size=log.file_size,
    )
    return isinstance(verdict, int)
