"""What brokers and clients ask a name server.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from rmqha.wire.remoting.fields import Header, Long


class RegisterBrokerRequest(Header):
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


class RegisterBrokerAnswer(Header):
    """Tells a slave where its master is, and a master of ours that it is not in the routes because
    another has a higher epoch.

    @ivar master_epoch: That master's; from name servers of ours.
    """

    ha_server_addr: str | None = None
    master_addr: str | None = None
    master_epoch: int | None = None


class BrokerRequest(Header):
    """Codes 104 and 322: one broker, by all its names."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class DataVersionAnswer(Header):
    """Answers code 322: whether the broker has to register again."""

    changed: bool


class RouteRequest(Header):
    """Code 105.

    @ivar accept_standard_json_only: Whether numeric keys must be in quotes.
    """

    topic: str
    accept_standard_json_only: bool = False


class BrokerNameRequest(Header):
    """Codes 205 and 327: wipe or restore a broker's write permission."""

    broker_name: str


class WipeWritePermAnswer(Header):
    """Answers code 205: how many topics the broker has."""

    wipe_topic_count: int


class AddWritePermAnswer(Header):
    """Answers code 327: how many topics the broker has."""

    add_topic_count: int


class DeleteTopicRequest(Header):
    """Code 216.

    @ivar cluster_name: Its brokers only; absent for all.
    """

    topic: str
    cluster_name: str | None = None


class ClusterRequest(Header):
    """Code 224: the topics of one cluster."""

    cluster: str


class PutKvRequest(Header):
    """Code 100: set a text."""

    namespace: str
    key: str
    value: str


class KvRequest(Header):
    """Codes 101 and 102: read or delete a text."""

    namespace: str
    key: str


class NamespaceRequest(Header):
    """Code 219: all texts of a namespace."""

    namespace: str


class KvAnswer(Header):
    """Answers code 101: the text."""

    value: str | None = None
