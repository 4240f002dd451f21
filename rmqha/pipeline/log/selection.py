"""Which records become rows.

Filters that Spark would push down are not taken: it keeps a read plan per relation, so
those of one query would be another's.  What is selected is said by options alone.
"""

from __future__ import annotations

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


@frozen
class Selection:
    """What a record must have to be a row.

    @ivar options: Say it.
    @ivar seen: Physical offset from which on the first queue offsets of the options leave nothing
        out: what came after the read began is new, though its queue may have begun again.
    """

    options: ReadOptions
    seen: int = _BEYOND
    _wanted: dict[str, bool] = field(factory=dict, init=False, repr=False, eq=False)

    @property
    def _tags(self) -> frozenset[bytes] | None:
        """Tags, as their exact text; C{None} for all."""
        tags = self.options.tags
        every = tags is None or ANY_TAG in tags
        return None if every else frozenset(tag.encode() for tag in tags or ())

    @property
    def everything(self) -> bool:
        """Whether every record is a row."""
        chosen = self.options
        rules = (
            *(chosen.topic, chosen.subscribe_pattern, chosen.queue_ids, chosen.assign),
            *(self._tags, chosen.property_filter, chosen.starting_offsets_by_timestamp),
        )
        bounds = (chosen.starting_offsets, chosen.ending_offsets)
        return (
            all(rule is None for rule in rules)
            and not any(map(_queues, bounds))
            and chosen.visibility is Visibility.LOG
        )

    def takes(self, topic: str) -> bool:
        """Whether records of a topic may be rows."""
        wanted, chosen = self._wanted.get(topic), self.options
        if wanted is None:
            pattern = chosen.subscribe_pattern
            wanted = self._wanted[topic] = (
                (chosen.topic is None or topic in chosen.topic)
                and (chosen.assign is None or topic in chosen.assign)
                and (pattern is None or pattern.fullmatch(topic) is not None)
                and (chosen.visibility is Visibility.LOG or not is_system_topic(topic))
            )
        return wanted

    def keep(self, heads: FixedFields) -> Array:
        """Say for each record whether it is a row."""
        names, numbers = heads.topics
        chosen, assigned, tags = self.options, self.options.assign or {}, self._tags
        kept: Array = np.array([self.takes(name) for name in names], np.bool_)[numbers]
        if chosen.visibility is Visibility.CONSUMER:
            kept &= heads.has_unit
        if chosen.queue_ids is not None:
            kept &= np.isin(heads.column("queue_id"), list(chosen.queue_ids))
        for topic in assigned.keys() & set(names):
            mine = numbers == names.index(topic)
            kept &= ~mine | np.isin(heads.column("queue_id"), list(assigned[topic]))
        for offsets, what, above in (
            (chosen.starting_offsets, "queue_offset", True),
            (chosen.ending_offsets, "queue_offset", False),
            (chosen.starting_offsets_by_timestamp, "store_timestamp", True),
        ):
            queues = _queues(offsets)
            for topic in queues.keys() & set(names):
                mine = numbers == names.index(topic)
                if offsets is chosen.starting_offsets:
                    mine &= heads.column("physical_offset") < self.seen
                kept &= ~(mine & _outside(heads, queues[topic], what, above))
        if tags is not None:
            _refine(heads, kept, lambda raw: find(raw, _TAGS) in tags)
        if chosen.property_filter is not None:
            passing = read_filter(chosen.property_filter)
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
