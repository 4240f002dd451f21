"""What a stock broker in controller mode asks, answered by members of a set that etcd
coordinates: it takes each of them for a controller that leads.

Such a broker is no member.  Its id is far above theirs, it has no key and no lease in etcd, and on
its connection to the HA port that id makes it a learner, whatever it says of itself.  It keeps the
id in its store; here nothing is kept but where it said last that its clients connect, to be asked
for its labels.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define
from twisted.logger import Logger

from rmqha.broker.access.needs import ANY_ACCOUNT, Stated
from rmqha.controller.coordinator import SetState
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.ha_v2 import FOLLOWERS
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.controller import ElectedMaster, SyncStateSet
from rmqha.wire.remoting.codes import ControllerRequestCode as Code
from rmqha.wire.remoting.codes import ControllerResponseCode as Refusal
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import (
    ApplyBrokerIdAnswer,
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
from rmqha.wire.remoting.json_body import write

MOST = 100
"""Brokers of which it is known where they are: anybody can say that he is one."""


@define(eq=False, kw_only=True)
class StockFollowers:
    """Answers for one member.

    @ivar cluster: The set's cluster.
    @ivar name: The set's C{brokerName}.
    @ivar address: C{host:port} of our client port.
    @ivar state: What is decided; C{None} while that is not known for certain.
    @ivar addresses: Is told C{host:port} of their client ports, by id.
    """

    cluster: str
    name: str
    address: str
    state: Callable[[], SetState | None]
    addresses: dict[int, str]

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode | Code, Stated]:
        return {
            Code.GET_METADATA_INFO: (ANY_ACCOUNT, self.metadata),
            Code.GET_NEXT_BROKER_ID: (ANY_ACCOUNT, self.next_id),
            Code.APPLY_BROKER_ID: (ANY_ACCOUNT, self.apply),
            Code.REGISTER_BROKER: (ANY_ACCOUNT, self.register),
            Code.GET_REPLICA_INFO: (ANY_ACCOUNT, self.replicas),
            RequestCode.BROKER_HEARTBEAT: (ANY_ACCOUNT, self.beat),
            Code.ELECT_MASTER: (ANY_ACCOUNT, self.elect),
            Code.ALTER_SYNC_STATE_SET: (ANY_ACCOUNT, self.alter),
        }

    def metadata(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1005: we lead, as far as it is concerned, while we know what is decided."""
        leads = self.state() is not None
        told = MetadataInfoAnswer(
            group=self.name,
            controller_leader_id=self.address if leads else None,
            controller_leader_address=self.address if leads else None,
            is_leader=leads,
            peers="",
        )
        return command.answer(header=told)

    def next_id(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1012: one that nobody else has, by chance: nothing of it is written."""
        asked = command.custom(NextBrokerIdRequest)
        self._require_ours(asked.cluster_name, asked.broker_name)
        told = NextBrokerIdAnswer(
            cluster_name=self.cluster,
            broker_name=self.name,
            next_broker_id=FOLLOWERS + secrets.randbelow(FOLLOWERS),
        )
        return command.answer(header=told)

    def apply(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1013: it may keep that."""
        asked = command.custom(ApplyBrokerIdRequest)
        self._require_ours(asked.cluster_name, asked.broker_name)
        self._require_follower(asked.applied_broker_id, Refusal.BROKER_ID_INVALID)
        told = ApplyBrokerIdAnswer(cluster_name=self.cluster, broker_name=self.name)
        return command.answer(header=told)

    def register(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1003: who is master."""
        asked = command.custom(RegisterMemberRequest)
        self._require_ours(asked.cluster_name, asked.broker_name)
        self._require_follower(asked.broker_id, Refusal.BROKER_NEED_TO_BE_REGISTERED)
        state = self._require_state()
        self._is_at(asked.broker_id, asked.broker_address)
        told = RegisterMemberAnswer(
            cluster_name=self.cluster,
            broker_name=self.name,
            sync_state_set_epoch=state.set_epoch,
            **_master(state),
        )
        return command.answer(header=told, body=_in_sync(state))

    def replicas(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1004: the same, again and again."""
        asked, state = command.custom(ReplicaInfoRequest), self._require_state()
        self._require_ours(self.cluster, asked.broker_name)
        return command.answer(header=ReplicaInfoAnswer(**_master(state)), body=_in_sync(state))

    def beat(self, connection: RemotingProtocol, command: Command) -> Answer:
        """904: it lives, which nothing depends on."""
        told = command.custom(MemberHeartbeatRequest)
        if (told.cluster_name, told.broker_name) == (self.cluster, self.name):
            self._is_at(told.broker_id, told.broker_addr)
        return command.answer()

    def elect(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1002: it is never elected, and elects nobody.  One that was started while nobody led asks
        nothing else any more: it is told who does.
        """
        asked, state = command.custom(ElectMasterRequest), self._require_state()
        self._require_ours(asked.cluster_name, asked.broker_name)
        if state.master is None or asked.designate_elect:
            raise RequestRefused(
                Refusal.ELECT_MASTER_FAILED,
                "etcd coordinates this set: only its members are elected, by rmqha set elect too",
            )
        told = ElectMasterAnswer(sync_state_set_epoch=state.set_epoch, **_master(state))
        body = write(ElectedMaster(sync_state_set=tuple(sorted(state.in_sync))))
        return command.answer(Refusal.MASTER_STILL_EXIST, header=told, body=body)

    def alter(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1001: it is never master, and never in the SyncStateSet."""
        raise RequestRefused(
            Refusal.INVALID_MASTER,
            "etcd coordinates this set: its master alone changes the SyncStateSet, in etcd",
        )

    # --- what is required -------------------------------------------------------------

    def _require_state(self) -> SetState:
        state = self.state()
        if state is None:
            raise RequestRefused(Refusal.NOT_LEADER, "this member does not hear of etcd")
        return state

    def _require_ours(self, cluster: str, name: str) -> None:
        if (cluster, name) != (self.cluster, self.name):
            raise RequestRefused(
                Refusal.BROKER_METADATA_NOT_EXIST,
                f"this is a member of set {self.name} of cluster {self.cluster}",
            )

    def _require_follower(self, number: int, code: Refusal) -> None:
        if number < FOLLOWERS:
            raise RequestRefused(
                code,
                f"{number} is no id of a broker that follows a set with etcd: empty its store, "
                "brokerIdentity too",
            )

    def _is_at(self, number: int, address: str) -> None:
        before = self.addresses.get(number)
        if number < FOLLOWERS or before == address:
            return
        if before is None:
            self._log.info(
                "Broker {number} at {address} follows this set, and is no member",
                number=number,
                address=address,
            )
            if len(self.addresses) == MOST:
                del self.addresses[next(iter(self.addresses))]
        self.addresses[number] = address


def _master(state: SetState) -> dict[str, Any]:
    """Without one that lives its id and address are missing, and the broker waits."""
    master = state.master
    return {
        "master_broker_id": None if master is None else master.id,
        "master_address": None if master is None else master.address,
        "master_epoch": state.master_epoch,
    }


def _in_sync(state: SetState) -> bytes:
    ids = tuple(sorted(state.in_sync))
    return write(SyncStateSet(sync_state_set=ids, sync_state_set_epoch=state.set_epoch))
