"""Repair a stopped store's log with the bytes of a replica: find, fetch, look, write.

Nothing is written before everything that a replica has for all ranges was fetched and checked
(L{rmqha.store.repair.fetched_bytes}); then one intent makes all of it certain
(L{rmqha.store.log.range_repair}).

Source: docs/operations.rst, Repair from a replica.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

from attrs import define, field, frozen
from twisted.internet.defer import maybeDeferred

from rmqha.errors import DiskFull, RmqhaError
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import WINDOW, data_end
from rmqha.reserve import NO_SPACE
from rmqha.store.files.allocate import InThread
from rmqha.store.log.range_repair import (
    Patch,
    Range,
    RepairIntent,
    drop_fetched,
    fetched_path,
    file_crc,
)
from rmqha.store.log.record_checksums import KeptChecksums
from rmqha.store.repair.damaged_ranges import DamagedRange
from rmqha.store.repair.fetched_bytes import FetchedBytes, NotHad, Window, cleared, window

Fetching = Callable[[int], None]
"""Told how many more bytes came."""


class ReplicaLacks(RmqhaError):
    """A replica has not the bytes of the log that are wanted of it."""

    sentence = "{replica} has nothing from byte {offset} on: {said}"
    replica: str
    offset: int
    said: str


class Replica(Protocol):
    """Who has the bytes."""

    @property
    def name(self) -> str:
        """Who that is, for people."""

    def begins(self) -> Awaitable[int]:
        """Where its log begins; 0 if that is not known."""

    def fetch(self, start: int, stop: int, out: BinaryIO, came: Fetching) -> Awaitable[int]:
        """Copy C{[start, stop)} of its log.

        @return: Where what it has ends, at most C{stop}.
        @raise ReplicaLacks: If it has nothing from C{start} on.
        """


@define(eq=False)
class StoreReplica:
    """A store's folder, a C{commitlog} folder, or a quarantine file."""

    raw: RawLog

    @property
    def name(self) -> str:
        return str(self.raw.root or self.raw.path)

    async def begins(self) -> int:
        """Where its first file does."""
        return self.raw.min_offset

    async def fetch(self, start: int, stop: int, out: BinaryIO, came: Fetching) -> int:
        """Copy what there is; files that are missing end it."""
        position, stop = start, min(stop, data_end(self.raw, self.raw.min_offset))
        while position < stop and self.raw.has(position):
            piece = self.raw.read(position, min(WINDOW, stop - position))
            out.write(piece)
            came(len(piece))
            position += len(piece)
        if position <= start:
            raise ReplicaLacks(self.name, start, f"it holds {_held(self.raw)}")
        return position


def _held(raw: RawLog) -> str:
    return f"[{raw.min_offset}, {data_end(raw, raw.min_offset)})" if raw.pieces else "nothing"


@frozen(kw_only=True)
class RepairReport:
    """What a repair came to.

    @ivar peer: Whose bytes they are.
    @ivar ranges: What is to be, or was, replaced.
    @ivar records: How many records that is.
    @ivar not_had: What could not be.
    @ivar differs: Where records stay as they are, though the peer's check and are others.
    @ivar kept: Quarantine files with what stood there.
    @ivar rebuilt: Whether queues and index had to be made anew.
    """

    peer: str
    ranges: tuple[Range, ...]
    records: int
    not_had: tuple[NotHad, ...]
    differs: tuple[NotHad, ...] = ()
    kept: tuple[str, ...] = ()
    rebuilt: bool = False


@define(eq=False, kw_only=True)
class RangeFetch:
    """Fetches what a replica has for the ranges of one log, and looks at it.

    @ivar root: The store's.
    @ivar replica: Who has the bytes.
    @ivar progress: Told how many bytes came, of how many.
    @ivar in_thread: Where files are read and synced, if that is not here.
    """

    root: Path
    raw: RawLog
    replica: Replica
    progress: Callable[[int, int], None] | None = None
    in_thread: InThread = maybeDeferred
    _patches: list[Patch] = field(factory=list, init=False)
    _not_had: list[NotHad] = field(factory=list, init=False)
    _differs: list[NotHad] = field(factory=list, init=False)
    _records: int = field(default=0, init=False)
    _came: int = field(default=0, init=False)

    async def fetch(
        self, ranges: Sequence[DamagedRange], damaged: Sequence[DamagedRange] | None = None
    ) -> RepairReport:
        """Fetch all and write nothing but files of our own.

        @param damaged: What else is damaged, and not to be compared, the ranges included.
        @raise DiskFull: If there is no room for what comes.
        """
        known = ranges if damaged is None else damaged
        await self.in_thread(drop_fetched, self.root)
        windows = await self.in_thread(lambda: [window(self.raw, one, known) for one in ranges])
        total = sum(one.high - one.low for one in windows)

        def came(size: int) -> None:
            self._came += size
            if self.progress is not None:
                self.progress(self._came, max(total, self._came))

        begins = await self.replica.begins()
        for one in windows:
            low = min(max(one.low, begins), one.wanted.start)
            await self._fetch(one.bounded(low, one.high), came)
        return RepairReport(
            peer=self.replica.name,
            ranges=tuple(each for patch in self._patches for each in patch.ranges),
            records=self._records,
            not_had=tuple(self._not_had),
            differs=tuple(self._differs),
        )

    def intent(self, *, creates: bool = True) -> RepairIntent | None:
        """What is to be written of what was fetched; C{None} if nothing is.

        @param creates: Whether files that are missing may be made: not while retention deletes
            some.
        """
        if not self._patches:
            return None
        return RepairIntent(
            peer=self.replica.name,
            file_size=self.raw.file_size,
            patches=tuple(self._patches),
            creates=creates,
        )

    async def _fetch(self, wanted: Window, came: Fetching) -> None:
        path = fetched_path(self.root, wanted.low, wanted.high)
        try:
            with open(path, "wb") as out:
                end = await self.replica.fetch(wanted.low, wanted.high, out, came)
                out.flush()
                await self.in_thread(os.fsync, out.fileno())
        except ReplicaLacks as error:
            path.unlink()
            one = wanted.wanted
            self._not_had.append(NotHad(one.start, one.stop, str(error)))
            return
        except OSError as error:
            path.unlink(missing_ok=True)
            if error.errno in NO_SPACE:
                raise DiskFull(str(path), wanted.high - wanted.low) from error
            raise
        await self.in_thread(self._look, path, wanted.bounded(wanted.low, end))

    def _look(self, path: Path, fetched: Window) -> None:
        theirs = RawLog.open(path, self.raw.file_size)
        try:
            kept = KeptChecksums(self.root, self.raw.file_size)
            looked = FetchedBytes(ours=self.raw, theirs=theirs, window=fetched, kept=kept)
            looked.look()
        finally:
            theirs.close()
        self._not_had += looked.not_had
        self._differs += looked.differs
        if not looked.runs:
            path.unlink()
            return
        self._records += looked.records
        self._patches.append(
            Patch(
                fetched=str(path.relative_to(self.root)),
                crc=file_crc(path),
                ranges=looked.runs,
                equal=looked.window.equal,
                clear=cleared(looked),
            )
        )
