"""The inner loops of L{rmqha.wire.columnar.record_blocks} and
L{rmqha.wire.columnar.decoder} as every installation has them: Python, numpy and isal.
L{rmqha.wire.columnar.kernels} has the same, compiled.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from rmqha.wire.columnar.vectors import Array, by_length, overlapping, pick
from rmqha.wire.log.layout import (
    BODY_AT,
    FIELDS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD,
    born_extra,
    store_extra,
)
from rmqha.wire.log.record import is_utf8
from rmqha.wire.log.sys_flag import IP6_HOSTS

_SIZE = Struct(">i")
_PAIR_ENDS, _NAME_ENDS = 2, 1

_NAMED = (
    *("magic", "body_crc", "queue_id", "queue_offset", "physical_offset"),
    *("sys_flag", "store_timestamp", "body_length"),
)
# Fixed fields of a record with hosts of IPv4.
_HEAD = np.dtype(
    {
        "names": _NAMED,
        "formats": [f">{FIELDS[name].kind}" for name in _NAMED],
        "offsets": [FIELDS[name].at for name in _NAMED],
        "itemsize": BODY_AT,
    }
)


class DispatchRows(NamedTuple):
    """What dispatch needs of many records, one row a record.

    @ivar topics: The topics that occur, each once.
    @ivar topic: Index into C{topics}, C{int32}.
    @ivar queue_id: C{int32}.
    @ivar queue_offset: C{int64}.
    @ivar sys_flag: C{int32}.
    @ivar store_timestamp: Milliseconds since the epoch, C{int64}.
    @ivar tags_code: Hash of the tags, 0 without, or when a delayed message is due, in
        milliseconds since the epoch; C{int64}.
    @ivar key_record: The row of each key, C{int32}: rows ascend, and in a row comes
        UNIQ_KEY, then the words of KEYS.  Rows that are not indexable are here too.
    @ivar key_hash: The hash an index entry holds for that key, C{int64}.
    """

    topics: list[str]
    topic: Array
    queue_id: Array
    queue_offset: Array
    sys_flag: Array
    store_timestamp: Array
    tags_code: Array
    key_record: Array
    key_hash: Array


class StringLayout(NamedTuple):
    """Where the strings of records lie, as positions in the buffer and lengths.

    @ivar body: First byte of the body.
    @ivar topic: First byte of the topic.
    @ivar properties: First byte of the properties.
    @ivar fixed: Bytes of the record that are no string.
    """

    body: Array
    body_length: Array
    topic: Array
    topic_length: Array
    properties: Array
    fixed: Array


class FixedColumns(NamedTuple):
    """The fixed fields of sound records, in the machine's byte order.

    @ivar chain: Where the records start in the buffer, and where the last one ends.
    @ivar narrow: The fields of L{NARROW}, C{int32}, one row a field; then each record's index
        into C{topics}.
    @ivar wide: Those of L{WIDE}, C{int64}.
    @ivar layout: Where the strings are.
    @ivar topics: The topics that occur, each once.
    @ivar bodies: Where each body begins and the last one ends in a copy of them one behind
        the other, C{int32}, and this; C{None} if it was not made.
    """

    chain: Array
    narrow: Array
    wide: Array
    layout: StringLayout
    topics: list[str]
    bodies: tuple[Array, Array] | None = None

    def only(self, rows: Array) -> FixedColumns:
        """Those of some records; C{chain} and C{topics} stay, C{bodies} go."""
        return FixedColumns(
            self.chain,
            self.narrow[:, rows],
            self.wide[:, rows],
            StringLayout(*(column[rows] for column in self.layout)),
            self.topics,
        )


NARROW = (
    *("body_crc", "queue_id", "flag", "sys_flag"),
    *("born_ip", "born_port", "store_ip", "store_port", "reconsume_times"),
)
WIDE = (
    *("queue_offset", "physical_offset"),
    *("born_timestamp", "store_timestamp", "prepared_transaction_offset"),
)


def heads(buf: memoryview, position: Array) -> Array:
    """Copy the fixed fields of records at once: each place in a mapped log that is looked at alone
    costs as much.

    @param position: Where the records start in the buffer; each has L{MIN_RECORD} bytes at least.
    @return: Rows of L{_HEAD}; with hosts of IPv6 fields behind the flags mean nothing.
    """
    if not len(position):
        return np.empty(0, _HEAD)  # the buffer may be shorter than a record
    return overlapping(buf, f"V{BODY_AT}")[position].view(_HEAD)


def layout(buf: memoryview, position: Array, head: Array | None = None) -> StringLayout:
    """Read the lengths in records, as they stand there: nothing is checked.

    @param position: Where the records start in the buffer.
    @param head: Their L{heads}, if there are some already.
    """
    if head is None:
        head = heads(buf, position)
    version_2 = head["magic"] == MAGIC_V2
    flags = head["sys_flag"].astype(np.int32)
    if (flags & IP6_HOSTS).any():
        longer = born_extra(flags) + store_extra(flags)
        body = position + BODY_AT + longer
        body_length = pick(buf, ">i4", body - 4)
    else:
        longer = np.zeros(len(position), np.int32)
        body = position + BODY_AT
        body_length = head["body_length"].astype(np.int32)
    topic = body + body_length + 1 + version_2
    topic_length = pick(buf, "i1", topic - 1).astype(np.int64)
    if version_2.any():
        topic_length = np.where(version_2, pick(buf, ">i2", topic - 2), topic_length)
    properties = topic + topic_length + 2
    return StringLayout(
        body, body_length, topic, topic_length, properties, MIN_RECORD + longer + version_2
    )


def follow(buf: memoryview, stop: int) -> Array:
    """Follow the chain of TOTALSIZE fields from position 0.

    @param stop: Position of the first byte that may not be read.
    @return: The positions of everything that could be a record by its size alone,
        and behind them the position where the chain ends.
    """
    unpack = _SIZE.unpack_from
    positions = [0]
    add = positions.append
    position = 0
    while stop - position >= MIN_RECORD:
        (size,) = unpack(buf, position)
        if not MIN_RECORD <= size <= stop - position:
            break
        position += size
        add(position)
    return np.array(positions, np.int64)


def slices(buf: memoryview, starts: Array, ends: Array) -> Iterable[memoryview]:
    """Parts of a buffer, by where they start and end."""
    return map(buf.__getitem__, map(slice, starts.tolist(), ends.tolist()))


def crcs(buf: memoryview, starts: Array, ends: Array) -> Array:
    """Compute the CRC-32 of many parts of a buffer.

    @return: One C{uint32} a part, not yet masked.
    """
    return np.fromiter(map(crc32, slices(buf, starts, ends)), np.uint32, len(starts))


def _text(
    buf: memoryview, starts: Array, ends: Array
) -> tuple[bytearray, Array, Array, Array, Array]:
    """Property strings one behind the other, each closed with the byte that ends a pair, so
    that no pair reaches into the next row; and all segments between such bytes.

    @return: The text; where each row's string ends in it; of each segment where it starts, its
        first byte that ends a name, which is any place behind it if it has none, and where it
        ends.
    """
    lengths = ends - starts
    row_ends = np.cumsum(lengths + 1)
    text = bytearray(b"\x02") * int(row_ends[-1])
    for rows, strings in by_length(buf, starts, lengths):
        overlapping(text, strings.dtype.str)[row_ends[rows] - 1 - lengths[rows]] = strings
    data = np.frombuffer(text, np.uint8)
    closes = np.flatnonzero(data == _PAIR_ENDS)
    opens = np.concatenate((np.zeros(1, np.int64), closes[:-1] + 1))
    marks = np.append(np.flatnonzero(data == _NAME_ENDS), len(text))
    return text, row_ends, opens, marks[np.searchsorted(marks, opens)], closes


class Properties(NamedTuple):
    """The properties of many records as positions in the buffer, read as
    L{rmqha.wire.log.properties.parse} does.

    @ivar start: Where the value of each wanted name starts, one row a name, one column a
        record.
    @ivar end: Where it ends; 0 where the record has none.
    @ivar counts: How many different names each record has; empty if pairs were not asked.
    @ivar pairs: Of each pair where its name starts and ends, then its value, C{int32}, in
        the order of the records; of a name written twice, the last.
    @ivar ascii: Whether it is sure that all of them are ASCII.
    @ivar copies: Of all names, then of all values, where each begins and the last one ends,
        C{int32}, in a copy of them one behind the other, and this; empty if it was not made.
    """

    start: Array
    end: Array
    counts: Array
    pairs: Array
    ascii: bool = False
    copies: Sequence[tuple[Array, Array]] = ()


def properties(
    buf: memoryview, starts: Array, ends: Array, names: Sequence[bytes], pairs: bool
) -> Properties:
    """Find properties by name in many records, and all pairs if asked.

    @param starts: Where each row's properties start.
    @param ends: Where they end.
    @param names: The wanted ones.
    """
    found_start, found_end = np.zeros((2, len(names), len(starts)), np.int64)
    none = np.empty(0, np.int32)
    if not len(starts):
        return Properties(found_start, found_end, none, none)
    text, row_ends, opens, splits, closes = _text(buf, starts, ends)
    real = np.flatnonzero((splits > opens) & (splits < closes - 1))
    opens, splits, closes = opens[real], splits[real], closes[real]
    rows = np.searchsorted(row_ends, opens, side="right")
    lengths = splits - opens
    # From a place in the text to the same in the buffer.
    shift = (ends - row_ends + 1)[rows]
    for number, name in enumerate(names):
        same = np.flatnonzero(lengths == len(name))
        if len(same):
            same = same[overlapping(text, f"S{len(name)}")[opens[same]] == name]
        # Where a name is written twice the last one stays, as numpy assigns in order.
        found_start[number, rows[same]] = splits[same] + 1 + shift[same]
        found_end[number, rows[same]] = closes[same] + shift[same]
    if not pairs:
        return Properties(found_start, found_end, none, none)
    places = np.stack((opens, splits, splits + 1, closes), 1) + shift[:, None]
    kept = _last_of_each(text, rows, opens, lengths)
    return Properties(
        found_start,
        found_end,
        np.bincount(rows[kept], minlength=len(starts)).astype(np.int32),
        places[kept].astype(np.int32).ravel(),
    )


def _last_of_each(text: bytearray, rows: Array, opens: Array, lengths: Array) -> Array:
    """Which pairs are the last of their name in their row.

    @param lengths: Lengths of the names.
    """
    kept = np.ones(len(rows), np.bool_)
    # Equal names give equal numbers, and others hardly ever: by length and the first bytes.
    head = np.minimum(lengths, 8)
    padded = bytes(text) + bytes(8)
    first = pick(padded, ">u8", opens) >> (64 - 8 * head).astype(np.uint64)
    number = (first * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    number = (number + lengths.astype(np.uint64)) & np.uint64(0xFFFFFFFF)
    mixed = np.sort(rows.astype(np.uint64) << np.uint64(32) | number)
    twice = np.unique(mixed[1:][mixed[1:] == mixed[:-1]] >> np.uint64(32)).astype(np.int64)
    bounds = np.searchsorted(rows, (twice, twice + 1))
    for low, high in bounds.T.tolist():
        seen: dict[bytes, int] = {}
        for pair in range(low, high):
            name = bytes(text[opens[pair] : opens[pair] + lengths[pair]])
            if name in seen:
                kept[seen[name]] = False
            seen[name] = pair
    return kept


def rules(
    buf: memoryview, base: int, chain: Array, max_size: int, nul_is_torn: bool
) -> tuple[Array, Array, Array]:
    """Find the records before the first that breaks a rule other than that of the CRC.

    @param chain: What L{follow} returned.
    @return: Of the body of each, where its first byte is, where it ends, and what the record says
        that its CRC is, signed.
    """
    position, size = chain[:-1], np.diff(chain)
    head = heads(buf, position)
    magic = head["magic"].astype(np.int32)
    at = layout(buf, position, head)
    strings = size - at.fixed
    good = (
        ((magic == MAGIC_V1) | (magic == MAGIC_V2))
        & (size <= max_size)
        & (head["physical_offset"] == position + base)
        & (at.body_length >= 0)
        & (at.body_length <= strings)
        & (at.topic_length > 0)
        & (at.topic_length <= strings - at.body_length)
    )
    properties_length = pick(buf, ">i2", at.properties - 2)
    good &= properties_length >= 0
    good &= at.body_length + at.topic_length + properties_length == strings
    if nul_is_torn:
        good &= (properties_length == 0) | (pick(buf, "u1", chain[1:] - 1) != 0)
    count = leading(good)
    topic, topic_length = at.topic[:count], at.topic_length[:count]
    good = good[:count]
    for rows, topics in by_length(buf, topic, topic_length):
        if topics.view(np.uint8).max() > 0x7F:
            good[rows] = [is_utf8(name) for name in topics.tolist()]
    count = leading(good)
    start = at.body[:count]
    crc = head["body_crc"][:count].astype(np.int32)
    return start, start + at.body_length[:count], crc


def leading(good: Array) -> int:
    """Count what is true before the first that is not."""
    return len(good) if good.all() else int(good.argmin())


def number(buf: memoryview, starts: Array, lengths: Array) -> tuple[list[str], Array]:
    """Give every topic a number.

    @param starts: Where each record's topic starts.
    @return: The topics in the order of their numbers, and each row's number.
    """
    numbers: defaultdict[bytes, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    topic = np.zeros(len(starts), np.int32)
    for rows, names in by_length(buf, starts, lengths):
        letters = names.view(np.uint8).reshape(len(names), -1)
        if (letters == letters[0]).all():  # as a rule, and ten times as fast
            topic[rows] = numbers[names[0].tobytes()]
        else:
            topic[rows] = [numbers[name] for name in names.tolist()]
    return [name.decode() for name in numbers], topic
