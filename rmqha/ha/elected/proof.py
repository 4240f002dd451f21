"""Whether a member's log is ours up to where it reports, as the labels of both logs tell.

Our log is the chain of the elected masters', each filed under its epoch.  So a member that has one
of these labels from the same start holds the same bytes under it, up to a tail of its own; it has
cut that off if it ends no later than the two logs surely are one.  A member without labels cuts
nothing.

The client port is asked that the controllers list, and the connection may be anybody's: so a member
of ours repeats on it a token that came with the question.  Before it has, nothing counts.

B{It is asked before it is sent anything}, and again when it has the first bytes under our newest
label, if it had less before: a stock slave may not have taken that label over, and then cuts these
bytes off when it connects the next time.  One that cannot be asked is not fed.  One whose log
is not proven is fed, does not count, and B{is told no label of ours}: a label would prove its log
wrongly the next time, to us or to whoever leads then.  So nobody has to remember who is doubted:
it is as little proven the next time, until it has begun anew with no byte.  A learner is judged as
well, as far as it is a member: it may count one day.

Source: docs/protocol/controller.rst, Who is fed and who counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.controller.epoch_labels import Labels, consistent_point
from rmqha.controller.other_members import MemberLabels
from rmqha.errors import HandshakeRejected, RmqhaError
from rmqha.ha.elected.roster import Roster
from rmqha.logfiles.reader import LogReader
from rmqha.wire.ha_v2 import LEARNER_ID, Token

if TYPE_CHECKING:
    from rmqha.ha.elected.member_dialect import MemberDialect

PATIENCE = 10.0
"""Seconds that a member has to tell its labels, before its connection is closed."""

ASKING = "its epoch labels are not known yet"
"""Why a member does not count that has not told them."""

LAST_FILE = "it takes the last file of the log only"
"""Why a member does not count whose copy would begin in the middle of the log."""


@define(eq=False, kw_only=True)
class Proofs:
    """What is known of the members' logs.

    @ivar labels: Ours.
    @ivar log: Our log.
    @ivar labels_of: Asks a member, by C{host:port} of its client port, and to repeat a token on its
        connection.
    @ivar roster: Knows where that is.
    @ivar accept: Whether a log counts that is not proven (C{haAcceptUnproven}).
    """

    labels: Labels
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
                self._refuse(dialect, "no token came over this connection")
            elif now - since >= PATIENCE:
                why = dialect.doubt or ASKING
                error = HandshakeRejected("no-labels", dialect.number, why)
                dialect.connection.close(error.reason, error)
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
            self._refuse(dialect, "it has none to us")

    def _refuse(self, dialect: MemberDialect, what: str) -> None:
        error = HandshakeRejected("not-its-connection", dialect.number, what)
        dialect.connection.close(error.reason, error)

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
        point = consistent_point(self.labels, self.log.confirmed, theirs.labels, theirs.end)
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
