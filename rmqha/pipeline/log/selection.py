"""Which records become rows.

Filters that Spark would push down are not taken: it keeps a read plan per relation, so
those of one query would be another's.  What is selected is said by options alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
from attrs import field, frozen

from rmqha.pipeline.log.option_values import EARLIEST, LATEST, Offsets, QueueOffsets
from rmqha.pipeline.log.options import ReadOptions, Visibility
from rmqha.wire.columnar.fixed_fields import FixedFields
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.properties import find, parse
from rmqha.wire.names import TAGS, is_system_topic
from rmqha.wire.sql92.filter import read_filter

ANY_TAG = "*"
_TAGS = TAGS.encode()

_BEYOND = (1 << 63) - 1
"""No queue has so many messages."""


@frozen(kw_only=True)
class Selection:
    """What a record must have to be a row.

    @ivar visibility: C{consumer} leaves out what no consumer can get.
    @ivar topics: Topics; C{None} for all.
    @ivar pattern: What a topic's whole name must match; C{None} for all.
    @ivar queue_ids: Queue ids; C{None} for all.
    @ivar assigned: Queue ids by topic; C{None} for all.
    @ivar tags: Tags, as their exact text; C{None} for all.
    @ivar passing: An SQL92 filter over properties, as its text; C{None} for all.
    @ivar first: Queue offsets below which rows are left out, by topic and queue id.
    @ivar seen: Physical offset from which on they are not: what came after the read began is new,
        though its queue may have begun again.
    @ivar last: Queue offsets from which on rows are left out.
    @ivar since: Store times below which they are, in milliseconds since 1970.
    """

    visibility: Visibility
    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    queue_ids: frozenset[int] | None = None
    assigned: Mapping[str, frozenset[int]] | None = None
    tags: frozenset[bytes] | None = None
    passing: str | None = None
    first: Mapping[str, Mapping[int, int]] = field(factory=dict)
    last: Mapping[str, Mapping[int, int]] = field(factory=dict)
    since: Mapping[str, Mapping[int, int]] = field(factory=dict)
    seen: int = _BEYOND
    _wanted: dict[str, bool] = field(factory=dict, init=False, repr=False, eq=False)

    @classmethod
    def of(cls, options: ReadOptions, seen: int = _BEYOND) -> Selection:
        tags = options.tags
        return cls(
            visibility=options.visibility,
            topics=None if options.topic is None else frozenset(options.topic),
            pattern=options.subscribe_pattern,
            queue_ids=options.queue_ids,
            assigned=options.assign,
            tags=None
            if tags is None or ANY_TAG in tags
            else frozenset(tag.encode() for tag in tags),
            passing=options.property_filter,
            first=_queues(options.starting_offsets),
            last=_queues(options.ending_offsets),
            since=_queues(options.starting_offsets_by_timestamp),
            seen=seen,
        )

    @property
    def everything(self) -> bool:
        """Whether every record is a row."""
        rules = (self.topics, self.pattern, self.queue_ids, self.assigned, self.tags, self.passing)
        unruled = all(rule is None for rule in rules)
        return (
            unruled
            and not (self.first or self.last or self.since)
            and self.visibility is Visibility.LOG
        )

    def takes(self, topic: str) -> bool:
        """Whether records of a topic may be rows."""
        wanted = self._wanted.get(topic)
        if wanted is None:
            wanted = self._wanted[topic] = (
                (self.topics is None or topic in self.topics)
                and (self.assigned is None or topic in self.assigned)
                and (self.pattern is None or self.pattern.fullmatch(topic) is not None)
                and (self.visibility is Visibility.LOG or not is_system_topic(topic))
            )
        return wanted

    def keep(self, heads: FixedFields) -> Array:
        """Say for each record whether it is a row."""
        names, numbers = heads.topics
        kept: Array = np.array([self.takes(name) for name in names], np.bool_)[numbers]
        if self.visibility is Visibility.CONSUMER:
            kept &= heads.has_unit
        if self.queue_ids is not None:
            kept &= np.isin(heads.column("queue_id"), list(self.queue_ids))
        for topic in (self.assigned or {}).keys() & set(names):
            mine = numbers == names.index(topic)
            kept &= ~mine | np.isin(heads.column("queue_id"), list((self.assigned or {})[topic]))
        for queues, what, above in (
            (self.first, "queue_offset", True),
            (self.last, "queue_offset", False),
            (self.since, "store_timestamp", True),
        ):
            for topic in queues.keys() & set(names):
                mine = numbers == names.index(topic)
                if queues is self.first:
                    mine &= heads.column("physical_offset") < self.seen
                kept &= ~(mine & _outside(heads, queues[topic], what, above))
        if self.tags is not None:
            tags = self.tags
            _refine(heads, kept, lambda raw: find(raw, _TAGS) in tags)
        if self.passing is not None:
            passing = read_filter(self.passing)
            _refine(heads, kept, lambda raw: passing.matches(parse(raw)))
        return kept


def _refine(heads: FixedFields, kept: Array, wanted: Callable[[bytes], bool]) -> None:
    """Keep of the records that are kept those whose property strings are wanted."""
    rows = np.flatnonzero(kept)
    starts, ends = heads.layout.properties[rows].tolist(), heads.end[rows].tolist()
    kept[rows] = [
        wanted(bytes(heads.buf[start:end])) for start, end in zip(starts, ends, strict=True)
    ]


def _queues(offsets: Offsets | None) -> Mapping[str, Mapping[int, int]]:
    return offsets.queues if isinstance(offsets, QueueOffsets) else {}


def _outside(heads: FixedFields, queues: Mapping[int, int], what: str, above: bool) -> Array:
    """Say for each record whether it is on the wrong side of its queue's place.

    @param what: The field that is compared.
    @param above: Whether the right side begins there, or ends.
    """
    queue, offset = heads.column("queue_id"), heads.column(what)
    found = np.zeros(len(heads), np.bool_)
    for number, place in queues.items():
        if place == (EARLIEST if above else LATEST):
            continue  # no bound
        place = _BEYOND if place == LATEST else max(place, 0)
        found |= (queue == number) & ((offset < place) if above else (offset >= place))
    return found
