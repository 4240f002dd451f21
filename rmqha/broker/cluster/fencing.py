"""A master that meets one with a higher master epoch takes no more writes.

What it would acknowledge from then on is on no replica that anybody follows, and one of the two
histories has to be cut off.  Reads go on, its slaves keep what they are fed, and the name servers
are told nothing more.  That lasts over restarts, until an operator acts: starts this store as a
slave, promotes it, or starts it with C{--force}.

It learns of the other from name servers of ours (the answer to its registration), from its own
look for others (L{rmqha.broker.cluster.master_twin}), and from the questions of other brokers of
its name, which tell whom they know.  Such a question is a stranger's word: the master that it
names is asked.  Only where C{haAllowedPeers} names the replicas is one of them believed when that
master cannot be reached from here.

Source: docs/architecture.rst, The master epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmqha.broker.state import BrokerState
from rmqha.ha.master_epoch import HigherMaster
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.net.allowed_peers import Allowed
from rmqha.net.remoting.client import UNREACHED, split_address
from rmqha.wire.remoting.headers.slave import EpochClaim

CHECK_EVERY = 10.0
"""Least seconds between two checks of claims: each makes this broker connect to an address that
somebody else chose."""


@define(eq=False)
class Fencing:
    """Stops the writes of one master.

    @ivar replicas: C{haAllowedPeers}; C{None} if every host may be one.
    @ivar ask: Asks a client port who is there.
    @ivar stop_registering: Given the reason.
    @ivar doubted: A claim that could not be confirmed, in words; C{""} if there is none.
    """

    state: BrokerState
    replicas: Allowed | None
    ask: Callable[[str], Deferred[MasterBounds]]
    stop_registering: Callable[[str], None]
    doubted: str = field(default="", init=False)
    _fenced: HigherMaster | None = field(default=None, init=False)
    _checking: bool = field(default=False, init=False)
    _checked: float = field(default=float("-inf"), init=False)

    _log = Logger()

    def start(self) -> None:
        """Take no writes if one that was met before is still the higher one."""
        higher = self.state.epochs.journal.fenced_by
        if higher is not None:
            self._fence(higher)

    def on_higher(self, higher: HigherMaster) -> None:
        """There is another master, which may be a higher one."""
        if higher.epoch <= self.state.epochs.number:
            return
        before = self.state.epochs.journal
        self.state.epochs.become(before.met(higher))
        if self._fenced is None:
            self._fence(higher)

    def on_claim(self, host: str, claim: EpochClaim) -> None:
        """A broker of our name tells which master it knows.

        @param host: Where that broker is.
        """
        now = self.state.clock.seconds()
        if claim.master_epoch <= self.state.epochs.number or self._fenced is not None:
            return
        if self._checking or now < self._checked + CHECK_EVERY:
            return
        if self.replicas is not None and not self.replicas.permits(host):
            return
        try:
            split_address(claim.master_addr)
        except ValueError:
            return
        self._checking = True
        Deferred.fromCoroutine(self._check(host, claim)).addErrback(
            lambda failure: self._log.failure("Checking a claim of a master epoch failed", failure)
        )

    async def _check(self, host: str, claim: EpochClaim) -> None:
        """Ask the master that somebody named."""
        address = claim.master_addr
        try:
            identity = (await self.ask(address)).identity
            epoch = identity.epoch if identity.name == self.state.name else 0
            said = f"it says that its master epoch is {epoch}"
        except UNREACHED as error:
            epoch, said = 0, str(error)
        finally:
            self._checking, self._checked = False, self.state.clock.seconds()
        if epoch > self.state.epochs.number:
            self.on_higher(HigherMaster(epoch, address, f"told by the broker at {host}"))
        elif self.replicas is not None:
            self.on_higher(
                HigherMaster(
                    claim.master_epoch,
                    address,
                    f"told by the replica at {host}; not confirmed: {said}",
                )
            )
        else:
            self._doubt(
                f"{host} says that {address} is master of {self.state.name} with master epoch "
                f"{claim.master_epoch}; not confirmed: {said}"
            )

    def _doubt(self, text: str) -> None:
        if text != self.doubted:
            self.doubted = text
            self._log.error(
                "Claim of a higher master epoch, still accepting writes: {claim}", claim=text
            )

    def _fence(self, higher: HigherMaster) -> None:
        self._fenced = higher
        ours = self.state.epochs.number
        reason = f"{higher}, ours is {ours}: start this store as a slave, or promote it"
        self._log.critical("Fenced, accepting no more writes: {reason}", reason=reason)
        self.stop_registering(reason)
        self.state.store.fence(reason)

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        return {"doubtedClaim": self.doubted}
