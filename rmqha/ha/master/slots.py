"""
Retention slots: what replicas that went away will need of the log when they come back.

A connected replica holds old files back by its claim.  A claim ends with its connection, so a
slave that restarts in the hour of C{deleteWhen} would find the bytes it needs deleted, and a
first copy that breaks off would start over.  A slot outlasts the connection: it keeps the offset
that a I{known} replica, one that has acknowledged what it was sent, needs next.

It ends when the replica is back and acknowledges again, after C{haRetentionGrace}, when more than
C{haRetentionGraceBytes} would have to be kept for it, and when an operator drops it.  The disk
comes first, as with connected replicas: above C{diskSpaceCleanForciblyRatio} files go although a
slot holds them.

Slots are written to C{rmqha/slots.json} when a replica comes or goes, and a connected replica's
offset when it has reached another log file, once a minute at most: a master that is started again
gives its replicas the grace to come back too.  An offset that is older than the truth holds more,
never less.

Source: docs/operations.rst, Retention slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.net.group_commit import GroupCommit

MOST_SLOTS = 1000
"""Most replicas that are remembered."""

REFRESH = 60.0
"""Least seconds between two writes that only tell how far connected replicas are."""

Save = Callable[[json_table.Table], Deferred[None]]
"""Writes the slots' table; its Deferred fires when that is durable."""


@define(eq=False, kw_only=True)
class RetentionSlot:
    """
    One known replica.

    @ivar offset: The lowest physical offset it still needs.
    @ivar since: When its last connection ended, in the clock's seconds; C{None} while it is
        connected, when its claim holds.
    @ivar since_wall: The same in seconds since 1970.
    """

    offset: int
    since: float | None = None
    since_wall: float | None = None


@define(eq=False, kw_only=True)
class RetentionSlots:
    """
    The slots of one log's replicas, by address.

    @ivar clock: Its C{seconds} must not jump.
    @ivar grace: C{haRetentionGrace}, in seconds; 0 is to keep nothing.
    @ivar most_bytes: C{haRetentionGraceBytes}.
    @ivar wall: Seconds since 1970.
    @ivar save: Writes a table durably; C{None} is to forget with the process.
    """

    clock: IReactorTime
    grace: float = 3600.0
    most_bytes: int = 1 << 62
    wall: Callable[[], float] = time.time
    save: Save | None = None
    _rows: dict[str, RetentionSlot] = field(factory=dict, init=False)
    _commits: GroupCommit = field(init=False)
    _changed: bool = field(default=False, init=False)
    _saved: float = field(default=float("-inf"), init=False)
    _files: dict[str, int] = field(factory=dict, init=False)
    _failed: bool = field(default=False, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._commits = GroupCommit(self._write)

    # --- the file -------------------------------------------------------------

    def read(self, path: Path) -> None:
        """
        Take over the slots of the run before.

        A file that makes no sense is said and passed over: that holds nothing back.

        @raise FileUnreadable: If the system does not let it be read.
        """
        now, wall = self.clock.seconds(), self.wall()
        try:
            for address, row in ((json_table.read(path) or {}).get("slots") or {}).items():
                slot = self._rows[str(address)] = RetentionSlot(offset=int(row["offset"]))
                if row["since"] is not None:
                    ago = max(0.0, wall - row["since"] / 1000)
                    slot.since, slot.since_wall = now - ago, wall - ago
        except (TableUnreadable, AttributeError, KeyError, TypeError, ValueError) as error:
            self._rows.clear()
            self._log.warn(
                "Cannot read the retention slots of replicas, holding no files back for those that "
                "are away: {error}",
                error=error,
            )
        self.we_are_back()

    def flush(self) -> Deferred[None]:
        """
        Write what changed.

        @return: Fires when that is done, well or not.
        """
        return self._commits.commit()

    def table(self) -> json_table.Table:
        """
        What is written.
        """
        return {
            "slots": {
                address: {"offset": slot.offset, "since": _millis(slot.since_wall)}
                for address, slot in self._rows.items()
            }
        }

    def _write(self) -> Deferred[None]:
        if not self._changed or self.save is None:
            return succeed(None)
        self._changed, self._saved = False, self.clock.seconds()
        return self.save(self.table()).addCallbacks(self._written, self._not_written)

    def _written(self, _: object) -> None:
        self._failed = False

    def _not_written(self, failure: Failure) -> None:
        """
        The next sweep tries again.
        """
        self._changed = True
        if not self._failed:
            self._failed = True
            self._log.warn(
                "Cannot write the retention slots of replicas, retrying: {error}",
                error=failure.getErrorMessage(),
            )

    # --- replicas ---------------------------------------------------------------

    def known(self, address: str) -> bool:
        """
        Whether a replica of this address has acknowledged what it was sent.
        """
        return address in self._rows

    def proved(self, address: str, offset: int) -> None:
        """
        A replica acknowledges what it is sent: its claim holds from now on.
        """
        if address not in self._rows and len(self._rows) >= MOST_SLOTS and not self._forget_one():
            return
        self._rows[address] = RetentionSlot(offset=offset)
        self._changed = True

    def _forget_one(self) -> bool:
        away = [(slot.since, name) for name, slot in self._rows.items() if slot.since is not None]
        if away:
            del self._rows[min(away)[1]]
        return bool(away)

    def left(self, address: str, offset: int) -> None:
        """
        A known replica's connection ended.

        @param offset: The lowest byte it needs.
        """
        slot = self._rows.get(address)
        if slot is None:
            return
        if slot.since is not None:
            # Several behind one address: the one that is furthest behind counts.
            offset = min(offset, slot.offset)
        self._rows[address] = RetentionSlot(
            offset=offset, since=self.clock.seconds(), since_wall=self.wall()
        )
        self._changed = True

    def we_leave(self, address: str, offset: int) -> None:
        """
        We end a known replica's connection, and not it: it is to have the whole grace when we are
        back, however long that takes.

        @param offset: The lowest byte it needs.
        """
        slot = self._rows.get(address)
        if slot is not None:
            slot.offset = min(offset, slot.offset)
            slot.since = slot.since_wall = None
            self._changed = True

    def we_are_back(self) -> None:
        """
        Nobody is connected: who was is away since now.
        """
        now, wall = self.clock.seconds(), self.wall()
        for slot in self._rows.values():
            if slot.since is None:
                slot.since, slot.since_wall = now, wall

    def drop(self, address: str) -> bool:
        """
        An operator does without a replica.

        @return: Whether there was a slot, and its replica away.
        """
        slot = self._rows.get(address)
        if slot is None or slot.since is None:
            return False
        self._end(address, "an operator dropped it")
        return True

    def _end(self, address: str, why: str) -> None:
        slot = self._rows.pop(address)
        self._changed = True
        self._log.warn(
            "No files are held back any more for replica {address}, which needs bytes from "
            "{offset} on: {why}",
            address=address,
            offset=slot.offset,
            why=why,
        )

    # --- the clock ----------------------------------------------------------------

    def held_from(self) -> int | None:
        """
        The lowest offset that a replica needs which is away; C{None} if none is.
        """
        now = self.clock.seconds()
        return min(
            (
                slot.offset
                for slot in self._rows.values()
                if slot.since is not None and now - slot.since < self.grace
            ),
            default=None,
        )

    def sweep(self, held: dict[str, int], first: int, end: int, file_size: int) -> None:
        """
        End what has lasted long enough, and write what changed.

        @param held: What the connected replicas need, by address.
        @param first: Where the log begins.
        @param end: Where it ends.
        """
        now = self.clock.seconds()
        for address, slot in list(self._rows.items()):
            if slot.since is None:
                slot.offset = held.get(address, slot.offset)
            elif now - slot.since >= self.grace:
                self._end(address, f"it is away for {self.grace:.0f} s (haRetentionGrace)")
            elif end - slot.offset > self.most_bytes:
                self._end(
                    address,
                    f"it lacks {end - slot.offset} bytes, more than {self.most_bytes} "
                    "(haRetentionGraceBytes)",
                )
            elif not first <= slot.offset <= end:
                self._end(address, f"the log holds bytes {first} to {end}")
        files = {name: slot.offset // file_size for name, slot in self._rows.items()}
        if files != self._files and now - self._saved >= REFRESH:
            self._changed = True
        if self._changed:
            self._files = files
            self.flush()

    def rows(self, end: int) -> list[dict[str, Any]]:
        """
        C{retentionSlots} of C{/status}.
        """
        return [
            {
                "address": address,
                "connected": slot.since is None,
                "offset": slot.offset,
                "bytes": max(0, end - slot.offset),
                "since": _millis(slot.since_wall),
                "until": _millis(slot.since_wall and slot.since_wall + self.grace),
            }
            for address, slot in sorted(self._rows.items())
        ]


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)
