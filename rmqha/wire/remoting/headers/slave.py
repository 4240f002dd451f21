"""What a master and its slaves tell each other, and what 5.x brokers tell a name server of them.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long


class MemberGroupRequest(Header):
    """Code 901: the brokers of one name."""

    cluster_name: str
    broker_name: str


class SlaveTablesRequest(Header):
    """Codes 21 and 402, when a slave of ours asks its master: stock brokers send no header, and
    ignore ours.

    @ivar ha_listen_port: Where slaves connect to the one that asks; 0 for nowhere.
    """

    ha_listen_port: int | None = None


class BrokerHeartbeatRequest(Header):
    """Code 904.

    @ivar heartbeat_timeout_mills: How long it may be silent.
    @ivar max_offset: Where its log ends, in bytes.
    """

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    epoch: int | None = None
    max_offset: Long | None = None
    confirm_offset: Long | None = None
    heartbeat_timeout_mills: Long | None = None
    election_priority: int | None = None


class EpochClaim(Header):
    """Code 28, from a broker of ours: the master that it knows.  Stock brokers ask and answer 28
    without a header.

    @ivar broker_name: The name of the asking broker.
    @ivar master_epoch: The master epoch of its master, or of itself if it is one.
    @ivar master_addr: C{host:port} of that master's client port.
    """

    broker_name: str
    master_epoch: int
    master_addr: str


class HaInfo(Header):
    """Code 906, both ways: empty as a question, a master's addresses as its answer.

    @ivar master_flush_offset: How far the master's log is on disk, in bytes.
    @ivar takes_tokens: Ours, a set's master: whether a member may tell it a token on its HA port.
    """

    takes_tokens: bool | None = None
    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None
