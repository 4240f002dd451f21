"""
Every key that means something here: one row a key.

Names, units and defaults are RocketMQ's (C{MessageStoreConfig}, C{BrokerConfig},
C{NettyServerConfig} of 4.9 and 5.3) so that a C{broker.conf} can be taken as it is;
keys of our own say so.  docs/guide/configuration.rst is made from this table, and
L{rmqha.config.foreign} lists all other keys of RocketMQ.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from attrs import field, frozen

from rmqha.config.foreign import HARMLESS, UNSUPPORTED, Foreign
from rmqha.config.settings import (
    BLANK_MIN,
    DEFAULT_DELAY_LEVELS,
    MIB,
    RECORD_OVERHEAD,
    BrokerRole,
    ClientAuth,
    DivergencePolicy,
    FirstSync,
    FlushDisk,
    ReplicaIdentity,
    TlsMode,
)
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
    Kind,
    Levels,
    Millis,
    Networks,
    Percent,
    Permission,
    QueueFile,
    Switch,
    Text,
)

MAX_BATCH = 4 * MIB - 12
"""Most of C{haTransferBatchSize}: a stock slave's read buffer holds header and body
together, and wedges on more (docs/protocol/ha.rst, Frames)."""


class Origin(StrEnum):
    """
    Who a key comes from.
    """

    RMQ49 = "4.9"
    RMQ53 = "5.3"
    OURS = "rmqha"


@frozen(kw_only=True)
class Key:
    """
    One key of the file.

    @ivar name: As it is written.
    @ivar section: The attribute of L{Settings <rmqha.config.settings.Settings>}.
    @ivar field: The attribute inside the section.
    @ivar kind: What its text may be.
    @ivar default: The text that stands for an absent key; C{None} where it depends on
        other keys or on the host, then C{absent} says on what.
    @ivar absent: In words, what an absent key means when C{default} is C{None}.
    @ivar doc: What it does, for the table in the guide.
    @ivar origin: Who it comes from.
    @ivar aliases: Other names it goes by, in other versions of RocketMQ.
    """

    name: str
    section: str
    field: str
    kind: Kind
    default: str | None
    doc: str
    absent: str = ""
    origin: Origin = Origin.RMQ49
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """
        The name and all aliases.
        """
        return (self.name, *self.aliases)

    def default_value(self) -> Any:
        """
        The parsed default; only for keys that have one.
        """
        assert self.default is not None, f"{self.name} has no fixed default"
        return self.kind.parse(self.default)


def rows_of(section: str, *rows: tuple[Any, ...]) -> tuple[Key, ...]:
    """
    Rows C{(name, field, kind, default, doc[, extras])} as keys of one section.

    A default in angle brackets is not a text but the words of C{absent}.
    """
    keys = []
    for name, attribute, kind, default, doc, *rest in rows:
        fixed = not default.startswith("<")
        keys.append(
            Key(
                name=name,
                section=section,
                field=attribute,
                kind=kind,
                default=default if fixed else None,
                absent="" if fixed else default[1:-1],
                doc=doc,
                **(rest[0] if rest else {}),
            )
        )
    return tuple(keys)


_OURS: dict[str, Any] = {"origin": Origin.OURS}
_RMQ53: dict[str, Any] = {"origin": Origin.RMQ53}
_PAGES = Integer(0, unit="4 KiB pages")
_BYTES = Integer(0, LONG_MAX, "bytes")
_ANSWER = Integer(1, 8 * MIB, "bytes")

BROKER = rows_of(
    "broker",
    ("brokerRole", "role", Choice(BrokerRole), "<SLAVE with ``--role slave``, else ASYNC_MASTER>",
     "Who takes writes, and what they wait for. Must not contradict ``--role``."),
    ("brokerId", "id", Integer(0, LONG_MAX), "<0 on a master, 1 on a slave>",
     "0 on a master, above 0 on a slave; anything else is refused."),
    ("brokerName", "name", Text(empty=False), "<the host's name>",
     "The name a master and its slaves share."),
    ("brokerClusterName", "cluster", Text(empty=False), "DefaultCluster",
     "The cluster's name."),
    ("listenPort", "listen_port", Integer(0, 65535), "10911",
     ("The client port, with the one two below it for those who ask there. The HA and admin"
      " ports are counted from it. 0 is none; the others are then counted from 10911.")),
    ("brokerIP1", "ip1", Address(empty=False), "<this host's address>",
     "The address told to clients, and written into every record as its store host."),
    ("brokerIP2", "ip2", Text(empty=False), "<this host's address>",
     "The host of the HA address told to slaves."),
    ("namesrvAddr", "namesrv", Endpoints(), "",
     "Name servers, host:port, several separated by a semicolon."),
    ("storeReplyMessageEnable", "store_replies", Switch(), "true",
     "Whether a reply to a request is kept in a topic besides being brought to who asked."),
    ("brokerPermission", "permission", Permission(), "6",
     ("What clients may do here at all. Without writing no message is taken and producers are told"
      " so; without reading none is given.")),
    ("regionId", "region", Text(empty=False), "DefaultRegion",
     "The region that producers are told."),
    ("traceOn", "trace_on", Switch(), "true",
     "Whether producers are told to send traces."),
    ("autoCreateTopicEnable", "auto_create_topics", Switch(), "true",
     "Whether sending to a topic makes it."),
    ("autoCreateSubscriptionGroup", "auto_create_groups", Switch(), "true",
     "Whether using a consumer group makes it."),
    ("defaultTopicQueueNums", "topic_queues", Integer(1, 1024), "8",
     "Most queues of a topic made by sending to it."),
    ("clusterTopicEnable", "cluster_topic", Switch(), "true",
     "Whether the topic named like the cluster can be used."),
    ("brokerTopicEnable", "broker_topic", Switch(), "true",
     "Whether the topic named like the broker can be used."),
    ("traceTopicEnable", "trace_topic", Switch(), "false",
     "Whether the topic of traces is there from the start."),
    ("msgTraceTopicName", "trace_topic_name", Text(empty=False), "RMQ_SYS_TRACE_TOPIC",
     "The name of the topic of traces."),
    ("rejectTransactionMessage", "reject_transactions", Switch(), "false",
     "Whether messages of transactions are refused."),
    ("startAcceptSendRequestTimeStamp", "accept_sends_from", Millis(0, LONG_MAX), "0",
     "The time before which no messages are taken, since 1970."),
)  # fmt: skip

REMOTING = rows_of(
    "remoting",
    ("bindAddress", "bind_address", Address(), "",
     "The address the client ports are bound to; empty is all.", _RMQ53),
    ("tlsMode", "tls", Choice(TlsMode), "permissive",
     ("Whether the client ports take TLS, clear text or both. Without a certificate permissive"
      " takes clear text only."), {"aliases": ("tls.server.mode",)}),
    ("tlsKeyPath", "tls_key", FilePath(), "",
     "Our private key, PEM without a password.", {"aliases": ("tls.server.keyPath",)}),
    ("tlsCertPath", "tls_cert", FilePath(), "",
     "Our certificate and what lies between it and its root, PEM.",
     {"aliases": ("tls.server.certPath",)}),
    ("tlsTrustCertPath", "tls_trusted", FilePath(), "",
     "The roots of the clients' certificates, PEM.",
     {"aliases": ("tls.server.trustCertPath",)}),
    ("tlsClientAuth", "tls_client_auth", Choice(ClientAuth), "none",
     "Whether clients are asked for a certificate, and have to have one.",
     {"aliases": ("tls.server.need.client.auth",)}),
)  # fmt: skip

STORE = rows_of(
    "store",
    ("storePathRootDir", "root", Folder(), "${user.home}/store",
     "The folder of everything. One running node a folder. A leading ~ is the home folder too."),
    ("storePathCommitLog", "commitlog", Folder(), "<commitlog in storePathRootDir>",
     "The folder of the log files. Several paths are not supported."),
    ("mappedFileSizeCommitLog", "file_size", Integer(BLANK_MIN + RECORD_OVERHEAD + 1, unit="bytes"),
     "1073741824",
     "Size of one log file. A slave needs its master's size, and files on disk keep theirs.",
     {"aliases": ("mapedFileSizeCommitLog",)}),
    ("mappedFileSizeConsumeQueue", "queue_file_size", QueueFile(1, unit="bytes"), "6000000",
     "Size of one consume queue file, rounded up to whole units of 20 bytes.",
     {"aliases": ("mapedFileSizeConsumeQueue",)}),
    ("messageIndexEnable", "index_enable", Switch(), "true",
     "Whether messages can be found by key."),
    ("maxHashSlotNum", "index_slots", Integer(1), "5000000",
     "Hash slots of one index file."),
    ("maxIndexNum", "index_entries", Integer(2), "20000000",
     "Entries of one index file."),
    ("flushDiskType", "flush_disk", Choice(FlushDisk), "ASYNC_FLUSH",
     "Whether a write waits for the disk; on a slave, whether a report does."),
    ("flushIntervalCommitLog", "flush_interval", Millis(), "500",
     "ASYNC_FLUSH: pause between flushes of the log."),
    ("flushCommitLogLeastPages", "flush_least_pages", _PAGES, "4",
     "ASYNC_FLUSH: what must be new for a flush."),
    ("flushCommitLogThoroughInterval", "flush_thorough_interval", Millis(), "10000",
     "ASYNC_FLUSH: after this time less is flushed too."),
    ("flushIntervalConsumeQueue", "queue_flush_interval", Millis(), "1000",
     "Pause between flushes of the consume queues."),
    ("flushConsumeQueueLeastPages", "queue_flush_least_pages", _PAGES, "2",
     "What must be new in a consume queue for a flush."),
    ("flushConsumeQueueThoroughInterval", "queue_flush_thorough_interval", Millis(), "60000",
     "After this time less of a consume queue is flushed too."),
    ("syncFlushTimeout", "sync_flush_timeout", Millis(), "5000",
     "SYNC_FLUSH: longest wait of a write for the disk. Never the wait for replicas."),
    ("putMessageTimeout", "put_message_timeout", Millis(), "8000",
     "Longest time a write may take in all.", _RMQ53),
    ("maxMessageSize", "max_message_size", Integer(1, unit="bytes"),
     "<4194304, or what fits a log file>",
     ("Largest body. A record (body and 65536 bytes around it) must fit a log file; a value"
     " given here that does not is refused.")),
    ("checkCRCOnRecover", "check_crc_on_recover", Switch(), "true",
     "Whether recovery checks bodies against their CRC."),
    ("deleteWhen", "delete_when", HoursOfDay(), "04",
     "Hours of the day, local time, at which old log files are deleted."),
    ("fileReservedTime", "file_reserved", Hours(), "72",
     "Age at which a log file may be deleted."),
    ("diskMaxUsedSpaceRatio", "disk_max_used", Percent(10, 95), "75",
     "Disk use above which old files are deleted at any hour."),
    ("diskSpaceWarningLevelRatio", "disk_warning", Percent(35, 90), "90",
     "Disk use above which writes are refused.", _RMQ53),
    ("diskSpaceCleanForciblyRatio", "disk_clean_forcibly", Percent(30, 85), "85",
     "Disk use above which files of any age are deleted, and slow replicas hold back none.",
     _RMQ53),
    ("cleanFileForciblyEnable", "clean_forcibly", Switch(), "true",
     "Whether files younger than fileReservedTime may be deleted for space."),
    ("cleanResourceInterval", "clean_interval", Millis(), "10000",
     "Pause between looks at the disk."),
    ("deleteCommitLogFilesInterval", "delete_files_interval", Millis(0), "100",
     "Pause between two deletions of log files."),
    ("deleteFileBatchMax", "delete_batch", Integer(1), "10",
     "Most log files deleted in one run.", _RMQ53),
    ("messageDelayLevel", "delay_levels", Levels(), DEFAULT_DELAY_LEVELS,
     ("The delays of levels 1, 2, and so on. They are built into consume queues: keep those"
     " the store was written with.")),
    ("maxMsgsNumBatch", "max_msgs_num_batch", Integer(1), "64",
     "Most messages found by one look-up by key."),
    ("publishInterval", "publish_interval", Millis(), "100",
     ("Least pause between two writings of rmqha/published.json, which tells who reads the files,"
      " like the Spark pipeline, how far the log may be read. Nothing is written while nothing"
      " changes."), _OURS),
)  # fmt: skip

PULL = rows_of(
    "pull",
    ("longPollingEnable", "long_polling", Switch(), "true",
     "Whether a pull that finds nothing may wait as long as the client asks for."),
    ("shortPollingTimeMills", "short_polling", Millis(), "1000",
     "How long it waits with longPollingEnable=false."),
    ("maxTransferBytesOnMessageInMemory", "memory_bytes", _ANSWER, "262144",
     "Most bytes of one pull's answer; the first message is always sent."),
    ("maxTransferCountOnMessageInMemory", "memory_count", Integer(1), "32",
     "Most messages of one pull's answer."),
    ("maxTransferBytesOnMessageInDisk", "disk_bytes", _ANSWER, "65536",
     "The same for messages that are probably not in memory."),
    ("maxTransferCountOnMessageInDisk", "disk_count", Integer(1), "8",
     "The same for messages that are probably not in memory."),
    ("accessMessageInMemoryMaxRatio", "memory_ratio", Percent(10, 95), "40",
     ("How much of the machine's memory the newest part of the log is taken to have; a slave"
     " takes 10 percent less.")),
    ("accessMessageInMemoryBytes", "memory_size", _BYTES, "0",
     ("The same in bytes, on masters and slaves alike, for where the machine's memory says"
      " little: in a container, in a test. 0 goes by accessMessageInMemoryMaxRatio."), _OURS),
    ("slaveReadEnable", "slave_read", Switch(), "false",
     "Whether a consumer that lags beyond that is sent to a slave."),
    ("offsetCheckInSlave", "check_in_slave", Switch(), "false",
     "Whether a slave tells a consumer outside its queues to move; it may only be behind."),
    ("notifyConsumerIdsChangedEnable", "notify", Switch(), "true",
     "Whether the consumers of a group are told at once when it changes."),
    ("defaultQueryMaxNum", "query_most", Integer(1), "32",
     "Most messages found by one look-up by unique key."),
)  # fmt: skip

TRANSACTIONS = rows_of(
    "transactions",
    ("transactionTimeOut", "timeout", Millis(), "6000",
     "Age at which a producer is asked what became of its transaction."),
    ("transactionCheckMax", "check_max", Integer(1), "15",
     ("How often it is asked; then the message goes to TRANS_CHECK_MAX_TIME_TOPIC. A restart"
      " begins to count anew.")),
    ("transactionCheckInterval", "check_interval", Millis(), "60000",
     "Pause between two looks at open transactions."),
)  # fmt: skip

REGISTRATION = rows_of(
    "registration",
    ("registerNameServerPeriod", "period", Millis(), "30000",
     "Pause between two registrations with the name servers; held to 10 to 60 seconds."),
    ("registerBrokerTimeoutMills", "timeout", Millis(), "6000",
     "Longest wait for a name server's answer."),
    ("forceRegister", "force", Switch(), "true",
     "Whether all topics are sent each time, even if the name server knows them."),
    ("compressedRegister", "compressed", Switch(), "false",
     "Whether they are sent compressed."),
)  # fmt: skip

HA = rows_of(
    "ha",
    ("haListenPort", "listen_port", Integer(0, 65535), "<listenPort + 1>",
     ("Where slaves connect, to a slave too; 0 is listenPort + 1 on a master and off on a"
     " slave. RocketMQ 4.9 ignores it and always takes listenPort + 1.")),
    ("haListenAddress", "listen_address", Address(), "",
     "The address the HA port is bound to; empty is all.", _OURS),
    ("haMasterAddress", "master", Endpoint(), "",
     ("A slave's master, host:port of its HA port. Without it name servers are asked where that is;"
      " a slave that is told nothing runs and waits.")),
    ("haMasterClientAddress", "master_client", ClientAddress(), "<haMasterAddress, its port - 1>",
     ("The client port of haMasterAddress, which is asked where its log begins and ends before the"
      " log itself is asked; ``off`` is not to ask."), _OURS),
    ("haSendHeartbeatInterval", "heartbeat", Millis(), "5000",
     "Master: write silence before a heartbeat. Slave: most time between two reports."),
    ("haHousekeepingInterval", "housekeeping", Millis(), "20000",
     ("Read silence before a connection is closed; also the time a peer has for its first"
     " report. Must be longer than haSendHeartbeatInterval.")),
    ("haTransferBatchSize", "batch", Integer(1, MAX_BATCH, "bytes"), "32768",
     "Most body bytes of one frame. Stock slaves cannot read more than the upper bound."),
    ("haSlaveFallbehindMax", "fallbehind_max", Integer(1, LONG_MAX, "bytes"), "268435456",
     "A replica that lacks this much is not waited for: SLAVE_NOT_AVAILABLE.",
     {"aliases": ("haMaxGapNotInSync",)}),
    ("slaveTimeout", "slave_timeout", Millis(), "3000",
     "SYNC_MASTER: longest wait of a write for its replicas."),
    ("inSyncReplicas", "in_sync_replicas", Integer(1, 1000), "1",
     ("SYNC_MASTER: copies a write waits for, the master's own included. At least one"
     " replica is always waited for, even with 1."), _RMQ53),
    ("haFirstSync", "first_sync", Choice(FirstSync), "beginning",
     "Where an empty slave starts: at the first byte, or as RocketMQ does, at the last file.",
     _OURS),
    ("haDivergencePolicy", "policy", Choice(DivergencePolicy), "stop",
     "What a slave does when its log is not its master's.", _OURS),
    ("haAcceptUnproven", "accept_unproven", Switch(), "false",
     "Whether a log that could not be compared is taken for the master's.", _OURS),
    ("haVerifyBeforeAck", "verify_before_ack", Switch(), "true",
     "Whether a slave checks records before it reports them.", _OURS),
    ("haSendFlushedOnly", "send_flushed_only", Switch(), "<true with SYNC_FLUSH, else false>",
     ("Whether a master sends only what its disk has, so that no power cut leaves a slave"
     " ahead."), _OURS),
    ("haMaxConnections", "max_connections", Integer(1), "2000",
     "Most connections on the HA port.", _OURS),
    ("haReplicaIdentity", "replica_identity", Choice(ReplicaIdentity), "address",
     ("What counts as one replica: an address, or a connection (several slaves behind one"
     " address)."), _OURS),
    ("haLocalAddress", "local_address", Address(), "",
     "Source address of a slave's connections; empty leaves it to the system.", _OURS),
    ("haMaxTruncateBytes", "max_truncate", _BYTES, "268435456",
     "Most bytes that haDivergencePolicy=truncate may cut; beyond it a slave stops.", _OURS),
    ("haMaxReceiveBytesPerSecond", "max_receive_rate", _BYTES, "0",
     "Rate limit of a slave, per second; 0 is none.", _OURS),
    ("haMaxSendBytesPerSecond", "max_send_rate", _BYTES, "0",
     "Rate limit of a master, per second and connection; 0 is none.", _OURS),
    ("haAllowedPeers", "allowed_peers", Networks(), "",
     "Addresses or networks that may connect to the HA port; empty is everybody.", _OURS),
    ("haZeroCopy", "zero_copy", Switch(), "true",
     "Whether log pages may go to and from the socket without a copy in Python.", _OURS),
    ("haProbeSilence", "probe_silence", Millis(), "6000",
     ("How long the overlap probe waits for bytes. A stock master needs more than its"
     " haSendHeartbeatInterval."), _OURS),
    ("haReconnectBackoffMax", "backoff_max", Millis(), "30000",
     "Longest pause between two attempts to connect.", _OURS),
)  # fmt: skip

ADMIN = rows_of(
    "admin",
    ("adminListenPort", "listen_port", Integer(0, 65535), "<listenPort + 3>",
     "The HTTP port for /healthz and /status; 0 is off.", _OURS),
    ("adminListenAddress", "listen_address", Address(empty=False), "127.0.0.1",
     "The address the HTTP port is bound to.", _OURS),
    ("adminAllowedPeers", "allowed_peers", Networks(), "",
     ("Addresses or networks that may send requests to the client port that change something,"
      " reach into clients or read the configuration; empty is everybody."), _OURS),
)  # fmt: skip

KEYS: tuple[Key, ...] = BROKER + REMOTING + STORE + PULL + TRANSACTIONS + REGISTRATION + HA + ADMIN
"""Every key that means something here, in the order of the guide."""


@frozen
class Vocabulary:
    """
    All that may stand in one kind of file.

    @ivar keys: What means something.
    @ivar harmless: What is accepted and means nothing, with the reason.
    @ivar unsupported: What must not be switched on.
    @ivar by_name: Keys by name and by alias.
    """

    keys: tuple[Key, ...]
    harmless: Mapping[str, str]
    unsupported: Mapping[str, Foreign]
    by_name: dict[str, Key] = field(init=False)

    @by_name.default
    def _names(self) -> dict[str, Key]:
        return {name: key for key in self.keys for name in key.names}

    def nearest(self, unknown: str) -> str:
        """
        The known key somebody probably meant, or C{""}.

        @param unknown: A key nobody knows; its case does not matter.
        """
        known = (*self.harmless, *self.unsupported, *self.by_name)
        lowered = {name.lower(): name for name in known}
        matches = get_close_matches(unknown.lower(), lowered, n=1, cutoff=0.7)
        return lowered[matches[0]] if matches else ""


FILE = Vocabulary(KEYS, HARMLESS, UNSUPPORTED)
"""A C{broker.conf}."""

BY_NAME = FILE.by_name
"""Its keys by name and by alias."""
