"""A record that comes damaged from the master: wait, ask again, copy it as it is, or stop.

A replica is to have its master's bytes, and an empty slave all of them, so one record whose body
a disk has lost years ago must not keep it from the rest.  But what is damaged on the way, or in
the memory of a master that has just written it, must not be taken for the master's log; and no
write may be acknowledged for a record that nobody could check.  So a record is copied only if

  - its structure is whole, and only the CRC of its body is wrong: the next record is found behind
    it, and queues and index get of it what the master's have;
  - it came with the same bytes over two connections;
  - it is older than any write that still waits: it lay below the end that the master had told, or
    was seen itself, at least L{SETTLED} seconds ago.

Everything else stops the slave, as before.

Source: docs/states.rst, Damaged records from the master.
"""

from __future__ import annotations

from collections import deque

from attrs import define, field, frozen
from twisted.logger import Logger

from rmqha.config.ha_settings import BadRecordPolicy, HASettings
from rmqha.errors import RecordCorrupt
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.log.copied_damage import MOST, CopiedRecord, crc_of
from rmqha.wire.log.record import Fault

SETTLED = 6.0
"""Seconds after which no write waits any longer, at least: a stock master's patience is 5.  With a
longer C{slaveTimeout} it is twice that."""

MOST_ENDS = 64
"""Ends of the master's log that are remembered until they have settled."""


@frozen
class SuspectRecord:
    """A damaged record that came once.

    @ivar offset: Physical offset.
    @ivar crc: CRC-32 of all its bytes.
    @ivar connection: Over which connection it came.
    """

    offset: int
    crc: int
    connection: object


@define(eq=False)
class MasterDamage:
    """What one slave knows of its master's damaged records."""

    settings: HASettings
    port: MasterClientPort
    _suspect: SuspectRecord | None = field(default=None, init=False)
    _settled: int = field(default=0, init=False)
    _ends: deque[tuple[float, int]] = field(factory=deque, init=False)

    _log = Logger()

    @property
    def settles_after(self) -> float:
        """Seconds for which a write may wait, or a little more."""
        return max(SETTLED, 2 * self.settings.slave_timeout)

    def on_end(self, end: int) -> None:
        """The master's log reaches up to C{end} now."""
        self._settle()
        if end > max(self._settled, self._ends[-1][1] if self._ends else 0):
            if len(self._ends) >= MOST_ENDS:
                self._ends.pop()  # the later one says more
            self._ends.append((self.port.clock.seconds(), end))

    def _settle(self) -> None:
        now = self.port.clock.seconds()
        while self._ends and now - self._ends[0][0] >= self.settles_after:
            self._settled = max(self._settled, self._ends.popleft()[1])

    def copies(self, log: CommitLog, error: RecordCorrupt, connection: object) -> bool:
        """Decide about a bad record at the log's confirmed end.

        @param connection: Over which connection it came.
        @return: Whether it may pass: the log knows it then, and can be checked again.
        """
        if self.settings.bad_record is BadRecordPolicy.STOP or len(log.copied) >= MOST:
            return False
        if error.reason != Fault.CRC.value or error.offset != log.confirmed:
            return False
        size = int.from_bytes(log.read(error.offset, 4), "big")
        crc, end = crc_of(log.read(error.offset, size)), error.offset + size
        before = self._suspect
        if before is None or (before.offset, before.crc) != (error.offset, crc):
            self._suspect = SuspectRecord(error.offset, crc, connection)
            self.on_end(end)
            return False
        self._settle()
        if before.connection is connection or end > self._settled:
            return False
        self._suspect = None
        record = CopiedRecord(
            offset=error.offset, size=size, crc=crc, reason=error.reason, master=self.port.peer
        )
        log.copied.add(record)
        self._log.error(
            "Copied a damaged record as it is on the master {master}: byte {offset}, {size} bytes: "
            '{reason}; docs/states.rst ("Damaged records from the master") says what to do',
            master=self.port.peer,
            offset=record.offset,
            size=record.size,
            reason=record.reason,
        )
        return True

    def pending(self, log: CommitLog) -> bool:
        """Whether the record at the log's confirmed end is one that may pass when it has come
        again, or is old enough.
        """
        return self._suspect is not None and self._suspect.offset == log.confirmed

    def advice(self, log: CommitLog, error: RecordCorrupt) -> str:
        """What comes next, for the reason of the state."""
        if self.settings.bad_record is BadRecordPolicy.STOP:
            return "haBadRecordPolicy=stop"
        if len(log.copied) >= MOST:
            return f"{MOST} damaged records of this master were copied, and no more are"
        if error.reason != Fault.CRC.value:
            return "it cannot be followed from there: the master's log has to be repaired"
        return f"asking again; copied as it is if it stays the same for {self.settles_after:g} s"
