"""
What a policy may do about a log that is not its master's, and the guards before it.
"""

from __future__ import annotations

from rmqha.errors import Refused
from rmqha.ha.follower import Divergence
from rmqha.store.interfaces import ILogReader
from rmqha.store.scan import scan


def plan_cut(log: ILogReader, divergence: Divergence, max_bytes: int) -> int:
    """
    Where to cut a log so that only what was compared equal, or lies before it, is left.
    Blocking: it walks the file that holds the place.

    @param max_bytes: C{haMaxTruncateBytes}.
    @return: A record's start (or a blank's), at or before the first difference.
    @raise Refused: If the master is empty, no whole record was compared equal, or more
        than C{max_bytes} would go.
    """
    if divergence.master_empty:
        raise Refused("truncate", "the master is empty; it may be the wrong one, or wiped")
    position = first = _file_start(log, divergence.at)
    proven = False
    if divergence.common_from < first:
        # The whole file before was compared, and a file holds at least one record.
        proven = True
    for _, block in scan(log, first, min(divergence.at, log.confirmed), crc=False):
        for start, size in zip(block.start.tolist(), block.size.tolist(), strict=True):
            if start >= divergence.common_from:
                proven = True
            position = start + size
        position = block.end
    if not proven:
        raise Refused(
            "truncate",
            f"no whole record before byte {divergence.at} was compared equal "
            f"(compared from {divergence.common_from})",
        )
    if log.end - position > max_bytes:
        raise Refused(
            "truncate",
            f"{log.end - position} bytes would be cut, haMaxTruncateBytes allows {max_bytes}",
        )
    return position


def _file_start(log: ILogReader, offset: int) -> int:
    if offset > log.min_offset and offset % log.file_size == 0:
        offset -= 1
    return max(log.min_offset, offset - offset % log.file_size)
