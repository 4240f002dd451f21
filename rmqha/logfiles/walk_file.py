"""Follow the records of one file that is read piece by piece into one buffer.

Every walk starts where a record is known to begin: the start of a file, or an entry of the
split index.  There is no searching for a record inside a file: a producer knows where its
body will lie and can put there what looks like one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from attrs import frozen

from rmqha.logfiles.blocks.blocks import Blocks, Read, plain
from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.log_files import LogFiles, opened_log
from rmqha.wire.columnar.record_blocks import Block, walk
from rmqha.wire.columnar.vectors import Array, pick
from rmqha.wire.log.layout import STORE_TIMESTAMP_AT, SYS_FLAG_AT, born_extra
from rmqha.wire.log.record import Fault


@frozen
class Walked:
    """A run of records.

    @ivar view: The bytes, valid until the next run.
    @ivar block: The records.
    """

    view: memoryview
    block: Block

    def store_times(self) -> Array:
        """Store time of each record, in milliseconds since 1970."""
        start = self.block.start - self.block.base
        born = born_extra(pick(self.view, ">i4", start + SYS_FLAG_AT))
        return pick(self.view, ">i8", start + STORE_TIMESTAMP_AT + born)


def walk_file(
    file: LogFile, start: int, stop: int, *, crc: bool = False, read: Read = plain
) -> Iterator[Walked]:
    """Follow the records of one file until the first fault.

    @param start: Where a record begins, a physical offset in the file.
    @param stop: Where readable bytes end; it may lie inside a record.
    @param crc: Whether bodies are checked.
    @param read: How the file is read.
    @return: Runs that follow each other; only the last one may have a fault.
    """
    with opened_log(file) as opened:
        blocks = Blocks(partial(read, opened), file.start, start, min(stop, file.end))
        used = 0
        while blocks.more(used) or used:
            view, base = blocks.view, blocks.base
            if not len(view):
                return
            block = walk(
                view, base, base + len(view), file.end, crc=crc, max_size=file.end - file.start
            )
            used = block.end - base
            cut = block.fault is Fault.INCOMPLETE and not blocks.at_end
            if used:
                yield Walked(view, block)
            elif not cut:
                yield Walked(view, block)
                return
            if block.fault is not None and not cut:
                return


def whole_from(files: LogFiles, offset: int) -> int:
    """Just past some whole records behind a place; the place itself if there is none.

    A file's last record may be followed by a blank; what that tells of are the records of
    the next file.
    """
    place = offset
    while (file := files.at(place)) is not None:
        found = next(walk_file(file, place, file.end), None)
        if found is None:
            return offset
        if len(found.block.start) or not found.block.blank:
            return found.block.end if len(found.block.start) else offset
        place = found.block.end
    return offset
