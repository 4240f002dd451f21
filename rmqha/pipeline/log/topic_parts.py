"""What of a log has to be read for some topics, as the topic index says.

The driver plans by how many bytes they have, so that what has none of them is no task; a task
looks up where they are.  What no index speaks of is read, and so is what the index of this
host's copy does not have: it saves work, rows do not depend on it.

Source: docs/protocol/store.rst, The topic index.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import Split, read_point, read_runs, read_topic_spans, topic_index_of
from rmqha.pipeline.log.cached_splits import believed_splits
from rmqha.pipeline.log.options import Mode, ReadOptions
from rmqha.pipeline.log.selection import Selection
from rmqha.wire.log.topic_runs import TopicSpan

if TYPE_CHECKING:
    import pyarrow as pa

GAP = 16 << 10
"""Bytes between two runs that are read rather than left out: the disk reads them anyway."""

ROWS = 4096
"""Rows that are gathered to one batch."""

BYTES = 8 << 20
"""Bytes of rows that are enough for one."""

Takes = Callable[[str], bool]
"""Says whether a topic is wanted."""


def chosen_topics(options: ReadOptions) -> Takes | None:
    """Which topics a read is about; C{None} if it has to meet every record.

    It has to if all topics are wanted, and if it is to tell what is wrong with records that
    are no rows.
    """
    told = options.fail_on_queue_gap or options.mode is Mode.PERMISSIVE
    if told or all(
        each is None for each in (options.topic, options.subscribe_pattern, options.assign)
    ):
        return None
    return Selection(options).takes


def spans_of(files: LogFiles, file_start: int, splits: Iterable[Split]) -> list[TopicSpan]:
    """The entries of the topic index of one file that belong to spans of the split index.

    @param splits: These, as far as they are believed.
    """
    known = {(split.start, split.end, split.latest) for split in splits}
    read = read_topic_spans(topic_index_of(files.root, file_start)) if known else []
    found: list[TopicSpan] = []
    for span in read:
        follows = not found or span.start >= found[-1].end
        if follows and (span.start, span.end, span.latest) in known:
            found.append(span)
    return found


def bytes_of_topics(path: Path, start: int, end: int) -> dict[str, int]:
    """How many bytes of a part of a log each topic has.  What no index speaks of is not in it.

    @param path: The store.
    @param start: Where the part begins, a physical offset.
    @param end: Where it ends.
    """
    files = LogFiles.find(path)
    pointed = read_point(files.root) is not None
    found: dict[str, int] = {}
    for file, low, high in files.pieces(start, end):
        for span in spans_of(files, file.start, believed_splits(files, pointed, low, high)):
            if low <= span.start and span.end <= high:
                for topic, size in span.topics.items():
                    found[topic] = found.get(topic, 0) + size
    return found


@frozen
class Weights:
    """How many bytes of a file have to be read up to a place.

    @ivar spans: The entries of its topic index.
    @ivar takes: Which topics are wanted.
    """

    spans: list[TopicSpan]
    takes: Takes
    _ends: list[int] = field(init=False, repr=False, eq=False)
    _spared: list[int] = field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        spared = [span.end - span.start - self._size(span) for span in self.spans]
        object.__setattr__(self, "_ends", [span.end for span in self.spans])
        object.__setattr__(self, "_spared", [0, *accumulate(spared)])

    def _size(self, span: TopicSpan) -> int:
        return sum(size for name, size in span.topics.items() if self.takes(name))

    def __call__(self, place: int) -> int:
        """@param place: A physical offset, not inside a span of the index."""
        return place - self._spared[bisect_right(self._ends, place)]


@define
class Parts:
    """What of a range has to be read.

    @ivar places: First and last physical offset of each part, ascending.
    @ivar last: Where the last record begins that is known to be in the range, wanted or not;
        -1 if none is.
    """

    places: list[tuple[int, int]] = field(factory=list)
    last: int = -1

    @classmethod
    def between(
        cls, files: LogFiles, spans: Iterable[TopicSpan], start: int, end: int, takes: Takes
    ) -> Parts:
        """Look up where wanted records are.

        @param spans: The entries of the topic index of the range's file, ascending.
        @param start: Where the range begins.
        @param end: Where it ends.
        """
        parts, place = cls(), start
        for span in spans:
            if span.start < place or span.end > end:
                continue
            file = files.at(span.start)
            path = topic_index_of(files.root, span.start if file is None else file.start)
            runs = span.runs(read_runs(path, span), takes)
            if runs is None:
                continue
            parts._add(place, span.start)
            for low, high in runs:
                parts._add(low, high)
            place, parts.last = span.end, max(parts.last, span.last)
        parts._add(place, end)
        return parts

    def _add(self, low: int, high: int) -> None:
        if low >= high:
            return
        if self.places and low - self.places[-1][1] < GAP:
            low = self.places.pop()[0]
        self.places.append((low, high))


def larger_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of many small batches in fewer."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield from _joined(held)
            held, rows, size = [], 0, 0
    yield from _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    if len(batches) > 1:
        batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
    yield from batches
