"""Telling readers of the files how far the log may be read, while it is written.

A point is written when something has changed, at most every C{publishInterval}, and in a
thread.  It is not synced: after a crash an older one is as true.  Only what goes back is:
a cut lowers the point first, then the split index, then the log, so that who looks at the
point before and after reading cannot have read what is gone without seeing why.

Offsets in it are ends of records.  Replicas acknowledge, and disks sync, up to anywhere;
so where the log was confirmed up to is remembered for a while (L{Publisher._confirmed_at}), and
the last such place below is taken.

Source: docs/protocol/store.rst, The published point.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha import reserve
from rmqha.config.store_settings import StoreSettings
from rmqha.errors import PointInvalid
from rmqha.health import HealthReason
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.listing import LOG_KEY, STORE_KEY
from rmqha.logfiles.published import first_record_sum, read_point
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.periodic import NodePart, SingleRun, cancelled
from rmqha.store.environment import StoreEnvironment
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.published import split_index, topic_index
from rmqha.store.published.split_index import SplitIndex
from rmqha.wire.log.published import TAIL, CutReason, Point, render_point
from rmqha.wire.store_layout import (
    COMMITLOG,
    LOG_PLACE,
    NEW_SUFFIX,
    OWN_FOLDER,
    POINT,
    STORE_PLACE_SUFFIX,
)

MOST_REMEMBERED = 1024
"""Places remembered; beyond it every second one goes, so that what waits for a replica that
stays away is known ever less finely."""

PIECE = 4 << 20
"""Bytes walked at once for the split index."""

RETRY = 5.0
"""Seconds to the next try when a file could not be written."""


def path_of(root: Path) -> Path:
    """Where a store's point is."""
    return root / OWN_FOLDER / POINT


def load(root: Path) -> Point | None:
    """What is published; C{None} if nothing is, or nothing that can be read."""
    try:
        return read_point(root)
    except PointInvalid:
        return None


def save(root: Path, point: Point, *, durable: bool) -> None:
    """Replace a store's point.

    @param durable: Whether it is on the disk when this returns.
    """
    path, data = path_of(root), render_point(point)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + NEW_SUFFIX)

    def turn() -> None:
        with open(new, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(new, path)
        if durable:
            fsync_folder(path.parent)

    reserve.write(path, len(data), turn)


def lower(root: Path, at: int, now_ms: Callable[[], int]) -> None:
    """The log is about to be cut: tell readers, and forget spans above.

    May be repeated; a cut that takes nothing published is not told.

    @param now_ms: Tells the milliseconds since 1970.
    """
    point = load(root)
    if point is not None and point.reaches_above(at):
        save(root, point.cut_at(at, now_ms()), durable=True)
    split_index.truncate_to(root, at)


def begin_anew(root: Path, now_ms: int) -> None:
    """The whole log is about to go, for a new copy of the master's."""
    point = load(root)
    if point is not None:
        save(root, _anew(point, now_ms), durable=True)
    split_index.path_of(root).unlink(missing_ok=True)
    topic_index.remove(root)


def _anew(point: Point, now_ms: int) -> Point:
    if point.reaches_above(0):
        point = point.cut_at(0, now_ms, CutReason.COPY)
    return evolve(point, generation=uuid4().hex, first=-1, sum="", closed=False, tail=None)


def name_each_other(root: Path, log: Path) -> None:
    """Say where a log lies that is not in its store's folder, and beside the log whose it is: who
    reads either has to find the point.

    @param log: The log's folder.
    @raise OSError: If that cannot be written.
    """
    place, beside = root / OWN_FOLDER / LOG_PLACE, log.with_name(log.name + STORE_PLACE_SUFFIX)
    if log == root / COMMITLOG:
        place.unlink(missing_ok=True)
        return
    said: tuple[tuple[Path, json_table.Table], ...] = (
        (place, {LOG_KEY: str(log)}),
        (beside, {STORE_KEY: str(root)}),
    )
    for path, table in said:
        if not path.is_file() or json_table.read(path) != table:
            path.parent.mkdir(parents=True, exist_ok=True)
            json_table.replace(path, table)


def resume(
    root: Path, log: CommitLog, broker_name: str, now_ms: Callable[[], int]
) -> tuple[Point, SplitIndex]:
    """What an open store goes on from: what was published before, or a beginning.  Blocking.

    A log with another first record, or whose bytes are not those that a clean stop left, is another
    one, or was cut and has grown again: another process had the store.
    """
    path_of(root).parent.mkdir(parents=True, exist_ok=True)
    known = load(root)
    first = log.min_offset
    if known is None:
        known = Point(
            confirm=first,
            durable=first,
            min_offset=first,
            broker_name=broker_name,
            generation=uuid4().hex,
        )
    held = known.durable - TAIL >= first or first == 0
    cut = known.tail is not None and held and known.tail != tail_crc(log, known.durable)
    other = known.first == first and first_record_sum(log) not in ("", known.sum)
    if cut or other:
        begin_anew(root, now_ms())
        known = load(root) or known
    return known, SplitIndex.open(root, log)


@define(eq=False, kw_only=True)
class Publisher(NodePart):
    """Keeps the point and the split index of one open store up to date.

    @ivar point: The last one written; at first that of L{resume}.
    @ivar index: The split index; the same.
    @ivar trouble: Why the last try failed, C{""} if it did not.
    """

    settings: StoreSettings
    environment: StoreEnvironment
    log: CommitLog
    point: Point
    index: SplitIndex
    trouble: str = field(default="", init=False)
    _confirmed_at: deque[tuple[int, float]] = field(factory=deque, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _running: SingleRun = field(factory=SingleRun, init=False)
    _piece: int = field(default=PIECE, init=False)
    _written: bool = field(default=False, init=False)
    _lost: bool = field(default=False, init=False)
    _stopped: bool = field(default=True, init=False)

    _log = Logger()

    def start(self) -> None:
        """Follow the log from now on, and publish what it has already."""
        self._stopped = False
        self.log.appended.append(self._wake)
        self.log.flush_listeners.append(self._wake)
        self._wake()

    def stop(self) -> Deferred[None]:
        """Publish no more.

        @return: Fires when no thread works for this any longer.
        """
        self._stopped = True
        self._timer = cancelled(self._timer)
        return self._running.over()

    def close(self) -> None:
        """Publish the end of a log that is stopped cleanly, all of it flushed.  Blocking."""
        self._mark()
        point = self._next()
        point = evolve(point, closed=True, tail=tail_crc(self.log, point.durable))
        if point != self.point:
            save(self.settings.root, evolve(point, time=self.environment.now_ms()), durable=True)

    def health(self) -> Iterator[HealthReason]:
        """A point that cannot be written."""
        if self.trouble:
            yield HealthReason("not-publishing", self.trouble, told=True)

    def status(self) -> dict[str, Any]:
        """What was published, and how far it is behind: C{published} of C{/status}."""
        point = self.point
        behind = max(0, self.log.confirmed - point.confirm)
        since = next((time for offset, time in self._confirmed_at if offset > point.confirm), None)
        return {
            "confirm": point.confirm,
            "durable": point.durable,
            "behindBytes": behind,
            "behindSeconds": self.environment.clock.seconds() - since
            if behind and since is not None
            else 0.0,
            "splitsTo": self.index.start,
            "cuts": len(point.cuts),
            "trouble": self.trouble,
        }

    # --- the point ------------------------------------------------------------

    def _wake(self) -> None:
        if self._timer is None and not (self._running.under_way or self._stopped):
            self._timer = self.environment.clock.callLater(
                self.settings.publish_interval, self._tick
            )

    def _mark(self) -> None:
        """Remember how far the log is confirmed now."""
        confirmed = self.log.confirmed
        remembered = self._confirmed_at
        if not remembered or confirmed > remembered[-1][0]:
            remembered.append((confirmed, self.environment.clock.seconds()))
        if len(remembered) > MOST_REMEMBERED:
            self._confirmed_at = deque(list(remembered)[1::2])

    def _below(self, offset: int, floor: int) -> int:
        """The last remembered place that is not above an offset, or C{floor}."""
        for place, _ in self._confirmed_at:
            if place > offset:
                break
            floor = max(floor, place)
        return floor

    def _next(self) -> Point:
        """What there is to publish now."""
        log, point = self.log, self.point
        durable = self._below(log.flushed, point.durable)
        acked = self.environment.acknowledged()
        confirm = durable if acked is None else self._below(min(acked, durable), point.confirm)
        if point.first < log.min_offset < durable:
            point = evolve(point, first=log.min_offset, sum=first_record_sum(log))
        return evolve(
            point,
            confirm=max(point.confirm, confirm),
            durable=durable,
            min_offset=log.min_offset,
            broker_name=self.environment.broker_name or point.broker_name,
            cluster=self.environment.cluster or point.cluster,
            closed=False,
            tail=None,
        )

    def _tick(self) -> None:
        self._timer = None
        self._mark()
        point = self._next()
        changed = point if point != self.point or not self._written else None
        if changed is not None:
            changed = evolve(changed, time=self.environment.now_ms())
        piece = self._to_walk(point.durable)
        if changed is None and piece is None:
            self._go_on()
            return
        in_thread = self.environment.in_thread
        self._running.begin(
            lambda: in_thread(self._work, changed, piece).addCallbacks(
                self._worked, self._not_worked, callbackArgs=(changed,)
            )
        ).addCallback(lambda _: self._go_on())

    def _to_walk(self, durable: int) -> tuple[memoryview, int] | None:
        """The next bytes for the split index, and the end of their file."""
        position, log = self.index.position, self.log
        if self._lost or not log.min_offset <= position < durable:
            return None
        return log.read(position, min(self._piece, durable - position)), log.file_end(position)

    def _work(self, point: Point | None, piece: tuple[memoryview, int] | None) -> bool:
        if point is not None:
            save(self.settings.root, point, durable=False)
            if point.min_offset > self.point.min_offset:
                topic_index.forget_below(self.settings.root, point.min_offset)
        try:
            return piece is None or self.index.advance(*piece)
        except OSError:
            # What was written of the last spans is not known.
            self.index = SplitIndex.open(self.settings.root, self.log)
            raise

    def _worked(self, advanced: bool, point: Point | None) -> None:
        if point is not None:
            self.point, self._written = point, True
            while len(self._confirmed_at) > 1 and self._confirmed_at[1][0] <= point.confirm:
                self._confirmed_at.popleft()
        if advanced:
            self._piece = PIECE
        elif self._piece < self.log.file_size:
            self._piece *= 4
        else:
            self._lost = True
            self._log.error(
                "No record begins at byte {at}: publishing no splits from there on",
                at=self.index.position,
            )
        if self.trouble:
            self._log.info("Publishing the confirmed offset to readers again")
        self.trouble = ""

    def _not_worked(self, failure: Failure) -> None:
        if not self.trouble:
            self._log.warn(
                "Cannot publish the confirmed offset to readers, retrying: {error}",
                error=failure.getErrorMessage(),
            )
        self.trouble = failure.getErrorMessage()

    def _go_on(self) -> None:
        """Look again soon as long as there is something left to publish."""
        if self._stopped:
            return
        if self.trouble:
            self._timer = self.environment.clock.callLater(RETRY, self._tick)
        elif self.point.confirm < self.log.confirmed or (
            not self._lost and self.log.min_offset <= self.index.position < self.point.durable
        ):
            self._wake()
