"""A master's look for another one of its name: at the start, and while it runs.

Name servers say who has the id 0.  That alone proves little, as they may know an address that is
dead, or an older one of ours; so whoever lives there is asked, by request 28, which any broker
answers, and is told of us at that: a broker of ours that is the older one stops its writes then.

A stock master tells no epoch, and counts as one that was never promoted.

Source: docs/operations.rst, Changing roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.broker.cluster.broker_members import Members
from rmqha.ha.master_epoch import HigherMaster, MasterEpochs
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.health import HealthReason
from rmqha.net.remoting.client import UNREACHED
from rmqha.periodic import Watch

PERIOD = 10.0
"""Seconds between two looks: more often than brokers register."""

TIMEOUT = 3.0
"""Seconds a name server has to answer."""

MASTER_ID = 0
"""The C{brokerId} of masters."""


@frozen(kw_only=True)
class LiveMaster:
    """Another master of our name that answers.

    @ivar address: Its client port.
    """

    address: str
    epoch: int


@define(eq=False, kw_only=True)
class TwinSearch:
    """Finds the live masters of one name besides a broker.

    @ivar members: Asks name servers who has the name.
    @ivar name: The C{brokerName}.
    @ivar address: The broker's own client port.
    @ivar run_id: The name of its process.
    @ivar ask: Asks a client port who is there.
    """

    members: Members
    name: str
    address: str
    run_id: str
    ask: Callable[[str], Deferred[MasterBounds]]

    async def look(
        self,
        servers: Iterable[str],
        known: Iterable[str] = (),
        met: Callable[[LiveMaster], None] = lambda one: None,
    ) -> list[LiveMaster]:
        """Look once, until all have answered or had their time: one that is silent may list what
        the others do not.

        @param servers: The name servers.
        @param known: Client ports where one was before: of two with one epoch a name server lists
            the one that registered last.
        @param met: Told of each as soon as it answers; what it raises ends the look.
        """
        asked = {self.address}
        found: list[LiveMaster] = []

        async def ask(address: str) -> None:
            if address in asked:
                return
            asked.add(address)
            one = await self._who(address)
            if one is not None:
                found.append(one)
                met(one)

        async def ask_listed(server: str) -> None:
            try:
                brokers = await self.members.ask(server, TIMEOUT)
            except UNREACHED:
                return  # what the others list is asked
            if MASTER_ID in brokers:
                await ask(brokers[MASTER_ID])

        lanes = [*map(ask, known), *map(ask_listed, servers)]
        try:
            await gatherResults(map(Deferred.fromCoroutine, lanes), consumeErrors=True)
        except FirstError as error:
            error.subFailure.raiseException()
        return sorted(found, key=lambda one: one.address)

    async def _who(self, address: str) -> LiveMaster | None:
        try:
            identity = (await self.ask(address)).identity
        except UNREACHED:
            return None  # dead, or no broker
        if identity.run_id == self.run_id or identity.id not in (None, MASTER_ID):
            return None
        if identity.name not in ("", self.name):
            return None
        return LiveMaster(address=address, epoch=identity.epoch)


@define(eq=False, kw_only=True)
class MasterTwinCheck(Watch):
    """Looks again and again.

    @ivar servers: The name servers.
    @ivar met: Told of a higher master.
    @ivar twin: What is wrong, in words; C{""} if nothing is known to be.
    """

    search: TwinSearch
    servers: Callable[[], Iterable[str]]
    epochs: MasterEpochs
    met: Callable[[HigherMaster], None]
    clock: IReactorTime
    twin: str = field(default="", init=False)
    _equal: bool = field(default=False, init=False)
    _known: tuple[str, ...] = field(default=(), init=False)

    job = "looking for another master of the brokerName"
    every = PERIOD
    _log = Logger()

    def start(self) -> None:
        """Begin to look, every L{PERIOD} seconds; without name servers there is nothing to ask."""
        if self.servers():
            super().start()

    def health(self) -> Iterator[HealthReason]:
        """Another master with the same epoch: nobody but an operator can say which is wanted."""
        if self._equal:
            yield HealthReason("twin", self.twin, told=True)

    def look(self) -> Deferred[None]:
        looking = self.search.look(self.servers(), self._known, self._on_master)
        return Deferred.fromCoroutine(looking).addCallback(self._on_masters)

    def _on_master(self, one: LiveMaster) -> None:
        if self.looking.running:
            self.met(HigherMaster(one.epoch, one.address, "found among the masters of this name"))

    def _on_masters(self, found: list[LiveMaster]) -> None:
        if not self.looking.running:
            return
        self._known = tuple(one.address for one in found)
        own = self.epochs.number
        self._equal = any(one.epoch == own for one in found)
        said = [
            f"{one.address} is a live master of {self.search.name} too, with "
            f"{_compared(one.epoch, own)}"
            for one in found
        ]
        twin = "; ".join([*said, "stop one of the two, or start it as a slave"]) if said else ""
        if twin and twin != self.twin:
            self._log.error("Two live masters: {twin}", twin=twin)
        elif self.twin and not twin:
            self._log.info("No other master of {name} answers any more", name=self.search.name)
        self.twin = twin


def _compared(theirs: int, ours: int) -> str:
    """An epoch beside our own, in words."""
    if theirs == ours:
        return f"the same master epoch {ours}"
    kind = "higher" if theirs > ours else "lower"
    return f"the {kind} master epoch {theirs}, ours is {ours}"
