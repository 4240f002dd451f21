"""Checking many records at once: the fast path of verify, recovery and dispatch.

L{walk} gives the verdicts of L{rmqha.wire.log.record.check}, record by record, at the
speed of the CRC.  The chain of sizes is followed in a tight loop, then one rule at a
time is put to all records together.  Rules only ever say where the first bad record
is; what is wrong with it is asked of L{check}, so the two cannot name it differently.
"""

from __future__ import annotations

import numpy as np
from attrs import field, frozen

from rmqha.wire.columnar import kernels
from rmqha.wire.columnar.kernels_numpy import crcs, follow, leading, rules
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.record import Fault, check


@frozen(kw_only=True, eq=False)
class Block:
    """A run of whole, valid records.

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


def walk(
    buf: memoryview,
    base: int,
    limit: int,
    file_end: int,
    *,
    crc: bool = True,
    max_size: int,
    nul_is_torn: bool = False,
    sound: Array | None = None,
) -> Block:
    """Find the whole, valid records at the front of a buffer.

    @param base: Physical offset of C{buf[0]}, where a record starts.
    @param limit: Physical offset of the first byte that may not be read.
    @param file_end: Physical offset of the end of this log file.
    @param crc: Whether to check body CRCs.
    @param max_size: The most bytes a record may have.
    @param nul_is_torn: Whether properties that end in NUL are a fault.
    @param sound: Positions of records that were checked already, and where the last one ends.
    """
    stop = min(limit, file_end) - base
    loops = kernels.chosen()
    if sound is None and loops.compiled:
        sound = kernels.sound(buf, base, stop, crc, max_size, nul_is_torn)
    if sound is not None:
        chain = sound
    else:
        chain = follow(buf, stop)
        usual = len(chain) - 1 > loops.few
        good = _good(buf, base, chain, crc, max_size, nul_is_torn) if usual else 0
        chain = chain[: good + 1]
    # What is left is a bad record or the blank; or, of a few records in numpy, all of them.
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
    """Count the records before the first that breaks a rule.

    @param chain: What L{follow<rmqha.wire.columnar.kernels_numpy.follow>} returned.
    """
    start, end, said = rules(buf, base, chain, max_size, nul_is_torn)
    if not crc:
        return len(start)
    return leading((crcs(buf, start, end) & 0x7FFFFFFF == said) | (start == end))
