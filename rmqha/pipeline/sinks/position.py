"""How far a table is: what it holds of each store's log, in one piece.

A batch that comes again, after a kill or with a new checkpoint, is left out or trimmed by
it.  That is what makes every record come once, whatever wrote the table before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import evolve, frozen

from rmqha.pipeline.errors import NotNext
from rmqha.pipeline.log.option_values import Offsets, QueueOffsets
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.positions import Position
from rmqha.pipeline.sinks.written import Written
from rmqha.wire.log.log_identity import LogIdentity

_DIGITS = 8


@frozen
class TablePosition:
    """What a table holds of one store.

    @ivar first: Physical offset where it begins.
    @ivar position: The position up to which it goes.
    @ivar row: Physical offset of the last row, -1 if it is not known or there is none: many a
        record becomes none.
    """

    first: int
    position: Position
    row: int = -1

    @property
    def end(self) -> int:
        return self.position.offset

    def cut(self, to: int) -> TablePosition:
        """What is left when rows from an offset on are taken off.  Which of those below is the last
        is not known then, nor whether it has to be there.  Where none are, the log may have another
        name from now on, and its last record tells.
        """
        if to >= self.end:
            return evolve(self, position=evolve(self.position, log=LogIdentity()), row=-1)
        return TablePosition(min(self.first, to), Position(to, seen=self.position.seen))

    def to_json(self) -> dict[str, Any]:
        position = self.position
        return {
            "first": self.first,
            "last": position.last,
            "offset": position.offset,
            "row": self.row,
            "seen": position.seen,
            "sum": position.sum,
            "identity": position.log.to_json(),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> TablePosition:
        log = LogIdentity.from_json(found.get("identity", {}))
        seen = found.get("seen", -1)
        position = Position(found["offset"], found["last"], found["sum"], log, seen=seen)
        return cls(found["first"], position, found.get("row", -1))


Source = tuple[str, str]
"""What a table holds something of: a selection and a store."""


def as_json(sources: Mapping[Source, TablePosition]) -> dict[str, dict[str, Any]]:
    """How far a table is, as it says so beside its rows."""
    held: dict[str, dict[str, Any]] = {}
    for (selection, store), each in sorted(sources.items()):
        held.setdefault(selection, {})[store] = each.to_json()
    return held


def of_json(found: Mapping[str, Mapping[str, Any]]) -> dict[Source, TablePosition]:
    """Read what L{as_json} made."""
    return {
        (selection, store): TablePosition.from_json(held)
        for selection, stores in found.items()
        for store, held in stores.items()
    }


def selection_of(options: ReadOptions) -> str:
    """A short name of which records are chosen: tables hold what they have by it.

    Where a read begins and ends is no part of it, nor what its rows look like.
    """
    chosen: dict[str, object] = {
        "first": _queues(options.starting_offsets),
        "last": _queues(options.ending_offsets),
        "pattern": options.subscribe_pattern and options.subscribe_pattern.pattern,
        "queues": options.queue_ids and sorted(options.queue_ids),
        "tags": options.tags and sorted(options.tags),
        "topics": options.topic and sorted(options.topic),
        "visibility": options.visibility.value,
    }
    # What came later is left out where it chooses nothing: tables know themselves by this.
    since = options.starting_offsets_by_timestamp
    later: dict[str, object] = {
        "assigned": options.assign and {t: sorted(queues) for t, queues in options.assign.items()},
        "passing": options.property_filter,
        "since": since and since.queues,
    }
    chosen.update((name, value) for name, value in later.items() if value is not None)
    return digest_of(chosen)


def digest_of(value: object) -> str:
    """A few digits that stand for a value of JSON."""
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:_DIGITS]


def _queues(offsets: Offsets) -> object:
    return offsets.queues if isinstance(offsets, QueueOffsets) else None


def advanced(
    held: Mapping[str, TablePosition],
    written: Iterable[Written],
    gap: Callable[[str, int, int], bool],
) -> dict[str, TablePosition]:
    """What a table holds with a batch; stores that do not move are left out.

    @param gap: Says of a store and two offsets whether there may be a hole between the two,
        because the log has one.
    @raise NotNext: If there would be one, or the batch begins before what is held.
    """
    found: dict[str, TablePosition] = {}
    for each in sorted(written, key=lambda each: (each.store, each.planned)):
        before = found.get(each.store) or held.get(each.store)
        if before is None:
            before = TablePosition(each.planned, Position(each.planned))
        behind = each.planned > before.end and not gap(each.store, before.end, each.planned)
        if each.planned < before.first or behind:
            raise NotNext(each.store, before.first, before.end, each.planned)
        if each.end > before.end:
            found[each.store] = evolve(before, position=each.position)
    return found
