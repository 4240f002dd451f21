"""A set's members, as their master hears them: HA protocol v2 on one connection, and whether a
member's log is ours.

A slave says who it is, is answered with the labels of our log, and reports then.  One handshake is
answered; half of one waits; what came before our answer was no answer to it.  What it is sent is
cut where files and labels end, and has in each frame the label it lies under and the confirm
offset.  One whose log is doubted is told no label.  One that began with our log's first byte is
asked who it is before what it reports could bring it into the set, and a stock slave once more
when it reports bytes under our newest label: they count when it took that label over, else it would
cut them off again.

The labels of both logs tell whether a member's is ours up to where it reports.  Our log is the
chain of the elected masters', each filed under its epoch.  So a member that has one of these labels
from the same start holds the same bytes under it, up to a tail of its own; it has cut that off if
it ends no later than the two logs surely are one.  A member without labels cuts nothing.

The client port is asked that the controllers list, and the connection may be anybody's: so a member
of ours repeats on it a token that came with the question.  Before it has, nothing counts.

B{It is asked before it is sent anything}, and again when it has the first bytes under our newest
label, if it had less before: a stock slave may not have taken that label over, and then cuts these
bytes off when it connects the next time.  One that cannot be asked is not fed.  One whose log
is not proven is fed, does not count, and B{is told no label of ours}: a label would prove its log
wrongly the next time, to us or to whoever leads then.  So nobody has to remember who is doubted:
it is as little proven the next time, until it has begun anew with no byte.  A learner is judged as
well, as far as it is a member: it may count one day.

Source: docs/protocol/controller.rst, What a master tells and Who is fed and who counts.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Protocol

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.controller.epoch_labels import consistent_point
from rmqha.controller.other_members import MemberLabels
from rmqha.errors import HandshakeRejected, RmqhaError
from rmqha.ha.elected.labelled_log import NO_LABEL, LabelledLog
from rmqha.ha.elected.roster import Roster
from rmqha.ha.master.connection import MasterProtocol
from rmqha.ha.master.ledger import Claim
from rmqha.logfiles.reader import LogReader
from rmqha.wire.ha_v2 import (
    LEARNER_ID,
    REPORT,
    TOKEN_BITS,
    TRANSFER,
    TRANSFER_HEADER,
    SlaveHandshake,
    SlaveMessages,
    Token,
    encode_answer,
)

NO_FILE = -1
"""The offset of a heartbeat while the master has no log file."""

ANYTHING = 1 << 63
"""Beyond all reports."""

PATIENCE = 10.0
"""Seconds that a member has to tell its labels, before its connection is closed."""

ASKING = "its epoch labels are not known yet"
"""Why a member does not count that has not told them."""

LAST_FILE = "it takes the last file of the log only"
"""Why a member does not count whose copy would begin in the middle of the log."""

_REPORT = REPORT.size
_pack_header = TRANSFER_HEADER.pack


class Leader(Protocol):
    """The master of a set, as the connections of its members know it.

    @ivar labelled: Our log, as members are told of it.
    @ivar proofs: Whose logs are known to be ours.
    """

    labelled: LabelledLog
    proofs: Proofs

    @property
    def confirm(self) -> int:
        """Below it every member of the SyncStateSet holds the log."""

    def hear(self, dialect: MemberDialect, said: SlaveHandshake) -> None:
        """Somebody says who it is.

        @raise HandshakeRejected: If it may not be one at all.
        """

    def began(self, dialect: MemberDialect) -> None:
        """A slave's first report was taken."""

    def lost(self, dialect: MemberDialect) -> None:
        """A connection is given up."""


class MemberDialect:
    """How one connection is spoken with, and what is known of who speaks.

    @ivar said: What the slave said of itself; C{None} before its handshake.
    @ivar claim: What it may say; C{None} before its first report.
    @ivar held_back: What it has reported while it is not known what that is worth.
    @ivar confirm_told: The confirm offset of the last frame, -1 before the first.
    @ivar doubt: Why its reports do not count, in words; C{""} if they do or it has made none.
    @ivar asking: Whether it is being asked for its labels.
    @ivar compares: Whether it compares bytes, as ours do; C{None} before it was asked.
    @ivar token: What it is to repeat here when its client port is asked.
    @ivar proven: Whether it has.
    @ivar verdict: What its reports are worth once it has, as L{judged} is told; C{None} while that
        is not known.
    """

    def __init__(self, connection: MasterProtocol, master: Leader) -> None:
        self.connection = connection
        self.said: SlaveHandshake | None = None
        self.claim: Claim | None = None
        self.held_back: list[int] = []
        self.confirm_told = -1
        self.doubt = ""
        self.asking = False
        self.compares: bool | None = None
        self.token = secrets.randbits(TOKEN_BITS)
        self.proven = False
        self.verdict: str | None = None
        self._master = master
        # Reports up to here count as they are.
        self._plain = ANYTHING
        self._messages = SlaveMessages()
        self._answered = False

    @property
    def counts(self) -> bool:
        """Whether it is to be one of those that hold what was acknowledged."""
        said = self.said
        return said is not None and not (said.learner or said.from_last_file)

    @property
    def learner(self) -> bool:
        """Whether it is no member."""
        return self.said is None or self.said.learner

    @property
    def number(self) -> int:
        """The id that it has, or says that it has."""
        return LEARNER_ID if self.said is None else self.said.id

    @property
    def name(self) -> str:
        """Who it is: a member by its id, a learner by its address."""
        return f"learner {self.connection.host}" if self.learner else f"member {self.number}"

    # --- what it says -------------------------------------------------------------

    def single(self, data: bytes) -> int | None:
        """A report of twelve bytes."""
        if len(data) != _REPORT or self._messages.pending:
            return None
        state, offset = REPORT.unpack(data)
        return offset if state == TRANSFER and 0 <= offset <= self._plain else None

    def receive(self, data: bytes) -> list[int]:
        """Take reports, and a handshake before the first of them.

        @raise HandshakeRejected: If it speaks out of turn.
        @raise HaStateUnexpected: If it speaks another protocol.
        """
        reports: list[int] = []
        answered = self._answered
        for message in self._messages.receive(data):
            if not isinstance(message, SlaveHandshake):
                if self.said is None:
                    raise HandshakeRejected("no-handshake", None)
                if not answered:
                    raise HandshakeRejected("early-report", self.said.id)
                if isinstance(message, Token):
                    self._master.proofs.repeated(self, message)
                else:
                    reports.append(message.offset)
            elif reports or self.held_back or self.claim is not None:
                raise HandshakeRejected("late-handshake", message.id)
            elif self.said is None:
                self._master.hear(self, message)
        if reports and self.claim is None:
            self.held_back += reports
            if not self._master.proofs.known(self, self.held_back[0]):
                return []
            reports, self.held_back = self.held_back, []
        elif reports and self.claim is not None and self._plain < max(reports) <= self.claim.sent:
            self.held_back = reports[-1:]
            self._master.proofs.labelled(self, max(reports))
            return []
        return reports

    def judged(self, doubt: str) -> None:
        """It is known what its reports are worth: it is fed from now on, or it counts on.

        @param doubt: Why they do not count, in words; C{""} if they do.
        """
        self.asking = False
        if doubt and self.claim is not None:
            self.refuse("label-not-taken", doubt)
            return
        self.doubt = doubt
        if self.claim is not None:
            start, below = self._master.labelled.newest_start, self.compares is False
            self._plain = start if below and max(self.held_back) <= start else ANYTHING
        reports, self.held_back = self.held_back, []
        self.connection.take(reports)

    def refuse(self, reason: str, what: str) -> None:
        """Give the connection up.

        @param reason: One word, for the counters.
        """
        self.connection.close(reason, HandshakeRejected(reason, self.number, what))

    def answer(self) -> None:
        """Answer its handshake."""
        self._answered = True
        self.connection.transport.write(
            encode_answer(self.connection.factory.limit(), self._master.labelled.labels)
        )

    def first(self, claim: Claim, offset: int) -> int:
        """Take the first report."""
        claim.identity = claim.host = self.name
        origin = claim.first(self._wanted(offset))
        self.claim = claim
        claim.doubt()
        labelled = self._master.labelled
        known = self.compares or self.doubt or not self.counts
        if not known:
            # It may enter the set once it has all below the newest label.
            self._plain = max(offset, labelled.newest_start - 1)
        self._master.began(self)
        if self.compares is False and labelled.begins(origin):
            self.connection.heartbeat()
        return origin

    def _wanted(self, offset: int) -> int:
        """From where it is to be sent, by its first report."""
        log, said = self.connection.factory.log, self.said
        if offset == 0 and said is not None and said.from_last_file:
            offset = max(log.min_offset, log.confirmed - log.confirmed % log.file_size)
        return offset

    # --- what it is told ------------------------------------------------------------

    def header(self, offset: int, size: int) -> bytes:
        """What stands before a piece of the log, or is a heartbeat."""
        master = self._master
        self.confirm_told = confirm = master.confirm
        if self.doubt:
            label = NO_LABEL
        elif size:
            label = master.labelled.of_byte(offset)
        else:
            label = master.labelled.before(offset)
        if not self.connection.factory.log.end:
            offset = NO_FILE
        return _pack_header(TRANSFER, size, offset, label.label, label.start, confirm)

    def frame_end(self, position: int, stop: int) -> int:
        """Where the next label starts, at most."""
        return self._master.labelled.piece_end(position, stop)

    def ended(self) -> None:
        """The connection is given up."""
        self._master.lost(self)

    def status(self) -> dict[str, Any]:
        """A row of the members in C{/status}."""
        claim = self.claim
        return {
            "id": self.number,
            "address": self.connection.peer,
            "learner": self.learner,
            "counts": claim is not None and claim.trusted,
            "doubt": self.doubt,
            "acked": claim.acked if claim is not None else None,
        }


@define(eq=False, kw_only=True)
class Proofs:
    """What is known of the members' logs.

    @ivar ours: Our log, as members are told of it.
    @ivar log: The same.
    @ivar labels_of: Asks a member, by C{host:port} of its client port, and to repeat a token on its
        connection.
    @ivar roster: Knows where that is.
    @ivar accept: Whether a log counts that is not proven (C{haAcceptUnproven}).
    """

    ours: LabelledLog
    log: LogReader
    labels_of: Callable[[str, int], Deferred[MemberLabels]]
    roster: Roster
    clock: IReactorTime
    accept: bool = False
    # Who is being asked, and since when.
    _asked: dict[MemberDialect, float] = field(factory=dict, init=False)

    _log = Logger()

    def known(self, dialect: MemberDialect, report: int) -> bool:
        """Say whether it is known what a slave's reports are worth.  If it is not, it is asked, and
        L{MemberDialect.judged} is told.

        @param report: Its first report.
        """
        if dialect in self._asked:
            return False
        said = dialect.said
        if said is not None and said.from_last_file:
            dialect.doubt = LAST_FILE
        elif dialect.number == LEARNER_ID or report in (0, self.log.min_offset):
            # It is no member, and never counts; or what it had before is not there any more, or is
            # compared with what it is sent.
            pass
        elif not self.log.min_offset < report <= self.log.confirmed:
            dialect.doubt = "it is outside our log"
        else:
            dialect.doubt = ASKING
            self.labelled(dialect, report)
            return False
        return True

    def labelled(self, dialect: MemberDialect, report: int) -> None:
        """Ask a slave for its labels, unless that is being done, and tell L{MemberDialect.judged}
        whether they prove a report.
        """
        if dialect not in self._asked:
            self._asked[dialect] = self.clock.seconds()
            self._ask(dialect, report)

    def lost(self, dialect: MemberDialect) -> None:
        """A slave's connection is given up."""
        self._asked.pop(dialect, None)

    def repeated(self, dialect: MemberDialect, token: Token) -> None:
        """A token came over a slave's connection; one of an earlier connection proves nothing."""
        if token.number != dialect.token:
            return
        dialect.proven = True
        if dialect in self._asked and dialect.verdict is not None:
            self._judge(dialect, dialect.verdict)

    def look(self) -> None:
        """Time has passed: ask again those that could not be asked, wherever they are by now."""
        now = self.clock.seconds()
        for dialect, since in list(self._asked.items()):
            if now - since >= PATIENCE and dialect.learner:
                self._judge(dialect, dialect.doubt)
            elif now - since >= PATIENCE and dialect.verdict is not None:
                dialect.refuse("not-its-connection", "no token came over this connection")
            elif now - since >= PATIENCE:
                dialect.refuse("no-labels", dialect.doubt or ASKING)
            else:
                self.roster.refreshed().addCallback(self._ask_again, dialect)

    def _ask_again(self, _: None, dialect: MemberDialect) -> None:
        if dialect in self._asked and not dialect.asking:
            self._ask(dialect, dialect.held_back[0])

    def _ask(self, dialect: MemberDialect, report: int) -> None:
        dialect.asking = True
        address = self.roster.addresses.get(dialect.number, "")
        self.labels_of(address, dialect.token).addCallbacks(
            self._told, self._not_told, callbackArgs=(dialect, report), errbackArgs=(dialect,)
        ).addErrback(self._surprise)

    def _told(self, theirs: MemberLabels, dialect: MemberDialect, report: int) -> None:
        if dialect not in self._asked:
            return
        dialect.asking, dialect.compares = False, theirs.compares
        why = self._what_is_wrong(theirs, report)
        if dialect.learner or dialect.proven or theirs.token_told is None:
            self._judge(dialect, why)
        elif theirs.token_told:
            dialect.verdict = why
        else:
            dialect.refuse("not-its-connection", "it has none to us")

    def _not_told(self, failure: Failure, dialect: MemberDialect) -> None:
        dialect.asking = False
        if not failure.check(RmqhaError, ConnectionLost, ConnectionDone):
            self._surprise(failure)
        if dialect.claim is None:
            dialect.doubt = f"{ASKING}: {failure.getErrorMessage()}"
        if self.accept and dialect in self._asked:
            self._judge(dialect, dialect.doubt or ASKING)

    def _what_is_wrong(self, theirs: MemberLabels, report: int) -> str:
        """Why a log that ends at C{report} may not be ours; C{""} if it is."""
        if theirs.compares:
            # By labels it says where it begins to compare, and no more.
            return ""
        point = consistent_point(self.ours.labels, self.log.confirmed, theirs.labels, theirs.end)
        if point is not None and report <= point:
            return ""
        if not theirs.labels:
            return f"its log of {report} bytes has no epoch labels"
        if point is None:
            return "no epoch label of its log is one of ours"
        return f"its log ends at {report}, and is ours up to {point} only by its epoch labels"

    def _judge(self, dialect: MemberDialect, why: str) -> None:
        number = dialect.number
        dialect.verdict = None
        del self._asked[dialect]
        if why and self.accept:
            self._log.warn(
                "Member {number} counts although {why} (haAcceptUnproven)", number=number, why=why
            )
            why = ""
        elif why and dialect.claim is None:
            self._log.warn(
                "Member {number} is fed and does not count: {why}. Empty its store, or set "
                "haAcceptUnproven",
                number=number,
                why=why,
            )
        dialect.judged(why)

    def _surprise(self, failure: Failure) -> None:
        self._log.failure("Asking a member for its epoch labels failed", failure)
