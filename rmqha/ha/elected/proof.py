"""
Whether a member's log is ours up to where it reports, as the labels of both logs tell.

Our log is the chain of the elected masters', each filed under its epoch.  So a member that has one
of these labels from the same start holds the same bytes under it, up to a tail of its own; it has
cut that off if it ends no later than the two logs surely are one.  A member without labels cuts
nothing.  One whose log is not proven is fed, and does not count: being fed teaches it our labels,
which prove nothing then, so it is doubted until it has begun anew with no byte.

Source: docs/protocol/controller.rst, Who is fed and who counts.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.controller.epoch_labels import Labels, consistent_point
from rmqha.controller.other_members import MemberLabels
from rmqha.errors import RmqhaError

ASKING = "its labels are not known yet"
"""Why a member does not count that was not asked, or has not answered."""


@define(eq=False, kw_only=True)
class Proofs:
    """
    What is known of the members' logs.

    @ivar labels: Ours.
    @ivar end: Where our log ends.
    @ivar labels_of: Asks a member, by C{host:port} of its client port.
    @ivar accept: Whether a log counts that is not proven (C{haAcceptUnproven}).
    @ivar doubted: Members that were not proven, by id, and why in words.
    """

    labels: Labels
    end: Callable[[], int]
    labels_of: Callable[[str], Deferred[MemberLabels]]
    accept: bool = False
    doubted: dict[int, str] = field(factory=dict)

    _log = Logger()

    def began_empty(self, number: int) -> None:
        """
        It takes all of our log from the first byte on: what it had before is not there any more,
        or is compared.
        """
        self.doubted.pop(number, None)

    def ask(self, number: int, address: str, report: int) -> Deferred[str]:
        """
        Ask a member for its labels, and compare.

        @param number: Its id.
        @param report: Where its log ends, as it said first.
        @return: Fires with why it is not proven, in words; C{""} if it is.  Never fails.
        """
        if number in self.doubted and not self.accept:
            return succeed(self.doubted[number])
        return self.labels_of(address).addCallbacks(
            self._compare, self._not_told, callbackArgs=(number, report), errbackArgs=(address,)
        )

    def _compare(self, theirs: MemberLabels, number: int, report: int) -> str:
        point = consistent_point(self.labels, self.end(), theirs.labels, theirs.end)
        if point is not None and report <= point:
            return ""
        if not theirs.labels:
            why = f"its log of {report} bytes has no epoch labels"
        elif point is None:
            why = "no epoch label of its log is one of ours"
        else:
            why = f"its log ends at {report}, and is ours up to {point} only by its epoch labels"
        if self.accept:
            self._log.warn(
                "Member {number} counts although {why} (haAcceptUnproven)", number=number, why=why
            )
            return ""
        self.doubted[number] = why
        self._log.warn(
            "Member {number} is fed and does not count: {why}. Empty its store, or set "
            "haAcceptUnproven",
            number=number,
            why=why,
        )
        return why

    def _not_told(self, failure: Failure, address: str) -> str:
        """
        It is asked again.
        """
        if not failure.check(RmqhaError, ConnectionLost, ConnectionDone):
            self._log.failure("Asking {address} for its labels failed", failure, address=address)
        return f"{ASKING}: {failure.getErrorMessage()}"
