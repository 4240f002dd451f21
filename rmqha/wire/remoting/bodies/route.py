"""What a name server knows: which brokers there are and who has which topic.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class MemberGroup:
    """The brokers of one name; answers code 901, in L{MemberGroupAnswer}.

    @ivar broker_addrs: C{ip:port} by id; 0 is the master.
    """

    broker_name: str
    cluster: str | None = None
    broker_addrs: dict[int, str] = field(factory=dict)


@frozen(kw_only=True)
class BrokerData(MemberGroup):
    """The same in a route.

    @ivar enable_acting_master: 5.x.
    """

    enable_acting_master: bool | None = None
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class QueueData:
    """A topic's queues on the brokers of one name.

    @ivar perm: Bits: 4 read, 2 write, 1 inherit.
    """

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


@frozen(kw_only=True)
class TopicRoute:
    """Answers code 105.

    @ivar order_topic_conf: C{broker:queues} with semicolons between.
    @ivar filter_server_table: Filter servers by broker address.
    """

    broker_datas: tuple[BrokerData, ...] = ()
    filter_server_table: dict[str, tuple[str, ...]] = field(factory=dict)
    queue_datas: tuple[QueueData, ...] = ()
    order_topic_conf: str | None = None
    extra: dict[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class ClusterInfo:
    """Answers code 106.

    @ivar broker_addr_table: By broker name.
    @ivar cluster_addr_table: Broker names by cluster.
    """

    broker_addr_table: dict[str, BrokerData] = field(factory=dict)
    cluster_addr_table: dict[str, tuple[str, ...]] = field(factory=dict)


@frozen(kw_only=True)
class MemberGroupAnswer:
    """Answers code 901: the brokers of one name."""

    broker_member_group: MemberGroup | None = None


@frozen(kw_only=True)
class KvTable:
    """Texts by name; answers codes 28, 103 and 219."""

    table: dict[str, str] = field(factory=dict)


@frozen(kw_only=True)
class KvTables:
    """Such tables by namespace: C{kvConfig.json}."""

    config_table: dict[str, dict[str, str]] = field(factory=dict)
