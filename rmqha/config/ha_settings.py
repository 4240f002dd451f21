"""Replication, on both sides of the HA port.

L{rmqha.config.settings} tells how these settings are written.
"""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from rmqha.config.broker_settings import DEFAULT_LISTEN_PORT, base_port
from rmqha.config.keys import Derived, Lookup, key, later_key, own_key
from rmqha.config.store_settings import FlushDisk
from rmqha.config.values import (
    ADDRESS,
    CLIENT_ADDRESS,
    ENDPOINT,
    ENDPOINTS,
    LONG_MAX,
    NETWORKS,
    SWITCH,
    Network,
    choice,
    millis,
    whole,
)
from rmqha.wire.ports import HA_PORT_STEP

MAX_BATCH = (4 << 20) - 12
"""Most of C{haTransferBatchSize}: a stock slave's read buffer holds header and body
together, and wedges on more (docs/protocol/ha.rst, Frames)."""

_BYTES = whole(0, LONG_MAX, "bytes")


class FirstSync(StrEnum):
    """C{haFirstSync}: where an empty slave starts."""

    BEGINNING = "beginning"
    LAST_FILE = "last-file"


class DivergencePolicy(StrEnum):
    """C{haDivergencePolicy}: what a slave does when its log is not its master's."""

    STOP = "stop"
    TRUNCATE = "truncate"
    REBOOTSTRAP = "rebootstrap"


class BadRecordPolicy(StrEnum):
    """C{haBadRecordPolicy}: what a slave does with an old record that is damaged on its master."""

    COPY = "copy"
    STOP = "stop"


class ReplicaIdentity(StrEnum):
    """C{haReplicaIdentity}: what makes two connections two replicas."""

    ADDRESS = "address"
    CONNECTION = "connection"


def client_address(of: Lookup) -> tuple[str, int] | None:
    """Where a stock master's clients connect, by where its slaves do."""
    master = of("haMasterAddress")
    if master is None or master[1] <= HA_PORT_STEP:
        return None
    return master[0], master[1] - HA_PORT_STEP


@frozen(kw_only=True)
class HASettings:
    """Replication, both sides of it."""

    listen_port: int = key(
        "haListenPort",
        whole(0, 65535),
        str(DEFAULT_LISTEN_PORT + HA_PORT_STEP),
        derived=Derived("listenPort + 1", lambda of: base_port(of) + HA_PORT_STEP),
    )
    """The HA port, where slaves connect; a slave has one too. 0 is listenPort + 1 on a master and
    off on a slave. RocketMQ 4.9 ignores this key and always takes listenPort + 1."""

    listen_address: str = own_key("haListenAddress", ADDRESS, "")
    """The address that the HA port listens on; empty is all."""

    master: tuple[str, int] | None = key("haMasterAddress", ENDPOINT, "")
    """On a slave, host:port of its master's HA port. Without it the name servers are asked; a slave
    that finds no master runs and waits."""

    master_client: tuple[str, int] | None = own_key(
        "haMasterClientAddress",
        CLIENT_ADDRESS,
        "off",
        derived=Derived("haMasterAddress, its port - 1", client_address),
    )
    """On a slave, host:port of its master's client port. The master is asked there where its log
    begins and ends before the two logs are compared; C{off} is not to ask."""

    heartbeat: float = key("haSendHeartbeatInterval", millis(), "5000")
    """On a master, how long it sends nothing before it sends a heartbeat; on a slave, the longest
    time between two reports."""

    housekeeping: float = key("haHousekeepingInterval", millis(), "20000")
    """How long nothing is received before an HA connection is closed; also the time a peer has for
    its first report. Must be longer than haSendHeartbeatInterval."""

    batch: int = key("haTransferBatchSize", whole(1, MAX_BATCH, "bytes"), "32768")
    """Most bytes of the log in one HA frame. Stock slaves cannot read more than the upper bound."""

    fallbehind_max: int = key(
        "haSlaveFallbehindMax",
        whole(1, LONG_MAX, "bytes"),
        "268435456",
        aliases=("haMaxGapNotInSync",),
    )
    """SYNC_MASTER: a replica that lags behind this far is not waited for; if too few are left,
    writes get SLAVE_NOT_AVAILABLE."""

    slave_timeout: float = key("slaveTimeout", millis(), "3000")
    """SYNC_MASTER: longest time a write waits for its replicas; then it gets
    FLUSH_SLAVE_TIMEOUT."""

    in_sync_replicas: int = later_key("inSyncReplicas", whole(1, 1000), "1")
    """SYNC_MASTER: copies a write waits for, the master's own included. At least one replica is
    always waited for, even with 1."""

    first_sync: FirstSync = own_key("haFirstSync", choice(FirstSync), "beginning")
    """Where an empty slave begins: at the first byte of the log, or at the last file as in
    RocketMQ."""

    policy: DivergencePolicy = own_key("haDivergencePolicy", choice(DivergencePolicy), "stop")
    """What a slave does when its log diverges from its master's."""

    trust_master: tuple[str, int] | None = own_key("haTrustMaster", ENDPOINT, "")
    """On a slave, host:port of the HA port of a master that an operator has decided for: it is
    followed although its master epoch is lower than one that was followed before, and
    haDivergencePolicy may cut bytes that were acknowledged to another master. For one run."""

    bad_record: BadRecordPolicy = own_key("haBadRecordPolicy", choice(BadRecordPolicy), "copy")
    """What a slave does with an old record whose body is damaged on its master: C{copy} it as it
    is, say so in the log, /status and /healthz, and go on, or C{stop} before it. No write that may
    still be waited for is copied unchecked."""

    accept_unproven: bool = own_key("haAcceptUnproven", SWITCH, "false")
    """Whether a slave replicates although its log could not be compared with its master's."""

    send_flushed_only: bool = own_key(
        "haSendFlushedOnly",
        SWITCH,
        "false",
        derived=Derived(
            "true with SYNC_FLUSH, else false",
            lambda of: of("flushDiskType") is FlushDisk.SYNC_FLUSH,
        ),
    )
    """Whether a master sends only what is on its disk, so that no slave is ahead of it after a
    power failure."""

    max_connections: int = own_key("haMaxConnections", whole(1), "2000")
    """Most connections on the HA port. A limit of open files that leaves fewer lowers it."""

    retention_grace: float = own_key("haRetentionGrace", millis(0), "3600000")
    """How long log files are kept for a replica that is not connected any more, as if it were."""

    retention_bytes: int = own_key(
        "haRetentionGraceBytes", whole(0, LONG_MAX, "bytes"), "68719476736"
    )
    """Most bytes of the log, from where such a replica goes on to the end, for which files are kept
    for it."""

    replica_identity: ReplicaIdentity = own_key(
        "haReplicaIdentity", choice(ReplicaIdentity), "address"
    )
    """What counts as one replica: an address, or a connection (for several slaves behind one
    address)."""

    local_address: str = own_key("haLocalAddress", ADDRESS, "")
    """Source address of a slave's connections to its master; empty leaves it to the system."""

    max_truncate: int = own_key("haMaxTruncateBytes", _BYTES, "268435456")
    """Most bytes that haDivergencePolicy=truncate may cut; a slave that would have to cut more
    stops."""

    max_receive_rate: int = own_key("haMaxReceiveBytesPerSecond", _BYTES, "0")
    """Most bytes that a slave receives per second; 0 is no limit."""

    compare_rate: int = own_key("haCompareBytesPerSecond", _BYTES, "8388608")
    """How fast a slave that is in sync and idle compares its whole log with its master's, at most
    once in scrubInterval; 0 is never."""

    max_send_rate: int = own_key("haMaxSendBytesPerSecond", _BYTES, "0")
    """Most bytes that a master sends per second to each slave; 0 is no limit."""

    allowed_peers: tuple[Network, ...] = own_key("haAllowedPeers", NETWORKS, "")
    """Addresses or networks that may connect to the HA port; empty is everybody."""

    tail_fetch_timeout: float = own_key("haTailFetchTimeout", millis(0), "5000")
    """After a crash, how long a master waits for its replicas to say whether they have more of its
    log, before it takes writes; one that sends what is missing is waited for longer. 0 is not to
    ask."""

    tail_sources: str = own_key("haTailSources", ENDPOINTS, "")
    """HA ports of the replicas that a master asks after a crash, host:port, several separated by
    ;. Empty is the replicas that it had, at the ports that they told, or at its own
    haListenPort."""

    zero_copy: bool = own_key("haZeroCopy", SWITCH, "true")
    """Whether the log goes to and from sockets without a copy in Python (zero copy)."""

    probe_silence: float = own_key("haProbeSilence", millis(), "6000")
    """How long a slave that compares logs waits for the master's bytes. A stock master needs more
    than its haSendHeartbeatInterval."""

    backoff_max: float = own_key("haReconnectBackoffMax", millis(), "30000")
    """Longest pause between two attempts to connect to the master."""

    no_master_alarm: float = own_key("haNoMasterAlarm", millis(0), "60000")
    """How long a slave hears nothing from a master before it is unhealthy (no-master); 0 is never.
    A master that is restarted is heard again within haHousekeepingInterval and
    haReconnectBackoffMax."""
