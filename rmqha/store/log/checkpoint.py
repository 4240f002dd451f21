"""The checkpoint: up to which store time log, queues and index are surely on the disk.

Only flushed data moves it forward, on a slave too.  Source: docs/protocol/store.rst,
The checkpoint.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Self

from attrs import define

from rmqha.logfiles.blocks.open_file import opened
from rmqha.store.files.mapped import disk_error

CHECKPOINT_SIZE = 4096
"""Bytes of the file; all but the first 40 are zero.  5.x keeps two more numbers behind the
times, a master's flushed offset and a confirm offset, and reads zeros as "not known": so
rmqha writes the first of them, and the second too outside of controller mode."""

_NUMBERS = struct.Struct(">qqq8xq")

SAFETY = 3000
"""Milliseconds that recovery goes back behind the checkpoint."""


@define
class Checkpoint:
    """Three store timestamps, in milliseconds since 1970, and an offset; 0 when unknown.

    @ivar log: Of the last record flushed in the log.
    @ivar queues: Of the last record whose queue unit is flushed.
    @ivar index: Of the last record whose keys are flushed.
    @ivar confirm: In controller mode, the physical offset up to which readers may see the log.
    """

    log: int = 0
    queues: int = 0
    index: int = 0
    confirm: int = 0

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a checkpoint; a missing or short file knows nothing."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        if len(data) < _NUMBERS.size:
            return cls()
        return cls(*(max(0, value) for value in _NUMBERS.unpack_from(data)))

    def save(self, path: Path) -> None:
        """Write and fsync the file in place; blocking.

        @raise DiskFull: If there is no room, which can only be the first time, or no descriptor.
        """
        try:
            with opened(path, os.O_RDWR | os.O_CREAT) as fd:
                page = _NUMBERS.pack(self.log, self.queues, self.index, self.confirm)
                os.pwrite(fd, page.ljust(CHECKPOINT_SIZE, b"\0"), 0)
                os.ftruncate(fd, CHECKPOINT_SIZE)
                os.fsync(fd)
        except OSError as error:
            raise disk_error(error, str(path), CHECKPOINT_SIZE) from error

    def safe_time(self, *, index: bool) -> int:
        """Everything stored up to this time is flushed, in log, queues and (with
        C{index}) index, in milliseconds since 1970.
        """
        times = [self.log, self.queues, *([self.index] if index else [])]
        return max(0, min(times) - SAFETY)
