"""HA protocol v2 on one connection, as the master speaks it.

A slave says who it is, is answered with the labels of our log, and reports then.  One handshake is
answered; half of one waits; what came before our answer was no answer to it.  What it is sent is
cut where files and labels end, and has in each frame the label it lies under and the confirm
offset.  One whose log is doubted is told no label.  One that began with our log's first byte is
asked who it is before what it reports could bring it into the set, and a stock slave once more
when it reports bytes under our newest label: they count when it took that label over, else it would
cut them off again.

Source: docs/protocol/controller.rst, What a master tells.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from rmqha.errors import HandshakeRejected
from rmqha.ha.elected.labelled_log import NO_LABEL
from rmqha.ha.master.connection import MasterProtocol
from rmqha.ha.master.ledger import Claim
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

if TYPE_CHECKING:
    from rmqha.ha.elected.set_master import SetMaster

NO_FILE = -1
"""The offset of a heartbeat while the master has no log file."""

ANYTHING = 1 << 63
"""Beyond all reports."""

_REPORT = REPORT.size
_pack_header = TRANSFER_HEADER.pack


class MemberDialect:
    """One connection's.

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

    def __init__(self, connection: MasterProtocol, master: SetMaster) -> None:
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
            error = HandshakeRejected("label-not-taken", self.number, doubt)
            self.connection.close(error.reason, error)
            return
        self.doubt = doubt
        if self.claim is not None:
            start, below = self._master.labelled.newest_start, self.compares is False
            self._plain = start if below and max(self.held_back) <= start else ANYTHING
        reports, self.held_back = self.held_back, []
        self.connection.take(reports)

    def answer(self) -> None:
        """Answer its handshake."""
        master = self._master
        self._answered = True
        self.connection.transport.write(
            encode_answer(master.factory.limit(), master.labelled.labels)
        )

    def first(self, claim: Claim, offset: int) -> int:
        """Take the first report."""
        claim.identity = claim.host = self.name
        origin = claim.first(self._master.wanted(self, offset))
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
        if not master.log.end:
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
