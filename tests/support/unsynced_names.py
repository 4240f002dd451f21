"""Power cuts at each system call of a test: what was not waited for is lost or torn."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.trial.unittest import SynchronousTestCase

CALLS = ("write", "fsync", "fdatasync", "replace", "rename", "link", "unlink", "mkdir")
"""The system calls before which power may be lost."""


@define(eq=False)
class UnsyncedNames:
    """What of a folder, on the disk at the beginning, is there for certain.  Before each system
    call an
    image may be made.
    """

    root: Path
    cut: Callable[[], None]
    _names: dict[Path, dict[str, int]] = field(factory=dict)
    _bytes: dict[int, bytes] = field(factory=dict)
    _open: list[int] = field(factory=list)
    _busy: bool = False

    def install(self, case: SynchronousTestCase) -> UnsyncedNames:
        case.addCleanup(lambda: [os.close(fd) for fd in self._open])
        for folder, _, files in os.walk(self.root):
            self._synced(Path(folder))
            for name in files:
                self._synced(Path(folder, name))
        for name in CALLS:
            case.patch(os, name, self._followed(name, getattr(os, name)))
        return self

    def _followed(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._busy:
                return real(*args, **kwargs)
            self._busy = True
            try:
                self.cut()
            finally:
                self._busy = False
            done = real(*args, **kwargs)
            if name in ("fsync", "fdatasync"):
                path = Path(os.readlink(f"/proc/self/fd/{args[0]}"))
                if path.is_relative_to(self.root):
                    self._synced(path)
            return done

        return call

    def _synced(self, path: Path) -> None:
        if path.is_dir():
            self._names[path] = {each.name: each.inode() for each in os.scandir(path)}
            return
        # It is held open, so that no other file gets its number.
        fd = os.open(path, os.O_RDONLY)
        self._open.append(fd)
        self._bytes[os.fstat(fd).st_ino] = path.read_bytes()

    def image(self, target: Path, choice: random.Random) -> None:
        """Make what the disk may have after a loss of power at this moment."""
        busy, self._busy = self._busy, True
        try:
            self._copy(self.root, target, choice)
        finally:
            self._busy = busy

    def _copy(self, folder: Path, target: Path, choice: random.Random) -> None:
        target.mkdir(exist_ok=True)
        now = {each.name: each.inode() for each in os.scandir(folder)}
        for name, inode in (self._names.get(folder, {}) if choice.random() < 0.5 else now).items():
            path = folder / name
            if path.is_dir():
                self._copy(path, target / name, choice)
                continue
            synced = self._bytes.get(inode, b"")
            there = path.read_bytes() if now.get(name) == inode else synced
            (target / name).write_bytes(_torn(synced, there, choice))


def _torn(synced: bytes, now: bytes, choice: random.Random) -> bytes:
    if not now.startswith(synced):
        return choice.choice([synced, now])
    rest = now[len(synced) :]
    whole = choice.randint(0, len(rest))
    tail = choice.choice([b"", bytes(len(rest) - whole), choice.randbytes(len(rest) - whole)])
    return synced + choice.choice([b"", rest, rest[:whole] + tail])
