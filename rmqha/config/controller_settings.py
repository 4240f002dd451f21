"""Controller mode: who says which member of a set is its master.

L{rmqha.config.settings} tells how these settings are written.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from rmqha.config.keys import Derived, later_key, own_key
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

    enabled: bool = later_key("enableControllerMode", SWITCH, "false")
    """Whether a controller elects the set's master. A node is a member of the set then
    (C{--role member}), or follows it as a learner (asyncLearner)."""

    kind: ControllerType = own_key("controllerType", choice(ControllerType), "rocketmq")
    """What elects the master: RocketMQ's controllers (controllerAddr), or the members themselves,
    by leases in etcd (etcdAddresses)."""

    addresses: str = later_key("controllerAddr", ENDPOINTS, "")
    """The controllers, host:port, several separated by ;."""

    learner: bool = later_key("asyncLearner", SWITCH, "false")
    """Whether a slave is no member of the set: no write waits for it, and it is never elected.
    Its readers see the log up to the confirm offset that the master tells."""

    heartbeat: float = later_key("brokerHeartbeatInterval", millis(), "1000")
    """Pause between a member's signs of life to the controllers."""

    heartbeat_timeout: float = later_key("controllerHeartBeatTimeoutMills", millis(), "10000")
    """Silence after which controllers take a member for dead."""

    priority: int = later_key("brokerElectionPriority", whole(0, INT_MAX), str(INT_MAX))
    """Of members that are equal the one with the smallest number is elected."""

    min_in_sync: int = later_key("minInSyncReplicas", whole(1, 1000), "1")
    """In controller mode, the least size of the SyncStateSet with which a master takes writes,
    itself included."""

    all_ack: bool = later_key("allAckInSyncStateSet", SWITCH, "false")
    """In controller mode a SYNC write always waits for all of the SyncStateSet here, whatever this
    says; stock members need true for it."""

    late_after: float = later_key("haMaxTimeSlaveNotCatchup", millis(), "15000")
    """How long a member may lag behind the master before it leaves the SyncStateSet."""

    alone: AloneAnswer = own_key("controllerAloneAnswer", choice(AloneAnswer), "not-available")
    """What a SYNC write is answered that no other member holds: SLAVE_NOT_AVAILABLE, or C{ok} as in
    RocketMQ."""

    fence_after: float = own_key(
        "controllerFenceAfter",
        millis(),
        "10000",
        derived=Derived(
            "controllerHeartBeatTimeoutMills", lambda of: of("controllerHeartBeatTimeoutMills")
        ),
    )
    """How long no controller answers before a master takes no more writes, unless everybody is
    connected who could have been elected."""

    allow_last_file: bool = own_key("haAllowLastFile", SWITCH, "false")
    """Whether members may join that want the master's last file alone (syncFromLastFile)."""

    cut_policy: CutPolicy = own_key("controllerCutPolicy", choice(CutPolicy), "unconfirmed")
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
