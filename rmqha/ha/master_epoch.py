"""The master epoch: a number that says which of two masters of one C{brokerName} is the later one.

Two masters of one log can both be sound, answer, and take writes; their files do not tell which
of them an operator wanted.  So each log has a number, which C{rmqha promote} raises, and whoever
meets two masters believes the one with the higher number: name servers, slaves, and the other
master, which takes no more writes then.  A store that was never promoted has 0, and so counts a
stock broker, which tells none.

B{The number never goes down}, whatever is cut off the log: it speaks of decisions, not of bytes.
Beside it is a journal of which bytes were written in which epoch, C{(epoch, start)} for each, as
RocketMQ 5 keeps it in C{epochFileCheckpoint}.  A slave has its master's journal, as far as its
log goes, and so knows the number that a promotion has to exceed.

B{A higher one} that this store's master has met is remembered, so that a restart does not make
it forget that it is not the master any more.

It is no part of C{epoch.json} (L{rmqha.ha.epoch}), which is believed only while the log is what
it was, and is there only where a log is served.

Source: docs/architecture.rst, The master epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self
from uuid import uuid4

from attrs import Factory, define, evolve, field, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import DiskFull, Refused, TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.typed_table import Natural, Rows, structured, value_of
from rmqha.net.group_commit import GroupCommit
from rmqha.wire.store_layout import MASTER_EPOCHS, OWN_FOLDER

MOST_STARTS = 1024
"""Entries of the journal that are kept, the newest; one is 50 bytes, and a promotion or an election
makes one."""

UNKNOWN = -1
"""Who wrote an entry's bytes, where nobody told."""

NEVER_ELECTED = 0
"""The master epoch, as controllers count it, of a master that nobody elects."""

LARGEST = (1 << 31) - 1
"""RocketMQ's master epoch has 32 bits."""

MasterEpoch = Annotated[int, range(LARGEST + 1)]
"""What a file may say one is."""


@frozen
class EpochStart:
    """One entry of the journal.

    @ivar epoch: The master epoch.
    @ivar start: Physical offset of the first byte written in it.
    @ivar writer: The controller id of its master, where one was elected.
    @ivar label: What its master calls it; another number than the epoch's where a stock master had
        nothing to call it by (docs/protocol/controller.rst, Epoch file).
    """

    epoch: MasterEpoch
    start: Natural
    writer: Annotated[int, range(UNKNOWN, 1 << 63)] = UNKNOWN
    label: MasterEpoch = field(default=Factory(lambda self: self.epoch, takes_self=True))

    def row(self) -> json_table.Table:
        """What a store keeps of it."""
        row: json_table.Table = {"epoch": self.epoch, "start": self.start}
        if self.writer != UNKNOWN:
            row["writer"] = self.writer
        if self.label != self.epoch:
            row["label"] = self.label
        return row


@frozen
class HigherMaster:
    """A master with a higher epoch than ours.

    @ivar address: C{host:port} of its client port.
    @ivar told_by: Who told of it, in words.
    """

    epoch: int
    address: str
    told_by: str

    def __str__(self) -> str:
        return f"{self.address} is a master with epoch {self.epoch} ({self.told_by})"


@frozen(kw_only=True)
class EpochJournal:
    """What a store knows of master epochs.

    @ivar number: The master epoch of this log: of its own master, or of the one it follows.
    @ivar starts: Where epochs began, ascending; none for a log that was never promoted.
    @ivar higher: A master with a higher epoch that this one has met.
    @ivar reset: Which L{BEFORE_RESET<rmqha.wire.store_layout.BEFORE_RESET>} folder has the journal
        that was here, of a log that left its set and has no epoch since; 0 for none.
    """

    number: int = 0
    starts: tuple[EpochStart, ...] = ()
    higher: HigherMaster | None = None
    reset: int = 0

    _log = Logger()

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read a store's.  Blocking.

        @param root: The store's root.
        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If there is one and it makes no sense: a master that takes itself
            for an older one is harmless, one that takes itself for a newer one is not.
        """
        path = path_of(root)
        found = json_table.read_generation(path)
        if found.table is None:
            return cls()
        if found.fault:
            cls._log.warn(
                "{path} cannot be read ({fault}): the master epoch is taken from the generation "
                "before it, {path}.bak, and may be lower than it was",
                path=path,
                fault=found.fault,
            )
        try:
            return cls._of(found.table)
        except ValueError as error:
            raise TableUnreadable(
                str(path), f"it is no journal of master epochs: {error}"
            ) from None

    @classmethod
    def _of(cls, table: json_table.Table) -> Self:
        known = {"higher": None, "reset": 0, **table}
        higher = None
        if known["higher"] is not None:
            places = {"epoch": MasterEpoch, "address": str, "toldBy": str}
            higher = HigherMaster(*(value_of(known, f"higher.{at}", places[at]) for at in places))
        return cls(
            number=value_of(known, "number", MasterEpoch),
            starts=checked(
                structured(
                    {"writer": UNKNOWN, "label": row.get("epoch"), **row}, EpochStart, f"starts.{n}"
                )
                for n, row in enumerate(value_of(known, "starts", Rows))
            ),
            higher=higher,
            reset=value_of(known, "reset", MasterEpoch),
        )

    def write(self, root: Path) -> None:
        """Make it the store's; durable on return.  Blocking.

        @raise DiskFull: If there is no room.
        """
        path = path_of(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        higher = self.higher
        table: json_table.Table = {
            "number": self.number,
            "starts": [one.row() for one in self.starts],
            "higher": None
            if higher is None
            else {"epoch": higher.epoch, "address": higher.address, "toldBy": higher.told_by},
        }
        if self.reset:
            table["reset"] = self.reset
        json_table.replace(path, table)

    # --- what becomes of it -------------------------------------------------------

    @property
    def fenced_by(self) -> HigherMaster | None:
        """Why a master of this store takes no writes, if it takes none."""
        higher = self.higher
        return higher if higher is not None and higher.epoch > self.number else None

    @property
    def next_number(self) -> int:
        """What a promotion makes the number: above all that is known here."""
        return max(self.number, self.higher.epoch if self.higher is not None else 0) + 1

    def raised(self, end: int, to: int | None = None) -> EpochJournal:
        """A promotion: the next byte is the first of a new epoch.

        @param end: Where the log ends.
        @param to: Its number, at least L{next_number}, which it is by default.
        @raise Refused: If that is too low, or more than RocketMQ's numbers hold.
        """
        number = self.next_number if to is None else to
        if not self.next_number <= number <= LARGEST:
            raise Refused(
                "promotion",
                f"master epoch {number} is not between {self.next_number} and {LARGEST}",
            )
        return EpochJournal(number=number, starts=_continued(self.starts, EpochStart(number, end)))

    def followed(self, number: int, starts: tuple[EpochStart, ...]) -> EpochJournal:
        """A slave's log was proven to be the master's: so are its epochs, those too that begin
        behind our end.

        @param number: The master's.
        @param starts: The master's journal.
        """
        higher = self.higher
        if higher is not None and higher.epoch <= number:
            higher = None
        return EpochJournal(number=number, starts=starts[-MOST_STARTS:], higher=higher)

    def led(self, number: int, end: int, writer: int) -> EpochJournal:
        """We were elected: the next byte is the first of a new epoch.

        @param number: The master epoch, above all that are known here.
        @param end: Where the log ends.
        @param writer: Our controller id.
        """
        begun = EpochStart(number, end, writer)
        return EpochJournal(number=number, starts=_continued(self.starts, begun))

    def met(self, higher: HigherMaster) -> EpochJournal:
        """There is a higher one; of several the highest counts."""
        if self.higher is not None and self.higher.epoch >= higher.epoch:
            return self
        return evolve(self, higher=higher)

    def cut(self, at: int) -> EpochJournal:
        """The log was cut, or was found to end, at C{at}: what began behind is not there any
        more.
        """
        return evolve(self, starts=tuple(one for one in self.starts if one.start <= at))

    # --- as text ------------------------------------------------------------------

    def text(self) -> str:
        """The journal in one line, C{1-0,2-66215}: what lines of RocketMQ's file say."""
        return ",".join(f"{one.epoch}-{one.start}" for one in self.starts)


def path_of(root: Path) -> Path:
    """Where a store keeps its journal."""
    return root / OWN_FOLDER / MASTER_EPOCHS


def parse(text: str) -> tuple[EpochStart, ...]:
    """Read what L{EpochJournal.text} made.

    @raise ValueError: If it is something else.
    """
    rows = [row.split("-") for row in text.split(",")] if text else []
    if any(len(row) != 2 or not all(part.isdecimal() for part in row) for row in rows):
        raise ValueError("not a list of epoch-start")
    return checked(
        EpochStart(structured(int(epoch), MasterEpoch), structured(int(start), Natural))
        for epoch, start in rows
    )


def checked(starts: Iterable[EpochStart]) -> tuple[EpochStart, ...]:
    """Epochs ascend and their starts do not descend.

    @raise ValueError: If they do not, or there are too many.
    """
    found = tuple(starts)
    if len(found) > MOST_STARTS:
        raise ValueError(f"{len(found)} epochs, at most {MOST_STARTS} are kept")
    for one, other in pairwise(found):
        if other.epoch <= one.epoch or other.start < one.start:
            raise ValueError(f"epoch {other.epoch} at {other.start} follows {one.epoch}")
    return found


def _continued(starts: tuple[EpochStart, ...], new: EpochStart) -> tuple[EpochStart, ...]:
    """The journal with one entry more; it takes the place of one without bytes."""
    before = tuple(one for one in starts if one.start < new.start)
    return (*before, new)[-MOST_STARTS:]


def unwritten(failure: Failure, log: Logger, what: str) -> None:
    """Say that something was not written which a restart needs."""
    if failure.check(DiskFull, OSError):
        log.error(
            "Cannot write {what}, a restart may not know it: {error}",
            what=what,
            error=failure.getErrorMessage(),
        )
    else:
        log.failure("Writing {what} failed", failure, what=what)


@define(eq=False)
class MasterEpochs:
    """A running node's journal: what is known at once, and durable soon.

    @ivar root: The store's root.
    @ivar journal: As it is now.
    @ivar durable: One whose entries are all on the disk; the same one while nothing is to be
        written.
    @ivar keep_file: Writes what others than we read of it; blocking.
    @ivar run_id: A name of this process, by which it recognizes itself at another address.
    """

    root: Path
    in_thread: Callable[..., Deferred[Any]]
    journal: EpochJournal = field(factory=EpochJournal)
    durable: EpochJournal = field(init=False)
    keep_file: Callable[[Path, EpochJournal], None] | None = None
    run_id: str = field(factory=lambda: uuid4().hex, init=False)
    _commits: GroupCommit = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.durable = self.journal
        self._commits = GroupCommit(self._commit)

    def _commit(self) -> Deferred[None]:
        journal = self.journal

        def written(_: None) -> None:
            self.durable = journal

        return self.in_thread(self._write, journal).addCallback(written)

    def _write(self, journal: EpochJournal) -> None:
        journal.write(self.root)
        if self.keep_file is not None:
            self.keep_file(self.root, journal)

    @property
    def number(self) -> int:
        """The master epoch."""
        return self.journal.number

    def load(self, end: int) -> None:
        """Read it, once the log is open.

        @param end: Where the log ends.
        @raise FileUnreadable: As L{EpochJournal.read} says.
        @raise TableUnreadable: As L{EpochJournal.read} says.
        """
        self.journal = self.durable = EpochJournal.read(self.root).cut(end)

    def become(self, journal: EpochJournal) -> Deferred[None]:
        """Take another journal, and write it if it is one.

        @return: Fires when it is durable, or could not be written, which is in the log.
        """
        if journal == self.journal:
            return succeed(None)
        self.journal = journal
        return self._commits.commit().addErrback(unwritten, self._log, "the master epoch")

    def keep(self, journal: EpochJournal) -> Deferred[None]:
        """Take another journal, which must be durable before anything is done by it.

        @return: Fires when it is; fails with L{DiskFull} if there is no room.
        """
        self.journal = journal
        return self._commits.commit()

    def try_again(self) -> None:
        """Write what could not be written, if there is such."""
        if self.durable is not self.journal and not self._commits.writing:
            self._commits.commit().addErrback(unwritten, self._log, "the master epoch")

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        fenced = self.journal.fenced_by
        return {
            "masterEpoch": self.number,
            "epochStarts": [[one.epoch, one.start] for one in self.journal.starts],
            "fencedBy": None
            if fenced is None
            else {"epoch": fenced.epoch, "address": fenced.address, "toldBy": fenced.told_by},
        }
