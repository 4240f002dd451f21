"""
What a node is told to do, as frozen values, and the keys of the file that say it.

Each field is one key, declared once: its name, what its text may be, its default as
RocketMQ's documentation writes it, and below it what it does.  Inside, times are float
seconds, sizes bytes and ratios 0 to 1, whatever the file's units are.

L{rmqha.config.load.load} is the only place where text becomes settings, so
everything behind it can trust them.  A test may make them and name only what it is about.

docs/guide/configuration.rst is made from these classes.
"""

from __future__ import annotations

import socket
from enum import StrEnum
from pathlib import Path

from attrs import field, frozen

from rmqha.config.keys import Derived, Lookup, Origin, key
from rmqha.config.values import (
    LONG_MAX,
    Address,
    Choice,
    ClientAddress,
    Endpoint,
    Endpoints,
    FilePath,
    Folder,
    Hours,
    HoursOfDay,
    Integer,
    Levels,
    Millis,
    Network,
    Networks,
    Percent,
    Permission,
    QueueFile,
    Switch,
    Text,
)

MIB = 1 << 20

DEFAULT_MAX_MESSAGE_SIZE = 4 * MIB
"""C{maxMessageSize}: most bytes of one body."""

MAX_BATCH = 4 * MIB - 12
"""Most of C{haTransferBatchSize}: a stock slave's read buffer holds header and body
together, and wedges on more (docs/protocol/ha.rst, Frames)."""

DEFAULT_LISTEN_PORT = 10911
"""C{listenPort}; other ports are counted from it where there is no client port."""

HA_PORT_STEP = 1
"""C{haListenPort} is this far above C{listenPort} (docs/protocol/ha.rst, Ports)."""

ADMIN_PORT_STEP = 3
"""C{adminListenPort} is this far above C{listenPort}: RocketMQ uses -2 and +1."""

RECORD_OVERHEAD = 64 * 1024
"""Most bytes of a record that are not its body: what RocketMQ allows for headers
and properties together (docs/protocol/store.rst, Sizes)."""

BLANK_MIN = 8
"""A log file always keeps room for the header of its blank tail, in bytes."""

_PAGES = Integer(0, unit="4 KiB pages")
_BYTES = Integer(0, LONG_MAX, "bytes")
_ANSWER = Integer(1, 8 * MIB, "bytes")


class BrokerRole(StrEnum):
    """
    C{brokerRole}: who takes writes, and what they wait for.
    """

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"

    @property
    def is_master(self) -> bool:
        """
        Whether this node takes writes and feeds slaves.
        """
        return self is not BrokerRole.SLAVE


class FlushDisk(StrEnum):
    """
    C{flushDiskType}: whether a write waits for the disk.
    """

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class FirstSync(StrEnum):
    """
    C{haFirstSync}: where an empty slave starts.
    """

    BEGINNING = "beginning"
    LAST_FILE = "last-file"


class DivergencePolicy(StrEnum):
    """
    C{haDivergencePolicy}: what a slave does when its log is not its master's.
    """

    STOP = "stop"
    TRUNCATE = "truncate"
    REBOOTSTRAP = "rebootstrap"


class ReplicaIdentity(StrEnum):
    """
    C{haReplicaIdentity}: what makes two connections two replicas.
    """

    ADDRESS = "address"
    CONNECTION = "connection"


class TlsMode(StrEnum):
    """
    C{tlsMode}: what a client port accepts.
    """

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(StrEnum):
    """
    C{tlsClientAuth}: whether clients show certificates.
    """

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


def host_name() -> str:
    """
    RocketMQ's default broker name: this host's name.
    """
    return socket.gethostname() or "DEFAULT_BROKER"


def fitting_message_size(file_size: int) -> int:
    """
    The largest body whose record surely fits a log file, in bytes.

    @param file_size: C{mappedFileSizeCommitLog}, in bytes.
    @return: At least 1, at most RocketMQ's default of 4 MiB.
    """
    return max(1, min(DEFAULT_MAX_MESSAGE_SIZE, file_size - BLANK_MIN - RECORD_OVERHEAD))


def local_address() -> str:
    """
    The address this host sends from, or the loopback one if it has no network.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # A datagram socket sends nothing when it connects; it only picks a route.
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def base_port(of: Lookup) -> int:
    """
    The port that others are counted from.
    """
    return of("listenPort") or DEFAULT_LISTEN_PORT


def client_address(of: Lookup) -> tuple[str, int] | None:
    """
    Where a stock master's clients connect, by where its slaves do.
    """
    master = of("haMasterAddress")
    if master is None or master[1] <= HA_PORT_STEP:
        return None
    return master[0], master[1] - HA_PORT_STEP


@frozen(kw_only=True)
class BrokerSettings:
    """
    What this broker is, and what its clients may do.
    """

    role: BrokerRole = key(
        "brokerRole",
        Choice(BrokerRole),
        derived=Derived(
            "SLAVE with C{--role slave}, else ASYNC_MASTER", lambda of: BrokerRole.ASYNC_MASTER
        ),
    )
    """Whether this broker is a slave or a master, and whether a master's writes wait for its
    slaves. Must not contradict C{--role}."""

    id: int = key(
        "brokerId",
        Integer(0, LONG_MAX),
        derived=Derived(
            "0 on a master, 1 on a slave", lambda of: 0 if of("brokerRole").is_master else 1
        ),
    )
    """0 on a master, 1 or more on a slave; anything else is refused."""

    name: str = key(
        "brokerName", Text(empty=False), derived=Derived("the host's name", lambda of: host_name())
    )
    """The name that a master and its slaves share."""

    cluster: str = key("brokerClusterName", Text(empty=False), "DefaultCluster")
    """The cluster's name."""

    listen_port: int = key("listenPort", Integer(0, 65535), str(DEFAULT_LISTEN_PORT))
    """The client port. There is another one, the VIP port, two below it; the HA and admin ports are
    counted from it. 0 opens no client port; the others are then counted from 10911."""

    ip1: str = key(
        "brokerIP1",
        Address(empty=False),
        "127.0.0.1",
        derived=Derived("this host's address", lambda of: local_address()),
    )
    """The address that clients are told. It is written into every record as its store host."""

    ip2: str = key(
        "brokerIP2",
        Text(empty=False),
        "127.0.0.1",
        derived=Derived("this host's address", lambda of: local_address()),
    )
    """The host that slaves are told as that of the HA port."""

    namesrv: str = key("namesrvAddr", Endpoints(), "")
    """Addresses of the name servers, host:port, separated by semicolons."""

    store_replies: bool = key("storeReplyMessageEnable", Switch(), "true")
    """Whether the reply to a request message is also stored in a topic, besides being pushed to the
    requester."""

    permission: int = key("brokerPermission", Permission(), "6")
    """What clients may do on this broker. Without write permission messages are refused and
    producers are told so; without read permission pulls are refused."""

    region: str = key("regionId", Text(empty=False), "DefaultRegion")
    """The region that producers are told."""

    trace_on: bool = key("traceOn", Switch(), "true")
    """Whether producers are told to send message traces."""

    auto_create_topics: bool = key("autoCreateTopicEnable", Switch(), "true")
    """Whether sending to a topic that does not exist creates it."""

    auto_create_groups: bool = key("autoCreateSubscriptionGroup", Switch(), "true")
    """Whether using a consumer group that does not exist creates it."""

    topic_queues: int = key("defaultTopicQueueNums", Integer(1, 1024), "8")
    """Most queues of a topic that is created by sending to it."""

    cluster_topic: bool = key("clusterTopicEnable", Switch(), "true")
    """Whether the topic named like the cluster can be used."""

    broker_topic: bool = key("brokerTopicEnable", Switch(), "true")
    """Whether the topic named like the broker can be used."""

    trace_topic: bool = key("traceTopicEnable", Switch(), "false")
    """Whether the topic of message traces exists from the start."""

    trace_topic_name: str = key("msgTraceTopicName", Text(empty=False), "RMQ_SYS_TRACE_TOPIC")
    """The name of the topic of message traces."""

    reject_transactions: bool = key("rejectTransactionMessage", Switch(), "false")
    """Whether transactional messages are refused."""

    accept_sends_from: float = key("startAcceptSendRequestTimeStamp", Millis(0, LONG_MAX), "0")
    """The time before which messages are refused, since 1970."""


@frozen(kw_only=True)
class RemotingSettings:
    """
    The client ports: their address and TLS.
    """

    bind_address: str = key("bindAddress", Address(), "", origin=Origin.RMQ53)
    """The address that the client ports listen on; empty is all."""

    tls: TlsMode = key("tlsMode", Choice(TlsMode), "permissive", aliases=("tls.server.mode",))
    """Whether the client ports accept TLS, plain text or both. Without a certificate, permissive
    accepts plain text only."""

    tls_key: Path | None = key("tlsKeyPath", FilePath(), "", aliases=("tls.server.keyPath",))
    """The private key of the client ports, PEM without a password."""

    tls_cert: Path | None = key("tlsCertPath", FilePath(), "", aliases=("tls.server.certPath",))
    """The certificate of the client ports and those between it and its root, PEM."""

    tls_trusted: Path | None = key(
        "tlsTrustCertPath", FilePath(), "", aliases=("tls.server.trustCertPath",)
    )
    """The root certificates that clients' certificates are checked against, PEM."""

    tls_client_auth: ClientAuth = key(
        "tlsClientAuth", Choice(ClientAuth), "none", aliases=("tls.server.need.client.auth",)
    )
    """Whether clients are asked for a certificate, and whether they must have one."""


@frozen(kw_only=True)
class StoreSettings:
    """
    The files: where they are, how large, when they are flushed and deleted.
    """

    root: Path = key("storePathRootDir", Folder(), "${user.home}/store")
    """The folder of the store. Only one running node can use it. A leading ~ is the home folder
    too."""

    commitlog: Path = key(
        "storePathCommitLog",
        Folder(),
        derived=Derived(
            "commitlog in storePathRootDir", lambda of: of("storePathRootDir") / "commitlog"
        ),
    )
    """The folder of the commit log. Several paths are not supported."""

    file_size: int = key(
        "mappedFileSizeCommitLog",
        Integer(BLANK_MIN + RECORD_OVERHEAD + 1, unit="bytes"),
        "1073741824",
        aliases=("mapedFileSizeCommitLog",),
    )
    """Size of one commit log file. A slave must have its master's size; existing files keep
    theirs."""

    queue_file_size: int = key(
        "mappedFileSizeConsumeQueue",
        QueueFile(1, unit="bytes"),
        "6000000",
        aliases=("mapedFileSizeConsumeQueue",),
    )
    """Size of one consume queue file, rounded up to whole units of 20 bytes."""

    index_enable: bool = key("messageIndexEnable", Switch(), "true")
    """Whether messages are indexed, to be found by key."""

    index_slots: int = key("maxHashSlotNum", Integer(1), "5000000")
    """Hash slots of one index file."""

    index_entries: int = key("maxIndexNum", Integer(2), "20000000")
    """Entries of one index file."""

    flush_disk: FlushDisk = key("flushDiskType", Choice(FlushDisk), "ASYNC_FLUSH")
    """Whether a write waits for the disk; on a slave, whether a report to the master does."""

    flush_interval: float = key("flushIntervalCommitLog", Millis(), "500")
    """ASYNC_FLUSH: pause between flushes of the commit log."""

    flush_least_pages: int = key("flushCommitLogLeastPages", _PAGES, "4")
    """ASYNC_FLUSH: how many pages must be new for a flush of the commit log."""

    flush_thorough_interval: float = key("flushCommitLogThoroughInterval", Millis(), "10000")
    """ASYNC_FLUSH: after this time the commit log is flushed with fewer new pages too."""

    queue_flush_interval: float = key("flushIntervalConsumeQueue", Millis(), "1000")
    """Pause between flushes of the consume queues."""

    queue_flush_least_pages: int = key("flushConsumeQueueLeastPages", _PAGES, "2")
    """How many pages of a consume queue must be new for a flush."""

    queue_flush_thorough_interval: float = key(
        "flushConsumeQueueThoroughInterval", Millis(), "60000"
    )
    """After this time consume queues are flushed with fewer new pages too."""

    sync_flush_timeout: float = key("syncFlushTimeout", Millis(), "5000")
    """SYNC_FLUSH: longest time a write waits for the disk. It does not limit the wait for
    replicas."""

    put_message_timeout: float = key("putMessageTimeout", Millis(), "8000", origin=Origin.RMQ53)
    """Longest time a write may take in all."""

    max_message_size: int = key(
        "maxMessageSize",
        Integer(1, unit="bytes"),
        derived=Derived(
            f"{DEFAULT_MAX_MESSAGE_SIZE}, or what fits a log file",
            lambda of: fitting_message_size(of("mappedFileSizeCommitLog")),
        ),
    )
    """Largest message body. A record (the body and 65536 bytes around it) must fit a commit log
    file; a value given here that does not is refused."""

    check_crc_on_recover: bool = key("checkCRCOnRecover", Switch(), "true")
    """Whether recovery checks message bodies against their CRC."""

    delete_when: tuple[int, ...] = key("deleteWhen", HoursOfDay(), "04")
    """Hours of the day, local time, at which expired commit log files are deleted."""

    file_reserved: float = key("fileReservedTime", Hours(), "72")
    """Age at which a commit log file expires and may be deleted."""

    disk_max_used: float = key("diskMaxUsedSpaceRatio", Percent(10, 95), "75")
    """Disk usage above which expired files are deleted at any hour."""

    disk_warning: float = key(
        "diskSpaceWarningLevelRatio", Percent(35, 90), "90", origin=Origin.RMQ53
    )
    """Disk usage above which writes are refused."""

    disk_clean_forcibly: float = key(
        "diskSpaceCleanForciblyRatio", Percent(30, 85), "85", origin=Origin.RMQ53
    )
    """Disk usage above which files of any age are deleted, even those that slow replicas still
    need."""

    clean_forcibly: bool = key("cleanFileForciblyEnable", Switch(), "true")
    """Whether files younger than fileReservedTime may be deleted to free disk space."""

    clean_interval: float = key("cleanResourceInterval", Millis(), "10000")
    """Pause between checks for files to delete."""

    delete_files_interval: float = key("deleteCommitLogFilesInterval", Millis(0), "100")
    """Pause between the deletions of two commit log files."""

    delete_batch: int = key("deleteFileBatchMax", Integer(1), "10", origin=Origin.RMQ53)
    """Most commit log files deleted in one run."""

    delay_levels: str = key(
        "messageDelayLevel", Levels(), "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
    )
    """The delays of delay levels 1, 2, and so on. They are built into consume queues: keep those
    that the store was written with."""

    max_msgs_num_batch: int = key("maxMsgsNumBatch", Integer(1), "64")
    """Most messages returned by one query by key."""

    publish_interval: float = key("publishInterval", Millis(), "100", origin=Origin.OURS)
    """Shortest pause between two writes of rmqha/published.json, which tells readers of the files,
    such as the Spark pipeline, how far the log may be read. It is not written while nothing
    changes."""

    @property
    def max_record(self) -> int:
        """
        Most bytes of one record, body and everything around it.
        """
        return self.max_message_size + RECORD_OVERHEAD


@frozen(kw_only=True)
class PullSettings:
    """
    What pulls and queries return, and how long they wait.
    """

    long_polling: bool = key("longPollingEnable", Switch(), "true")
    """Whether a pull that finds no message may wait as long as the client asks for (long
    polling)."""

    short_polling: float = key("shortPollingTimeMills", Millis(), "1000")
    """How long such a pull waits with longPollingEnable=false."""

    memory_bytes: int = key("maxTransferBytesOnMessageInMemory", _ANSWER, "262144")
    """Most bytes of messages in one pull response; the first message is always sent."""

    memory_count: int = key("maxTransferCountOnMessageInMemory", Integer(1), "32")
    """Most messages in one pull response."""

    disk_bytes: int = key("maxTransferBytesOnMessageInDisk", _ANSWER, "65536")
    """Most bytes in one pull response, of messages that are probably not in memory."""

    disk_count: int = key("maxTransferCountOnMessageInDisk", Integer(1), "8")
    """Most messages in one pull response, if they are probably not in memory."""

    memory_ratio: float = key("accessMessageInMemoryMaxRatio", Percent(10, 95), "40")
    """Share of the machine's memory that the newest part of the commit log is assumed to have; on a
    slave it is 10 percent less."""

    memory_size: int = key("accessMessageInMemoryBytes", _BYTES, "0", origin=Origin.OURS)
    """The same in bytes, on masters and slaves alike, for where the machine's memory says little:
    in a container, in a test. 0 goes by accessMessageInMemoryMaxRatio."""

    slave_read: bool = key("slaveReadEnable", Switch(), "false")
    """Whether a consumer that lags behind further than that is sent to a slave."""

    check_in_slave: bool = key("offsetCheckInSlave", Switch(), "false")
    """Whether a slave corrects a consumer's offset that lies outside its queues, although it may
    be the slave that lags behind."""

    notify: bool = key("notifyConsumerIdsChangedEnable", Switch(), "true")
    """Whether the consumers of a group are notified at once when its members change."""

    query_most: int = key("defaultQueryMaxNum", Integer(1), "32")
    """Most messages returned by one query by unique key."""


@frozen(kw_only=True)
class TransactionSettings:
    """
    When the producers of half messages are asked about them.
    """

    timeout: float = key("transactionTimeOut", Millis(), "6000")
    """Age at which a half message is checked: its producer is asked whether to commit it."""

    check_max: int = key("transactionCheckMax", Integer(1), "15")
    """How often the producer is asked; then the message goes to TRANS_CHECK_MAX_TIME_TOPIC. A
    restart begins to count anew."""

    check_interval: float = key("transactionCheckInterval", Millis(), "60000")
    """Pause between checks of half messages."""


@frozen(kw_only=True)
class RegistrationSettings:
    """
    When and how a broker registers with name servers.
    """

    period: float = key("registerNameServerPeriod", Millis(), "30000")
    """Pause between two registrations with the name servers; less than 10 seconds is 10, more than
    60 is 60."""

    timeout: float = key("registerBrokerTimeoutMills", Millis(), "6000")
    """Longest wait for a name server's response."""

    force: bool = key("forceRegister", Switch(), "true")
    """Whether each registration sends all topics, even if the name server knows them."""

    compressed: bool = key("compressedRegister", Switch(), "false")
    """Whether registrations are compressed."""


@frozen(kw_only=True)
class HASettings:
    """
    Replication, both sides of it.
    """

    listen_port: int = key(
        "haListenPort",
        Integer(0, 65535),
        str(DEFAULT_LISTEN_PORT + HA_PORT_STEP),
        derived=Derived("listenPort + 1", lambda of: base_port(of) + HA_PORT_STEP),
    )
    """The HA port, where slaves connect; a slave has one too. 0 is listenPort + 1 on a master and
    off on a slave. RocketMQ 4.9 ignores this key and always takes listenPort + 1."""

    listen_address: str = key("haListenAddress", Address(), "", origin=Origin.OURS)
    """The address that the HA port listens on; empty is all."""

    master: tuple[str, int] | None = key("haMasterAddress", Endpoint(), "")
    """On a slave, host:port of its master's HA port. Without it the name servers are asked; a slave
    that finds no master runs and waits."""

    master_client: tuple[str, int] | None = key(
        "haMasterClientAddress",
        ClientAddress(),
        "off",
        derived=Derived("haMasterAddress, its port - 1", client_address),
        origin=Origin.OURS,
    )
    """On a slave, host:port of its master's client port. The master is asked there where its log
    begins and ends before the two logs are compared; C{off} is not to ask."""

    heartbeat: float = key("haSendHeartbeatInterval", Millis(), "5000")
    """On a master, how long it sends nothing before it sends a heartbeat; on a slave, the longest
    time between two reports."""

    housekeeping: float = key("haHousekeepingInterval", Millis(), "20000")
    """How long nothing is received before an HA connection is closed; also the time a peer has for
    its first report. Must be longer than haSendHeartbeatInterval."""

    batch: int = key("haTransferBatchSize", Integer(1, MAX_BATCH, "bytes"), "32768")
    """Most bytes of the log in one HA frame. Stock slaves cannot read more than the upper bound."""

    fallbehind_max: int = key(
        "haSlaveFallbehindMax",
        Integer(1, LONG_MAX, "bytes"),
        "268435456",
        aliases=("haMaxGapNotInSync",),
    )
    """SYNC_MASTER: a replica that lags behind this far is not waited for; if too few are left,
    writes get SLAVE_NOT_AVAILABLE."""

    slave_timeout: float = key("slaveTimeout", Millis(), "3000")
    """SYNC_MASTER: longest time a write waits for its replicas; then it gets
    FLUSH_SLAVE_TIMEOUT."""

    in_sync_replicas: int = key("inSyncReplicas", Integer(1, 1000), "1", origin=Origin.RMQ53)
    """SYNC_MASTER: copies a write waits for, the master's own included. At least one replica is
    always waited for, even with 1."""

    first_sync: FirstSync = key("haFirstSync", Choice(FirstSync), "beginning", origin=Origin.OURS)
    """Where an empty slave begins: at the first byte of the log, or at the last file as in
    RocketMQ."""

    policy: DivergencePolicy = key(
        "haDivergencePolicy", Choice(DivergencePolicy), "stop", origin=Origin.OURS
    )
    """What a slave does when its log diverges from its master's."""

    accept_unproven: bool = key("haAcceptUnproven", Switch(), "false", origin=Origin.OURS)
    """Whether a slave replicates although its log could not be compared with its master's."""

    verify_before_ack: bool = key("haVerifyBeforeAck", Switch(), "true", origin=Origin.OURS)
    """Whether a slave checks records before it acknowledges them."""

    send_flushed_only: bool = key(
        "haSendFlushedOnly",
        Switch(),
        "false",
        derived=Derived(
            "true with SYNC_FLUSH, else false",
            lambda of: of("flushDiskType") is FlushDisk.SYNC_FLUSH,
        ),
        origin=Origin.OURS,
    )
    """Whether a master sends only what is on its disk, so that no slave is ahead of it after a
    power failure."""

    max_connections: int = key("haMaxConnections", Integer(1), "2000", origin=Origin.OURS)
    """Most connections on the HA port."""

    replica_identity: ReplicaIdentity = key(
        "haReplicaIdentity", Choice(ReplicaIdentity), "address", origin=Origin.OURS
    )
    """What counts as one replica: an address, or a connection (for several slaves behind one
    address)."""

    local_address: str = key("haLocalAddress", Address(), "", origin=Origin.OURS)
    """Source address of a slave's connections to its master; empty leaves it to the system."""

    max_truncate: int = key("haMaxTruncateBytes", _BYTES, "268435456", origin=Origin.OURS)
    """Most bytes that haDivergencePolicy=truncate may cut; a slave that would have to cut more
    stops."""

    max_receive_rate: int = key("haMaxReceiveBytesPerSecond", _BYTES, "0", origin=Origin.OURS)
    """Most bytes that a slave receives per second; 0 is no limit."""

    max_send_rate: int = key("haMaxSendBytesPerSecond", _BYTES, "0", origin=Origin.OURS)
    """Most bytes that a master sends per second to each slave; 0 is no limit."""

    allowed_peers: tuple[Network, ...] = key("haAllowedPeers", Networks(), "", origin=Origin.OURS)
    """Addresses or networks that may connect to the HA port; empty is everybody."""

    zero_copy: bool = key("haZeroCopy", Switch(), "true", origin=Origin.OURS)
    """Whether the log goes to and from sockets without a copy in Python (zero copy)."""

    probe_silence: float = key("haProbeSilence", Millis(), "6000", origin=Origin.OURS)
    """How long a slave that compares logs waits for the master's bytes. A stock master needs more
    than its haSendHeartbeatInterval."""

    backoff_max: float = key("haReconnectBackoffMax", Millis(), "30000", origin=Origin.OURS)
    """Longest pause between two attempts to connect to the master."""


@frozen(kw_only=True)
class AdminSettings:
    """
    The small HTTP port for people and monitoring.
    """

    listen_port: int = key(
        "adminListenPort",
        Integer(0, 65535),
        str(DEFAULT_LISTEN_PORT + ADMIN_PORT_STEP),
        derived=Derived("listenPort + 3", lambda of: base_port(of) + ADMIN_PORT_STEP),
        origin=Origin.OURS,
    )
    """The HTTP port for /healthz and /status; 0 is off."""

    listen_address: str = key(
        "adminListenAddress", Address(empty=False), "127.0.0.1", origin=Origin.OURS
    )
    """The address that the HTTP port listens on."""

    allowed_peers: tuple[Network, ...] = key(
        "adminAllowedPeers", Networks(), "", origin=Origin.OURS
    )
    """Addresses or networks whose administration requests the client port accepts: those that
    change something, reach into clients or read the configuration. Empty is everybody."""


@frozen(kw_only=True)
class NamesrvSettings:
    """
    A name server; its other sections are L{RemotingSettings} and L{AdminSettings}.
    """

    listen_port: int = key("listenPort", Integer(1, 65535), "9876")
    """The port of the name server. The admin port is counted from it."""

    kv_path: Path = key("kvConfigPath", FilePath(empty=False), "${user.home}/namesrv/kvConfig.json")
    """The file of the key-value configuration, such as the queues of ordered topics."""

    order_messages: bool = key("orderMessageEnable", Switch(), "false")
    """Whether routes contain the queues of ordered topics."""

    scan_interval: float = key(
        "scanNotActiveBrokerInterval", Millis(), "10000", origin=Origin.RMQ53
    )
    """Pause between checks for brokers that were silent for too long; 5000 in RocketMQ 5."""

    channel_grace: float = key("brokerChannelGrace", Millis(0), "0", origin=Origin.OURS)
    """How long a broker whose connection is lost keeps its routes, so that it can come back;
    RocketMQ removes them at once."""

    allowed_peers: tuple[Network, ...] = key(
        "namesrvAllowedPeers", Networks(), "", origin=Origin.OURS
    )
    """Addresses or networks that may register brokers or change anything else; empty is
    everybody."""


@frozen(kw_only=True)
class Settings:
    """
    All of a node's settings.

    @ivar ignored: RocketMQ's keys that were given and mean nothing here.
    @ivar notes: Sentences for the log: what was changed to make the settings fit.
    """

    broker: BrokerSettings = field(factory=BrokerSettings)
    remoting: RemotingSettings = field(factory=RemotingSettings)
    store: StoreSettings = field(factory=StoreSettings)
    pull: PullSettings = field(factory=PullSettings)
    transactions: TransactionSettings = field(factory=TransactionSettings)
    registration: RegistrationSettings = field(factory=RegistrationSettings)
    ha: HASettings = field(factory=HASettings)
    admin: AdminSettings = field(factory=AdminSettings)
    namesrv: NamesrvSettings = field(factory=NamesrvSettings)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
