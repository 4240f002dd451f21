"""The topic index: which topics the records of a span have, and where.

A span of 16 MiB of a busy broker has all of its topics, so their names alone would let a reader
skip nothing.  What is kept is the order in which they come: runs of neighbours of one topic, as
lengths.  Who wants a topic reads its runs, and who plans reads only how many bytes each has.

An entry speaks of one span of the split index and repeats it: a log that was cut and has grown
again has other spans.

Source: docs/protocol/store.rst, The topic index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from struct import Struct

import numpy as np
from attrs import define, field, frozen
from isal.isal_zlib import compress, crc32, decompress
from numpy.typing import NDArray

from rmqha.wire.log.published import Span

_FIXED = Struct(">qqqqqqIII")
_CRC = Struct(">I")

HEAD_SIZE = _FIXED.size + _CRC.size
"""Bytes before the topics of an entry."""

_LEVEL = 1
_RUN = np.dtype(">u4")

Numbers = NDArray[np.int64]


@frozen(kw_only=True)
class TopicSpan:
    """An entry without its runs.

    @ivar start: Physical offset of the span's first record.
    @ivar end: Just past the span.
    @ivar count: How many records it has.
    @ivar latest: The greatest store time, in milliseconds since 1970.
    @ivar last: Where its last record begins, -1 without one.
    @ivar topics: The bytes of each topic's records, in the order of their numbers.
    @ivar place: Where in the file its runs are.
    @ivar size: How many bytes they take there.
    """

    start: int
    end: int
    count: int
    latest: int
    last: int
    topics: dict[str, int]
    place: int
    size: int
    crc: int

    def runs(self, raw: bytes, takes: Callable[[str], bool]) -> list[tuple[int, int]] | None:
        """Where records of some topics are.

        @param raw: The bytes at L{place}.
        @param takes: Whether a topic is wanted.
        @return: First and last physical offset of each run, ascending; C{None} if the bytes are
            damaged.
        """
        if len(raw) != self.size or crc32(raw) != self.crc:
            return None
        numbers, lengths = np.frombuffer(decompress(raw), _RUN).reshape(2, -1).astype(np.int64)
        wanted = np.array([takes(name) for name in self.topics], np.bool_)[numbers]
        ends = self.start + np.cumsum(lengths)
        found = np.stack((ends - lengths, ends), axis=1)[wanted]
        return [(low, high) for low, high in found.tolist()]


def parse_topic_spans(read: Callable[[int, int], bytes]) -> Iterator[TopicSpan]:
    """The entries of a file, as far as they are whole.

    @param read: Reads some bytes at a place; fewer where the file ends.
    """
    place = 0
    while True:
        head = read(place, HEAD_SIZE)
        if len(head) < HEAD_SIZE:
            return
        start, end, count, _, latest, last, names, size, crc = _FIXED.unpack_from(head)
        topics = read(place + HEAD_SIZE, names)
        (total,) = _CRC.unpack_from(head, _FIXED.size)
        if len(topics) < names or crc32(topics, crc32(head[: _FIXED.size])) != total:
            return
        runs = place + HEAD_SIZE + names
        place = runs + size
        yield TopicSpan(
            start=start,
            end=end,
            count=count,
            latest=latest,
            last=last,
            topics=dict(json.loads(decompress(topics))),
            place=runs,
            size=size,
            crc=crc,
        )


@define(eq=False)
class TopicRunsMaker:
    """Makes the entries of spans of records that follow each other."""

    _numbers: dict[str, int] = field(factory=dict, init=False)
    _topics: list[Numbers] = field(factory=list, init=False)
    _sizes: list[Numbers] = field(factory=list, init=False)
    _last: int = field(default=-1, init=False)

    def add(
        self,
        start: Numbers,
        size: Numbers,
        topics: tuple[Sequence[str], NDArray[np.int32]],
        done: Collection[Span],
    ) -> bytes:
        """Take records.

        @param start: Physical offset of each.
        @param size: Its bytes.
        @param topics: The topics that occur, and the number of each record's.
        @param done: The spans that are complete with them.
        @return: The entries of these.
        """
        raw, first = b"", 0
        for span in done:
            behind = int(np.searchsorted(start, span.end))
            self._take(start[first:behind], size[first:behind], topics[0], topics[1][first:behind])
            raw += self._entry(span)
            first = behind
        self._take(start[first:], size[first:], topics[0], topics[1][first:])
        return raw

    def _take(
        self, start: Numbers, size: Numbers, names: Sequence[str], numbers: NDArray[np.int32]
    ) -> None:
        if not len(start):
            return
        known, ours = self._numbers, np.zeros(len(names), np.int64)
        used = np.flatnonzero(np.bincount(numbers, minlength=len(names)))
        ours[used] = [known.setdefault(names[number], len(known)) for number in used.tolist()]
        self._topics.append(ours[numbers])
        self._sizes.append(size)
        self._last = int(start[-1])

    def _entry(self, span: Span) -> bytes:
        """The entry of a span that is complete; the next one begins."""
        empty = np.empty(0, np.int64)
        topic = np.concatenate((empty, *self._topics))
        size = np.concatenate((empty, *self._sizes))
        # Numbers in the order of the log, whatever pieces it was walked in.
        known, first, topic = np.unique(topic, return_index=True, return_inverse=True)
        topic = np.argsort(np.argsort(first))[topic]
        every = list(self._numbers)
        ordered = [every[number] for number in known[np.argsort(first)].tolist()]
        totals = np.bincount(topic, size, len(ordered)).astype(np.int64).tolist()
        pairs = list(zip(ordered, totals, strict=True))
        heads = np.flatnonzero(np.diff(topic, prepend=-1))
        if len(heads):
            topic, size = topic[heads], np.add.reduceat(size, heads)
        names = compress(json.dumps(pairs, separators=(",", ":")).encode(), _LEVEL)
        runs = compress(np.concatenate((topic, size)).astype(_RUN).tobytes(), _LEVEL)
        times = (span.earliest, span.latest)
        sizes = (len(names), len(runs), crc32(runs))
        fixed = _FIXED.pack(span.start, span.end, span.count, *times, self._last, *sizes)
        self._numbers, self._topics, self._sizes, self._last = {}, [], [], -1
        return fixed + _CRC.pack(crc32(names, crc32(fixed))) + names + runs
