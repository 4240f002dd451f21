"""
Topics that a node has deleted: their records are in the log for as long as its files, and
have no queues any more.

Source: docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.pread_log import PreadLog
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.stores import StoreView
from rmqha.wire.log.published import TAIL
from rmqha.wire.store_layout import DELETED_TOPICS, OWN_FOLDER


def deleted_topics(path: Path, options: ReadOptions) -> dict[str, int]:
    """
    The topics that were deleted, and up to which physical offset of their records; none if
    what was kept speaks of another log.
    """
    store = StoreView.open(options.names[0], path, options)
    try:
        table: Any = json.loads((store.files.root / OWN_FOLDER / DELETED_TOPICS).read_bytes())
        offset = int(table["offset"])
        if not store.first < offset <= store.end or table["crc"] != _crc(store.files, offset):
            return {}
        return {str(topic): int(end) for topic, end in table["topics"].items()}
    except (FileNotFoundError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def _crc(files: LogFiles, end: int) -> int | None:
    """
    What ties the file to this log; C{None} where bytes are missing.
    """
    if files.missing(max(files.first, end - TAIL), end):
        return None
    with PreadLog(files) as log:
        return tail_crc(log, end)
