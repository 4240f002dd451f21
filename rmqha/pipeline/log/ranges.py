"""Ranges of a log: what one task reads.

A range lies in one file, begins where a record is known to begin, and has to end
exactly where its last record does.

Source: docs/guide/pipeline.rst, How a log is divided.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from logging import getLogger
from pathlib import Path
from typing import Self

from attrs import asdict, evolve, field, frozen

from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import fingerprint, read_topic_names
from rmqha.pipeline.log.errors import DataLost
from rmqha.pipeline.log.option_values import EARLIEST, LATEST, Edge, nearest
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.positions import Position
from rmqha.pipeline.log.stores import StoreView
from rmqha.pipeline.log.topic_parts import Weights, chosen_topics, spans_of
from rmqha.tier.tiered_file import TieredFile
from rmqha.wire.log.log_identity import LogIdentity
from rmqha.wire.log.published import Cut, CutReason

_log = getLogger(__name__)


@frozen(kw_only=True)
class Range:
    """A run of whole records in one file.

    @ivar store: The store's name in the query.
    @ivar broker: The broker's name, if it is known.
    @ivar root: The store's root.
    @ivar path: The log file, or the URL of its object in a tier.
    @ivar file_start: Physical offset of the file's first byte.
    @ivar file_end: Physical offset just past the file.
    @ivar start: Physical offset of the first record.
    @ivar end: Physical offset just past the last one, or past the file's blank.
    @ivar cuts: The last cut of the log that was known when this was planned: there may be
        thousands of ranges.
    @ivar proofs: Records and their fingerprints, by which another host's copy is known.
    @ivar pointed: Whether the range ends below a published point, which every host's copy
        has to have then.
    @ivar log: Whose log it is.
    @ivar seen: Up to where places in queues to begin with leave something out, a physical offset.
    """

    store: str
    broker: str | None
    root: str
    path: str
    file_start: int
    file_end: int
    start: int
    end: int
    cuts: tuple[Cut, ...]
    proofs: tuple[tuple[int, str], ...]
    pointed: bool = False
    log: LogIdentity = field(factory=LogIdentity)
    seen: int = 0

    @property
    def size(self) -> int:
        """Bytes between its start and its end."""
        return self.end - self.start

    def file(self, tier: str = "") -> LogFile:
        """The log file it lies in.

        @param tier: The URL of the store's tier, where it may lie.
        """
        if "://" in self.path:
            return TieredFile.of(tier, self.file_start, self.file_end)
        return LogFile(Path(self.path), self.file_start, self.file_end)

    def files(self, tier: str = "") -> LogFiles:
        return LogFiles(Path(self.root), (self.file(tier),))

    def to_json(self) -> str:
        """All of it as a text, so that a range can be a value in a table."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        cuts = tuple(Cut(**{**cut, "why": CutReason(cut["why"])}) for cut in fields.pop("cuts"))
        proofs = tuple((offset, total) for offset, total in fields.pop("proofs"))
        log = LogIdentity.from_json(fields.pop("log"))
        return cls(cuts=cuts, proofs=proofs, log=log, **fields)


def ranges_between(
    store: StoreView, start: int, end: int, options: ReadOptions, proof: Position | None = None
) -> Iterator[Range]:
    """Plan the ranges of C{[start, end)}, which are places between two records.  Where only some
    topics are wanted, what has none of them is in no range.

    @param proof: The position at C{end}, if it is known.
    @raise DataLost: If bytes of it are deleted, and that is not allowed.
    """
    for low, high in store.files.missing(start, end):
        pass_over(store, low, high, options)
    splits = store.splits(start, end)
    anchors = [split.start for split in splits]
    takes = chosen_topics(options)
    seen = end if proof is None or proof.seen < 0 else proof.seen
    ends = [] if proof is None or proof.last < start else [(proof.last, proof.sum)]
    for file, low, high in store.files.pieces(start, end):
        weigh = _bytes
        if takes is not None:
            weigh = Weights(spans_of(store.files, file.start, splits), takes)
        places = cut_at(low, high, anchors, options.max_partition_bytes, weigh)
        for first, last in pairwise(places):
            if weigh(first) == weigh(last):
                continue
            head = fingerprint(store.files, first)
            heads = [(first, head)] if head else []
            tails = [pair for pair in ends if first < pair[0] < last]
            yield evolve(range_in(store, file, first, last, (*heads, *tails)), seen=seen)


def pass_over(store: StoreView, low: int, high: int, options: ReadOptions) -> None:
    """Leave out bytes that are deleted.

    @raise DataLost: If that is not allowed.
    """
    lost = DataLost(store.name, low, high)
    if options.fail_on_data_loss:
        raise lost
    _log.warning("skipping bytes of the log: %s", lost)


def range_in(
    store: StoreView, file: LogFile, start: int, end: int, proofs: tuple[tuple[int, str], ...]
) -> Range:
    """A range of one file of a log.

    @param start: Its first byte, a physical offset.
    @param end: Just past its last.
    @param proofs: Records by which the log is known again: their offsets, and fingerprints.
    """
    return Range(
        store=store.name,
        broker=store.broker,
        root=str(store.files.root),
        path=file.where,
        file_start=file.start,
        file_end=file.end,
        start=start,
        end=end,
        cuts=store.cuts[-1:],
        proofs=proofs,
        pointed=store.point is not None,
        log=store.identity,
    )


def _bytes(place: int) -> int:
    """The weight of a log up to a place, where all of it is read."""
    return place


def cut_at(
    start: int, end: int, anchors: Iterable[int], size: int, weigh: Callable[[int], int] = _bytes
) -> list[int]:
    """Where to cut C{[start, end)}: at anchors, so that no part is longer than C{size} if
    anchors lie near enough, and parts are as few as that allows.

    @param anchors: Ascending.
    @param weigh: How many bytes have to be read up to an anchor.
    @return: The places, both ends included.
    """
    places, before = [start], start
    for anchor in anchors:
        if not start < anchor < end:
            continue
        if weigh(anchor) - weigh(places[-1]) > size and before > places[-1]:
            places.append(before)
        before = anchor
    if weigh(end) - weigh(places[-1]) > size and before > places[-1]:
        places.append(before)
    return [*places, end]


def bounds(store: StoreView, options: ReadOptions) -> tuple[int, int]:
    """The part of a log that a batch is about.

    @return: Two places between records; the second is not below the first.
    """
    start, end = starting(store, options), store.end
    if options.ending_timestamp is not None:
        end = store.stored_from(options.ending_timestamp)
    elif isinstance(options.ending_offsets, dict):
        offset = options.ending_offsets[store.name]
        end = store.end if offset == LATEST else store.record_from(max(offset, store.first))
    return start, max(start, end)


def starting(store: StoreView, options: ReadOptions) -> int:
    """Where a read of a log begins.

    @raise DataLost: If that is deleted, and skipping is not allowed.
    """
    if options.starting_timestamp is not None:
        return store.stored_from(options.starting_timestamp)
    if options.starting_offsets is Edge.LATEST:
        return store.end
    if not isinstance(options.starting_offsets, dict):
        return store.first
    # A broker that came while a stream runs is read from its beginning.
    offset = options.starting_offsets.get(store.name, EARLIEST)
    if offset in (LATEST, EARLIEST):
        return store.end if offset == LATEST else store.first
    if offset > store.end:
        _log.warning(
            "startingOffsets of %s is %d, but its log ends at byte %d: nothing to read yet",
            store.name,
            offset,
            store.end,
        )
    begin = store.present(offset)
    if offset < begin:
        pass_over(store, offset, begin, options)
    return store.record_from(offset)


def plan(stores: Iterable[StoreView], options: ReadOptions) -> list[Range]:
    """The ranges of a batch."""
    stores = list(stores)
    hint_at_topics(stores, options)
    parts = [(store, *bounds(store, options)) for store in stores]
    options = at_least(options, sum(end - start for _, start, end in parts))
    return [found for part in parts for found in ranges_between(*part, options)]


def hint_at_topics(stores: Iterable[StoreView], options: ReadOptions) -> None:
    """Warn of topics that no broker of these stores has: rows of theirs would be a surprise."""
    tables = [read_topic_names(store.files.root) for store in stores]
    if not all(tables):
        return
    known = {name.lower(): name for table in tables for name in table}
    for topic in [*(options.topic or ()), *(options.assign or ())]:
        if topic not in known.values():
            near = nearest(topic, known)
            hint = f"; did you mean {near}?" if near else ""
            _log.warning("no broker of these stores has a topic %s%s", topic, hint)


def at_least(options: ReadOptions, size: int) -> ReadOptions:
    """Options with ranges so small that there are as many as wanted, if the index allows it.

    @param size: Bytes of all of them together.
    """
    if options.min_partitions is None:
        return options
    most = max(1, size // options.min_partitions)
    return evolve(options, max_partition_bytes=min(options.max_partition_bytes, most))
