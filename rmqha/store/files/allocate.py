"""Blocks ahead of the log's end.

A store through a map needs blocks behind it, and a page's first touch is slow, so
a window ahead of the end is allocated and its pages made present by a thread while
there is time.  When the end catches up with the window, allocation happens in
place, which costs milliseconds but never a wrong byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import DiskFull
from rmqha.store.files.mapped import LogFolder, MappedFile
from rmqha.store.files.pages import page_begin

WINDOW = 64 << 20
"""Bytes kept allocated ahead of the end, filled again when half of them are used."""

STEP = 16 << 20
"""Bytes allocated in place when the window is used up."""

InThread = Callable[..., "Deferred[Any]"]
"""Runs a function in a thread and promises its result, like C{deferToThread}."""


@define(eq=False)
class Allocator:
    """Keeps room ahead of one log's end.

    @ivar in_thread: How to run the slow part; C{None} allocates in place only.
    """

    in_thread: InThread | None = None
    window: int = WINDOW
    step: int = STEP
    _growing: bool = field(default=False, init=False)

    _log = Logger()

    def adopt(self, file: MappedFile, end: int) -> None:
        """Take over an existing last file, possibly sparse.

        Its allocation starts at the last page already written, which has blocks.
        """
        file.allocated = max(file.allocated, page_begin(end - file.start))

    def next_file(self, folder: LogFolder, offset: int, wanted: int) -> MappedFile:
        """Create the log's next file with room for its first bytes.

        @raise DiskFull: If there is none; no file is left behind then.
        """
        file = folder.create_next(offset)
        try:
            self.ensure(file, max(offset - file.start, 0) + wanted)
        except BaseException:
            folder.files.pop()
            file.remove()
            raise
        return file

    def ensure(self, file: MappedFile, upto: int) -> None:
        """Make sure the first C{upto} bytes of a file may be stored to.

        @raise DiskFull: If the disk has no room for them.
        """
        upto = min(upto, file.size)
        if upto > file.allocated:
            try:
                file.allocate(max(upto, file.allocated + self.step))
            except DiskFull:
                # A smaller step may still fit.
                file.allocate(upto)
        if file.allocated - upto < self.window // 2 and file.allocated < file.size:
            self._grow(file, upto + self.window)

    def settled(self, file: MappedFile) -> int:
        """How many bytes from the file's start L{ensure} has nothing to do for."""
        if file.allocated >= file.size or self.in_thread is None:
            return file.allocated
        return max(0, file.allocated - self.window // 2)

    def _grow(self, file: MappedFile, upto: int) -> None:
        if self._growing or self.in_thread is None:
            return
        self._growing = True

        def grown(result: object) -> None:
            self._growing = False
            if isinstance(result, Failure) and not result.check(DiskFull):
                self._log.failure(
                    "Cannot allocate log file blocks ahead, writes allocate them", result
                )

        self.in_thread(file.allocate, upto, prefault=True).addBoth(grown)
