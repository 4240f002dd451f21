"""A store as a reader sees it: its files, how far they may be read, where records begin.

How far is what the node that has the store published; a store without a published
point, a Java broker's, is read up to its last whole record.

Source: docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import pairwise
from logging import getLogger
from pathlib import Path
from typing import Self

from attrs import define

from rmqha.errors import NotAStore, RmqhaError
from rmqha.logfiles.listing import root_of, store_told
from rmqha.logfiles.log_end import LogEnd, find_end_past_damage
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import (
    Split,
    fingerprint,
    identity_of,
    other_first,
    read_point,
    stale_end,
)
from rmqha.logfiles.walk_file import walk_file
from rmqha.pipeline.log.cached_splits import believed_splits, trusted_splits
from rmqha.pipeline.log.errors import (
    CopyBehind,
    LogCutBack,
    LogOfAnotherBroker,
    NoPublishedPoint,
    NotThisLog,
    PublishedPointStale,
    SameLog,
)
from rmqha.pipeline.log.log_walk import Behind, boundary, first_stored, round_up
from rmqha.pipeline.log.options import Mode, PointFile, ReadOptions
from rmqha.pipeline.log.positions import Position, make
from rmqha.tier.joined_log import find_log, only_tier, tiered_splits
from rmqha.tier.tiered_file import TieredFile
from rmqha.wire.log.log_identity import LogIdentity
from rmqha.wire.log.published import Cut, CutReason, Point
from rmqha.wire.log.record import Fault

YOUNG = 1000
"""Milliseconds for which the last record of a log that is being written may be unfinished."""

_log = getLogger(__name__)


@define(slots=False, kw_only=True)
class StoreView:
    """One store at one moment.

    @ivar name: What it is called in this query.
    @ivar point: What was published for readers, C{None} if nothing was.
    @ivar broker: The broker's name, if it is known.
    @ivar known: A place between two records, from which an end is looked for.
    @ivar tolerant: Whether damage is passed over.
    @ivar tailed: Whether a log without a point is followed while its broker writes it.
    @ivar path: Where it was looked for.
    @ivar verified: The last position that was found to be of this log.
    """

    name: str
    files: LogFiles
    point: Point | None
    broker: str | None
    known: int = 0
    tolerant: bool = False
    tailed: bool = False
    path: Path | None = None
    verified: Position | None = None

    @classmethod
    def open(cls, name: str, path: Path, options: ReadOptions, known: int = 0) -> Self:
        """Look at a store.

        @param known: A place between two records up to which it was read before.
        @raise NotAStore: If there is none.
        @raise CopyBehind: If files are missing that the published point speaks of.
        @raise PublishedPointStale: If what was published is not true any more.
        """
        # The point first: what it promises must be in the files listed after it.
        tier = options.tier_of(name)
        root = root_of(path) if path != only_tier(tier) else path
        point = read_point(root) if options.point_file is PointFile.USE else None
        unpointed = point is None and options.point_file is PointFile.USE
        told = store_told(path) if unpointed else None
        if told not in (None, root):
            raise NotAStore(
                str(path),
                f"it is a log of the store in {told}, which says how far it is final, and is not "
                "there or has another log; pointFile=ignore reads it",
            )
        files = find_log(root, tier)
        broker = (point.broker_name if point else "") or (name if options.named else None)
        store = cls(
            name=name,
            files=files,
            point=point,
            broker=broker,
            known=known,
            tolerant=options.mode is not Mode.FAILFAST,
            tailed=options.allow_unconfirmed_tail,
            path=path,
        )
        if point is not None:
            if point.confirm > files.limit:
                raise CopyBehind(name, point.confirm, files.limit)
            end = stale_end(files, point)
            if end is not None:
                if read_point(root) != point:  # its node was started meanwhile
                    return cls.open(name, path, options, known)
                raise PublishedPointStale(str(root), point.durable, end)
        return store

    def again(self, options: ReadOptions) -> Self:
        """Open the same store again, as it is now."""
        return self.open(self.name, self.files.root, options, self.known)

    def still(self, path: Path, position: Position) -> bool:
        """Whether a store that was read up to a position is as it was, as far as its node says: an
        idle stream looks at nothing else.
        """
        return (
            path == self.path
            and position == self.verified
            and position.offset == self.end
            and self.point is not None
            and not self.point.closed  # another broker may write there
            and self.point == read_point(self.files.root)
        )

    @cached_property
    def end(self) -> int:
        """Physical offset up to which the log may be read.

        @raise NotAStore: If its files hold no log.
        """
        if self.point is not None:
            return self.point.confirm
        if self.final:
            return self.files.limit
        tail = find_end_past_damage(self.files, self._last_record_edge())
        if tail.reason is Fault.MAGIC and tail.end <= self.files.first:
            raise NotAStore(str(self.files.root), "its first file does not begin with a record")
        if tail.reason not in (None, Fault.NOTHING) and not self.known:
            # A stream that looks every second would say it every second.
            _log.warning(
                "%s ends at byte %d: %s; a record there is no row until another follows it",
                self.name,
                tail.end,
                tail.reason,
            )
        if self.tailed and tail.reason is Fault.NOTHING and self._young(tail):
            return tail.last_record
        return tail.end

    @property
    def final(self) -> bool:
        """Whether it ends with a file of a tier, in which nothing changes any more."""
        return any(isinstance(file, TieredFile) for file in self.files.files[-1:])

    def _young(self, tail: LogEnd) -> bool:
        """Whether the last record was stored just now: parts of it that no check covers may still
        be written.
        """
        file = self.files.at(tail.last_record)
        if file is None:
            return False
        stored = next(walk_file(file, tail.last_record, tail.end)).store_times()
        return len(stored) > 0 and abs(time.time() * 1000 - int(stored[0])) < YOUNG

    def _last_record_edge(self) -> int:
        """The last place in the last file that is known to be between two records."""
        last = self.files.files[-1:]
        splits = trusted_splits(self.files, last[0].start, last[0].end) if last else ()
        return max(self.known, splits[-1].start if splits else 0)

    @property
    def first(self) -> int:
        """Physical offset of the first byte there is."""
        return min(self.files.first, self.end)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Where the log was cut back, oldest first, as far as it was published."""
        return () if self.point is None else self.point.cuts

    def splits(self, start: int, end: int) -> tuple[Split, ...]:
        """The split index of C{[start, end)}, empty without one."""
        start, end = max(start, self.files.first), min(end, self.end)
        found = believed_splits(self.files, self.point is not None, start, end)
        known = {split.start: split for split in (*found, *tiered_splits(self.files, start, end))}
        return tuple(known[place] for place in sorted(known))

    @cached_property
    def identity(self) -> LogIdentity:
        """Whose log it is, by what its node says and by the first record that costs no request."""
        near = [file for file in self.files.files if not isinstance(file, TieredFile)]
        files = LogFiles(self.files.root, tuple(near or self.files.files)[:1])
        return identity_of(files, self.point)

    @property
    def behind(self) -> Behind | None:
        """Where to go on behind damage, C{None} if it is an error."""
        return self._behind if self.tolerant else None

    def _behind(self, offset: int, stop: int) -> int:
        splits = self.splits(offset + 1, stop)
        return splits[0].start if splits else stop

    def require_point(self, options: ReadOptions) -> None:
        """Refuse to follow a log that has no published point.

        @raise NoPublishedPoint: Unless the options allow it.
        """
        if self.point is None and not self.final and not options.allow_unconfirmed_tail:
            raise NoPublishedPoint(str(self.files.root))

    # --- places -------------------------------------------------------------

    def anchor(self, offset: int) -> int:
        """The last place not above C{offset} where a record is known to begin."""
        file = self.files.below(offset)
        if file is None:
            return self.files.first
        splits = self.splits(file.start, offset + 1)
        return splits[-1].start if splits else file.start

    def present(self, offset: int) -> int:
        """The first byte at or above C{offset} that is in a file, at most the end; the place
        itself if it is beyond the end.
        """
        if offset >= self.end or self.files.at(offset) is not None:
            return offset
        behind = self.files.above(offset)
        return self.end if behind is None else min(behind.start, self.end)

    def record_from(self, offset: int) -> int:
        """The first record at or above C{offset}, within what may be read."""
        offset = self.present(min(offset, self.end))
        return round_up(self.files, self.anchor(offset), offset, self.end, self.behind)

    def stored_from(self, time: int) -> int:
        """The first record that was stored at a time or later; the end if there is none.

        @param time: In milliseconds since 1970.
        """
        known = {file.start: Split(file.start) for file in self.files.files}
        known.update((split.start, split) for split in self.splits(0, self.end))
        places = [known[start] for start in sorted(known) if start < self.end]
        for split, following in pairwise([*places, Split(self.end)]):
            if split.end >= following.start and split.latest < time:
                continue
            found = first_stored(self.files, split.start, following.start, time, self.behind)
            if found is not None:
                return found
        return self.end

    # --- positions ----------------------------------------------------------

    def position(self, offset: int) -> Position:
        """The position at a place between two records."""
        # An anchor at the place itself has no record below it to tell of.
        anchor = self.anchor(offset - 1) if offset > self.files.first else offset
        last = boundary(self.files, anchor, offset, behind=self.behind).last
        return make(self.files, offset, last, self.identity)

    def verify(self, position: Position) -> bool:
        """Whether a position's record is here.

        @return: False if this copy does not reach it yet.
        @raise PipelineError: As L{_has}.
        """
        if position != self.verified and self._has(position):
            self.verified = position
        return position == self.verified

    def _has(self, position: Position) -> bool:
        """The same, looked up.

        @raise LogCutBack: If the log was cut below it.
        @raise NotThisLog: If there is another record, or if it does not reach so far and begins
            with another one.
        @raise LogOfAnotherBroker: If the log is another broker's.
        """
        if not self.identity.is_named_as(position.log):
            names = (position.log.name, self.identity.name)
            raise LogOfAnotherBroker(self.name, position.offset, *names)
        if position.last < 0:
            return position.offset <= self.end
        if position.last < self.files.first:
            return True  # Deleted since.  What is missing is found when it is read.
        found = fingerprint(self.files, position.last)
        if found == position.sum:
            return True
        below = [cut for cut in self.cuts if cut.at < position.offset]
        cuts = [cut for cut in below if cut.why is CutReason.CUT]
        copying = bool(below) and below[-1].why is CutReason.COPY and self.end <= position.last
        if cuts and not copying:
            raise LogCutBack(self.name, cuts[-1].at, cuts[-1].time, position.offset)
        place, expected = position.last, position.sum
        if self.end <= position.last:
            found = other_first(position.log, self.files)
            if not found or copying:
                return False
            place, expected = position.log.first, position.log.sum
        raise NotThisLog(self.name, position.offset, place, expected, found)


Absent = Callable[[str, Exception], None]
"""Is told which store cannot be read, and why."""


def open_stores(
    options: ReadOptions,
    positions: Mapping[str, Position] | None = None,
    absent: Absent | None = None,
    before: Mapping[str, StoreView] | None = None,
) -> list[StoreView]:
    """Open the stores of a query.

    @param positions: Positions up to which they were read before.
    @param absent: Lets those be left out that cannot be opened.
    @param before: Views of them to use again where nothing has come since.
    @raise SameLog: If two are copies of one log.
    """
    positions, before = positions or {}, before or {}
    stores = []
    for name, path in options.stores:
        view, position = before.get(name), positions.get(name)
        try:
            if view is None or position is None or not view.still(path, position):
                view = StoreView.open(name, path, options, position.offset if position else 0)
            stores.append(view)
        except (RmqhaError, PermissionError) as error:
            if absent is None:
                raise
            absent(name, error)
    _require_different(stores)
    return stores


_different: set[frozenset[tuple[str, Path, int]]] = set()
"""Stores that are known to be different logs, each with its first file: while it has that, it is
the same log."""


def _require_different(stores: list[StoreView]) -> None:
    key = frozenset((store.name, store.files.root, store.files.first) for store in stores)
    if key in _different:
        return
    firsts = {store.files.first for store in stores}
    seen: dict[object, StoreView] = {}
    for store in stores:
        # Where the younger of two copies begins both have a file.
        starts = {file.start for file in store.files.files if file.start < store.end}
        marks = [(at, found) for at in firsts & starts if (found := fingerprint(store.files, at))]
        for mark in (store.files.root.resolve(), *marks):
            other = seen.setdefault(mark, store)
            if other is not store:
                raise SameLog(other.name, store.name, mark[0] if mark in marks else store.first)
    _different.clear()
    _different.add(key)
