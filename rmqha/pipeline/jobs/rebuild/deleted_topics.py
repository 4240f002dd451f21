"""
Topics that a node has deleted: their records are in the log for as long as its files, and
have no queues any more.

Source: docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.logfiles.pread_log import PreadLog
from rmqha.logfiles.published import read_deleted_topics
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.stores import StoreView


def deleted_topics(path: Path, options: ReadOptions) -> dict[str, int]:
    """
    The topics that were deleted, and up to which physical offset of their records; none if
    what was kept speaks of another log.
    """
    store = StoreView.open(options.names[0], path, options)
    try:
        with PreadLog(store.files) as log:
            found = read_deleted_topics(store.files.root, log, store.end)
    except FileNotFoundError:
        return {}
    return {name: topic.end for name, topic in found.items()}
