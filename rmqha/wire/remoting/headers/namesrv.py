"""What brokers and clients ask a name server.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.wire.remoting.fields import Long


@frozen(kw_only=True)
class RegisterBrokerRequest:
    """Code 103; the topics are in the body.

    @ivar broker_addr: C{ip:port}, as clients shall dial it.
    @ivar ha_server_addr: C{ip:port} slaves shall dial.
    @ivar broker_id: 0 is the master.
    @ivar compressed: Whether the body is.
    @ivar body_crc32: CRC-32 of the body as sent without its highest bit; 0 is no check.
    @ivar heartbeat_timeout_millis: How long it may be silent; 5.x.
    @ivar enable_acting_master: 5.x.
    @ivar master_epoch: From brokers of ours: of two masters the one with the higher counts.
    """

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    compressed: bool = False
    body_crc32: int = 0
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    master_epoch: int | None = None


@frozen(kw_only=True)
class RegisterBrokerAnswer:
    """Tells a slave where its master is, and a master of ours that it is not in the routes because
    another has a higher epoch.

    @ivar master_epoch: That master's; from name servers of ours.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None
    master_epoch: int | None = None


@frozen(kw_only=True)
class BrokerRequest:
    """Codes 104 and 322: one broker, by all its names."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


@frozen(kw_only=True)
class DataVersionAnswer:
    """Answers code 322: whether the broker has to register again."""

    changed: bool


@frozen(kw_only=True)
class RouteRequest:
    """Code 105.

    @ivar accept_standard_json_only: Whether numeric keys must be in quotes.
    """

    topic: str
    accept_standard_json_only: bool = False


@frozen(kw_only=True)
class BrokerNameRequest:
    """Codes 205 and 327: wipe or restore a broker's write permission."""

    broker_name: str


@frozen(kw_only=True)
class WipeWritePermAnswer:
    """Answers code 205: how many topics the broker has."""

    wipe_topic_count: int


@frozen(kw_only=True)
class AddWritePermAnswer:
    """Answers code 327: how many topics the broker has."""

    add_topic_count: int


@frozen(kw_only=True)
class DeleteTopicRequest:
    """Code 216.

    @ivar cluster_name: Its brokers only; absent for all.
    """

    topic: str
    cluster_name: str | None = None


@frozen(kw_only=True)
class ClusterRequest:
    """Code 224: the topics of one cluster."""

    cluster: str


@frozen(kw_only=True)
class PutKvRequest:
    """Code 100: set a text."""

    namespace: str
    key: str
    value: str


@frozen(kw_only=True)
class KvRequest:
    """Codes 101 and 102: read or delete a text."""

    namespace: str
    key: str


@frozen(kw_only=True)
class NamespaceRequest:
    """Code 219: all texts of a namespace."""

    namespace: str


@frozen(kw_only=True)
class KvAnswer:
    """Answers code 101: the text."""

    value: str | None = None
