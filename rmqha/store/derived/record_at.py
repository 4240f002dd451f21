"""Reading one record of a log that something derived points at.

A consume queue unit or an index entry is only a claim; code that relies on it
looks at the record itself first.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.logfiles.reader import LogReader
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.layout import MIN_RECORD
from rmqha.wire.log.record import DispatchFields, check, dispatch_fields

# Most records fit in this many bytes; longer ones are read a second time, whole.
_FIRST_READ = 16 << 10


@frozen
class RecordAt:
    """A whole record found at a physical offset.

    @ivar offset: Where it starts, physical.
    @ivar size: Its size, in bytes.
    @ivar fields: What dispatch takes from it.
    """

    offset: int
    size: int
    fields: DispatchFields

    @property
    def end(self) -> int:
        """Physical offset just past the record."""
        return self.offset + self.size


@frozen
class RecordReader:
    """Looks up single records.

    @ivar log: Where they are.
    @ivar levels: The delay levels, for C{tagsCode}.
    """

    log: LogReader
    levels: DelayLevels

    def at(self, offset: int) -> RecordAt | None:
        """What dispatch needs of the record that L{whole} finds."""
        buf = self.whole(offset)
        if buf is None:
            return None
        size = len(buf)
        return RecordAt(offset, size, dispatch_fields(buf, 0, size, offset, self.levels))

    def whole(self, offset: int) -> memoryview | None:
        """Give the bytes of the record at C{offset}, or C{None} when there is no whole, valid one.

        The body's CRC is not checked: the log's own recovery did that.
        """
        log = self.log
        if not log.min_offset <= offset <= log.confirmed - MIN_RECORD:
            return None
        buf = log.read(offset, _FIRST_READ)
        size = int.from_bytes(buf[:4], "big", signed=True)
        if len(buf) < size <= log.file_size:
            buf = log.read(offset, size)
        verdict = check(
            buf,
            0,
            min(len(buf), log.confirmed - offset),
            offset,
            log.file_end(offset),
            crc=False,
            max_size=log.file_size,
        )
        if not isinstance(verdict, int) or verdict <= 0:
            return None
        return buf[:verdict]
