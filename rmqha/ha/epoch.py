"""Which life of the log this is, and how far each replica was brought in it.

A master that lost the tail of its log (power cut) and grows again has other bytes at
the same offsets than the slave that still holds the old tail.  Equal offsets then say
nothing.  The epoch draws the line: what lies below its C{start} is the history
all replicas share, what lies above was written in it, and a slave can only have it if
we sent it (L{rmqha.ha.master.ledger}, marks).  A slave that serves others has the same, with
"written" meaning "fetched".

B{When it goes on.}  After a clean stop the file says so, with the end of the log and a
CRC of its last bytes.  If the log is still exactly that, no other process wrote it, and
start and marks go on: otherwise a slave that was ahead would be proven by a mere
restart of its master.  In every other case (a kill, a power cut, a Java broker, a
replication or a cut that moved the end, a slave that becomes a master) a new
epoch begins at the recovered end.  After a kill that forgives a slave that was
ahead of the epoch before, and that was not seen since; marks that are stale by some
frames would instead refuse every good slave.

The C{id} is new in each run, for logs and status.

B{A log seeded by hand.}  A slave whose store was copied from the stopped master is
above the start and has no mark: unproven.  A slave of ours then compares from further
back and is proven by that; for a stock one there is C{haAcceptUnproven=true}.

The file is written when serving begins and when it ends, never between.

Source: docs/architecture.rst, The epoch.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from attrs import define
from twisted.logger import Logger

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.log_writer import EPOCH_FILE, EpochFile, read_epoch
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.tail_crc import tail_crc


@define(kw_only=True, eq=False)
class Epoch:
    """One run's part of a life of the log.

    @ivar path: Where it is kept.
    @ivar master: Whether our own writes make the log grow.
    @ivar id: Of this run.
    @ivar start: Physical offset at which this life of the log began.
    @ivar marks: Highest offset sent to each address in the runs before this one; once it is
        closed, in this one too.
    @ivar continued: Whether an earlier run's was taken up.
    """

    path: Path
    master: bool
    id: str
    start: int
    marks: dict[str, int]
    continued: bool

    _log = Logger()

    @classmethod
    def begin(cls, root: Path, log: LogReader, *, master: bool = True) -> Epoch:
        """Begin a run, and write that down.

        @param root: The store's root.
        @param log: The recovered log, before anything is written to it.
        @raise DiskFull: If there is no room.
        """
        self = cls.next_of(root, log, master=master)
        self.save(log)
        return self

    @classmethod
    def next_of(cls, root: Path, log: LogReader, *, master: bool) -> Epoch:
        """The epoch of a run that begins: take the earlier one up, or start a new one.  It counts
        once it is saved: before that nothing may be written to the log, nor sent.

        @param root: The store's root.
        @param log: The recovered log, before anything is written to it.
        """
        path = root / EPOCH_FILE
        start, marks, continued = log.confirmed, dict[str, int](), False
        known = cls._closed(root, log, master=master)
        if known is not None:
            start, marks, continued = known.start, known.marks, True
        self = cls(
            path=path, master=master, id=uuid4().hex, start=start, marks=marks, continued=continued
        )
        self._log.info(
            "Log epoch {id} {kind} byte {start}; the log ends at byte {end}",
            id=self.id,
            kind="continues from" if continued else "begins at",
            start=start,
            end=log.confirmed,
        )
        return self

    def save(self, log: LogReader) -> None:
        """Write down that the run has begun; durable on return.

        @raise DiskFull: If there is no room.
        """
        self._save(log, closed=False)

    @classmethod
    def goes_on(cls, root: Path, log: LogReader, *, master: bool = True) -> bool:
        """Whether a run that begins now would take an earlier epoch up."""
        return cls._closed(root, log, master=master) is not None

    def close(self, log: LogReader, marks: dict[str, int]) -> None:
        """End the run cleanly.  Nothing may be written to the log, nor sent, after this.

        @param marks: All there are now.
        """
        self.marks = marks
        self._save(log, closed=True)

    def _save(self, log: LogReader, *, closed: bool) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        json_table.replace(
            self.path,
            {
                "id": self.id,
                "master": self.master,
                "start": self.start,
                "closed": closed,
                "end": log.confirmed,
                "crc": tail_crc(log, log.confirmed),
                "marks": self.marks,
            },
        )

    @classmethod
    def _closed(cls, root: Path, log: LogReader, *, master: bool) -> EpochFile | None:
        """What the file says, if its run ended cleanly and the log is still what it was then."""
        known = cls._load(root)
        if (
            known is not None
            and known.closed
            and known.master is master
            and known.end == log.confirmed
            and known.crc == tail_crc(log, log.confirmed)
        ):
            return known
        return None

    @classmethod
    def _load(cls, root: Path) -> EpochFile | None:
        """What the file says, if it says anything sound."""
        try:
            return read_epoch(root)
        except TableUnreadable as error:
            cls._log.warn("Cannot read the log's epoch, starting a new one: {error}", error=error)
            return None
