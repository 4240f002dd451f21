"""
What a node is told to do, as frozen values: times are seconds, sizes are bytes.

L{rmqha.config.load.load} is the only place where text becomes settings, so
everything behind it can trust them.  Every field has RocketMQ's default (see
L{rmqha.config.keys} for the key behind each), so a test may name only what it
is about.

docs/guide/configuration.rst lists them.
"""

from __future__ import annotations

import socket
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from attrs import Factory, field, frozen

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

Network = IPv4Network | IPv6Network

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""C{messageDelayLevel}: the delays of levels 1 to 18."""

DEFAULT_MAX_MESSAGE_SIZE = 4 * MIB
"""C{maxMessageSize}: most bytes of one body."""

DEFAULT_LISTEN_PORT = 10911
"""C{listenPort}; other ports are counted from it where there is no client port."""

RECORD_OVERHEAD = 64 * KIB
"""Most bytes of a record that are not its body: what RocketMQ allows for headers
and properties together (docs/protocol/store.rst, Sizes)."""

BLANK_MIN = 8
"""A log file always keeps room for the header of its blank tail, in bytes."""

QUEUE_UNIT = 20
"""One consume queue unit, in bytes; queue files are whole units."""


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


@frozen(kw_only=True)
class BrokerSettings:
    """
    Who this node is.

    @ivar name: The name a master and its slaves share (C{brokerName}).
    @ivar cluster: C{brokerClusterName}.
    @ivar id: 0 on a master, above 0 on a slave (C{brokerId}).
    @ivar role: C{brokerRole}.
    @ivar listen_port: The client port (C{listenPort}); other ports are counted from it.  0 is
        none.
    @ivar ip1: Address told to clients and written into records (C{brokerIP1}).
    @ivar ip2: Host of the HA address told to slaves (C{brokerIP2}).
    @ivar namesrv: C{namesrvAddr} as it was written: C{host:port;host:port}.
    @ivar permission: Bits: 4 read, 2 write (C{brokerPermission}).
    @ivar region: Told to producers (C{regionId}).
    @ivar trace_on: Told to producers (C{traceOn}).
    @ivar auto_create_topics: Whether sending makes topics (C{autoCreateTopicEnable}).
    @ivar auto_create_groups: Whether using makes groups (C{autoCreateSubscriptionGroup}).
    @ivar topic_queues: Most queues of a topic made by sending (C{defaultTopicQueueNums}).
    @ivar cluster_topic: Whether the cluster's own topic can be used (C{clusterTopicEnable}).
    @ivar broker_topic: The same of the broker's (C{brokerTopicEnable}).
    @ivar trace_topic: Whether the topic of traces is there (C{traceTopicEnable}).
    @ivar trace_topic_name: Its name (C{msgTraceTopicName}).
    @ivar reject_transactions: C{rejectTransactionMessage}.
    @ivar store_replies: Whether a reply is kept in a topic besides being brought to who asked
        (C{storeReplyMessageEnable}).
    @ivar accept_sends_from: No message is taken before, in seconds since 1970
        (C{startAcceptSendRequestTimeStamp}).
    """

    name: str = field(factory=host_name)
    cluster: str = "DefaultCluster"
    id: int = 0
    role: BrokerRole = BrokerRole.ASYNC_MASTER
    listen_port: int = DEFAULT_LISTEN_PORT
    ip1: str = "127.0.0.1"
    ip2: str = "127.0.0.1"
    namesrv: str = ""
    permission: int = 6
    region: str = "DefaultRegion"
    trace_on: bool = True
    auto_create_topics: bool = True
    auto_create_groups: bool = True
    topic_queues: int = 8
    cluster_topic: bool = True
    broker_topic: bool = True
    trace_topic: bool = False
    trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    reject_transactions: bool = False
    store_replies: bool = True
    accept_sends_from: float = 0.0


@frozen(kw_only=True)
class StoreSettings:
    """
    The files: where they are, how large, when they are flushed and deleted.

    @ivar root: Folder of everything (C{storePathRootDir}).
    @ivar commitlog: Folder of the log files (C{storePathCommitLog}).
    @ivar file_size: One log file, in bytes (C{mappedFileSizeCommitLog}).
    @ivar queue_file_size: One consume queue file, in bytes, whole units
        (C{mappedFileSizeConsumeQueue}).
    @ivar index_slots: Hash slots of one index file (C{maxHashSlotNum}).
    @ivar index_entries: Entries of one index file (C{maxIndexNum}).
    @ivar index_enable: Whether keys are indexed at all (C{messageIndexEnable}).
    @ivar flush_disk: C{flushDiskType}.
    @ivar flush_interval: Seconds between flushes of the log (C{flushIntervalCommitLog}).
    @ivar flush_least_pages: Pages of 4 KiB that must be new for a flush
        (C{flushCommitLogLeastPages}).
    @ivar flush_thorough_interval: Seconds after which fewer pages are flushed too
        (C{flushCommitLogThoroughInterval}).
    @ivar queue_flush_interval: The same for consume queues, in seconds.
    @ivar queue_flush_least_pages: The same for consume queues, in pages.
    @ivar queue_flush_thorough_interval: The same for consume queues, in seconds.
    @ivar sync_flush_timeout: Longest wait of a write for the disk, in seconds
        (C{syncFlushTimeout}).
    @ivar put_message_timeout: Longest time a write may take in all, in seconds
        (C{putMessageTimeout}).
    @ivar max_message_size: Most bytes of a body (C{maxMessageSize}).
    @ivar check_crc_on_recover: Whether recovery checks bodies (C{checkCRCOnRecover}).
    @ivar delete_when: Hours of the day at which old files go, local time (C{deleteWhen}).
    @ivar file_reserved: Age at which a log file may go, in seconds (C{fileReservedTime}).
    @ivar disk_max_used: Disk use that deletes old files at any hour, 0 to 1
        (C{diskMaxUsedSpaceRatio}).
    @ivar disk_warning: Disk use that refuses writes, 0 to 1 (C{diskSpaceWarningLevelRatio}).
    @ivar disk_clean_forcibly: Disk use that deletes files of any age, 0 to 1
        (C{diskSpaceCleanForciblyRatio}).
    @ivar clean_forcibly: Whether it may (C{cleanFileForciblyEnable}).
    @ivar clean_interval: Seconds between looks at the disk (C{cleanResourceInterval}).
    @ivar delete_files_interval: Seconds between two deletions
        (C{deleteCommitLogFilesInterval}).
    @ivar delete_batch: Most log files deleted in one run (C{deleteFileBatchMax}).
    @ivar delay_levels: C{messageDelayLevel}, as RocketMQ writes it.
    @ivar max_msgs_num_batch: Most messages of one index query (C{maxMsgsNumBatch}).
    @ivar publish_interval: Seconds between two published points, while the log changes
        (C{publishInterval}).
    """

    root: Path = field(factory=lambda: Path.home() / "store")
    commitlog: Path = field(default=Factory(lambda self: self.root / "commitlog", takes_self=True))
    file_size: int = GIB
    queue_file_size: int = 300_000 * QUEUE_UNIT
    index_slots: int = 5_000_000
    index_entries: int = 20_000_000
    index_enable: bool = True
    flush_disk: FlushDisk = FlushDisk.ASYNC_FLUSH
    flush_interval: float = 0.5
    flush_least_pages: int = 4
    flush_thorough_interval: float = 10.0
    queue_flush_interval: float = 1.0
    queue_flush_least_pages: int = 2
    queue_flush_thorough_interval: float = 60.0
    sync_flush_timeout: float = 5.0
    put_message_timeout: float = 8.0
    max_message_size: int = field(
        default=Factory(lambda self: fitting_message_size(self.file_size), takes_self=True)
    )
    check_crc_on_recover: bool = True
    delete_when: tuple[int, ...] = (4,)
    file_reserved: float = 72 * 3600.0
    disk_max_used: float = 0.75
    disk_warning: float = 0.90
    disk_clean_forcibly: float = 0.85
    clean_forcibly: bool = True
    clean_interval: float = 10.0
    delete_files_interval: float = 0.1
    delete_batch: int = 10
    delay_levels: str = DEFAULT_DELAY_LEVELS
    max_msgs_num_batch: int = 64
    publish_interval: float = 0.1

    @property
    def max_record(self) -> int:
        """
        Most bytes of one record, body and everything around it.
        """
        return self.max_message_size + RECORD_OVERHEAD


@frozen(kw_only=True)
class PullSettings:
    """
    What consumers get.

    @ivar long_polling: Whether a pull may wait as long as it asks for (C{longPollingEnable}).
    @ivar short_polling: How long it waits where it may not, in seconds
        (C{shortPollingTimeMills}).
    @ivar memory_bytes: Most bytes of one answer with messages that are in the page cache
        (C{maxTransferBytesOnMessageInMemory}).
    @ivar memory_count: The same in messages (C{maxTransferCountOnMessageInMemory}).
    @ivar disk_bytes: Most bytes with messages that are not
        (C{maxTransferBytesOnMessageInDisk}).
    @ivar disk_count: The same in messages (C{maxTransferCountOnMessageInDisk}).
    @ivar memory_ratio: How much of the machine's memory the newest part of the log is taken to
        have, 0 to 1 (C{accessMessageInMemoryMaxRatio}).
    @ivar memory_size: The same in bytes; 0 goes by the ratio (C{accessMessageInMemoryBytes}).
    @ivar slave_read: Whether consumers that lag are sent to a slave (C{slaveReadEnable}).
    @ivar check_in_slave: Whether a slave corrects offsets outside its queues
        (C{offsetCheckInSlave}).
    @ivar notify: Whether consumers are told that their group changed
        (C{notifyConsumerIdsChangedEnable}).
    @ivar query_most: Most messages of a look-up by unique key (C{defaultQueryMaxNum}).
    """

    long_polling: bool = True
    short_polling: float = 1.0
    memory_bytes: int = 256 * KIB
    memory_count: int = 32
    disk_bytes: int = 64 * KIB
    disk_count: int = 8
    memory_ratio: float = 0.40
    memory_size: int = 0
    slave_read: bool = False
    check_in_slave: bool = False
    notify: bool = True
    query_most: int = 32


@frozen(kw_only=True)
class RegistrationSettings:
    """
    How a broker tells name servers of itself.

    @ivar period: Seconds between two registrations (C{registerNameServerPeriod}); held to 10
        to 60 as in stock brokers.
    @ivar timeout: Longest wait for a name server, in seconds (C{registerBrokerTimeoutMills}).
    @ivar force: Whether all topics are sent each time, without asking whether any changed
        (C{forceRegister}).
    @ivar compressed: Whether they are sent compressed (C{compressedRegister}).
    """

    period: float = 30.0
    timeout: float = 6.0
    force: bool = True
    compressed: bool = False


@frozen(kw_only=True)
class TransactionSettings:
    """
    What becomes of transactions whose producer says nothing.

    @ivar timeout: Age at which it is asked, in seconds (C{transactionTimeOut}).
    @ivar check_max: How often it is asked (C{transactionCheckMax}).
    @ivar check_interval: Seconds between two questions (C{transactionCheckInterval}).
    """

    timeout: float = 6.0
    check_max: int = 15
    check_interval: float = 60.0


@frozen(kw_only=True)
class HASettings:
    """
    Replication, both sides of it.

    @ivar listen_port: Where slaves connect (C{haListenPort}); 0 is off, on a slave only.
    @ivar listen_address: The address bound to; C{""} is all (C{haListenAddress}).
    @ivar master: Host and port of a slave's master (C{haMasterAddress}).
    @ivar master_client: Host and port of that master's client port, C{None} not to ask it
        (C{haMasterClientAddress}).
    @ivar heartbeat: Write silence before an empty frame, and most time between two
        reports, in seconds (C{haSendHeartbeatInterval}).
    @ivar housekeeping: Read silence before a connection is closed, in seconds
        (C{haHousekeepingInterval}).
    @ivar batch: Most body bytes of one frame (C{haTransferBatchSize}).
    @ivar fallbehind_max: A replica that lacks this many bytes is not waited for
        (C{haSlaveFallbehindMax}).
    @ivar slave_timeout: Longest wait of a SYNC write for replicas, in seconds
        (C{slaveTimeout}).
    @ivar in_sync_replicas: Copies a SYNC write waits for, the master's own one included
        (C{inSyncReplicas}); at least one replica is waited for whatever it says.
    @ivar first_sync: C{haFirstSync}.
    @ivar policy: C{haDivergencePolicy}.
    @ivar accept_unproven: Whether a log nothing could be compared with is taken for the
        master's (C{haAcceptUnproven}).
    @ivar verify_before_ack: Whether records are checked before they are reported
        (C{haVerifyBeforeAck}).
    @ivar send_flushed_only: Whether a master holds back what is not on its disk
        (C{haSendFlushedOnly}); on with SYNC_FLUSH unless the file says otherwise.
    @ivar max_connections: C{haMaxConnections}.
    @ivar replica_identity: C{haReplicaIdentity}.
    @ivar local_address: Source address of a slave's connections; C{""} leaves it to the
        system (C{haLocalAddress}).
    @ivar max_truncate: Most bytes the policy C{truncate} may cut (C{haMaxTruncateBytes}).
    @ivar max_receive_rate: Bytes a second, 0 for no limit (C{haMaxReceiveBytesPerSecond}).
    @ivar max_send_rate: Bytes a second, 0 for no limit (C{haMaxSendBytesPerSecond}).
    @ivar allowed_peers: Networks whose hosts may connect; empty is everybody
        (C{haAllowedPeers}).
    @ivar zero_copy: Whether log pages may go to the socket without a copy (C{haZeroCopy}).
    @ivar probe_silence: How long a probe waits for bytes before it is called silent, in
        seconds (C{haProbeSilence}).
    @ivar backoff_max: Longest pause between two attempts to connect, in seconds
        (C{haReconnectBackoffMax}).
    """

    listen_port: int = 10912
    listen_address: str = ""
    master: tuple[str, int] | None = None
    master_client: tuple[str, int] | None = None
    heartbeat: float = 5.0
    housekeeping: float = 20.0
    batch: int = 32 * KIB
    fallbehind_max: int = 256 * MIB
    slave_timeout: float = 3.0
    in_sync_replicas: int = 1
    first_sync: FirstSync = FirstSync.BEGINNING
    policy: DivergencePolicy = DivergencePolicy.STOP
    accept_unproven: bool = False
    verify_before_ack: bool = True
    send_flushed_only: bool = False
    max_connections: int = 2000
    replica_identity: ReplicaIdentity = ReplicaIdentity.ADDRESS
    local_address: str = ""
    max_truncate: int = 256 * MIB
    max_receive_rate: int = 0
    max_send_rate: int = 0
    allowed_peers: tuple[Network, ...] = ()
    zero_copy: bool = True
    probe_silence: float = 6.0
    backoff_max: float = 30.0


@frozen(kw_only=True)
class RemotingSettings:
    """
    The client port: who may do what, and how it is spoken with.

    @ivar bind_address: The address bound to; C{""} is all (C{bindAddress}).
    @ivar tls: C{tlsMode}.
    @ivar tls_key: Our private key, PEM (C{tlsKeyPath}).
    @ivar tls_cert: Our certificates, PEM; without them no TLS is spoken (C{tlsCertPath}).
    @ivar tls_trusted: The roots of clients' certificates, PEM (C{tlsTrustCertPath}).
    @ivar tls_client_auth: C{tlsClientAuth}.
    """

    bind_address: str = ""
    tls: TlsMode = TlsMode.PERMISSIVE
    tls_key: Path | None = None
    tls_cert: Path | None = None
    tls_trusted: Path | None = None
    tls_client_auth: ClientAuth = ClientAuth.NONE


@frozen(kw_only=True)
class AdminSettings:
    """
    The small HTTP port for people and monitoring.

    @ivar listen_port: 0 is off (C{adminListenPort}).
    @ivar listen_address: The address bound to (C{adminListenAddress}).
    @ivar allowed_peers: Networks whose hosts may send administration requests to the client
        port; empty is everybody (C{adminAllowedPeers}).
    """

    listen_port: int = 10914
    listen_address: str = "127.0.0.1"
    allowed_peers: tuple[Network, ...] = ()


@frozen(kw_only=True)
class NamesrvSettings:
    """
    A name server; its other sections are L{RemotingSettings} and L{AdminSettings}.

    @ivar listen_port: The port (C{listenPort}).
    @ivar kv_path: Where its texts are kept (C{kvConfigPath}).
    @ivar order_messages: Whether routes tell the queues of ordered topics
        (C{orderMessageEnable}).
    @ivar scan_interval: Seconds between two looks for silent brokers
        (C{scanNotActiveBrokerInterval}).
    @ivar channel_grace: Seconds a broker has to come back after its connection is gone
        (C{brokerChannelGrace}).
    @ivar allowed_peers: Networks whose hosts may register brokers and change anything; empty is
        everybody (C{namesrvAllowedPeers}).
    """

    listen_port: int = 9876
    kv_path: Path = field(factory=lambda: Path.home() / "namesrv" / "kvConfig.json")
    order_messages: bool = False
    scan_interval: float = 10.0
    channel_grace: float = 0.0
    allowed_peers: tuple[Network, ...] = ()


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
