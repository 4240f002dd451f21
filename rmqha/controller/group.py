"""RocketMQ's controllers, as a member of one set asks them.

One of them leads, and answers; the others say that they do not.  Who leads is asked when it is not
known, of all at once, and asked anew when that one is gone or leads no more.  A request that may
have changed something is sent again only where it surely has not arrived: of a change that was
sent and not answered nobody knows the outcome.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from attrs import AttrsInstance, define, field
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.errors import (
    BodyInvalid,
    ControllerRefused,
    ControllerUnanswered,
    HeaderFieldInvalid,
    NoController,
    RemotingTimeout,
    RemotingUnreachable,
)
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.controller import (
    ElectedMaster,
    ReplicasInfo,
    SyncStateData,
    SyncStateSet,
)
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import (
    AlterSyncStateSetAnswer,
    AlterSyncStateSetRequest,
    ApplyBrokerIdRequest,
    ElectMasterAnswer,
    ElectMasterRequest,
    MemberHeartbeatRequest,
    MetadataInfoAnswer,
    NextBrokerIdAnswer,
    NextBrokerIdRequest,
    RegisterMemberAnswer,
    RegisterMemberRequest,
    ReplicaInfoAnswer,
    ReplicaInfoRequest,
)
from rmqha.wire.remoting.json_body import B, read, write

TIMEOUT = 3.0
"""Seconds for one answer; stock members' value."""

TRIES = 3
"""How often who leads is looked for before a request is given up."""


_GONE = (ConnectionLost, ConnectionDone)

UNHEARD = (RemotingUnreachable, RemotingTimeout, *_GONE, HeaderFieldInvalid)
"""How a question to one controller may fail."""


class ControllerClient(Protocol):
    """What is needed of a L{rmqha.net.remoting.client.RemotingClient}."""

    def request(self, address: str, command: Command, timeout: float) -> Deferred[Command]:
        """Ask."""

    def oneway(self, address: str, command: Command) -> Deferred[None]:
        """Tell."""

    def close(self) -> Deferred[None]:
        """End the connections."""


@define(eq=False, kw_only=True)
class ControllerGroup:
    """The controllers of one set; a
    L{SetCoordinator<rmqha.controller.coordinator.SetCoordinator>}.

    @ivar addresses: C{host:port} of each.
    @ivar client: Asks them.
    @ivar cluster: The set's cluster.
    @ivar name: The set's C{brokerName}.
    @ivar now_ms: Milliseconds since 1970.
    @ivar leader: The address of the one that leads; empty while that is not known.
    """

    addresses: Sequence[str]
    client: ControllerClient
    cluster: str
    name: str
    now_ms: Callable[[], int]
    leader: str = field(default="", init=False)

    _log = Logger()

    # --- the leader -------------------------------------------------------------

    async def find_leader(self) -> str:
        """Ask all controllers at once who leads; one that stands still keeps nobody waiting who
        knows it.

        @return: Its address.
        @raise NoController: If none of them knows.
        """
        said: dict[str, str] = {}
        found: Deferred[str] = Deferred()

        def told(leader: str | Failure, address: str) -> None:
            if found.called:
                return
            if isinstance(leader, Failure):
                if not leader.check(*UNHEARD):
                    found.errback(leader)
                    return
                said[address] = leader.getErrorMessage()
            elif leader:
                if leader != self.leader:
                    self._log.info("The controller at {leader} leads", leader=leader)
                self.leader = leader
                found.callback(leader)
                return
            else:
                said[address] = "it knows no leader"
            if len(said) == len(addresses):
                self.leader = ""
                why = "; ".join(f"{each}: {said[each]}" for each in addresses)
                found.errback(NoController(addresses, why))

        addresses = tuple(dict.fromkeys(self.addresses))
        for address in addresses:
            if found.called:
                break
            Deferred.fromCoroutine(self.leader_by(address)).addBoth(told, address)
        return await found

    async def leader_by(self, address: str) -> str:
        """Ask one controller who leads.

        @return: The leader's address; empty if this one knows none.  Fails with one of L{UNHEARD}.
        """
        asked = Command.request(Code.GET_METADATA_INFO)
        answer = await self.client.request(address, asked, TIMEOUT)
        return answer.custom(MetadataInfoAnswer).controller_leader_address or ""

    async def ask(
        self, code: Code, header: AttrsInstance | None = None, body: bytes = b""
    ) -> Command:
        """Ask whoever leads.

        @return: Its answer, whatever its code, unless that is that it does not lead.
        @raise NoController: If nobody leads, or whoever does is not reached.
        @raise ControllerUnanswered: If it was asked and did not answer.
        """
        why = ""
        for _ in range(TRIES):
            leader = self.leader or await self.find_leader()
            try:
                answer = await self.client.request(
                    leader, Command.request(code, header, body), TIMEOUT
                )
            except RemotingUnreachable as error:
                why = f"{leader} leads, and {error}"
            except (RemotingTimeout, *_GONE) as error:
                self.leader = ""
                raise ControllerUnanswered(leader, int(code), str(error)) from None
            else:
                if answer.code != ControllerResponseCode.NOT_LEADER:
                    return answer
                why = f"{leader} leads no more"
            self.leader = ""
        raise NoController(tuple(self.addresses), why)

    # --- a coordinator ------------------------------------------------------------

    def current(self) -> Deferred[SetState]:
        """What is decided now."""
        return Deferred.fromCoroutine(self._current())

    async def _current(self) -> SetState:
        answer = await self.ask(Code.GET_REPLICA_INFO, ReplicaInfoRequest(broker_name=self.name))
        self._require(answer)
        found = answer.custom(ReplicaInfoAnswer)
        return self._state(answer, found.master_broker_id, found.master_address, found.master_epoch)

    def elect(self, member: int, *, designated: bool = False) -> Deferred[SetState]:
        """Have a master elected, if there is none that lives."""
        return Deferred.fromCoroutine(self._elect(member, designated))

    async def _elect(self, member: int, designated: bool) -> SetState:
        asked = ElectMasterRequest(
            cluster_name=self.cluster,
            broker_name=self.name,
            broker_id=member,
            designate_elect=designated,
            invoke_time=self.now_ms(),
        )
        answer = await self.ask(Code.ELECT_MASTER, asked)
        self._require(answer, ControllerResponseCode.MASTER_STILL_EXIST)
        found = answer.custom(ElectMasterAnswer)
        elected = self._body(ElectedMaster, answer)
        return SetState(
            master=_member(found.master_broker_id, found.master_address),
            master_epoch=found.master_epoch or 0,
            in_sync=frozenset(elected.sync_state_set),
            set_epoch=found.sync_state_set_epoch or 0,
        )

    def alter(self, old: SetState, new: frozenset[int]) -> Deferred[SetState]:
        """Have the ids changed from which a master may be elected."""
        return Deferred.fromCoroutine(self._alter(old, new))

    async def _alter(self, old: SetState, new: frozenset[int]) -> SetState:
        assert old.master is not None, "only a master asks for that"
        asked = AlterSyncStateSetRequest(
            broker_name=self.name,
            master_broker_id=old.master.id,
            master_epoch=old.master_epoch,
            invoke_time=self.now_ms(),
        )
        proposed = SyncStateSet(
            sync_state_set=tuple(sorted(new)), sync_state_set_epoch=old.set_epoch
        )
        answer = await self.ask(Code.ALTER_SYNC_STATE_SET, asked, write(proposed))
        if answer.code == ResponseCode.SYSTEM_ERROR:
            # What a raft log that could not be written is answered with, after a while.
            raise ControllerUnanswered(
                self.leader, int(Code.ALTER_SYNC_STATE_SET), answer.remark or "a system error"
            )
        self._require(answer)
        answer.custom(AlterSyncStateSetAnswer)
        return self._state(answer, old.master.id, old.master.address, old.master_epoch)

    def members(self) -> Deferred[Mapping[int, str]]:
        """Where the members of the set are, whether they live or not."""
        return Deferred.fromCoroutine(self._members())

    async def _members(self) -> dict[int, str]:
        found = (await self.sets((self.name,))).get(self.name)
        if found is None:
            return {}
        everybody = (*found.in_sync_replicas, *found.not_in_sync_replicas)
        return {each.broker_id: each.broker_address for each in everybody}

    async def sets(self, names: Sequence[str]) -> dict[str, ReplicasInfo]:
        """Ask what is known of some sets.

        @param names: Their C{brokerName}s.
        @return: By name; those that are not known are left out.
        @raise NoController: If nobody leads.
        @raise ControllerUnanswered: If it did not answer.
        @raise ControllerRefused: If it says no, or nothing that can be read.
        """
        answer = await self.ask(Code.GET_SYNC_STATE_DATA, body=fastjson.dumps(list(names)))
        self._require(answer)
        return self._body(SyncStateData, answer).replicas_info_table

    def follow(self, told: Callable[[], None]) -> None:
        """A controller that leads tells members of an election, at their client port."""

    def close(self) -> Deferred[None]:
        """End the connections."""
        return self.client.close()

    # --- membership ---------------------------------------------------------------

    async def next_id(self) -> int:
        """An id that nobody has."""
        asked = NextBrokerIdRequest(cluster_name=self.cluster, broker_name=self.name)
        answer = await self.ask(Code.GET_NEXT_BROKER_ID, asked)
        self._require(answer)
        return answer.custom(NextBrokerIdAnswer).next_broker_id

    async def apply(self, number: int, check_code: str) -> None:
        """Apply for an id.  To do so again with the same check code is harmless.

        @raise ControllerRefused: If somebody else has it.
        """
        asked = ApplyBrokerIdRequest(
            cluster_name=self.cluster,
            broker_name=self.name,
            applied_broker_id=number,
            register_check_code=check_code,
        )
        self._require(await self.ask(Code.APPLY_BROKER_ID, asked))

    async def register(self, number: int, address: str) -> SetState:
        """Say where a member is.

        @param number: Its id.
        @param address: C{host:port} of its client port.
        @raise ControllerRefused: If the controller does not know the id: it was cleaned, or has
            lost what it knew.
        """
        asked = RegisterMemberRequest(
            cluster_name=self.cluster,
            broker_name=self.name,
            broker_id=number,
            broker_address=address,
            invoke_time=self.now_ms(),
        )
        answer = await self.ask(Code.REGISTER_BROKER, asked)
        self._require(answer)
        found = answer.custom(RegisterMemberAnswer)
        return self._state(answer, found.master_broker_id, found.master_address, found.master_epoch)

    def beat(self, beat: MemberHeartbeatRequest) -> None:
        """Give all controllers a sign of life.  One that is not reached misses it."""
        for address in self.addresses:
            told = Command.request(RequestCode.BROKER_HEARTBEAT, beat, oneway=True)
            self.client.oneway(address, told).addErrback(
                lambda failure: failure.trap(RemotingUnreachable, *_GONE) and None
            )

    # --- answers --------------------------------------------------------------------

    def _require(self, answer: Command, *also: ControllerResponseCode) -> None:
        """@param also: Codes that are a success as well.
        @raise ControllerRefused: If it is none.
        """
        if answer.code not in (ResponseCode.SUCCESS, *also):
            raise ControllerRefused(self.leader, answer.code, answer.remark or "")

    def _body(self, cls: type[B], answer: Command) -> B:
        """@raise ControllerRefused: If it is none."""
        try:
            return read(cls, answer.body)
        except BodyInvalid as error:
            raise ControllerRefused(self.leader, answer.code, str(error)) from None

    def _state(
        self, answer: Command, master: int | None, address: str | None, epoch: int | None
    ) -> SetState:
        found = self._body(SyncStateSet, answer)
        return SetState(
            master=_member(master, address),
            master_epoch=epoch or 0,
            in_sync=frozenset(found.sync_state_set),
            set_epoch=found.sync_state_set_epoch,
        )


def _member(number: int | None, address: str | None) -> ElectedMember | None:
    return None if number is None or not address else ElectedMember(number, address)
