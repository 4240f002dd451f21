"""The topic index on the disk: a file for each of the log's, which grows with its split index and
goes with it.

It can be thrown away at any time: what it does not speak of is read as a whole.

Source: docs/protocol/store.rst, The topic index.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rmqha.logfiles.blocks.open_file import opened
from rmqha.logfiles.listing import LOG_NAME
from rmqha.logfiles.published import read_topic_spans, topic_index_of
from rmqha.wire.store_layout import OWN_FOLDER, TOPIC_INDEX


def append(root: Path, file_start: int, entries: bytes) -> None:
    """Add entries of one file of the log.

    @param file_start: Physical offset of the file's first byte.
    """
    path = topic_index_of(root, file_start)
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as fd:
        if os.write(fd, entries) < len(entries):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def truncate_to(root: Path, at: int) -> None:
    """Forget the entries of spans that reach above a physical offset, and what was not written
    as a whole.
    """
    for start, path in sorted(_files(root), reverse=True):
        if start >= at:
            path.unlink(missing_ok=True)
            continue
        end = 0
        for span in read_topic_spans(path):
            if span.end > at:
                break
            end = span.place + span.size
        os.truncate(path, end)
        return


def forget_below(root: Path, first: int) -> None:
    """Remove what speaks of files that retention has deleted.

    @param first: Physical offset of the first byte of the log.
    """
    for start, path in _files(root):
        if start < first:
            path.unlink(missing_ok=True)


def remove(root: Path) -> None:
    """Remove all of it: the log is about to be another one."""
    shutil.rmtree(root / OWN_FOLDER / TOPIC_INDEX, ignore_errors=True)


def _files(root: Path) -> Iterator[tuple[int, Path]]:
    try:
        for path in (root / OWN_FOLDER / TOPIC_INDEX).iterdir():
            if LOG_NAME.fullmatch(path.name):
                yield int(path.name), path
    except FileNotFoundError:
        return
