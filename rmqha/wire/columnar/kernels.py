"""The choice who runs the inner loops of L{rmqha.wire.columnar.record_blocks},
L{rmqha.wire.columnar.dispatch_fields} and L{rmqha.wire.columnar.decoder}: compiled code where
there is some, L{rmqha.wire.columnar.kernels_numpy} elsewhere.  Both give equal results.

For compiled loops room is made here for what they write, and what is left of it is cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqha.wire.columnar import kernels_numpy
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.layout import MIN_RECORD
from rmqha.wire.log.record import is_utf8

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane import columns_run
    from rmqha.wire.lane.check_run import sound_records

_FEW_TOPICS = 1024

_HOST = 27
"""Letters of the longest IPv4 host and port, the sign of a negative one included."""


class Kernels(NamedTuple):
    """Who runs the inner loops.

    @ivar few: Up to so many records the scalar codec is faster.
    @ivar compiled: Whether they are those of this module.  Without, records are followed, checked
        and read one after the other, the scalar codec reads what dispatch needs, and Arrow copies
        strings.
    """

    few: int
    compiled: bool


def sound(
    buf: memoryview, base: int, stop: int, crc: bool, max_size: int, nul_is_torn: bool
) -> Array:
    """Follow records from position 0 on while they break no rule.

    @param base: Physical offset of C{buf[0]}.
    @param stop: Position of the first byte that may not be read.
    @param crc: Whether to check body CRCs.
    @return: Their positions, and where the last one ends.
    """
    chain = np.empty(max(stop, 0) // MIN_RECORD + 1, np.int64)
    chain[0] = 0
    count = sound_records(buf, base, stop, crc, max_size, nul_is_torn, chain[1:].data)
    return chain[: count + 1].copy()


def heads(
    buf: memoryview, base: int, stop: int, crc: bool, max_size: int, nul_is_torn: bool, bodies: bool
) -> kernels_numpy.FixedColumns:
    """Find the sound records at the front of a buffer, and read their fixed fields.

    What stands behind them is not sound, is not whole, or is the blank.

    @param base: Physical offset of C{buf[0]}.
    @param stop: Position of the first byte that may not be read.
    @param bodies: Whether to copy the bodies while they are at hand.
    """
    most = max(stop, 0) // MIN_RECORD + 1
    chain = np.empty(most + 1, np.int64)
    narrow = np.empty((10, most), np.int32)
    wide, places = np.empty((5, most), np.int64), np.empty((6, most), np.int64)
    ends = np.zeros(most + 1 if bodies else 0, np.int32)
    copies = np.empty(max(stop, 0) if bodies else 0, np.uint8)
    rows, room = -1, _FEW_TOPICS
    while rows < 0:
        # Cleared for every block: as long as it has to be, which is short.
        topics, odd = np.zeros((4, 2 * room), np.int64), np.zeros(room, np.uint8)
        rows = columns_run.heads(
            *(buf, base, stop, crc, max_size, nul_is_torn),
            *(chain, narrow, wide, places, topics, odd, ends, copies),
        )
        room *= 16
    numbers = narrow[9, :rows]
    count = int(numbers.max()) + 1 if rows else 0
    for number in np.flatnonzero(odd[:count]).tolist():
        start, length = topics[:2, number].tolist()
        if not is_utf8(bytes(buf[start : start + length])):
            # Topics have their numbers in the order in which they come.
            rows, count = int((numbers == number).argmax()), number
            break
    return kernels_numpy.FixedColumns(
        chain[: rows + 1].copy(),
        narrow[:, :rows].copy(),
        wide[:, :rows].copy(),
        kernels_numpy.StringLayout(*places[:, :rows].copy()),
        _names(buf, topics, count),
        (ends[: rows + 1].copy(), _tight(copies, int(ends[rows]))) if bodies else None,
    )


def _names(buf: memoryview, topics: Array, count: int) -> list[str]:
    """The first topics of which a loop told where they are.

    @param topics: First byte and length of each, in the first two rows.
    """
    starts, lengths = topics[:2, :count]
    return [str(name, "utf-8") for name in kernels_numpy.slices(buf, starts, starts + lengths)]


def _tight(letters: Array, size: int) -> Array:
    """The front of an array, alone if most of it is not used."""
    used = letters[:size]
    return used.copy() if 4 * size < 3 * len(letters) else used


def columns(
    buf: memoryview, starts: Array, ends: Array
) -> tuple[kernels_numpy.DispatchRows, Array]:
    """Read what dispatch needs of valid records, of delayed ones the hash of their tags too.

    @param starts: Where they start in the buffer.
    @param ends: Where they end.
    @return: It, and of each row whether all its properties are ASCII, and its topic too; if not,
        its tags and keys here mean nothing.
    """
    rows = len(starts)
    narrow, wide = np.empty((3, rows), np.int32), np.empty((3, rows), np.int64)
    is_ascii = np.empty(rows, np.bool_)
    keys, room = -1, 4 * rows
    while keys < 0:
        room *= 4
        record, hashes = np.empty(room, np.int32), np.empty(room, np.int64)
        topics = np.zeros((4, 2 * rows), np.int64)
        count, keys = columns_run.columns(
            buf, starts, ends, narrow, wide, is_ascii.view(np.uint8), record, hashes, topics
        )
    names, key_rows = _names(buf, topics, count), (record[:keys].copy(), hashes[:keys].copy())
    topic, queue_id, sys_flag = narrow
    queue_offset, stored, tags = wide
    fixed = topic, queue_id, queue_offset, sys_flag, stored, tags
    return kernels_numpy.DispatchRows(names, *fixed, *key_rows), is_ascii


def properties(
    buf: memoryview, starts: Array, ends: Array, names: Sequence[bytes], pairs: bool
) -> kernels_numpy.Properties:
    """Find properties by name in many records, and all pairs if asked, by the loops in use: see
    L{rmqha.wire.columnar.kernels_numpy.properties}.
    """
    if not _chosen.compiled:
        return kernels_numpy.properties(buf, starts, ends, names, pairs)
    rows = len(starts)
    found_start, found_end = np.zeros((2, len(names), rows), np.int64)
    room = int((ends - starts).sum()) + 4 * rows if pairs else 0
    counts, places = np.empty(rows if pairs else 0, np.int32), np.empty(room, np.int32)
    many = np.zeros(rows + 1, np.uint8)
    # A pair takes 4 bytes at least, its two marks among them; a row's last has one mark.
    text_ends = np.zeros((2, room // 4 + 1 if pairs else 0), np.int32)
    texts = np.empty((2, room), np.uint8)
    asked = buf, starts, ends, b"".join(names), np.cumsum([0, *map(len, names)])
    total = columns_run.properties(
        *asked, found_start, found_end, pairs, counts, places, many, text_ends, texts
    )
    if many[:-1].any():
        return kernels_numpy.properties(buf, starts, ends, names, pairs)
    copies = []
    if pairs:
        for ends_of, text in zip(text_ends, texts, strict=True):
            used = ends_of[: total // 4 + 1].copy()
            copies.append((used, text[: used[-1]].copy()))
    ascii = not many[-1]
    return kernels_numpy.Properties(found_start, found_end, counts, places[:total], ascii, copies)


def hosts(ips: Array, ports: Array) -> tuple[Array, Array]:
    """Write IPv4 hosts and ports as C{1.2.3.4:5}.

    @param ips: C{uint32}.
    @param ports: C{int32}.
    @return: Where each begins, and where the last ends; and the letters.
    """
    offsets = np.empty(len(ips) + 1, np.int32)
    out = np.empty(_HOST * len(ips), np.uint8)
    return offsets, out[: columns_run.hosts(ips, ports, offsets, out)].copy()


def offset_ids(ips: Array, ports: Array, places: Array) -> Array:
    """Write ids of a store host and a physical offset, 32 letters each.

    @param places: The physical offsets.
    """
    out = np.empty(32 * len(ips), np.uint8)
    columns_run.offset_ids(ips, ports, places, out)
    return out


# Measured: numpy costs about 60 microseconds before its first record, a compiled call 10; the
# scalar codec about 2 a record.
NUMPY = Kernels(24, compiled=False)
_chosen = Kernels(4, compiled=True) if COMPILED else NUMPY


def chosen() -> Kernels:
    """The loops in use."""
    return _chosen
