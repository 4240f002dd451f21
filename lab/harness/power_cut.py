"""Power cuts without a kernel module: a node that keeps a second copy of what it made durable.

Run as a process, this is L{lab.harness.writer_child} with C{fsync} and C{fdatasync} that copy
the file, once the real call is done, to a second folder; the node's fsync thread is followed by
such a copy too.  What is in the store and not in that copy was never waited for.  After a
C{kill -9} L{cut} takes some of it away, a page at a time, as the loss of power does: a disk writes
the pages that nobody waited for in any order, or not at all.

Not imitated: a file's or a folder's name that was not synced stays.

Run it as C{python -m lab.harness.power_cut STORE COPY [what writer_child takes]}.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred
    from twisted.python.failure import Failure

    from rmqha.store.files.fsync import Files

PAGE = 4096

#: Where files lie that are written in place; all others are replaced whole.
IN_PLACE = ("commitlog", "consumequeue", "index")


def keep_synced(store: Path, copy: Path) -> None:
    """From now on, keep a copy of what this process made durable."""
    keep = _keeper(store, copy)
    for name in ("fsync", "fdatasync"):
        setattr(os, name, _copying(getattr(os, name), keep))
    # Only now: what is imported with it takes C{os.fdatasync} as a default.
    from rmqha.store.files.fsync_thread import FsyncThread

    # The thread of a node calls the system itself.
    real = FsyncThread.__call__

    def called(self: FsyncThread, files: Files) -> Deferred[None]:
        # These are closed before anybody is told.
        others = [os.dup(file) for _, file in files]

        def told(result: Failure | None) -> Failure | None:
            for other in others:
                if result is None:
                    keep(other)
                os.close(other)
            return result

        return real(self, files).addBoth(told)

    FsyncThread.__call__ = called  # type: ignore[method-assign]


def _keeper(store: Path, copy: Path) -> Callable[[int], None]:
    def keep(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if not path.is_file() or not path.is_relative_to(store):
            return
        place = copy / path.relative_to(store)
        place.parent.mkdir(parents=True, exist_ok=True)
        # Two threads may do so at once, and a kill must not leave half a copy.
        made = place.with_name(f"{place.name}.{fd}.made")
        made.write_bytes(path.read_bytes())
        made.replace(place)

    return keep


def _copying(sync: Callable[[int], None], keep: Callable[[int], None]) -> Callable[[int], None]:
    def synced(fd: int) -> None:
        sync(fd)
        keep(fd)

    return synced


def cut(store: Path, copy: Path, chance: random.Random, kept: float) -> int:
    """Take from a dead node's store what it had not made durable, and say how many pages those are;
    one that nobody waited for stays with the chance C{kept}.
    """
    lost = 0
    for folder in IN_PLACE:
        for path in sorted((store / folder).rglob("*")):
            if path.is_file():
                lost += _cut_file(path, copy / path.relative_to(store), chance, kept)
    return lost


def _cut_file(path: Path, synced: Path, chance: random.Random, kept: float) -> int:
    now = path.read_bytes()
    before = synced.read_bytes() if synced.exists() else b""
    lost = 0
    with path.open("r+b") as file:
        for at in range(0, len(now), PAGE):
            page = now[at : at + PAGE]
            durable = before[at : at + PAGE].ljust(len(page), b"\0")
            if page != durable and chance.random() >= kept:
                file.seek(at)
                file.write(durable)
                lost += 1
    return lost


def main(arguments: list[str]) -> int:
    """Run a node that keeps the copy."""
    store, copy, *rest = arguments
    keep_synced(Path(store), Path(copy))
    # Only now, for the same reason.
    from lab.harness import writer_child

    return writer_child.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
