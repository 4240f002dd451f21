"""Controller mode: SyncStateSets, members and epochs.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from rmqha.wire.remoting.bodies.route import MemberGroup

LAST_END = (1 << 63) - 1
"""Where the newest epoch of a log ends."""


@frozen(kw_only=True)
class SyncStateSet:
    """The ids from which a master may be elected; with codes 1001, 1003, 1004 and 1008.

    @ivar sync_state_set: In no order.
    @ivar sync_state_set_epoch: How often the set was changed.  With 1001 that of the set that is
        to be replaced.
    """

    sync_state_set: tuple[int, ...] = ()
    sync_state_set_epoch: int = 0


@frozen(kw_only=True)
class ElectedMaster:
    """Answers code 1002.

    @ivar broker_member_group: All members by id; absent where the master still exists.
    """

    broker_member_group: MemberGroup | None = None
    sync_state_set: tuple[int, ...] = ()


@frozen(kw_only=True)
class SetMember:
    """One member as a controller sees it."""

    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool | None = None
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class ReplicasInfo:
    """One set as a controller sees it.

    @ivar master_broker_id: Absent while there is no master, as is its address.
    """

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: tuple[SetMember, ...] = ()
    not_in_sync_replicas: tuple[SetMember, ...] = ()


@frozen(kw_only=True)
class SyncStateData:
    """Answers code 1006, whose body is a list of names.

    @ivar replicas_info_table: By name; those that are not known are left out.
    """

    replicas_info_table: dict[str, ReplicasInfo] = field(factory=dict)


@frozen(kw_only=True)
class EpochRange:
    """Which bytes of a log are filed under a label.

    @ivar end_offset: Where they end; L{LAST_END} for the newest.
    """

    epoch: int
    start_offset: int
    end_offset: int = LAST_END


@frozen(kw_only=True)
class EpochCache:
    """Answers code 1007.

    @ivar broker_id: As in the routes: 0 is the master.
    @ivar max_offset: Where the log ends.
    @ivar compares_bytes: Ours: whether the member reports only what it has compared with its
        master's log, or got from it.
    @ivar generation: Ours: that of the published point, by which a copy of the disk is known.
    @ivar token_told: Ours, where a token came with the question: whether the member has told it on
        its connection to that master's HA port.
    """

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: int
    epoch_list: tuple[EpochRange, ...] = ()
    compares_bytes: bool | None = None
    generation: str | None = None
    token_told: bool | None = None
    max_offset: int
