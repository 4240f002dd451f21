"""Copies of a log compared chunk by chunk, in Spark's tasks.

Chunks lie at multiples of their size from the log's byte 0, so those of two sites are the
same.  A task reads a chunk from every copy, and says where the bytes differ from those of
the first one; bytes that it could not read are never equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from attrs import frozen
from isal.isal_zlib import crc32

from rmqha.logfiles.blocks.blocks import KindReads
from rmqha.logfiles.log_files import LogFiles, opened_log
from rmqha.pipeline.jobs.verify.copies import Copy
from rmqha.pipeline.log.fields import numbers, texts
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.reading import RangeProof
from rmqha.wire.columnar.vectors import Array

CHUNK = 8 << 20
"""Bytes that get one digest."""

TASK = 128 << 20
"""Bytes of a task, or one chunk if that is longer."""

APART = 4096
"""Bytes that are equal between two differences of a chunk."""

MOST_EXTENTS = 16
"""Differences told of one chunk; those nearest to each other become one."""

CHUNKS = pa.schema(
    [
        *texts("store", "digest", "absent"),
        *numbers("start", "end", "first", "last", "count", "absent_at"),
    ]
)
"""A row a chunk and copy, and one for each further difference.  C{first} and C{last} are the
physical offsets of the bytes that differ from the first copy's, null if none does; C{absent}
says why the chunk could not be read whole, from C{absent_at} on: what is behind that is not
compared."""


class DigestKind(StrEnum):
    """What a chunk's digest is.  CRC-32 finds faults, SHA-256 tampering too."""

    CRC32 = "crc32"
    SHA256 = "sha256"

    def of(self, data: Array) -> str:
        """The digest of some bytes."""
        if self is DigestKind.CRC32:
            return f"{crc32(data):08x}"
        return hashlib.sha256(data.data).hexdigest()


class Absent(StrEnum):
    """Why bytes are not there."""

    DELETED = "deleted"
    """Retention took their file while the job ran."""
    MISSING = "missing"
    """No file has them, but one below has."""
    SHORT = "short"
    """Their file ends before them."""


@frozen
class HeldBytes:
    """What a copy has of some bytes.

    @ivar data: The bytes; zeros where there are none.
    @ivar there: How many of them there are.
    @ivar absent: Why not more, C{None} if that is all.
    """

    data: Array
    there: int
    absent: Absent | None = None


def held(files: LogFiles, start: int, end: int, buffer: Array | None = None) -> HeldBytes:
    """Read some bytes of a log.

    @param buffer: Where they go, if it is long enough; the next read there makes them invalid.
    """
    size = end - start
    data = np.empty(size, np.uint8) if buffer is None else buffer[:size]
    there, absent = _fill(files, start, end, data.data)
    data[there:] = 0
    return HeldBytes(data, there, absent)


def _fill(files: LogFiles, start: int, end: int, view: memoryview) -> tuple[int, Absent | None]:
    """Read as many bytes as there are.

    @return: How many, and why not more.
    """
    position, read = start, KindReads()
    for file, low, high in files.pieces(start, end):
        if low > position:
            break
        try:
            with opened_log(file) as opened:
                while position < high:
                    part = view[position - start : high - start]
                    count = read(opened, part, position - file.start)
                    if not count:
                        return position - start, Absent.SHORT
                    position += count
        except FileNotFoundError:
            return position - start, _why(LogFiles.find(files.root), position)
    return position - start, None if position == end else _why(files, position)


def _why(files: LogFiles, offset: int) -> Absent:
    return Absent.DELETED if offset < files.first else Absent.MISSING


def differing(one: Array, other: Array) -> Array:
    """Where two runs of bytes of one length differ."""
    whole = len(one) // 8 * 8
    if np.array_equal(one[:whole].view(np.uint64), other[:whole].view(np.uint64)):
        return np.flatnonzero(one[whole:] != other[whole:]) + whole
    return np.flatnonzero(one != other)


def split(places: Array) -> list[Array]:
    """Part places where many bytes lie between two of them.

    @param places: Ascending.
    @return: None for none, and L{MOST_EXTENTS} at most.
    """
    if not len(places):
        return []
    gaps = np.diff(places)
    wide = np.flatnonzero(gaps > APART)
    if len(wide) >= MOST_EXTENTS:
        wide = np.sort(wide[np.argsort(gaps[wide])[1 - MOST_EXTENTS :]])
    return np.split(places, wide + 1)


def edges(low: int, high: int, chunk: int) -> list[int]:
    """Where the chunks of C{[low, high)} begin, and where the last one ends."""
    inner = range((low // chunk + 1) * chunk, high, chunk)
    return [low, *inner, high] if low < high else []


@frozen
class Comparing:
    """The work of a task by its number.

    @ivar copies: The copies; the others are held against the first.
    @ivar edges: What L{edges} gave: where chunks begin, and where the last one ends.
    @ivar chunk: Bytes of a chunk.
    @ivar options: How stores are read.
    """

    copies: Sequence[Copy]
    edges: Sequence[int]
    chunk: int
    sum: DigestKind
    options: ReadOptions

    @property
    def each(self) -> int:
        """How many chunks a task has."""
        return max(1, TASK // self.chunk)

    @property
    def chunks(self) -> int:
        return max(0, len(self.edges) - 1)

    @property
    def tasks(self) -> int:
        return -(-self.chunks // self.each)

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Compare the chunks of one task.

        @raise LogCutBack: If a copy was cut below their end since the job began.
        """
        first = number * self.each
        places = self.edges[first : first + self.each + 1]
        guards = [
            RangeProof(copy.range(places[0], places[-1]), self.options) for copy in self.copies
        ]
        for guard in guards:
            guard.await_copy()
        files = [LogFiles.find(Path(copy.root)) for copy in self.copies]
        longest = max(end - start for start, end in pairwise(places))
        buffers = [np.empty(longest, np.uint8) for _ in self.copies]
        rows = [
            row
            for start, end in pairwise(places)
            for row in self._chunk(files, start, end, buffers)
        ]
        for guard in guards:
            guard.check_cuts()
        yield pa.RecordBatch.from_pylist(rows, CHUNKS)

    def _chunk(
        self, files: list[LogFiles], start: int, end: int, buffers: list[Array]
    ) -> Iterator[dict[str, object]]:
        all_held = [
            held(found, start, end, buffer) for found, buffer in zip(files, buffers, strict=True)
        ]
        one = all_held[0]
        digest = self.sum.of(one.data)
        for copy, here in zip(self.copies, all_held, strict=True):
            both = min(one.there, here.there)
            places = differing(one.data[:both], here.data[:both])
            if not here.absent:
                mine = self.sum.of(here.data) if len(places) or one.absent else digest
            extents = split(places) or [places]
            for number, extent in enumerate(extents):
                absent = None if number else here.absent
                yield {
                    "store": copy.name,
                    "start": start,
                    "end": end,
                    "digest": None if here.absent else mine,
                    "first": start + int(extent[0]) if len(extent) else None,
                    "last": start + int(extent[-1]) if len(extent) else None,
                    "count": len(extent),
                    "absent": absent,
                    "absent_at": start + here.there if absent else None,
                }
