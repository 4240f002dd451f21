"""What ties a file of ours to one state of a log.

Our own files beside a log (marks, the epoch) speak of the log as it was.  A Java
broker, or another copy, may have had the store since: a number that says where the log
ended and a CRC of its last bytes tell.  Source: docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

from isal.isal_zlib import crc32

from rmqha.logfiles.reader import LogReader
from rmqha.wire.log.published import TAIL


def tail_crc(log: LogReader, end: int) -> int:
    """CRC-32 of the last bytes before C{end}, L{TAIL} at most.

    @param end: At most the log's confirmed end.
    """
    position = max(log.min_offset, end - TAIL)
    crc = 0
    while position < end:
        part = log.read(position, end - position)
        crc = crc32(part, crc)
        position += len(part)
    return crc
