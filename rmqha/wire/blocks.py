"""
Checking many records at once: the fast path of verify, recovery and dispatch.

L{walk} gives the verdicts of L{rmqha.wire.record.check}, record by record, at the
speed of the CRC.  The chain of sizes is followed in a tight loop, then one rule at a
time is put to all records together.  Rules only ever say where the first bad record
is; what is wrong with it is asked of L{check}, so the two cannot name it differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from attrs import field, frozen

from rmqha.wire.loops import chosen
from rmqha.wire.record import MAGIC_V1, MAGIC_V2, MIN_RECORD, Fault, check
from rmqha.wire.vectors import Array, by_length, pick

#: Below so many records the scalar codec is faster (measured: numpy costs about 60
#: microseconds before its first record, L{check} about 2 a record).
FEW = 24


@frozen(kw_only=True, eq=False)
class Block:
    """
    A run of whole, valid records.

    @ivar base: Physical offset of the first byte of the buffer, and of the first record.
    @ivar end: Physical offset just past the last whole valid record or blank.
    @ivar start: Physical offsets of the records, C{int64}.
    @ivar size: Their sizes in bytes, C{int32}.
    @ivar fault: Why the run ends before the limit; C{None} when it reaches it.
        L{Fault.INCOMPLETE} asks for more bytes.
    @ivar blank: Size in bytes of the blank that ends the file, 0 without one.
    """

    base: int
    end: int
    start: Array = field(repr=False)
    size: Array = field(repr=False)
    fault: Fault | None
    blank: int


def join(blocks: Sequence[Block]) -> Block:
    """
    Make one block of blocks that follow each other.
    """
    return Block(
        base=blocks[0].base,
        end=blocks[-1].end,
        start=np.concatenate([block.start for block in blocks]),
        size=np.concatenate([block.size for block in blocks]),
        fault=blocks[-1].fault,
        blank=blocks[-1].blank,
    )


class Layout(NamedTuple):
    """
    Where the strings of records lie, as positions in the buffer and lengths.

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


def layout(buf: memoryview, position: Array) -> Layout:
    """
    Read the lengths in records, as they stand there: nothing is checked.

    @param position: Where the records start in the buffer.
    """
    version_2 = pick(buf, ">i4", position + 4) == MAGIC_V2
    flags = pick(buf, ">i4", position + 36)
    # An IPv6 host is 12 bytes longer: bit 4 for the born host, bit 5 for the store host.
    longer = 12 * ((flags >> 4 & 1) + (flags >> 5 & 1))
    body = position + 88 + longer
    body_length = pick(buf, ">i4", body - 4)
    topic = body + body_length + 1 + version_2
    topic_length = pick(buf, "i1", topic - 1).astype(np.int64)
    if version_2.any():
        topic_length = np.where(version_2, pick(buf, ">i2", topic - 2), topic_length)
    properties = topic + topic_length + 2
    return Layout(
        body, body_length, topic, topic_length, properties, MIN_RECORD + longer + version_2
    )


def walk(
    buf: memoryview,
    base: int,
    limit: int,
    file_end: int,
    *,
    crc: bool = True,
    max_size: int,
    nul_is_torn: bool = False,
) -> Block:
    """
    Find the whole, valid records at the front of a buffer.

    @param base: Physical offset of C{buf[0]}, where a record starts.
    @param limit: Physical offset of the first byte that may not be read.
    @param file_end: Physical offset of the end of this log file.
    @param crc: Whether to check body CRCs.
    @param max_size: The most bytes a record may have.
    @param nul_is_torn: Whether properties that end in NUL are a fault.
    """
    stop = min(limit, file_end) - base
    chain = chosen().follow(buf, stop)
    if len(chain) - 1 > FEW:
        chain = chain[: _good(buf, base, chain, crc, max_size, nul_is_torn) + 1]
    else:
        chain = chain[:1]
    # What is left is a bad record or the blank; or, of a few records, all of them.
    position = int(chain[-1])
    more: list[int] = []
    fault: Fault | None = None
    blank = 0
    while position < stop and not blank:
        verdict = check(
            buf,
            position,
            limit - base,
            base + position,
            file_end,
            crc=crc,
            max_size=max_size,
            nul_is_torn=nul_is_torn,
        )
        if isinstance(verdict, Fault):
            fault = verdict
            break
        position += abs(verdict)
        if verdict < 0:
            blank = -verdict
        else:
            more.append(position)
    if more:
        chain = np.concatenate((chain, np.array(more, np.int64)))
    return Block(
        base=base,
        end=base + position,
        start=chain[:-1] + base,
        size=np.diff(chain).astype(np.int32),
        fault=fault,
        blank=blank,
    )


def _good(
    buf: memoryview, base: int, chain: Array, crc: bool, max_size: int, nul_is_torn: bool
) -> int:
    """
    Count the records before the first that breaks a rule.

    @param chain: What L{follow<rmqha.wire.loops.follow>} returned.
    """
    position, size = chain[:-1], np.diff(chain)
    magic = pick(buf, ">i4", position + 4)
    at = layout(buf, position)
    strings = size - at.fixed
    good = (
        ((magic == MAGIC_V1) | (magic == MAGIC_V2))
        & (size <= max_size)
        & (pick(buf, ">i8", position + 28) == position + base)
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
    count = _leading(good)
    topic, topic_length = at.topic[:count], at.topic_length[:count]
    good = good[:count]
    for rows, topics in by_length(buf, topic, topic_length):
        if topics.view(np.uint8).max() > 0x7F:
            good[rows] = [_is_utf8(name) for name in topics.tolist()]
    if crc:
        start, length = at.body[:count], at.body_length[:count]
        found = chosen().crcs(buf, start, start + length) & 0x7FFFFFFF
        good &= (found == pick(buf, ">i4", position[:count] + 8)) | (length == 0)
    return _leading(good)


def _leading(good: Array) -> int:
    """
    Count what is true before the first that is not.
    """
    return len(good) if good.all() else int(good.argmin())


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True
