"""What a broker is and what its clients get, and the keys of the file that say it.

L{rmqha.config.settings} tells how they are written.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from enum import StrEnum
from fcntl import ioctl
from functools import cache
from ipaddress import ip_address

from attrs import frozen

from rmqha.config.keys import Derived, Lookup, key, later_key, own_key
from rmqha.config.values import (
    ENDPOINTS,
    HOST_ADDRESS,
    LONG_MAX,
    PERMISSION,
    SOME_TEXT,
    SWITCH,
    choice,
    millis,
    percent,
    whole,
)
from rmqha.wire.names import TRACE_TOPIC

DEFAULT_LISTEN_PORT = 10911
"""C{listenPort}; other ports are counted from it where there is no client port."""

SIOCGIFADDR = 0x8915
"""Linux's request for an interface's address; Python has no name for it."""

_ANSWER = whole(1, 8 << 20, "bytes")

DEFAULT_ROLL_WINDOW = 172_800
"""C{timerRollWindowSlot}: two days of seconds."""


class BrokerRole(StrEnum):
    """C{brokerRole}: who takes writes, and what they wait for."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"

    @property
    def is_master(self) -> bool:
        """Whether this node takes writes and feeds slaves."""
        return self is not BrokerRole.SLAVE


def host_name() -> str:
    """RocketMQ's default broker name: this host's name."""
    return socket.gethostname() or "DEFAULT_BROKER"


def local_address() -> str:
    """The address this host sends from; without a default route its first one beyond loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A datagram socket sends nothing when it connects; it only picks a route.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return next(interface_addresses(probe), "127.0.0.1")


def interface_addresses(asked: socket.socket) -> Iterator[str]:
    """One IPv4 address of each interface that has any, in the system's order, without loopback.

    @param asked: Any socket of the system.
    """
    for _, name in socket.if_nameindex():
        try:
            answer = ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()))
        except OSError:
            continue  # it has no such address
        address = socket.inet_ntoa(answer[20:24])
        if not ip_address(address).is_loopback:
            yield address


def base_port(of: Lookup) -> int:
    """The port that others are counted from."""
    return of("listenPort") or DEFAULT_LISTEN_PORT


@frozen(kw_only=True)
class BrokerSettings:
    """What this broker is, and what its clients may do."""

    role: BrokerRole = key(
        "brokerRole",
        choice(BrokerRole),
        derived=Derived(
            "SLAVE with C{--role slave}, else ASYNC_MASTER", lambda of: BrokerRole.ASYNC_MASTER
        ),
    )
    """Whether this broker is a slave or a master, and whether a master's writes wait for its
    slaves. Must not contradict C{--role}."""

    id: int = key(
        "brokerId",
        whole(0, LONG_MAX),
        derived=Derived(
            "0 on a master, 1 on a slave", lambda of: 0 if of("brokerRole").is_master else 1
        ),
    )
    """0 on a master, 1 or more on a slave; anything else is refused."""

    name: str = key(
        "brokerName", SOME_TEXT, derived=Derived("the host's name", lambda of: host_name())
    )
    """The name that a master and its slaves share."""

    cluster: str = key("brokerClusterName", SOME_TEXT, "DefaultCluster")
    """The cluster's name."""

    listen_port: int = key("listenPort", whole(0, 65535), str(DEFAULT_LISTEN_PORT))
    """The client port. There is another one, the VIP port, two below it; the HA and admin ports are
    counted from it. 0 opens no client port; the others are then counted from 10911."""

    ip1: str = key(
        "brokerIP1",
        HOST_ADDRESS,
        "127.0.0.1",
        derived=Derived("this host's address", lambda of: local_address()),
    )
    """The address that clients are told. It is written into every record as its store host. A
    name is looked up at the start, and every 30 seconds for what name servers are told."""

    ip2: str = key(
        "brokerIP2",
        SOME_TEXT,
        "127.0.0.1",
        derived=Derived("this host's address", lambda of: local_address()),
    )
    """The host that slaves are told as that of the HA port. A name is told as it is; slaves look it
    up each time they connect."""

    namesrv: str = key("namesrvAddr", ENDPOINTS, "")
    """Addresses of the name servers, host:port, separated by semicolons."""

    store_replies: bool = key("storeReplyMessageEnable", SWITCH, "true")
    """Whether the reply to a request message is also stored in a topic, besides being pushed to the
    requester."""

    permission: int = key("brokerPermission", PERMISSION, "6")
    """What clients may do on this broker."""

    region: str = key("regionId", SOME_TEXT, "DefaultRegion")
    """The region that producers are told."""

    trace_on: bool = key("traceOn", SWITCH, "true")
    """Whether producers are told to send message traces."""

    auto_create_topics: bool = key("autoCreateTopicEnable", SWITCH, "true")
    """Whether sending to a topic that does not exist creates it."""

    auto_create_groups: bool = key("autoCreateSubscriptionGroup", SWITCH, "true")
    """Whether using a consumer group that does not exist creates it."""

    topic_queues: int = key("defaultTopicQueueNums", whole(1, 1024), "8")
    """Most queues of a topic that is created by sending to it."""

    cluster_topic: bool = key("clusterTopicEnable", SWITCH, "true")
    """Whether the topic named like the cluster can be used."""

    broker_topic: bool = key("brokerTopicEnable", SWITCH, "true")
    """Whether the topic named like the broker can be used."""

    trace_topic: bool = key("traceTopicEnable", SWITCH, "false")
    """Whether the topic of message traces exists from the start."""

    trace_topic_name: str = key("msgTraceTopicName", SOME_TEXT, TRACE_TOPIC)
    """The name of the topic of message traces."""

    reject_transactions: bool = key("rejectTransactionMessage", SWITCH, "false")
    """Whether transactional messages are refused."""

    accept_sends_from: float = key("startAcceptSendRequestTimeStamp", millis(0, LONG_MAX), "0")
    """The time before which messages are refused, since 1970."""

    @property
    def address(self) -> str:
        """Where clients find this broker, C{host:port}."""
        return f"{self.ip1}:{self.listen_port}"


@frozen(kw_only=True)
class PullSettings:
    """What pulls and queries return, and how long they wait."""

    long_polling: bool = key("longPollingEnable", SWITCH, "true")
    """Whether a pull that finds no message may wait as long as the client asks for (long
    polling)."""

    short_polling: float = key("shortPollingTimeMills", millis(), "1000")
    """How long such a pull waits with longPollingEnable=false."""

    memory_bytes: int = key("maxTransferBytesOnMessageInMemory", _ANSWER, "262144")
    """Most bytes of messages in one pull response; the first message is always sent."""

    memory_count: int = key("maxTransferCountOnMessageInMemory", whole(1), "32")
    """Most messages in one pull response."""

    disk_bytes: int = key("maxTransferBytesOnMessageInDisk", _ANSWER, "65536")
    """Most bytes in one pull response, of messages that are probably not in memory."""

    disk_count: int = key("maxTransferCountOnMessageInDisk", whole(1), "8")
    """Most messages in one pull response, if they are probably not in memory."""

    memory_ratio: float = key("accessMessageInMemoryMaxRatio", percent(10, 95), "40")
    """Share of the machine's memory that the newest part of the commit log is assumed to have; on a
    slave it is 10 percent less."""

    memory_size: int = own_key("accessMessageInMemoryBytes", whole(0, LONG_MAX, "bytes"), "0")
    """The same in bytes, on masters and slaves alike, for where the machine's memory says little:
    in a container, in a test. 0 goes by accessMessageInMemoryMaxRatio."""

    slave_read: bool = key("slaveReadEnable", SWITCH, "false")
    """Whether a consumer that lags behind further than that is sent to a slave."""

    check_in_slave: bool = key("offsetCheckInSlave", SWITCH, "false")
    """Whether a slave corrects a consumer's offset that lies outside its queues, although it may
    be the slave that lags behind."""

    property_filter: bool = key("enablePropertyFilter", SWITCH, "false")
    """Whether consumers may filter messages by their properties, with expressions in SQL92. Each
    message is looked at in the log for each such group."""

    notify: bool = key("notifyConsumerIdsChangedEnable", SWITCH, "true")
    """Whether the consumers of a group are notified at once when its members change."""

    query_most: int = key("defaultQueryMaxNum", whole(1), "32")
    """Most messages returned by one query by unique key."""


@frozen(kw_only=True)
class TransactionSettings:
    """When the producers of half messages are asked about them."""

    timeout: float = key("transactionTimeOut", millis(), "6000")
    """Age at which a half message is checked: its producer is asked whether to commit it."""

    check_max: int = key("transactionCheckMax", whole(1), "15")
    """How often the producer is asked; then the message goes to TRANS_CHECK_MAX_TIME_TOPIC. A
    restart begins to count anew."""

    check_interval: float = key("transactionCheckInterval", millis(), "60000")
    """Pause between checks of half messages."""


def _fitting_window(of: Lookup) -> int:
    slots = of("fileReservedTime") * 1000 / TimerSettings.slot(of("timerPrecisionMs"))
    return max(2, min(DEFAULT_ROLL_WINDOW, int(slots * 2 / 3)))


@frozen(kw_only=True)
class TimerSettings:
    """Messages that are delivered at a time of their own."""

    enabled: bool = later_key("timerWheelEnable", SWITCH, "true")
    """Whether messages may name the time of their delivery. Those that wait already are delivered
    in any case."""

    max_delay: int = later_key("timerMaxDelaySec", whole(1), "259200")
    """Most seconds until the delivery of a message."""

    precision_ms: int = later_key("timerPrecisionMs", whole(100), "1000")
    """To what TIMER_OUT_MS is rounded down: 1000, 500, 200 or 100 milliseconds, the nearest that is
    not more. It is built into messages: keep what the store was written with."""

    roll_window: int = later_key(
        "timerRollWindowSlot",
        whole(2, 604_740),
        str(DEFAULT_ROLL_WINDOW),
        derived=Derived("172800, or two thirds of fileReservedTime", _fitting_window),
    )
    """Slots of timerPrecisionMs after which a message that still waits is stored anew, before its
    log file is deleted."""

    recalls: bool = later_key("recallMessageEnable", SWITCH, "false")
    """Whether producers may recall messages that wait."""

    @property
    def precision(self) -> int:
        """The slot of a message, in milliseconds."""
        return self.slot(self.precision_ms)

    @property
    def window_ms(self) -> int:
        """After how many milliseconds a message is stored anew."""
        return self.roll_window * self.precision

    @staticmethod
    @cache
    def slot(precision_ms: int) -> int:
        """What a precision is rounded down to."""
        return max(slot for slot in (1000, 500, 200, 100) if slot <= precision_ms)


class DefaultMode(StrEnum):
    """C{defaultMessageRequestMode}: how a group consumes if nobody has set it."""

    PULL = "PULL"
    POP = "POP"


@frozen(kw_only=True)
class PopSettings:
    """How groups of RocketMQ 5 share out what they consume."""

    default_mode: DefaultMode = later_key("defaultMessageRequestMode", choice(DefaultMode), "PULL")
    """How a group consumes a topic if that was not set with mqadmin setConsumeMode: with PULL each
    of its members has queues of its own, with POP the broker shares out single messages."""

    default_share: int = later_key("defaultPopShareQueueNum", whole(-1), "-1")
    """With POP by default, of how many members after it each has the queues too; -1 or 0 gives all
    queues to everybody."""

    balance: bool = later_key("serverLoadBalancerEnable", SWITCH, "true")
    """Whether members that ask which queues are theirs are given a share. Otherwise each is given
    all of them."""

    retry_v2: bool = later_key("enableRetryTopicV2", SWITCH, "false")
    """Whether what was not acknowledged comes again by %RETRY%group+topic. By default it is
    %RETRY%group_topic, which other groups may have too. Both are read."""


@frozen(kw_only=True)
class RegistrationSettings:
    """When and how a broker registers with name servers."""

    period: float = key("registerNameServerPeriod", millis(), "30000")
    """Pause between two registrations with the name servers; less than 10 seconds is 10, more than
    60 is 60."""

    timeout: float = key("registerBrokerTimeoutMills", millis(), "6000")
    """Longest wait for a name server's response."""

    force: bool = key("forceRegister", SWITCH, "true")
    """Whether each registration sends all topics, even if the name server knows them."""

    compressed: bool = key("compressedRegister", SWITCH, "false")
    """Whether registrations are compressed."""
