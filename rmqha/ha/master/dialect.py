"""How a master and one of its slaves speak to each other.

What a connection does is the same in every protocol of the HA port: it believes reports as far as
the ledger does, and sends the log from there on.  What a slave's bytes say and what stands before a
frame is its dialect: the classic one here, that of controller mode in
L{rmqha.ha.elected.member_dialect}.

Source: docs/protocol/ha.rst, Bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rmqha.ha.master.ledger import Claim
from rmqha.wire.ha_frame import OFFSET_REPORT, ONLOOKER, TRANSFER_HEADER, OffsetReports

if TYPE_CHECKING:
    from rmqha.ha.master.connection import MasterProtocol

_REPORT = OFFSET_REPORT.size
_unpack_report = OFFSET_REPORT.unpack


class Dialect(Protocol):
    """One connection's.

    @ivar header: What stands before a frame's body, by the physical offset of its first byte and
        its size; of size 0 it is a heartbeat.
    """

    @property
    def header(self) -> Callable[[int, int], bytes]:
        """Makes the header of a transfer from the offset and the size of its body, both in
        bytes.
        """

    def single(self, data: bytes) -> int | None:
        """The one report that C{data} is, as nearly all data is; C{None} if it may be anything
        else, or continues something.
        """

    def receive(self, data: bytes) -> list[int]:
        """Take what the slave said, and act on what is no report.

        @return: The reports that C{data} completed, in order.
        @raise ProtocolViolation: With a C{reason}, of one word.
        """

    def first(self, claim: Claim, offset: int) -> int:
        """Take the first report.

        @return: The offset to send from.
        @raise ReportRejected: As L{Claim.first} says.
        """

    def frame_end(self, position: int, stop: int) -> int:
        """Up to where frames may reach that begin at C{position}.

        @param stop: More is not wanted.
        """

    def ended(self) -> None:
        """The connection is given up."""


class ClassicDialect:
    """That of RocketMQ's master and slave without a controller."""

    header = staticmethod(TRANSFER_HEADER.pack)

    def __init__(self, connection: MasterProtocol) -> None:
        self._connection = connection
        self._reports = OffsetReports()
        self._silent = True

    def single(self, data: bytes) -> int | None:
        """A report of eight bytes."""
        if len(data) != _REPORT or self._reports.pending:
            return None
        offset: int = _unpack_report(data)[0]
        return offset

    def receive(self, data: bytes) -> list[int]:
        """Take reports.  What stands before an onlooker's first one is none."""
        whole = self._reports.receive(data)
        if self._silent and whole:
            self._silent = False
            if whole[0] == ONLOOKER:
                self._connection.onlooker = True
                del whole[0]
        return whole

    def first(self, claim: Claim, offset: int) -> int:
        """Take the first report."""
        return claim.look(offset) if self._connection.onlooker else claim.first(offset)

    def frame_end(self, position: int, stop: int) -> int:
        """Wherever a file ends."""
        return stop

    def ended(self) -> None:
        """Nothing is kept."""
