"""What happens to files: ways to harm a store, each with what a check has to say of it."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden

SIZE = golden.LOG_FILE_SIZE


def log_file(store: Path, number: int) -> Path:
    """A file of a store's log, counted from 0; -1 is the last one."""
    return sorted((store / "commitlog").iterdir())[number]


def flip(path: Path, position: int, bit: int = 0) -> None:
    """Flip one bit."""
    with open(path, "r+b") as file:
        file.seek(position)
        value = file.read(1)[0]
        file.seek(position)
        file.write(bytes([value ^ (1 << bit)]))


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Write over bytes in place."""
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def copy_chunk(path: Path, source: int, target: int, size: int = 16 << 10) -> None:
    """Write a piece of a file over another place of it."""
    with open(path, "rb") as file:
        file.seek(source)
        overwrite(path, target, file.read(size))


def deny(case: SynchronousTestCase, path: Path) -> None:
    """Let opening a file fail for the rest of a test, as C{chmod 0} does but for root."""
    real = os.open

    def denying(opened: Any, *args: Any, **kwargs: Any) -> int:
        if os.fspath(opened) == str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(opened, *args, **kwargs)

    case.patch(os, "open", denying)


@frozen
class Harm:
    """One way to harm a store's log: the file and the reason that must be said."""

    name: str
    apply: Callable[[Path], object]
    path: str
    reason: str


def name(number: int) -> str:
    """The path of a log file below a store's root."""
    return f"commitlog/{number * SIZE:020d}"


def _extra_file(store: Path) -> None:
    (store / "commitlog" / "notes.txt").write_text("x")


def _extra_offset(store: Path) -> None:
    shutil.copy(store / name(2), store / "commitlog" / f"{2 * SIZE + 7:020d}")


def _garbage(store: Path) -> None:
    (store / name(3)).write_bytes(random.Random(7).randbytes(SIZE))


LAST = 10

#: For the golden C{store}s: 11 files, stopped cleanly.
HARMS = (
    Harm("cut in the middle", lambda s: os.truncate(s / name(3), 100_000), name(3), "100000 bytes"),
    Harm("last one cut", lambda s: os.truncate(s / name(LAST), 100), name(LAST), "100 bytes, exp"),
    Harm("grown", lambda s: os.truncate(s / name(3), SIZE + 1), name(3), f"{SIZE + 1} bytes, exp"),
    Harm("missing", lambda s: (s / name(4)).unlink(), name(4), "missing, 1 files"),
    Harm("last one missing", lambda s: (s / name(LAST)).unlink(), "checkpoint", "end is missing"),
    Harm("no log at all", lambda s: shutil.rmtree(s / "commitlog"), "checkpoint", "end is miss"),
    Harm("a name of nothing", _extra_file, "commitlog/notes.txt", "not a log file"),
    Harm("an extra offset", _extra_offset, f"commitlog/{2 * SIZE + 7:020d}", "extra"),
    Harm("0 bytes", lambda s: os.truncate(s / name(3), 0), name(3), f"0 bytes, expected {SIZE}"),
    Harm("last one 0 bytes", lambda s: os.truncate(s / name(LAST), 0), name(LAST), "0 bytes, exp"),
    Harm(
        "replaced by another",
        lambda s: shutil.copy(s / name(2), s / name(3)),
        name(3),
        f"a whole record of byte {2 * SIZE} stands here",
    ),
    Harm(
        "last one replaced by another",
        lambda s: shutil.copy(s / name(2), s / name(LAST)),
        name(LAST),
        f"a whole record of byte {2 * SIZE} stands here",
    ),
    Harm("replaced by garbage", _garbage, name(3), "bad magic; the next valid record is at"),
    Harm(
        "renamed",
        lambda s: (s / name(4)).rename(s / "commitlog" / "4.bak"),
        "commitlog/4.bak",
        "not a log file",
    ),
    Harm("renamed away", lambda s: (s / name(4)).rename(s / "4"), name(4), "missing"),
    Harm(
        "renamed to a later one",
        lambda s: (s / name(LAST)).rename(s / name(LAST + 2)),
        name(LAST),
        "missing, 2 files",
    ),
    Harm(
        "a folder in its place",
        lambda s: ((s / name(4)).unlink(), (s / name(4)).mkdir()),
        name(4),
        "not a log file",
    ),
    Harm("zeroed", lambda s: overwrite(s / name(3), 0, bytes(SIZE)), name(3), "nothing written; "),
    Harm("unreadable", lambda s: (s / name(3)).chmod(0), name(3), "unreadable: Permission denied"),
)
