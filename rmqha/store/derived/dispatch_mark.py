"""How far queues and index surely go, kept beside the log (C{rmqha/dispatched.json}).

With it a start after a crash dispatches only what came after, instead of comparing
the whole log.  It is dropped when the log is not the one it speaks of.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.store.derived.dispatch import DispatchMark
from rmqha.wire.store_layout import BACKUP_SUFFIX


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
        table = json_table.read(path)
        if not table or not log.min_offset <= table["offset"] <= log.confirmed:
            return None
        mark = DispatchMark(
            offset=int(table["offset"]),
            entries=int(table["entries"]),
            queues=tuple(
                (str(name), int(number), int(end)) for name, number, end in table["queues"]
            ),
        )
        same = table["crc"] == tail_crc(log, mark.offset)
    except (TableUnreadable, KeyError, TypeError, ValueError):
        return None
    return mark if same else None


def drop(path: Path) -> None:
    """Forget the mark: all has to be looked at again."""
    # The generation before it first: alone it would be taken for the mark.
    for name in (path.with_name(path.name + BACKUP_SUFFIX), path):
        name.unlink(missing_ok=True)


def known_durable(path: Path) -> int:
    """Up to where the log was surely on the disk when the last mark was kept; 0 if it is not
    known.
    """
    try:
        table = json_table.read(path)
    except TableUnreadable:
        return 0
    durable = table.get("durable") if table else None
    return durable if type(durable) is int else 0
