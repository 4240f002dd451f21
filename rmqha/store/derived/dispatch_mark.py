"""
How far queues and index surely go, kept beside the log (C{rmqha/dispatched.json}).

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


def save(path: Path, log: LogReader, mark: DispatchMark) -> None:
    """
    Keep a mark whose files are flushed.  Blocking.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    json_table.replace(
        path,
        {
            "offset": mark.offset,
            "crc": tail_crc(log, mark.offset),
            "entries": mark.entries,
            "queues": [list(queue) for queue in mark.queues],
        },
    )


def load(path: Path, log: LogReader) -> DispatchMark | None:
    """
    The last mark, if it speaks of this log.
    """
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


def known_end(path: Path) -> int:
    """
    How far the log surely went when the last mark was kept; 0 if it is not known.
    """
    try:
        table = json_table.read(path)
    except TableUnreadable:
        return 0
    offset = table.get("offset") if table else None
    return offset if isinstance(offset, int) else 0
