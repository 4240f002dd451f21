"""Is a whole log sound, before it becomes a master's?

A start, and so a promotion, checks the last files.  A slave with damage in an older one would be
promoted like any other, its consumers would stand still there, and the old master with the good
copy is about to be emptied.  So all of it is read first, as C{rmqha verify} does.

Source: docs/operations.rst, What promote does.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import StoreError, StoreLocked
from rmqha.ha.promotion import plan
from rmqha.logfiles.listing import STRAY
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.files.lock import is_locked
from rmqha.store.log.bootstrap_marker import refuse_unfinished
from rmqha.store.log.truncate import pending
from rmqha.store.offline.verify import LogCheck, Progress
from rmqha.wire.store_layout import CHECKPOINT, LOCK


@frozen
class NotSound(StoreError):
    """A log that was read as a whole has faults."""

    path: str
    count: int
    first: str

    def __str__(self) -> str:
        faults = "a fault" if self.count == 1 else f"{self.count} faults"
        return f"the log in {self.path} has {faults}: {self.first}"


def check_whole(
    settings: StoreSettings,
    raw: RawLog,
    progress: Progress | None = None,
    *,
    repair: bool = False,
    runs: bool = False,
) -> int:
    """Verify a log that is to be a master's, and change nothing.  Blocking.

    @param raw: Its files.
    @param progress: Told how far it is.
    @param repair: Whether a damaged log may be cut at the damage.
    @param runs: Whether a node may run on it, which it is to be promoted in.
    @return: How many records it has.
    @raise StoreLocked: If a node is running on it.
    @raise UnfinishedCopy: If it is an unfinished copy.
    @raise TruncationInvalid: If it has a note about a cut that cannot be read.
    @raise LogCorrupt: If it is damaged where a start would look.
    @raise NotSound: If anything is wrong with it that the promotion would not cut off.
    """
    lock = settings.root / LOCK
    if not runs and is_locked(lock):
        raise StoreLocked(str(lock))
    refuse_unfinished(settings)
    check = LogCheck(raw, progress)
    found = [finding for finding in check.findings() if finding.reason != STRAY]
    if found and repair:
        # That records at the end are missing is what it is told to bear.
        found = [finding for finding in found if finding.path != str(settings.root / CHECKPOINT)]
    if found:
        intent = pending(settings.root)
        # What is cut off, or has begun to be, may be anything.
        end = plan(settings, repair=repair).end if intent is None else intent.at
        found = [finding for finding in found if finding.offset < end]
    if found:
        raise NotSound(str(raw.path), len(found), str(found[0]))
    return check.records
