"""Controller mode: what members and administrators ask a controller, and what it tells members.

Ids are controller ids, which a member is given once; the SyncStateSet itself is in bodies
(L{rmqha.wire.remoting.bodies.controller}).

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long

NO_EPOCH = -1
"""The label of a heartbeat whose sender has no epoch file entry."""

DEFAULT_PRIORITY = 0x7FFFFFFF
"""The election priority of a member that has none: the smaller one wins."""


class MetadataInfoAnswer(Header):
    """Answers code 1005, which has no header.

    @ivar group: The controllers' raft group.
    @ivar controller_leader_id: Absent while the controller knows no leader, as is its address.
    @ivar peers: C{id:host:port;} of each controller.
    """

    group: str
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool
    peers: str


class EpochCacheRequest(Header):
    """Code 1007, when a set's master of ours asks; stock members ignore it.

    @ivar token: What the member is to repeat on its connection to the HA port.
    """

    token: Long | None = None


class SetNamed(Header):
    """By what a set is named."""

    cluster_name: str
    broker_name: str


class NextBrokerIdRequest(SetNamed):
    """Code 1012: which id may be applied for?"""


class NextBrokerIdAnswer(SetNamed):
    """Answers code 1012."""

    next_broker_id: Long


class ApplyBrokerIdRequest(SetNamed):
    """Code 1013: apply for an id.

    @ivar register_check_code: Whoever comes again with this gets the same answer.
    """

    applied_broker_id: Long
    register_check_code: str


class ApplyBrokerIdAnswer(Header):
    """Answers code 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None


class RegisterMemberRequest(SetNamed):
    """Code 1003: a member with an id says where it is.

    @ivar broker_address: Its client port.
    @ivar invoke_time: Milliseconds since 1970.
    """

    broker_id: Long
    broker_address: str
    invoke_time: Long


class RegisterMemberAnswer(SetNamed):
    """Answers code 1003; the SyncStateSet is in the body.

    @ivar master_broker_id: Absent while no master is alive, as are the others of it.
    """

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None


class MemberHeartbeatRequest(Header):
    """Code 904, one-way, to each controller.

    @ivar broker_addr: The client port.
    @ivar epoch: The newest epoch label of the log, L{NO_EPOCH} without one.
    @ivar max_offset: Where the log ends.
    @ivar heartbeat_timeout_mills: Milliseconds of silence after which the member is dead.
    @ivar election_priority: Decides between equals; the smaller one wins.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long
    epoch: int
    max_offset: Long
    confirm_offset: Long
    heartbeat_timeout_mills: Long
    election_priority: int


class ElectMasterRequest(SetNamed):
    """Code 1002.

    @ivar broker_id: Who asks; with C{designate_elect} who is to be elected.
    @ivar invoke_time: Milliseconds since 1970.
    """

    broker_id: Long
    designate_elect: bool
    invoke_time: Long


class ReplicaInfoRequest(Header):
    """Code 1004: who is master?"""

    broker_name: str


class ReplicaInfoAnswer(Header):
    """Answers code 1004; the SyncStateSet is in the body."""

    master_broker_id: Long | None = None
    master_address: str | None = None
    master_epoch: int | None = None


class ElectMasterAnswer(ReplicaInfoAnswer):
    """Answers code 1002; of a failed election all are absent."""

    sync_state_set_epoch: int | None = None


class AlterSyncStateSetRequest(Header):
    """Code 1001: a master proposes other ids; they are in the body, with the epoch of the set that
    is to be replaced.
    """

    broker_name: str
    master_broker_id: Long
    master_epoch: int
    invoke_time: Long


class AlterSyncStateSetAnswer(Header):
    """Answers code 1001."""

    new_sync_state_set_epoch: int


class RoleChangedRequest(Header):
    """Code 1008, one-way, from a controller to a member's client port.

    @ivar master_broker_id: Absent if there is none now, as is its address.
    """

    master_address: str | None = None
    master_broker_id: Long | None = None
    master_epoch: int
    sync_state_set_epoch: int
