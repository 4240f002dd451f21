"""How the controllers are, and the sets that they look after, as an operator asks.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import frozen
from twisted.internet.defer import Deferred, gatherResults

from rmqha.controller.group import UNHEARD, ControllerGroup
from rmqha.wire.remoting.bodies.controller import ReplicasInfo, SetMember


@frozen(kw_only=True)
class ControllerStatus:
    """One controller.

    @ivar address: C{host:port}.
    @ivar leader: Who leads, as it says; empty if it knows nobody, or did not answer.
    @ivar trouble: Why it did not answer; empty if it did.
    """

    address: str
    leader: str = ""
    trouble: str = ""

    @property
    def leads(self) -> bool:
        """Whether it is the leader itself."""
        return self.leader == self.address


@frozen(kw_only=True)
class Overview:
    """All that was told.

    @ivar controllers: In the order in which they were asked.
    @ivar leader: Who leads; empty if nobody does.
    @ivar sets: Those that were asked for, by name; C{None} for one that is not known.
    """

    controllers: tuple[ControllerStatus, ...]
    leader: str
    sets: Mapping[str, ReplicasInfo | None]

    def problems(self) -> Iterator[str]:
        """What is not well, in words for an operator."""
        if not self.leader:
            yield "no controller leads: no master is elected until most of them are up again"
        for name, found in self.sets.items():
            if found is None:
                yield f"the controllers know no set {name}"
            elif found.master_broker_id is None:
                yield f"set {name} has no master"
            elif not any(
                each.alive for each in members(found) if each.broker_id == found.master_broker_id
            ):
                yield f"set {name} has a master that is not alive: id {found.master_broker_id}"


def members(found: ReplicasInfo) -> list[SetMember]:
    """Everybody in a set, by id."""
    everybody = (*found.in_sync_replicas, *found.not_in_sync_replicas)
    return sorted(everybody, key=lambda each: each.broker_id)


async def look(group: ControllerGroup, names: Sequence[str]) -> Overview:
    """Ask each controller who leads, and whoever does about some sets.

    @param names: Their C{brokerName}s.
    @raise NoController: If sets are asked for, and whoever leads cannot be asked.
    @raise ControllerUnanswered: If it did not answer.
    @raise ControllerRefused: If it says no, or nothing that can be read.
    """
    asked = [Deferred.fromCoroutine(_seen(group, address)) for address in group.addresses]
    controllers = tuple(await gatherResults(asked))
    leader = next((each.leader for each in controllers if each.leader), "")
    if not leader:
        return Overview(controllers=controllers, leader="", sets={})
    known = await group.sets(names) if names else {}
    return Overview(
        controllers=controllers,
        leader=group.leader or leader,
        sets={name: known.get(name) for name in names},
    )


async def _seen(group: ControllerGroup, address: str) -> ControllerStatus:
    try:
        return ControllerStatus(address=address, leader=await group.leader_by(address))
    except UNHEARD as error:
        return ControllerStatus(address=address, trouble=str(error))
