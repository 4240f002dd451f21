"""
Walk a log in blocks: for recovery, verification and offline tools.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from rmqha.logfiles.reader import LogReader
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.log.record import Fault

WINDOW = 4 << 20
"""Most bytes of one block, so that numpy's scratch arrays stay in the cache."""


def scan(
    log: LogReader, start: int, stop: int, *, crc: bool = True, window: int = WINDOW
) -> Iterator[tuple[memoryview, Block]]:
    """
    Check every record of C{[start, stop)}, a block at a time, until the first fault.

    @param start: A record's first byte.
    @param stop: Where readable bytes end; it may lie inside a record.
    @param crc: Whether bodies are checked too.
    @return: Each block with the bytes it describes.  Only the last one has a
        C{fault}: C{INCOMPLETE} if C{stop} cuts a record, else what is wrong at its
        C{end}.
    """
    position = start
    size = window
    while position < stop:
        file_end = log.file_end(position)
        available = min(stop, file_end) - position
        taken = min(size, available)
        view = log.read(position, taken)
        block = walk(view, position, position + taken, file_end, crc=crc, max_size=log.file_size)
        window_cut = block.fault is Fault.INCOMPLETE and taken < available
        if window_cut and block.end == position:
            size = available
            continue
        size = window
        yield view, evolve(block, fault=None) if window_cut else block
        if block.fault is not None and not window_cut:
            return
        position = block.end
