"""Retention slots: what replicas that went away will need of the log when they come back.

A connected replica holds old files back by its claim.  A claim ends with its connection, so a
slave that restarts in the hour of C{deleteWhen} would find the bytes it needs deleted, and a
first copy that breaks off would start over.  A slot outlasts the connection: it keeps the offset
that a I{known} replica, one that has acknowledged what it was sent, needs next.

It ends when the replica is back and acknowledges again, after C{haRetentionGrace}, when more than
C{haRetentionGraceBytes} would have to be kept for it, and when an operator drops it.

B{Several behind one address} have a slot each, and none ends that of another.  Which one is back
nobody tells, and a slave of ours first reports a byte well below its end, to compare.  So whoever
is back ends that slot of its address which holds least, and what is left holds enough for the
others, whichever they are.  It ends none if its first report is above what they were sent, or if
it is empty: then it is a new one, and if it was emptied, its slot stays for the grace.

The disk comes first, as with connected replicas: above C{diskSpaceCleanForciblyRatio} files go
although a slot holds them.

Slots are written to C{rmqha/slots.json} when a replica comes or goes, and a connected replica's
offset when it has reached another log file, once a minute at most: a master that is started again
gives its replicas the grace to come back too.  An offset that is older than the truth holds more,
never less.

Source: docs/states.rst, Retention slots.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.typed_table import Natural, Rows, structured, value_of
from rmqha.net.group_commit import GroupCommit

MOST_SLOTS = 1000
"""Most replicas that are remembered."""

ANY = 1 << 62
"""Above all offsets."""

REFRESH = 60.0
"""Least seconds between two writes that only tell how far connected replicas are."""

Save = Callable[[json_table.Table], Deferred[None]]
"""Writes the slots' table; its Deferred fires when that is durable."""


@define(eq=False, kw_only=True)
class RetentionSlot:
    """One known replica.

    @ivar address: Where it connects from, without the port.
    @ivar offset: The lowest physical offset it still needs.
    @ivar sent: No lower than what its log can end at when it is back.
    @ivar fresh: When its connection was opened, in the clock's seconds, if no slot ended by it: it
        may be that of a replica whose last connection is dead, which is not seen yet.
    @ivar since: When its last connection ended, in the clock's seconds; C{None} while it is
        connected, when its claim holds.
    @ivar since_wall: The same in seconds since 1970.
    """

    address: str
    offset: int
    sent: int = ANY
    fresh: float | None = None
    since: float | None = None
    since_wall: float | None = None

    def stand_for(self, other: RetentionSlot) -> None:
        """Hold what is needed for another one as well, which has no lower offset."""
        assert self.since is not None and other.since is not None
        self.sent = max(self.sent, other.sent)
        if self.since < other.since:
            self.since, self.since_wall = other.since, other.since_wall


@define(eq=False, kw_only=True)
class RetentionSlots:
    """The slots of one log's replicas.

    @ivar clock: Its C{seconds} must not jump.
    @ivar grace: C{haRetentionGrace}, in seconds; 0 is to keep nothing.
    @ivar most_bytes: C{haRetentionGraceBytes}.
    @ivar wall: Seconds since 1970.
    @ivar save: Writes a table durably; C{None} is to forget with the process.
    @ivar ended: How many ended without their replica, by why: C{grace}, C{bytes}, C{passed},
        C{dropped}, C{forgotten}.
    @ivar last_ended: Which one was the last, and why.
    """

    clock: IReactorTime
    grace: float = 3600.0
    most_bytes: int = 1 << 62
    wall: Callable[[], float] = time.time
    save: Save | None = None
    ended: Counter[str] = field(factory=Counter, init=False)
    last_ended: str = field(default="", init=False)
    _rows: list[RetentionSlot] = field(factory=list, init=False)
    _commits: GroupCommit = field(init=False)
    _changed: bool = field(default=False, init=False)
    _saved: float = field(default=float("-inf"), init=False)
    _files: list[tuple[str, int]] = field(factory=list, init=False)
    _failed: bool = field(default=False, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._commits = GroupCommit(self._write)

    # --- the file -------------------------------------------------------------

    def read(self, path: Path) -> None:
        """Take over the slots of the run before.

        A file that makes no sense is said and passed over: that holds nothing back.

        @raise FileUnreadable: If the system does not let it be read.
        """
        now, wall = self.clock.seconds(), self.wall()
        try:
            found = (json_table.read(path) or {}).get("slots") or {}
            if isinstance(found, dict):  # as it was: one for each address
                found = [{"address": address, **row} for address, row in found.items()]
            for row in structured(found, Rows, "slots"):
                slot = RetentionSlot(
                    address=value_of(row, "address", str),
                    offset=value_of(row, "offset", Natural),
                    sent=value_of({"sent": ANY, **row}, "sent", Natural),
                )
                if (since := value_of(row, "since", Natural | None)) is not None:
                    ago = max(0.0, wall - since / 1000)
                    slot.since, slot.since_wall = now - ago, wall - ago
                self._rows.append(slot)
        except (TableUnreadable, TypeError, ValueError) as error:
            self._rows.clear()
            self._log.warn(
                "Cannot read the retention slots of replicas, holding no files back for those that "
                "are away: {error}",
                error=error,
            )
        self.we_are_back()

    def flush(self) -> Deferred[None]:
        """Write what changed.

        @return: Fires when that is done, well or not.
        """
        return self._commits.commit()

    def table(self) -> json_table.Table:
        """What is written."""
        return {
            "slots": [
                {
                    "address": slot.address,
                    "offset": slot.offset,
                    "sent": slot.sent,
                    "since": _millis(slot.since_wall),
                }
                for slot in self._rows
            ]
        }

    def _write(self) -> Deferred[None]:
        if not self._changed or self.save is None:
            return succeed(None)
        self._changed, self._saved = False, self.clock.seconds()
        return self.save(self.table()).addCallbacks(self._written, self._not_written)

    def _written(self, _: object) -> None:
        self._failed = False

    def _not_written(self, failure: Failure) -> None:
        """The next sweep tries again."""
        self._changed = True
        if not self._failed:
            self._failed = True
            self._log.warn(
                "Cannot write the retention slots of replicas, retrying: {error}",
                error=failure.getErrorMessage(),
            )

    # --- replicas ---------------------------------------------------------------

    def known(self, address: str) -> bool:
        """Whether a replica of this address has acknowledged what it was sent."""
        return any(slot.address == address for slot in self._rows)

    def proved(
        self, address: str, offset: int, *, began: int, opened: float
    ) -> RetentionSlot | None:
        """A replica acknowledges what it is sent: its claim holds from now on.

        @param began: The first report of its connection; 0 if its log was empty.
        @param opened: When that was opened, in the clock's seconds.
        @return: Its slot, unless there are too many.
        """
        away = [one for one in self._rows if one.address == address and one.since is not None]
        back = sorted((one for one in away if 0 < began <= one.sent), key=lambda one: one.offset)
        for one, other in pairwise(back):
            one.stand_for(other)
        if back:
            self._rows.remove(back[-1])
        elif len(self._rows) >= MOST_SLOTS and not self._forget_one():
            return None
        fresh = None if back or not began else opened
        slot = RetentionSlot(address=address, offset=offset, fresh=fresh)
        self._rows.append(slot)
        self._changed = True
        return slot

    def _forget_one(self) -> bool:
        away = [(slot.since, at) for at, slot in enumerate(self._rows) if slot.since is not None]
        if away:
            self._end(self._rows[min(away)[1]], "forgotten", f"there are {MOST_SLOTS} replicas")
        return bool(away)

    def left(self, slot: RetentionSlot, offset: int, *, sent: int, heard: float) -> None:
        """A known replica's connection ended.

        @param offset: The lowest byte it needs.
        @param sent: Just past what it was sent.
        @param heard: When it last reported, in the clock's seconds.
        """
        self._changed = True
        for other in self._rows:
            if other.address == slot.address and other.fresh is not None and heard < other.fresh:
                # It is back already: this connection had been dead for a while.
                other.fresh = None
                self._rows.remove(slot)
                return
        slot.offset, slot.sent, slot.fresh = offset, sent, None
        slot.since, slot.since_wall = self.clock.seconds(), self.wall()

    def we_leave(self, slot: RetentionSlot, offset: int) -> None:
        """We end a known replica's connection, and not it: it is to have the whole grace when we
        are back, however long that takes.

        @param offset: The lowest byte it needs.
        """
        slot.offset = min(offset, slot.offset)
        self._changed = True

    def we_are_back(self) -> None:
        """Nobody is connected: who was is away since now."""
        now, wall = self.clock.seconds(), self.wall()
        for slot in self._rows:
            if slot.since is None:
                slot.fresh, slot.since, slot.since_wall = None, now, wall

    def drop(self, address: str) -> bool:
        """An operator does without the replicas of an address that are away.

        @return: Whether there were any.
        """
        away = [one for one in self._rows if one.address == address and one.since is not None]
        for slot in away:
            self._end(slot, "dropped", "an operator dropped it")
        return bool(away)

    def _end(self, slot: RetentionSlot, reason: str, why: str) -> None:
        self._rows.remove(slot)
        self._changed = True
        self.ended[reason] += 1
        self.last_ended = f"{slot.address}, which needs bytes from {slot.offset} on: {why}"
        self._log.warn(
            "No files are held back any more for replica {replica}", replica=self.last_ended
        )

    def _end_late(self) -> None:
        now = self.clock.seconds()
        for slot in list(self._rows):
            if slot.since is not None and now - slot.since >= self.grace:
                self._end(slot, "grace", f"it is away for {self.grace:.0f} s (haRetentionGrace)")

    # --- the clock ----------------------------------------------------------------

    def held_from(self) -> int | None:
        """The lowest offset that a replica needs which is away; C{None} if none is.  A slot that
        holds nothing any more ends before its files go.
        """
        self._end_late()
        return min((slot.offset for slot in self._rows if slot.since is not None), default=None)

    def away(self, seconds: float) -> list[RetentionSlot]:
        """Those of addresses that nobody is connected from, for longer than so many seconds."""
        now = self.clock.seconds()
        here = {slot.address for slot in self._rows if slot.since is None}
        return [
            slot
            for slot in self._rows
            if slot.since is not None and slot.address not in here and now - slot.since > seconds
        ]

    def sweep(self, first: int, end: int, file_size: int) -> None:
        """End what has lasted long enough, and write what changed.

        @param first: Where the log begins.
        @param end: Where it ends.
        """
        now = self.clock.seconds()
        self._end_late()
        for slot in list(self._rows):
            if slot.since is None:
                continue
            if end - slot.offset > self.most_bytes:
                self._end(
                    slot,
                    "bytes",
                    f"it lacks {end - slot.offset} bytes, more than {self.most_bytes} "
                    "(haRetentionGraceBytes)",
                )
            elif not first <= slot.offset <= end:
                self._end(slot, "passed", f"the log holds bytes {first} to {end}")
        files = [(slot.address, slot.offset // file_size) for slot in self._rows]
        if files != self._files and now - self._saved >= REFRESH:
            self._changed = True
        if self._changed:
            self._files = files
            self.flush()

    def rows(self, end: int) -> list[dict[str, Any]]:
        """C{retentionSlots} of C{/status}."""
        return [
            {
                "address": slot.address,
                "connected": slot.since is None,
                "offset": slot.offset,
                "bytes": max(0, end - slot.offset),
                "since": _millis(slot.since_wall),
                "until": _millis(slot.since_wall and slot.since_wall + self.grace),
            }
            for slot in sorted(self._rows, key=lambda one: (one.address, one.offset))
        ]


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
