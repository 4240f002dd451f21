"""SYNC writes of an elected master: answered when every member that may be elected holds them.

A write counts as acknowledged when all members of every SyncStateSet that may be in force have
reported it, at least one beside the master among the members that are connected has, and the set is
as large as C{minInSyncReplicas} asks for.  A set that shrinks to the master alone acknowledges
nothing by that.

Source: docs/protocol/controller.rst, What a write waits for.
"""

from __future__ import annotations

from attrs import define

from rmqha.ha.elected.in_sync import InSyncSet
from rmqha.ha.master.ledger import Claim
from rmqha.ha.master.transfer import GroupTransfer, PutStatus, Waiting


@define(eq=False, kw_only=True)
class SetTransfer(GroupTransfer):
    """Resolves writes once the set holds them.

    @ivar in_sync: The set.
    @ivar least: Members that the set must have, the master among them (C{minInSyncReplicas}).
    @ivar alone_is_enough: Whether a master with nobody to wait for answers that all is well, as
        stock ones do (C{controllerAloneAnswer=ok}).
    @ivar awaited: Whether writes wait at all: not with C{brokerRole=ASYNC_MASTER}.
    """

    needed: int = 0
    in_sync: InSyncSet
    least: int = 1
    alone_is_enough: bool = False
    awaited: bool = True

    @property
    def hurries(self) -> bool:
        """Whether writes wait for the set, however many it has."""
        return self.awaited

    def acked(self, claim: Claim) -> None:
        """A claim moved: what the set holds has, and what that completes is resolved."""
        self.in_sync.acked()
        super().acked(claim)

    def look(self) -> None:
        """Who counts has changed, or what counts for a member: resolve what that completes."""
        due: list[Waiting] = []
        self._look_aside(due)
        self._look_below(self.in_sync.reach(), due)

    def held(self, begin: int, end: int) -> bool:
        """Whether a write is held by all that may be elected, and by enough."""
        return self.in_sync.smallest >= self.least and self.in_sync.hold(begin, end)

    def _known(self, begin: int, end: int) -> PutStatus | None:
        if self._stopped is not None:
            return self._stopped
        if self.held(begin, end):
            return PutStatus.PUT_OK
        if self.in_sync.alone and not self._somebody_near(end):
            return PutStatus.PUT_OK if self.alone_is_enough else PutStatus.SLAVE_NOT_AVAILABLE
        return None

    def _somebody_near(self, end: int) -> bool:
        claims = self.in_sync.claims.values()
        return any(end - claim.acked < self.fallbehind_max for claim in claims)

    def _limit(self, claim: Claim) -> int:
        return self.in_sync.reach()
