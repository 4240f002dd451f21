"""How far the messages of each delay level, and timer messages, are delivered:
C{config/delayOffset.json}.

An offset says that copies of all messages below it are in the log.  On a disk, or on a slave, it
may say so only when that much of the log is there as well: else a power cut, or a master lost
before its slave had the copies, would lose messages that waited in safety.  So offsets that go
there are a claim first, and count when the log is durable up to where it ended when they were
taken.  In a set whose master is elected they count when the set has that much, too: what it has not
may be cut off, and the copies with it.  The file says where the log had to end; where it ends
before that, or nobody says it, the copies are looked for.

Source: docs/protocol/remoting.md, Delayed messages.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.broker.tables.persisted import Persisted
from rmqha.periodic import NodePart
from rmqha.store.derived.clamp_offsets import levels_inside
from rmqha.store.derived.lookup import Lookup
from rmqha.store.files.allocate import InThread
from rmqha.store.store import Store
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.offsets import DelayOffsets, TimerProgress
from rmqha.wire.remoting.json_body import from_json
from rmqha.wire.store_layout import DELAY_OFFSETS

INTERVAL = 1.0
"""Most seconds from a delivery to its offset's being claimed, and as many again until it is
written: what was delivered so shortly before a crash is delivered again."""


@frozen
class _Claim:
    """Offsets that count once the log is durable up to C{needs}, a physical offset; C{None} if
    nobody says which.
    """

    needs: int | None
    offsets: dict[int, int]
    timers: TimerProgress | None


class LevelOffsets(NodePart):
    """The table of offsets, in messages, by delay level (from 1).

    @ivar timers: How far timer messages are, durably; C{None} if nobody says.
    @ivar timing: Tells how far they are now.
    """

    timers: TimerProgress | None = None

    _log = Logger()

    def __init__(
        self,
        tables: CheckedTables,
        store: Store,
        lookup: Lookup,
        clock: IReactorTime,
        in_thread: InThread,
    ) -> None:
        """@param tables: The store's.
        @param store: It is open.
        @param lookup: Finds the copies in its log.
        """
        self._store, self._lookup = store, lookup
        path = tables.path(DELAY_OFFSETS)
        self.file = Persisted(path, self._counting, clock, in_thread, INTERVAL, tables=tables)
        self._rest = DelayOffsets()
        self._now: dict[int, int] = {}
        self._durable: dict[int, int] = {}
        self._claim: _Claim | None = None
        self.timing: Callable[[], TimerProgress | None] = lambda: self.timers
        # Where the log has to end for what is durable; C{None} if that is not known.
        self._log_end: int | None = 0

    def load(self) -> None:
        """Read the file.  No offset is further than its queue: that lost its end in a crash, or
        because the log was cut, and other messages come to those places.  A member's that is not
        master may lack what the set has not confirmed: it is looked at again when it leads.  Nor
        is one further than the copies in a log that is not surely as long as it has to be.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If there is a file, and it makes no sense.
        @raise BodyInvalid: If it is no table of offsets.
        """
        found = self.file.load()
        table = DelayOffsets() if found is None else from_json(DelayOffsets, found)
        self._rest = table.at(None, {})
        self._now = {level: max(0, offset) for level, offset in table.offset_table.items()}
        store = self._store
        for moved in levels_inside(self._lookup, table):
            self._now[moved.queue_id + 1] = moved.after
            self._log.warn("Moved an offset that the log does not bear out: {moved}", moved=moved)
        end = store.log.confirmed
        self._log_end = table.log_end if table.holds(end) else end
        self.timers = table.timers if table.holds(end) else None
        # Where the disk is full rather twice than not at all.
        if store.knows_ends or store.dispatcher.limit is None:
            for level, offset in self._now.items():
                self._now[level] = min(offset, store.next_offset(SCHEDULE_TOPIC, level - 1))
        self._durable = dict(self._now)
        if self._now != table.offset_table or self._log_end != table.log_end:
            self.file.dirty()
        self._store.log.flush_listeners.append(self._settle)

    def get(self, level: int) -> int:
        """The first message of a level that is not delivered."""
        return self._now.get(level, 0)

    def delivered(self, level: int, offset: int) -> None:
        """All messages of a level below an offset are delivered, or gone."""
        self._now[level] = offset
        self.file.dirty()

    def adopt(self, table: DelayOffsets) -> None:
        """Take over where a master is further, as soon as its copies are here.

        @param table: Its answer to request 45.  A stock master does not say how far the log must
            be; its word is taken at once.
        """
        claim = _Claim(table.log_end, dict(table.offset_table), table.timers)
        self._settle()
        if self._claim is None or (claim.needs or 0) <= (self._claim.needs or 0):
            # A later one may never come true while the log goes on growing there.
            self._claim = claim
            self._ask()

    def table(self) -> DelayOffsets:
        """What request 45 is answered."""
        return self._rest.at(self._store.log.confirmed, dict(self._now), self.timing())

    def stop(self) -> Deferred[None]:
        """Write the file; the log is durable.

        @return: Fires when that is done, well or not.
        """
        if self._settle in self._store.log.flush_listeners:
            self._store.log.flush_listeners.remove(self._settle)
        return self.file.stop()

    def _ask(self) -> None:
        """Let the claim count, now or after a flush."""
        self._settle()
        if self._claim is not None:
            self._store.flusher.nudge()

    def _settle(self) -> None:
        """Let the claim count if the log is far enough."""
        claim, far, limit = self._claim, self._store.log.flushed, self._store.dispatcher.limit
        if claim is None or min(far, far if limit is None else limit) < (claim.needs or 0):
            return
        self._claim = None
        if claim.timers not in (None, self.timers):
            self.timers = claim.timers
            self._log_end = _later(self._log_end, claim.needs)
            self.file.dirty()
        for level, offset in claim.offsets.items():
            self._now[level] = max(offset, self._now.get(level, 0))
            if offset > self._durable.get(level, -1):
                self._durable[level] = offset
                self._log_end = _later(self._log_end, claim.needs)
                self.file.dirty()

    def _counting(self) -> DelayOffsets:
        """The table as it may be written now."""
        self._settle()
        timers = self.timing()
        if self._claim is None and (self._durable, self.timers) != (self._now, timers):
            self._claim = _Claim(self._store.log.confirmed, dict(self._now), timers)
        self._ask()
        if (self._durable, self.timers) != (self._now, timers):
            self.file.dirty()
        return self._rest.at(self._log_end, dict(self._durable), self.timers)


def _later(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)
