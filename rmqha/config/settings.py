"""What a node is told to do, as frozen values, and the keys of the file that say it.

Each field is one key, declared once: its name, what its text may be, its default as
RocketMQ's documentation writes it, and below it what it does.  Inside, times are float
seconds, sizes bytes and ratios 0 to 1, whatever the file's units are.  A broker, its
store and its replication have modules of their own.

L{rmqha.config.load.load} is the only place where text becomes settings, so
everything behind it can trust them.  A test may make them and name only what it is about.

docs/guide/configuration.rst is made from these classes.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path

from attrs import field, frozen

from rmqha.config.broker_settings import (
    DEFAULT_LISTEN_PORT,
    BrokerSettings,
    PopSettings,
    PullSettings,
    RegistrationSettings,
    TimerSettings,
    TransactionSettings,
    base_port,
)
from rmqha.config.controller_settings import ControllerSettings
from rmqha.config.ha_settings import HASettings
from rmqha.config.keys import Derived, Lookup, key, later_key, own_key
from rmqha.config.store_settings import StoreSettings
from rmqha.config.values import (
    ADDRESS,
    ENDPOINT,
    FILE,
    HOST_NAMES,
    NETWORKS,
    SOME_ADDRESS,
    SOME_FILE,
    SOME_TEXT,
    SWITCH,
    TEXT,
    Kind,
    Network,
    choice,
    millis,
    whole,
)

_SEPARATORS = re.compile(r"[;,]")


def _etcd_addresses(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in _SEPARATORS.split(text) if part.strip())
    for each in found:
        ENDPOINT.parse(each)
    return found


ETCD_ADDRESSES = Kind("host:port, several separated by ; or ,", _etcd_addresses, ";".join)
"""Client ports of etcd's members."""


@frozen(kw_only=True)
class EtcdSettings:
    """How a node asks etcd, with controllerType=etcd."""

    addresses: tuple[str, ...] = own_key("etcdAddresses", ETCD_ADDRESSES, "")
    """The client ports of etcd's members, host:port, several separated by ; or ,."""

    prefix: str = own_key("etcdPrefix", SOME_TEXT, "/rmqha")
    """What the keys of all sets begin with; brokerClusterName and brokerName follow."""

    lease: int = own_key("etcdLeaseSeconds", whole(2, 600, "seconds"), "10")
    """How long a member that gives no sign of life is taken to be alive. No other one is elected
    before, and its writes are acknowledged a little shorter than that."""

    user: str = own_key("etcdUser", TEXT, "")
    """Who the node is to etcd, where etcd's authentication is on."""

    password: Path | None = own_key("etcdPasswordFile", FILE, "")
    """The file with the password of etcdUser. A change of it counts at the next login."""


ADMIN_PORT_STEP = 3
"""C{adminListenPort} is this far above C{listenPort}: RocketMQ uses -2 and +1."""


class TlsMode(StrEnum):
    """C{tlsMode}: what a client port accepts."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class LogLevelName(StrEnum):
    """C{logLevel}: below which nothing is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    CRITICAL = "critical"


class LogFormat(StrEnum):
    """C{logFormat}: for people, or for programs."""

    TEXT = "text"
    JSON = "json"


class ClientAuth(StrEnum):
    """C{tlsClientAuth}: whether clients show certificates."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


@frozen(kw_only=True)
class RemotingSettings:
    """The client ports: their address and TLS."""

    bind_address: str = later_key("bindAddress", ADDRESS, "")
    """The address that the client ports listen on; empty is all."""

    allowed_peers: tuple[Network, ...] = own_key("clientAllowedPeers", NETWORKS, "")
    """Addresses or networks that may connect to the client ports; empty is everybody. Slaves and
    other brokers connect there too."""

    max_connections: int = own_key("clientMaxConnections", whole(0), "0")
    """Most connections of clients, on all client ports together. 0 is as many as the limit of open
    files leaves, 65536 at most."""

    tls_config: Path | None = key("tls.config.file", FILE, "")
    """A file with keys of TLS, by the names that begin with tls., which count as if they stood
    here."""

    tls: TlsMode = key("tlsMode", choice(TlsMode), "permissive", aliases=("tls.server.mode",))
    """Whether the client ports accept TLS, plain text or both. Without a certificate, permissive
    accepts plain text only."""

    tls_key: Path | None = key("tlsKeyPath", FILE, "", aliases=("tls.server.keyPath",))
    """The private key of the client ports, PEM without a password."""

    tls_cert: Path | None = key("tlsCertPath", FILE, "", aliases=("tls.server.certPath",))
    """The certificate of the client ports and those between it and its root, PEM."""

    tls_trusted: Path | None = key(
        "tlsTrustCertPath", FILE, "", aliases=("tls.server.trustCertPath",)
    )
    """The root certificates that clients' certificates are checked against, PEM."""

    tls_client_auth: ClientAuth = key(
        "tlsClientAuth", choice(ClientAuth), "none", aliases=("tls.server.need.client.auth",)
    )
    """Whether clients are asked for a certificate, and whether they must have one."""

    tls_expiry_alarm: float = own_key("tlsExpiryAlarm", millis(0), "604800000")
    """How long before the end of any of the node's certificates the node is unhealthy; 0 is
    never."""


def _has_roots(of: Lookup) -> bool:
    return of("tlsClientTrustCertPath") is not None


@frozen(kw_only=True)
class TlsSettings:
    """TLS of the connections that the node makes, and of replication."""

    enabled: bool = key(
        "tlsEnable",
        SWITCH,
        "false",
        derived=Derived(
            "true with tlsMode=enforcing, else false", lambda of: of("tlsMode") is TlsMode.ENFORCING
        ),
        aliases=("tls.enable", "useTLS"),
    )
    """Whether the node connects with TLS to name servers, controllers and the client ports of other
    brokers."""

    client_key: Path | None = key("tlsClientKeyPath", FILE, "", aliases=("tls.client.keyPath",))
    """The private key that the node shows itself with there, PEM without a password."""

    client_cert: Path | None = key("tlsClientCertPath", FILE, "", aliases=("tls.client.certPath",))
    """The certificate that the node shows there and those between it and its root, PEM."""

    client_trusted: Path | None = key(
        "tlsClientTrustCertPath", FILE, "", aliases=("tls.client.trustCertPath",)
    )
    """The root certificates that servers' certificates are checked against, PEM."""

    auth_server: bool = key(
        "tlsClientAuthServer",
        SWITCH,
        derived=Derived("true with tlsClientTrustCertPath, else false", _has_roots),
        aliases=("tls.client.authServer",),
    )
    """Whether servers' certificates are checked; RocketMQ does it only if it is told to."""

    check_names: bool = own_key("tlsCheckNames", SWITCH, "false")
    """Whether a certificate that is checked has to have the host name or address that the node
    connected to, HA ports included. RocketMQ never looks at it."""

    ha_mode: TlsMode = own_key("haTlsMode", choice(TlsMode), "permissive")
    """Whether the HA port accepts TLS, plain text or both. Without a certificate, permissive
    accepts plain text only. Stock slaves know plain text only."""

    ha_enabled: bool = own_key(
        "haTlsEnable",
        SWITCH,
        "false",
        derived=Derived(
            "true with haTlsMode=enforcing, else false",
            lambda of: of("haTlsMode") is TlsMode.ENFORCING,
        ),
    )
    """Whether the node connects to HA ports with TLS. Never with a stock master: it would take the
    first bytes for an acknowledgement."""

    ha_key: Path | None = own_key("haTlsKeyPath", FILE, "")
    """The private key for replication, PEM without a password."""

    ha_cert: Path | None = own_key("haTlsCertPath", FILE, "")
    """The certificate that the node shows on its HA port, and to HA ports that it connects to, and
    those between it and its root, PEM."""

    ha_trusted: Path | None = own_key("haTlsTrustCertPath", FILE, "")
    """The root certificates of replication, PEM. With them both sides must show a certificate of
    theirs; without them TLS only encrypts."""

    etcd_key: Path | None = own_key("etcdTlsKeyPath", FILE, "")
    """The private key that the node shows itself to etcd with, PEM without a password."""

    etcd_cert: Path | None = own_key("etcdTlsCertPath", FILE, "")
    """The certificate that the node shows etcd and those between it and its root, PEM."""

    etcd_trusted: Path | None = own_key("etcdTlsTrustCertPath", FILE, "")
    """The root certificates of etcd, PEM. With them the node connects to etcd with TLS alone."""


@frozen(kw_only=True)
class AdminSettings:
    """The small HTTP port for people and monitoring."""

    listen_port: int = own_key(
        "adminListenPort",
        whole(0, 65535),
        str(DEFAULT_LISTEN_PORT + ADMIN_PORT_STEP),
        derived=Derived("listenPort + 3", lambda of: base_port(of) + ADMIN_PORT_STEP),
    )
    """The HTTP port for /livez, /readyz, /healthz and /status; 0 is off."""

    listen_address: str = own_key("adminListenAddress", SOME_ADDRESS, "127.0.0.1")
    """The address that the HTTP port listens on."""

    port_allowed_peers: tuple[Network, ...] = own_key("adminPortAllowedPeers", NETWORKS, "")
    """Addresses or networks that may connect to the HTTP port; empty is everybody."""

    hosts: tuple[str, ...] = own_key("adminHosts", HOST_NAMES, "")
    """Names by which the HTTP port may be asked, besides addresses, names without a dot and this
    host's own; a web page that has a browser ask it by another name is refused."""

    allowed_peers: tuple[Network, ...] = own_key("adminAllowedPeers", NETWORKS, "")
    """Addresses or networks whose administration requests the client port accepts: those that
    change something, reach into clients or read the configuration. Empty is everybody."""


@frozen(kw_only=True)
class LogSettings:
    """The log of the node, as C{twistd} writes it."""

    level: LogLevelName = own_key("logLevel", choice(LogLevelName), "info")
    """Below it nothing is logged."""

    format: LogFormat = own_key("logFormat", choice(LogFormat), "text")
    """Lines for people, or an object of JSON each."""

    file_size: int = own_key("logFileSize", whole(1 << 16), str(10 << 20))
    """Bytes after which the file of twistd's --logfile is turned over."""

    old_files: int = own_key("logOldFiles", whole(1, 10_000), "10")
    """How many older files are kept beside it."""


@frozen(kw_only=True)
class AccessSettings:
    """Access control: who may ask what of the client port."""

    enabled: bool = key("aclEnable", SWITCH, "false")
    """Whether requests must be signed, and need permissions."""

    accounts: Path | None = own_key("aclPlainFile", FILE, "", aliases=("rocketmq.acl.plain.file",))
    """The file of accounts, a RocketMQ plain_acl.yml; empty is the one beside this file. A change
    of it is in force a second later."""

    credentials: Path | None = own_key("aclCredentialsFile", FILE, "")
    """The accessKey and secretKey that requests to other brokers and to name servers are signed
    with, a file like mqadmin's tools.yml; empty is not to sign."""


@frozen(kw_only=True)
class NamesrvSettings:
    """A name server; its other sections are L{RemotingSettings}, L{AdminSettings} and
    L{LogSettings}.
    """

    listen_port: int = key("listenPort", whole(1, 65535), "9876")
    """The port of the name server. The admin port is counted from it."""

    kv_path: Path = key("kvConfigPath", SOME_FILE, "${user.home}/namesrv/kvConfig.json")
    """The file of the key-value configuration, such as the queues of ordered topics."""

    order_messages: bool = key("orderMessageEnable", SWITCH, "false")
    """Whether routes contain the queues of ordered topics."""

    scan_interval: float = later_key("scanNotActiveBrokerInterval", millis(), "10000")
    """Pause between checks for brokers that were silent for too long; 5000 in RocketMQ 5."""

    channel_grace: float = own_key("brokerChannelGrace", millis(0), "0")
    """How long a broker whose connection is lost keeps its routes, so that it can come back;
    RocketMQ removes them at once."""

    allowed_peers: tuple[Network, ...] = own_key("namesrvAllowedPeers", NETWORKS, "")
    """Addresses or networks that may register brokers or change anything else; empty is
    everybody."""


@frozen(kw_only=True)
class Settings:
    """All of a node's settings.

    @ivar ignored: RocketMQ's keys that were given and mean nothing here.
    @ivar notes: Sentences for the log: what was changed to make the settings fit.
    """

    broker: BrokerSettings = field(factory=BrokerSettings)
    remoting: RemotingSettings = field(factory=RemotingSettings)
    store: StoreSettings = field(factory=StoreSettings)
    pull: PullSettings = field(factory=PullSettings)
    transactions: TransactionSettings = field(factory=TransactionSettings)
    timers: TimerSettings = field(factory=TimerSettings)
    pop: PopSettings = field(factory=PopSettings)
    registration: RegistrationSettings = field(factory=RegistrationSettings)
    ha: HASettings = field(factory=HASettings)
    tls: TlsSettings = field(factory=TlsSettings)
    controller: ControllerSettings = field(factory=ControllerSettings)
    etcd: EtcdSettings = field(factory=EtcdSettings)
    admin: AdminSettings = field(factory=AdminSettings)
    log: LogSettings = field(factory=LogSettings)
    access: AccessSettings = field(factory=AccessSettings)
    namesrv: NamesrvSettings = field(factory=NamesrvSettings)
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
