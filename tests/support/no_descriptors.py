"""What stands in for a process, or a machine, whose file descriptors others have taken."""

from __future__ import annotations

import builtins
import errno
import mmap
import os
from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.trial.unittest import SynchronousTestCase


@define
class NoDescriptors:
    """Makes C{open}, C{dup} and C{mmap} fail once so many descriptors are open."""

    left: int = 1 << 30
    error: int = errno.EMFILE
    _ours: set[int] = field(factory=set, init=False)

    def install(self, case: SynchronousTestCase) -> NoDescriptors:
        """Stand in for the system during a test."""
        close = os.close

        def closing(fd: int) -> None:
            close(fd)
            if fd in self._ours:
                self._ours.discard(fd)
                self.left += 1

        case.patch(os, "open", self._taking(os.open))
        case.patch(os, "dup", self._taking(os.dup))
        case.patch(os, "close", closing)
        real, reading = mmap.mmap, builtins.open

        def opening(*arguments: Any, **more: Any) -> Any:
            # It is closed again in the same breath.
            self._take()
            self.left += 1
            return reading(*arguments, **more)

        case.patch(builtins, "open", opening)

        def mapping(*arguments: Any, **more: Any) -> mmap.mmap:
            self._take()
            return real(*arguments, **more)

        case.patch(mmap, "mmap", mapping)
        return self

    def _take(self) -> None:
        if self.left < 1:
            raise OSError(self.error, os.strerror(self.error))
        self.left -= 1

    def _taking(self, real: Callable[..., int]) -> Callable[..., int]:
        def take(*arguments: Any, **more: Any) -> int:
            self._take()
            try:
                fd = real(*arguments, **more)
            except BaseException:
                self.left += 1
                raise
            self._ours.add(fd)
            return fd

        return take
