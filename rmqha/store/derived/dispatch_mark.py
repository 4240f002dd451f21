"""How far queues and index surely go, kept beside the log (C{rmqha/dispatched.json}).

With it a start after a crash dispatches only what came after, instead of comparing
the whole log.  It is dropped when the log is not the one it speaks of.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table, typed_table
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.logfiles.typed_table import Natural
from rmqha.store.derived.dispatch import DispatchMark
from rmqha.wire.store_layout import DISPATCHED, OWN_FOLDER


@frozen(kw_only=True)
class KeptDispatchMark(DispatchMark):
    """What the file holds.

    @ivar crc: Of the bytes before the offset.
    @ivar durable: Up to where the log itself was on the disk.
    """

    crc: Natural
    durable: Natural = 0


def mark_path(root: Path) -> Path:
    """Where a store keeps how far queues and index go."""
    return root / OWN_FOLDER / DISPATCHED


def read(path: Path) -> KeptDispatchMark | None:
    """What a file holds, of whatever log it speaks; C{None} without one.  Blocking.

    @raise FileUnreadable: If the system does not let it be read.
    @raise TableUnreadable: If it makes no sense.
    """
    return typed_table.read(path, KeptDispatchMark, "it is no mark of what was dispatched")


def save(path: Path, log: LogReader, mark: DispatchMark, durable: int) -> None:
    """Keep a mark whose files are flushed.  Blocking.

    @param durable: The end of a record up to which the log itself is on the disk: it may be
        behind its queues.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    json_table.replace(
        path,
        {
            "offset": mark.offset,
            "crc": tail_crc(log, mark.offset),
            "durable": durable,
            "entries": mark.entries,
            "queues": list(mark.queues),
        },
        render=json_table.render_plain,
    )


def load(path: Path, log: LogReader) -> DispatchMark | None:
    """The last mark, if it speaks of this log."""
    try:
        mark = read(path)
    except TableUnreadable:
        return None
    if mark is None or not log.min_offset <= mark.offset <= log.confirmed:
        return None
    if mark.crc != tail_crc(log, mark.offset):
        return None
    return DispatchMark(offset=mark.offset, entries=mark.entries, queues=mark.queues)


def known_durable(path: Path) -> int:
    """Up to where the log was surely on the disk when the last mark was kept; 0 if it is not
    known.
    """
    # Alone: what proves a loss is not forgotten for a key that is wrong elsewhere.
    return json_table.number_in(path, "durable")
