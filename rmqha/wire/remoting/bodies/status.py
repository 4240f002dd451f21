"""Statistics and states of a broker.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.wire.remoting.bodies.clients import SubscriptionData


@frozen(kw_only=True)
class StatsItem:
    """A statistic over some time.

    @ivar sum: What was counted.
    @ivar tps: That, a second.
    @ivar avgpt: That, per event.
    """

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@frozen(kw_only=True)
class BrokerStats:
    """Answers code 315: one statistic over three spans of time."""

    stats_minute: StatsItem = StatsItem()
    stats_hour: StatsItem = StatsItem()
    stats_day: StatsItem = StatsItem()


@frozen(kw_only=True)
class QueueUnit:
    """A unit of a consume queue.

    @ivar physic_offset: Where the message is in the log, in bytes.
    @ivar eval: Whether a group's filter lets it pass.
    """

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False
    msg: str | None = None
    bit_map: str | None = None
    extend_data_json: str | None = None


@frozen(kw_only=True)
class QueueUnits:
    """Answers code 321: units of a consume queue."""

    queue_data: tuple[QueueUnit, ...] = ()
    min_queue_index: int = 0
    max_queue_index: int = 0
    filter_data: str | None = None
    subscription_data: SubscriptionData | None = None


@frozen(kw_only=True)
class HaClientInfo:
    """A slave's side of replication; offsets in bytes."""

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0


@frozen(kw_only=True)
class HaConnectionInfo:
    """A master's view of one slave; offsets in bytes.

    @ivar addr: C{ip:port}.
    @ivar diff: What it lacks.
    """

    addr: str
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0


@frozen(kw_only=True)
class HaStatus:
    """Answers code 907: replication as a node sees it; offsets in bytes."""

    master: bool
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: tuple[HaConnectionInfo, ...] = ()
    ha_client_runtime_info: HaClientInfo = HaClientInfo()
