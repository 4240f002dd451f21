"""What is asked about the other members of a set: who they are, and the epoch labels and ends of
their logs.

The first is asked of the controllers, the second of the member itself, at its client port.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from attrs import frozen
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import ConnectionDone, ConnectionLost

from rmqha.controller.epoch_labels import Labels
from rmqha.controller.group import TIMEOUT, ControllerClient, ControllerGroup
from rmqha.errors import BodyInvalid, ControllerRefused, RequestRefused, RmqhaError
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.controller import EpochCache, ReplicasInfo, SyncStateData
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import EpochCacheRequest
from rmqha.wire.remoting.json_body import read


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


async def members_of(group: ControllerGroup) -> dict[int, str]:
    """Ask the controllers who the members of a set are, whether they live or not.

    @return: C{host:port} of each one's client port, by controller id.
    @raise NoController: If nobody leads.
    @raise ControllerUnanswered: If it did not answer.
    @raise ControllerRefused: If it says no, or nothing that can be read.
    """
    found = (await sets_of(group, (group.name,))).get(group.name)
    if found is None:
        return {}
    everybody = (*found.in_sync_replicas, *found.not_in_sync_replicas)
    return {each.broker_id: each.broker_address for each in everybody}


async def sets_of(group: ControllerGroup, names: Sequence[str]) -> dict[str, ReplicasInfo]:
    """Ask the controllers what they know of some sets.

    @param names: Their C{brokerName}s.
    @return: By name; those that are not known are left out.
    @raise NoController: If nobody leads.
    @raise ControllerUnanswered: If it did not answer.
    @raise ControllerRefused: If it says no, or nothing that can be read.
    """
    answer = await group.ask(Code.GET_SYNC_STATE_DATA, body=fastjson.dumps(list(names)))
    if answer.code != ResponseCode.SUCCESS:
        raise ControllerRefused(group.leader, answer.code, answer.remark or "")
    try:
        return read(SyncStateData, answer.body).replicas_info_table
    except BodyInvalid as error:
        raise ControllerRefused(group.leader, answer.code, str(error)) from None


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


async def ends_of(
    group: ControllerGroup, client: ControllerClient, members: Iterable[int]
) -> dict[int, int]:
    """Ask members where their logs end.

    @param members: Their controller ids.
    @return: Physical offsets, of those that have answered.
    @raise NoController: If nobody leads; and what else L{members_of} raises.
    """
    addresses = await members_of(group)
    known = [number for number in members if number in addresses]
    ends = await gatherResults(
        [Deferred.fromCoroutine(_end_of(client, addresses[each], group.name)) for each in known]
    )
    return {number: end for number, end in zip(known, ends, strict=True) if end is not None}


async def _end_of(client: ControllerClient, address: str, name: str) -> int | None:
    try:
        return (await labels_of(client, address, name)).end
    except (RmqhaError, ConnectionLost, ConnectionDone):
        return None
