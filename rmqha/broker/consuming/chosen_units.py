"""Which units of a queue a reading takes: all, those with certain tags, or those whose messages
pass a filter.

Tags are compared by the codes in the units.  A filter asks for properties, which are in the log:
its work is counted, so that no filter holds the reactor, however few messages it lets by.

Source: docs/protocol/remoting.md, Pulling and Filters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import numpy as np

from rmqha.broker.consuming.served_records import ServedRecords, first_wrong
from rmqha.wire.columnar.queue_units import UNIT, UNIT_TYPE
from rmqha.wire.log.properties import parse
from rmqha.wire.log.record import raw_properties
from rmqha.wire.sql92.filter import BYTES, LOOK, WORK, Filter
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

_FEW = 64
"""Up to so many units are compared sooner one by one; with more codes than that, all are."""

Run = tuple[int, int]
"""Physical offset and size of a piece of the log."""

_Place = tuple[int, int, int]
"""Which unit, and its message's physical offset and size."""


class ChosenUnits(NamedTuple):
    """What a reading takes of a queue's units.

    @ivar done: How many units are done with.
    @ivar runs: Pieces of the log.
    @ivar counts: How many messages each piece has.
    @ivar rows: Which units they are, counted from the first.
    @ivar starts: Physical offset of each message.
    @ivar sizes: Size of each, in bytes.
    """

    done: int
    runs: list[Run]
    counts: list[int]
    rows: Sequence[int]
    starts: Sequence[int]
    sizes: Sequence[int]


def choose(raw: bytes, most: int, most_bytes: int, codes: frozenset[int] | None) -> ChosenUnits:
    """Choose from a queue's units.

    @param raw: Whole units.
    @param most: How many messages are wanted.
    @param most_bytes: How many bytes are wanted; the first message is chosen anyway.
    @param codes: The tags codes wanted; C{None} is all.
    """
    total = len(raw) // UNIT_SIZE
    if codes is None:
        count = min(total, most)
        flat = _places(count).unpack_from(raw)
        starts, sizes = flat[::2], flat[1::2]
        size = sum(sizes)
        if size <= most_bytes and flat[-2] + flat[-1] - flat[0] == size:
            # All of them, side by side.
            return ChosenUnits(count, [(flat[0], size)], [count], range(count), starts, sizes)

    def tagged() -> Iterator[_Place]:
        for index in _candidates(raw, total, codes):
            start, length, code = UNIT.unpack_from(raw, index * UNIT_SIZE)
            if length != BLANK_SIZE and (codes is None or code in codes):
                yield index, start, length

    return _taken(tagged(), most, most_bytes, lambda: total)


def choose_passing(
    raw: bytes, offset: int, most: int, most_bytes: int, wanted: Filter, served: ServedRecords
) -> ChosenUnits:
    """Choose those whose messages pass a filter, as far as L{WORK} goes.  A message that is not
    what its unit says is chosen, so that who reads it finds out.

    @param raw: Whole units.
    @param offset: Of the first of them, in messages.
    @param most: How many messages are wanted.
    @param most_bytes: How many bytes are wanted; the first message is chosen anyway.
    """
    looked = total = len(raw) // UNIT_SIZE

    def passing() -> Iterator[_Place]:
        nonlocal looked
        work = WORK
        for index in range(total):
            if work <= 0:
                looked = index
                return
            start, length, _ = UNIT.unpack_from(raw, index * UNIT_SIZE)
            if length == BLANK_SIZE:
                continue
            properties = _properties(served, start, length, offset + index)
            if properties is not None:
                work -= LOOK + len(properties) // BYTES + wanted.steps
                if not wanted.matches(parse(properties)):
                    continue
            yield index, start, length

    return _taken(passing(), most, most_bytes, lambda: looked)


def _properties(served: ServedRecords, start: int, size: int, number: int) -> bytes | None:
    """The property string of a message; C{None} if it is not what its unit says."""
    log = served.log
    if not log.min_offset <= start <= log.end or served.doubted(start, start + size):
        return None
    view = log.read(start, size)
    if len(view) != size or not first_wrong(view, [start], [size], [number]):
        return None
    return raw_properties(view, 0, size)


def _taken(
    wanted: Iterator[_Place], most: int, most_bytes: int, end: Callable[[], int]
) -> ChosenUnits:
    """Take what an answer has room for.

    @param wanted: Where wanted messages are; each is looked for when it is asked for.
    @param end: How many units are done with when there is no other.
    """
    rows: list[int] = []
    places: list[Run] = []
    size = 0
    for index, start, length in wanted:
        if len(rows) == most or (rows and size + length > most_bytes):
            done = index
            break
        rows.append(index)
        places.append((start, length))
        size += length
    else:
        done = end()
    runs, counts = _joined(places)
    return ChosenUnits(
        done, runs, counts, rows, [at for at, _ in places], [size for _, size in places]
    )


def _joined(places: list[Run]) -> tuple[list[Run], list[int]]:
    """Make one piece of records that stand side by side.

    @return: The pieces, and how many records each has.
    """
    runs: list[Run] = []
    counts: list[int] = []
    begin = end = -1
    for start, size in places:
        if start == end:
            counts[-1] += 1
        else:
            if runs:
                runs[-1] = begin, end - begin
            runs.append((start, size))
            counts.append(1)
            begin = start
        end = start + size
    if runs:
        runs[-1] = begin, end - begin
    return runs, counts


def matches(raw: bytes, codes: frozenset[int]) -> bool:
    """Whether any unit is of a message with one of these tags codes."""
    return bool(choose(raw, 1, 0, codes).runs)


def _candidates(raw: bytes, total: int, codes: frozenset[int] | None) -> Sequence[int]:
    """Where it is worth to look."""
    if codes is None or total <= _FEW or len(codes) > _FEW:
        return range(total)
    tags = np.frombuffer(raw, UNIT_TYPE)["tags"].astype(np.int64)
    wanted = np.zeros(total, bool)
    for code in codes:
        wanted |= tags == code
    found: list[int] = np.flatnonzero(wanted).tolist()
    return found


@lru_cache(maxsize=1024)
def _places(count: int) -> Struct:
    """Reads offsets and sizes of units, and passes over their tags codes."""
    return Struct(">" + "qi8x" * count)
