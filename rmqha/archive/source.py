"""What a log that is to be restored has: from where to where, and stored when.

Only a few records are read for it, so that a place outside is told before terabytes are copied.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from attrs import define

from rmqha.archive.errors import shown_time
from rmqha.archive.manifest import ArchiveManifest
from rmqha.archive.target import RestoreTarget
from rmqha.errors import NotAStore, StoreError
from rmqha.ha.master_epoch import EpochJournal
from rmqha.logfiles.log_end import find_log_end
from rmqha.logfiles.published import read_copied_damage, read_point
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.files.lock import is_locked
from rmqha.tier.joined_log import find_raw_log
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.log.layout import MIN_BLANK, MIN_RECORD
from rmqha.wire.log.record import stored_at
from rmqha.wire.store_layout import LOCK


@define(eq=False, kw_only=True)
class RestoreSource:
    """An archive, a store, or a copy of a store's log.

    @ivar raw: Its files.
    @ivar store: The root of the store that it is, C{None} if it has only a log.
    @ivar journal: The master epochs that are known of it.
    @ivar copied: Records that were damaged on the master already: they are as its log has them.
    @ivar end: Where the log ends, or what can be restored of it: where files are missing, or up to
        where a running node has published it.
    @ivar first_stored: Store time of its first record, in milliseconds since 1970, 0 if there is
        none.
    @ivar last_stored: The same of its last.
    """

    raw: RawLog
    store: Path | None
    journal: EpochJournal
    copied: CopiedDamage
    end: int
    first_stored: int
    last_stored: int

    @classmethod
    def look(cls, path: Path, tier: str = "") -> Self:
        """Look at a log.

        @param path: A store's root, an archive, or a C{commitlog} folder.
        @param tier: The URL of its tier, which has what it has no more, C{""} for none.
        @raise NotAStore: If there is no log, or nothing in it.
        @raise Refused: If an archive has the files of another log than it says.
        @raise PointInvalid: If a running node's published point cannot be read.
        @raise TierError: If the tier is another log's, or cannot be read.
        @raise FileUnreadable: If the system does not let one of its files be read.
        @raise TableUnreadable: If an archive's manifest or the master epochs make no sense.
        """
        raw = find_raw_log(path, tier)
        if not raw.pieces:
            raise NotAStore(str(raw.path), "it holds no log file")
        root, stop = raw.root, raw.run_end(raw.min_offset)
        if root is not None and is_locked(root / LOCK):
            point = read_point(root)
            # A running node may still take back what it has not published.
            stop = stop if point is None else min(stop, max(point.confirm, raw.min_offset))
        copied = read_copied_damage(root)
        end, last = _end(raw, stop, copied)
        first = 0 if end <= raw.min_offset else _stored(raw, raw.min_offset)
        manifest = None if root is None else ArchiveManifest.read(root)
        if root is not None and manifest is not None:
            manifest.require_log(root, "restore")
        return cls(
            raw=raw,
            store=None if manifest is not None else root,
            copied=copied,
            journal=EpochJournal() if root is None else EpochJournal.read(root),
            end=end,
            first_stored=first,
            last_stored=0 if last < 0 else _stored(raw, last),
        )

    def limit(self, target: RestoreTarget) -> int:
        """Up to where there is something to restore.

        @return: A physical offset: what is wanted ends there, or at a record before.
        @raise StoreError: If the log begins behind the target, does not reach it, or lacks files
            before it.
        """
        raw = self.raw
        if target.offset is not None:
            before, reached = target.offset <= raw.min_offset, target.offset <= self.end
        elif target.time is not None:
            before = not target.wants(self.first_stored)
            reached = not target.wants(self.last_stored)
        else:
            before, reached = False, raw.run_end(raw.min_offset) == raw.end
        if before:
            raise self.outside(target, before=True)
        if not reached:
            gap = raw.run_end(raw.min_offset)
            following = raw.next_start(gap)
            if following is not None:
                raise StoreError(
                    f"{raw.path} lacks the {following - gap} bytes from {gap} to {following}: "
                    f"nothing behind them can be restored (until {target})"
                )
            raise self.outside(target, before=False)
        return self.end if target.offset is None else target.offset

    def outside(self, target: RestoreTarget, *, before: bool) -> StoreError:
        """What it means that a target is not within the log."""
        where = "before the begin" if before else "behind the end"
        return StoreError(
            f"{target} is {where} of {self.raw.path}: it has bytes {self.raw.min_offset} to "
            f"{self.end}, stored from {shown_time(self.first_stored)} to "
            f"{shown_time(self.last_stored)}"
        )


def _end(raw: RawLog, stop: int, copied: CopiedDamage) -> tuple[int, int]:
    """Where the log ends, looked for in the last file that was begun, and its last record.

    @param stop: Where files begin to be missing, where they end, or a record's end before.
    @return: Two physical offsets; the second is -1 if there is no record.
    """
    end, last = raw.min_offset, -1
    for piece in reversed([piece for piece in raw.pieces if piece.start < stop]):
        if any(raw.read(piece.start, MIN_BLANK)):
            found = find_log_end(
                raw,
                piece.start,
                min(piece.end, stop),
                nul_is_torn_from=raw.writer.nul_is_torn_from,
                copied=copied,
            )
            end, last = max(end, found.end), found.last_record
            if last >= 0:
                break
    return end, last


def _stored(raw: RawLog, offset: int) -> int:
    return stored_at(raw.read(offset, MIN_RECORD), 0)
