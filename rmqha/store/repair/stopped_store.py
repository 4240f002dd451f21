"""The repair of a store on which no node runs, from its first look to its last.

Source: docs/operations.rst, Repair from a replica.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define, evolve, field

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import Refused, StoreError, StoreLocked
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.listing import Finding
from rmqha.logfiles.offline_log import OfflineLog, Progress
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end
from rmqha.store.derived import dispatch_mark
from rmqha.store.environment import Step
from rmqha.store.files.lock import StoreLock
from rmqha.store.log.range_repair import (
    RepairIntent,
    drop_fetched,
    finish_repair,
    intend_repair,
    pending_repair,
    write_repair,
)
from rmqha.store.offline.rebuild_in_place import remake
from rmqha.store.offline.verify import LogCheck
from rmqha.store.repair.damaged_ranges import DamagedRange, damaged_ranges, whole_range
from rmqha.store.repair.derived_check import missing_from_derived
from rmqha.store.repair.from_replica import RangeFetch, RepairReport, Replica
from rmqha.wire.store_layout import DISPATCHED, LOCK, OWN_FOLDER, REPAIR, TRUNCATION


@contextmanager
def held_still(root: Path | None) -> Iterator[bool]:
    """Keep nodes away from a replica's store, if none runs on it.

    @return: Whether the store is locked; if not, it is only read, as it is.
    """
    lock = None if root is None else StoreLock(root / LOCK)
    try:
        if lock is not None:
            lock.take()
    except (StoreLocked, OSError):
        lock = None
    try:
        yield lock is not None
    finally:
        if lock is not None:
            lock.release()


@define(eq=False, kw_only=True)
class StoppedStore:
    """A store that is to be repaired; only while its lock is held.

    @ivar settings: Its sizes.
    @ivar step: Told each step's name after it is done; tests die there.
    @ivar notes: What a person should know, after each call.
    """

    settings: StoreSettings
    step: Step = lambda name: None
    notes: list[str] = field(factory=list, init=False)
    raw: RawLog = field(init=False)
    _fetched: RangeFetch | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._look_again()

    def _look_again(self) -> None:
        self.raw = RawLog.open(self.settings.root, self.settings.file_size)

    def finish_begun(self, *, dry_run: bool = False) -> bool:
        """Finish what an earlier run has left half done.

        @return: Whether there was something.
        @raise Refused: If a truncation is unfinished: a start of the node finishes it; if there
            is something to finish and nothing may be changed.
        """
        root = self.settings.root
        if (root / OWN_FOLDER / TRUNCATION).exists():
            raise Refused(
                "repair", f"{TRUNCATION} says that a truncation is unfinished: start the node once"
            )
        intent = pending_repair(root, self.settings.commitlog)
        if intent is None:
            return False
        if dry_run:
            raise Refused("repair", "an earlier run is unfinished, so --dry-run has to wait")
        self._write(intent)
        self.notes.append(
            f"finished the repair that an earlier run had begun, with bytes of {intent.peer}"
        )
        return True

    def damaged_ranges(self, progress: Progress | None = None) -> list[DamagedRange]:
        """Check the whole log.  Blocking.

        @raise Refused: If there is nothing left of it.
        """
        if not self.raw.pieces:
            raise Refused(
                "repair", "no log file is left to compare with: an empty slave copies all of it"
            )
        check = LogCheck(self.raw, progress)
        for _ in check.findings():
            pass  # what counts is what is left of them in the end
        self.notes += check.notes
        return damaged_ranges(check, self.settings)

    def range_of(self, start: int, stop: int) -> list[DamagedRange]:
        """A range that a person has named.

        @raise Refused: If there is no such range in this log.
        """
        try:
            return [whole_range(self.raw, start, stop)]
        except ValueError as error:
            raise Refused("repair", str(error)) from error

    async def fetch(
        self, ranges: list[DamagedRange], replica: Replica, progress: Progress | None = None
    ) -> RepairReport:
        """Fetch what a replica has of some ranges and look at it; the log is not changed.

        @raise DiskFull: If there is no room for it.
        """
        self._fetched = RangeFetch(
            root=self.settings.root, raw=self.raw, replica=replica, progress=progress
        )
        return await self._fetched.fetch(ranges)

    def write(self, report: RepairReport) -> RepairReport:
        """Write what was fetched into the log.  Blocking.

        @return: The report, with what became of it.
        @raise DiskFull: If there is no room.  Once something has been written the next run
            goes on with it.
        """
        intent = None if self._fetched is None else self._fetched.intent()
        if intent is None:
            return report
        intent = intend_repair(self.settings.root, self.raw, intent, self.step)
        return evolve(report, kept=intent.kept, rebuilt=self._write(intent))

    def forget(self) -> None:
        """Close files, and remove what was fetched and not decided to be written."""
        self.raw.close()
        if not (self.settings.root / OWN_FOLDER / REPAIR).exists():
            drop_fetched(self.settings.root)

    def _write(self, intent: RepairIntent) -> bool:
        """Carry an intent out.

        @return: Whether queues and index were made anew.
        """
        root, commitlog = self.settings.root, self.settings.commitlog
        write_repair(root, commitlog, intent, self.step)
        self._look_again()
        rebuilt = self._derived(intent)
        finish_repair(root, intent, self.step)
        return rebuilt

    def _derived(self, intent: RepairIntent) -> bool:
        """Look at queues and index, and make them anew if they lack something."""
        root, raw = self.settings.root, self.raw
        # What comes behind the mark is dispatched at the next start.
        known = dispatch_mark.known_durable(root / OWN_FOLDER / DISPATCHED) or raw.end
        ranges = [(start, min(stop, known)) for start, stop in intent.ranges if start < known]
        log = OfflineLog.of(raw, data_end(raw, raw.min_offset))
        fault = next(missing_from_derived(log, self.settings, ranges), None)
        if fault is None:
            return False
        try:
            remake(OfflineLog.of(raw), self.settings)
        except StoreError as error:
            self.notes.append(f"{fault}; not made anew: {error}")
            return False
        self.notes.append(f"consume queues and index were made anew: {fault}")
        return True

    def findings(self) -> list[Finding]:
        """What is wrong with the log's files still: no bytes of a replica mend that."""
        return list(self.raw.findings)

    def full_size(self) -> None:
        """Make files that were cut short full files again: what they lack reads as zeros, which is
        right where the log could be followed.
        """
        for piece in self.raw.pieces:
            wanted = piece.end - piece.start
            if piece.path.stat().st_size < wanted:
                os.truncate(piece.path, wanted)
                fsync_folder(piece.path.parent)
                self.notes.append(f"{piece.path} is {wanted} bytes long again")
        self._look_again()
