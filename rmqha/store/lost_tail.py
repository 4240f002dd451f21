"""Bytes at a log's end that were on the disk once, and are gone: how a start knows, and remembers.

A crash takes what no fsync covered; that is no loss that a node could know of.  But a disk that
lies or rots, or a hand that deletes the last file, takes more, and files of our own beside the
log prove it.  Each of them says up to where the log was durable when it was written:

  - C{published.json}: C{durable}, an end of a record below which an fsync had returned.
  - C{dispatched.json}: C{durable}, the same.  Its C{offset} proves nothing: queues and index
    are flushed apart from the log, which may be behind them.
  - C{epoch.json} of a master: where its last run found the log's end, before it wrote; the
    opening had fsynced that, or a clean stop had.  Its C{end} after a clean stop is written
    before the log's last fsync, so then only C{start} counts.  A slave's epoch begins
    wherever its copy is complete, flushed or not, and proves nothing.
  - C{lost-tail.json}: a loss that an earlier start found and that was not made good.

Who cuts a log on purpose lowers them all first (L{lower}).  So a log that ends below one of them
was shortened by nobody who knew of it.

Source: docs/states.rst, A lost tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen

from rmqha.errors import LogShortened
from rmqha.logfiles import json_table
from rmqha.logfiles.log_writer import EPOCH_FILE, epoch_or_none
from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.dispatch_mark import mark_path
from rmqha.store.log import record_checksums
from rmqha.store.published import publish
from rmqha.wire.store_layout import DISPATCHED, EPOCH, LOST_TAIL, OWN_FOLDER, POINT


@frozen
class LostTail:
    """What is missing at a log's end.

    @ivar start: Where the log ends.
    @ivar to: Up to where it surely went, a physical offset above that.
    @ivar mark: The file that says so.
    """

    start: int
    to: int
    mark: str

    @property
    def text(self) -> str:
        """The same in words."""
        return (
            f"the log lacks the {self.to - self.start} bytes from {self.start} to {self.to}, which "
            f"were on the disk ({self.mark})"
        )

    def error(self, commitlog: Path, kind: type[LogShortened] = LogShortened) -> LogShortened:
        return kind(str(commitlog), self.start, self.to, self.mark)


def find(root: Path, end: int, blank: int = 0) -> LostTail | None:
    """What a log that ends at C{end} lacks, as far as its store's own marks tell.

    @param blank: Bytes of a blank behind that end which no file follows: a slave's log went
        to its file's end with it, and lacks nothing.
    """
    to, mark = max(_durable(root), default=(0, ""))
    return LostTail(end, to, mark) if to > end + blank else None


def _durable(root: Path) -> Iterator[tuple[int, str]]:
    """Up to where the log was surely on the disk, and which file says so."""
    point = publish.load(root)
    if point is not None:
        yield point.durable, POINT
    yield dispatch_mark.known_durable(mark_path(root)), DISPATCHED
    epoch = epoch_or_none(root)
    if epoch is not None and epoch.master:
        yield epoch.start if epoch.closed else epoch.end, EPOCH
    yield json_table.number_in(root / OWN_FOLDER / LOST_TAIL, "to"), LOST_TAIL


def remember(root: Path, lost: LostTail) -> None:
    """Keep a loss for the next start: the log is about to be cut where it ends, and the marks that
    prove it are lowered.  Durable on return.
    """
    (root / OWN_FOLDER).mkdir(parents=True, exist_ok=True)
    json_table.replace(
        root / OWN_FOLDER / LOST_TAIL, {"from": lost.start, "to": lost.to, "mark": lost.mark}
    )


def forget(root: Path) -> None:
    """The loss was made good, or an operator has accepted it."""
    json_table.remove(root / OWN_FOLDER / LOST_TAIL)


def lower(root: Path, at: int, now_ms: Callable[[], int]) -> None:
    """The log is about to be cut: from here on no mark says that it went further, and readers are
    told.  Durable on return; may be repeated.

    @param now_ms: Tells the milliseconds since 1970.
    """
    publish.lower(root, at, now_ms)
    if dispatch_mark.known_durable(mark_path(root)) > at:
        json_table.remove(mark_path(root))
    epoch = epoch_or_none(root)
    if epoch is not None and max(epoch.start, epoch.end) > at:
        epoch = evolve(epoch, start=min(epoch.start, at), end=min(epoch.end, at))
        table: dict[Any, Any] = asdict(epoch)
        json_table.replace(root / EPOCH_FILE, table)


def begin_anew(root: Path, now_ms: Callable[[], int]) -> None:
    """The whole log is about to go, for a new copy of the master's."""
    publish.begin_anew(root, now_ms())
    record_checksums.remove(root)
    lower(root, 0, now_ms)
    forget(root)
