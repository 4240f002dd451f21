"""How far a scrub is and what it has found, kept beside the log (C{rmqha/scrub.json}).

With it a node that is restarted every day still gets to the end of a large log, and says of a
damaged place that it is damaged from its start on.
"""

from __future__ import annotations

from pathlib import Path

from attrs import asdict, field, frozen

from rmqha.errors import FileUnreadable, TableUnreadable
from rmqha.logfiles import json_table, typed_table
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.logfiles.typed_table import Natural
from rmqha.store.files.mapped import none_left
from rmqha.store.scrub.cold_log import ColdLog
from rmqha.store.scrub.slices import KeptFinding


@frozen(kw_only=True)
class ScrubPass:
    """One way through the whole log.

    @ivar began: When, in milliseconds since 1970.
    @ivar start: Physical offset of the first byte checked.
    @ivar stop: Physical offset at which it ends: where the log ended when it began.
    @ivar ended: When, in milliseconds since 1970; 0 while it goes on.
    """

    began: Natural
    start: Natural
    stop: Natural
    ended: Natural = 0


@frozen(kw_only=True)
class ScrubMark:
    """What is known of a log's scrubbing.

    @ivar position: Where a record begins that is to be checked next.
    @ivar running: The pass that goes on, C{None} between two.
    @ivar last: The last whole pass, C{None} before there is one.
    @ivar faults: What is bad.
    """

    position: Natural = 0
    running: ScrubPass | None = None
    last: ScrubPass | None = None
    faults: tuple[KeptFinding, ...] = field(default=())


@frozen(kw_only=True)
class KeptScrubMark(ScrubMark):
    """What the file holds.

    @ivar crc: Of the bytes before the position.
    """

    crc: Natural


def read(path: Path) -> KeptScrubMark | None:
    """What a file holds, of whatever log it speaks; C{None} without one.  Blocking.

    @raise FileUnreadable: If the system does not let it be read.
    @raise TableUnreadable: If it makes no sense.
    """
    return typed_table.read(path, KeptScrubMark, "it is no scrub's")


def save(path: Path, log: ColdLog, mark: ScrubMark) -> None:
    """Keep a mark.  Blocking.

    @raise OSError: If the log cannot be read before it, or the disk cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    held = log.min_offset <= mark.position <= log.end
    crc = tail_crc(log, mark.position) if held else 0
    table: json_table.Table = {"crc": crc}
    table.update(asdict(mark).items())
    json_table.replace(path, table)


def load(path: Path, log: ColdLog) -> ScrubMark:
    """The mark, as far as it speaks of this log.  Blocking.

    @raise FileUnreadable: If there is no descriptor for its file now.
    @raise OSError: If there is none for the log's.
    @return: With the start of a file as its position, if the bytes before the position are not
        those that were there: a record begins at least there.
    """
    try:
        mark = read(path)
        if mark is None:
            return ScrubMark()
        position, running = mark.position, mark.running
        inside = log.min_offset <= position <= log.end
        if not inside:
            position, running = log.min_offset, None
        elif mark.crc != tail_crc(log, position):
            position = log.file_start(position)
    except (TableUnreadable, FileUnreadable, OSError) as error:
        if none_left(error):
            raise
        return ScrubMark()
    return ScrubMark(position=position, running=running, last=mark.last, faults=mark.faults)
