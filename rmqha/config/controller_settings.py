"""Controller mode: who says which member of a set is its master.

L{rmqha.config.settings} tells how these settings are written.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from rmqha.config.keys import Derived, Origin, key
from rmqha.config.values import ENDPOINTS, INT_MAX, SWITCH, choice, millis, whole


class CutPolicy(StrEnum):
    """C{controllerCutPolicy}: what of its log a node of a set cuts off to be like its master."""

    UNCONFIRMED = "unconfirmed"
    ALL = "all"
    NEVER = "never"


class AloneAnswer(StrEnum):
    """C{controllerAloneAnswer}: what a SYNC write is answered that nobody else holds."""

    NOT_AVAILABLE = "not-available"
    OK = "ok"


class ControllerType(StrEnum):
    """C{controllerType}: what elects a set's master."""

    ROCKETMQ = "rocketmq"
    ETCD = "etcd"


@frozen(kw_only=True)
class ControllerSettings:
    """How a node takes part in a set whose master is elected."""

    enabled: bool = key("enableControllerMode", SWITCH, "false", origin=Origin.RMQ53)
    """Whether a controller elects the set's master. A node is a member of the set then
    (C{--role member}), or follows it as a learner (asyncLearner)."""

    kind: ControllerType = key(
        "controllerType", choice(ControllerType), "rocketmq", origin=Origin.OURS
    )
    """What elects the master: RocketMQ's controllers (controllerAddr), or the members themselves,
    by leases in etcd (etcdAddresses)."""

    addresses: str = key("controllerAddr", ENDPOINTS, "", origin=Origin.RMQ53)
    """The controllers, host:port, several separated by ;."""

    learner: bool = key("asyncLearner", SWITCH, "false", origin=Origin.RMQ53)
    """Whether a slave is no member of the set: no write waits for it, and it is never elected.
    Its readers see the log up to the confirm offset that the master tells."""

    heartbeat: float = key("brokerHeartbeatInterval", millis(), "1000", origin=Origin.RMQ53)
    """Pause between a member's signs of life to the controllers."""

    heartbeat_timeout: float = key(
        "controllerHeartBeatTimeoutMills", millis(), "10000", origin=Origin.RMQ53
    )
    """Silence after which controllers take a member for dead."""

    priority: int = key(
        "brokerElectionPriority", whole(0, INT_MAX), str(INT_MAX), origin=Origin.RMQ53
    )
    """Of members that are equal the one with the smallest number is elected."""

    min_in_sync: int = key("minInSyncReplicas", whole(1, 1000), "1", origin=Origin.RMQ53)
    """In controller mode, the least size of the SyncStateSet with which a master takes writes,
    itself included."""

    all_ack: bool = key("allAckInSyncStateSet", SWITCH, "false", origin=Origin.RMQ53)
    """In controller mode a SYNC write always waits for all of the SyncStateSet here, whatever this
    says; stock members need true for it."""

    late_after: float = key("haMaxTimeSlaveNotCatchup", millis(), "15000", origin=Origin.RMQ53)
    """How long a member may lag behind the master before it leaves the SyncStateSet."""

    alone: AloneAnswer = key(
        "controllerAloneAnswer", choice(AloneAnswer), "not-available", origin=Origin.OURS
    )
    """What a SYNC write is answered that no other member holds: SLAVE_NOT_AVAILABLE, or C{ok} as in
    RocketMQ."""

    fence_after: float = key(
        "controllerFenceAfter",
        millis(),
        "10000",
        derived=Derived(
            "controllerHeartBeatTimeoutMills", lambda of: of("controllerHeartBeatTimeoutMills")
        ),
        origin=Origin.OURS,
    )
    """How long no controller answers before a master takes no more writes, unless everybody is
    connected who could have been elected."""

    allow_last_file: bool = key("haAllowLastFile", SWITCH, "false", origin=Origin.OURS)
    """Whether members may join that want the master's last file alone (syncFromLastFile)."""

    cut_policy: CutPolicy = key(
        "controllerCutPolicy", choice(CutPolicy), "unconfirmed", origin=Origin.OURS
    )
    """What a node may cut off its own log to be like the elected master: what lies above the
    confirm offset, which no reader has seen (C{unconfirmed}), all, or nothing (C{never}). What is
    cut off is kept in quarantine. haMaxTruncateBytes limits it too."""

    @property
    def alone_is_enough(self) -> bool:
        """Whether a SYNC write is acknowledged that nobody else holds."""
        return self.alone is AloneAnswer.OK

    @property
    def etcd(self) -> bool:
        """Whether etcd is asked, and no controller."""
        return self.kind is ControllerType.ETCD

    @property
    def member(self) -> bool:
        """Whether the node is a member of its set."""
        return self.enabled and not self.learner
