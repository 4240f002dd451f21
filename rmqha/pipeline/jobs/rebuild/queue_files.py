"""
Files of consume queues, written from many tasks at once.

The unit of queue offset I{q} stands at byte 20 I{q} of its queue, so a unit's
number gives its place.  Files have their full size from the start and are sparse until they are
written; writing again what is there changes nothing.

Source: docs/protocol/store.rst, Consume queues.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from rmqha.pipeline.jobs.rebuild.queue_runs import Queue, Run
from rmqha.wire.columnar.queue_units import BLANK_UNIT, UNIT_SIZE, fileable

FILE_SIZE = 6_000_000
"""Bytes of a queue file of a stock broker."""


@frozen
class QueueFiles:
    """
    The queues below one folder.

    @ivar root: The folder; the queue is in C{<topic>/<queue id>} of it.
    @ivar file_size: Bytes of a file, a multiple of 20.
    """

    root: str
    file_size: int

    @property
    def per_file(self) -> int:
        """
        How many units a queue file holds.
        """
        return self.file_size // UNIT_SIZE

    def folder(self, queue: Queue) -> str:
        """
        Where a queue's files are.
        """
        topic, queue_id = queue
        assert fileable(topic, queue_id), "others are left out before"
        return f"{self.root}/{topic}/{queue_id}"

    def write(self, queue: Queue, first: int, units: bytes) -> None:
        """
        Put units of consecutive queue offsets at their places.

        @param first: Queue offset of the first one.
        """
        folder = self.folder(queue)
        position, done = first * UNIT_SIZE, 0
        while done < len(units):
            inside = position % self.file_size
            piece = units[done : done + self.file_size - inside]
            fd = self._opened(folder, position - inside)
            try:
                _write_all(fd, piece, inside)
            finally:
                os.close(fd)
            position += len(piece)
            done += len(piece)

    def fill(self, queue: Queue, kept: Iterable[Run]) -> int:
        """
        Write blanks where a queue has no units: before its first one in its first file, and
        between two runs.

        @return: How many.
        """
        blanks, end = 0, -1
        for run in kept:
            start = run.first - run.first % self.per_file if end < 0 else end
            if run.first > start:
                self.write(queue, start, BLANK_UNIT * (run.first - start))
                blanks += run.first - start
            end = run.end
        return blanks

    def remove(self, queue: Queue) -> None:
        """
        Delete the files of a queue that is written again.
        """
        folder = self.folder(queue)
        shutil.rmtree(folder, ignore_errors=True)
        try:
            os.rmdir(os.path.dirname(folder))
        except OSError:
            pass  # the topic has other queues, or had none

    def flush(self) -> int:
        """
        Make all files and folders durable.

        @return: How many files there are.
        """
        count = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                _sync(Path(folder, name))
            _sync(Path(folder))
            count += len(names)
        return count

    def _opened(self, folder: str, start: int) -> int:
        """
        The file that begins at a byte of the queue, made at its full size if need be.
        """
        path = f"{folder}/{start:020d}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
            fd = os.open(path, flags, 0o644)
        if os.fstat(fd).st_size < self.file_size:
            os.truncate(fd, self.file_size)
        return fd


def _write_all(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(fd, view, position)
        if not count:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view, position = view[count:], position + count


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
