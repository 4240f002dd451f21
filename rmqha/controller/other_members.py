"""What other members of a set are asked, at their client ports: the epoch labels and ends of their
logs, and whose disk they have.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NoReturn

from attrs import frozen
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ConnectionDone, ConnectionLost

from rmqha.controller.coordinator import SetCoordinator
from rmqha.controller.epoch_labels import Labels
from rmqha.controller.group import TIMEOUT, ControllerClient
from rmqha.errors import RequestRefused, RmqhaError
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting.bodies.controller import EpochCache
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import EpochCacheRequest
from rmqha.wire.remoting.json_body import read


class MemberLivesElsewhere(RmqhaError):
    """The id of a member is alive at another address than this node's.

    @ivar copied: Whether that one has the same disk, or this node a copy of it.
    """

    id: int
    address: str
    copied: bool

    def __str__(self) -> str:
        if self.copied:
            return (
                f"id {self.id} lives at {self.address}, and this store is a copy of its disk: "
                "rmqha controller reset makes it a member of its own"
            )
        return f"id {self.id} is alive at {self.address}: waiting until the controllers miss it"


@frozen
class MemberLabels:
    """What a member says of its log.

    @ivar labels: Oldest first.
    @ivar end: Where the log ends, physical.
    @ivar compares: Whether it reports only what it has compared byte by byte, as ours do.
    @ivar generation: Of its log, C{""} if it does not say.
    @ivar token_told: Whether it has told the token on its connection to our HA port; C{None} where
        it was asked for none, or knows of none, as Java members.
    """

    labels: Labels
    end: int
    compares: bool = False
    generation: str = ""
    token_told: bool | None = None


async def labels_of(
    client: ControllerClient, address: str, name: str, token: int | None = None
) -> MemberLabels:
    """Ask a member for the labels of its log.

    @param address: C{host:port} of its client port.
    @param name: The set's C{brokerName}.
    @param token: What it is to repeat on its connection to our HA port.
    @raise RequestRefused: If it has none to tell, or is a member of another set.
    @raise BodyInvalid: If the answer cannot be read.
    @raise RemotingUnreachable: If nobody is there.
    @raise RemotingTimeout: If it did not answer.
    """
    asked = Command.request(Code.GET_BROKER_EPOCH_CACHE, EpochCacheRequest(token=token))
    answer = await client.request(address, asked, TIMEOUT)
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, answer.remark, asked.code)
    found = read(EpochCache, answer.body)
    if found.broker_name != name:
        raise RequestRefused(answer.code, f"it is a broker of {found.broker_name}", asked.code)
    labels = tuple(EpochLabel(each.epoch, each.start_offset) for each in found.epoch_list)
    return MemberLabels(
        labels,
        found.max_offset,
        bool(found.compares_bytes),
        found.generation or "",
        found.token_told,
    )


async def refuse_twin(
    client: ControllerClient, where: str, name: str, number: int, generation: str
) -> NoReturn:
    """Another node lives under our id: ask it whose disk it has, before anything is taken from it.
    On a copy of its disk we would lead beside it.

    @param where: C{host:port} of its client port.
    @param name: The set's C{brokerName}.
    @param number: The id.
    @param generation: Of our log.
    @raise MemberLivesElsewhere: Always; saying whether we are its copy.
    """
    try:
        found = (await labels_of(client, where, name)).generation
    except (RmqhaError, ConnectionLost, ConnectionDone):
        found = ""  # it has gone, or another one is there: the coordinator will know soon
    raise MemberLivesElsewhere(number, where, copied=found == generation)


async def told_by(
    client: ControllerClient, name: str, addresses: Mapping[int, str]
) -> dict[int, MemberLabels | str]:
    """Ask members of their logs, all at once.

    @param name: The set's C{brokerName}.
    @param addresses: C{host:port} of their client ports, by controller id.
    @return: What each says, or why it says nothing.
    """
    told = await gatherResults(
        [Deferred.fromCoroutine(_told(client, address, name)) for address in addresses.values()]
    )
    return dict(zip(addresses, told, strict=True))


async def _told(client: ControllerClient, address: str, name: str) -> MemberLabels | str:
    try:
        return await labels_of(client, address, name)
    except (RmqhaError, ConnectionLost, ConnectionDone) as error:
        return str(error)


async def ends_of(
    coordinator: SetCoordinator, client: ControllerClient, name: str, members: Iterable[int]
) -> dict[int, int]:
    """Ask members where their logs end.

    @param name: The set's C{brokerName}.
    @param members: Their controller ids.
    @return: Physical offsets, of those that have answered.
    @raise NoController: If the coordinator cannot be asked; and what else its C{members} raises.
    """
    addresses = await coordinator.members()
    known = {number: addresses[number] for number in members if number in addresses}
    told = await told_by(client, name, known)
    return {number: each.end for number, each in told.items() if isinstance(each, MemberLabels)}
