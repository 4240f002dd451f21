"""What may stand in a file: the keys that settings classes declare, and foreign ones.

Names, units and defaults are RocketMQ's (C{MessageStoreConfig}, C{BrokerConfig},
C{NettyServerConfig} and C{NamesrvConfig} of 4.9 and 5.3), so that its files can be taken
as they are; keys of our own say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from attrs import AttrsInstance, field, frozen

from rmqha.config import foreign
from rmqha.config.broker_settings import (
    BrokerSettings,
    PopSettings,
    PullSettings,
    RegistrationSettings,
    TimerSettings,
    TransactionSettings,
)
from rmqha.config.controller_settings import ControllerSettings
from rmqha.config.etcd_settings import EtcdSettings
from rmqha.config.foreign import Foreign
from rmqha.config.ha_settings import HASettings
from rmqha.config.keys import Key, keys_of
from rmqha.config.settings import (
    AccessSettings,
    AdminSettings,
    LogSettings,
    NamesrvSettings,
    RemotingSettings,
    TlsSettings,
)
from rmqha.config.store_settings import StoreSettings

SECTIONS: dict[str, type[AttrsInstance]] = {
    "broker": BrokerSettings,
    "remoting": RemotingSettings,
    "store": StoreSettings,
    "pull": PullSettings,
    "transactions": TransactionSettings,
    "timers": TimerSettings,
    "pop": PopSettings,
    "registration": RegistrationSettings,
    "ha": HASettings,
    "tls": TlsSettings,
    "controller": ControllerSettings,
    "etcd": EtcdSettings,
    "admin": AdminSettings,
    "log": LogSettings,
    "access": AccessSettings,
    "namesrv": NamesrvSettings,
}
"""What L{Settings <rmqha.config.settings.Settings>} is made of, in the order of the guide."""

KEYS: tuple[Key, ...] = tuple(
    key for section, declared in SECTIONS.items() for key in keys_of(section, declared)
)
"""Every key that means something here, a broker's and a name server's."""


@frozen
class Vocabulary:
    """All that may stand in one kind of file.

    @ivar keys: What means something.
    @ivar harmless: What is accepted and means nothing, with the reason.
    @ivar unsupported: What must not be switched on.
    @ivar dead: What RocketMQ itself passes over.
    @ivar by_name: Keys by name and by alias.
    """

    keys: tuple[Key, ...]
    harmless: Mapping[str, str]
    unsupported: Mapping[str, Foreign]
    dead: frozenset[str] = frozenset()
    by_name: dict[str, Key] = field(init=False)

    @by_name.default
    def _names(self) -> dict[str, Key]:
        return {name: key for key in self.keys for name in key.names}

    def nearest(self, unknown: str) -> str:
        """The known key somebody probably meant, or C{""}.

        @param unknown: A key nobody knows; its case does not matter.
        """
        known = (*self.harmless, *self.unsupported, *self.by_name)
        lowered = {name.lower(): name for name in known}
        matches = get_close_matches(unknown.lower(), lowered, n=1, cutoff=0.7)
        return lowered[matches[0]] if matches else ""


BROKER_FILE = Vocabulary(
    tuple(key for key in KEYS if key.section != "namesrv"),
    foreign.HARMLESS,
    foreign.UNSUPPORTED,
    foreign.DEAD,
)
"""A C{broker.conf}."""

NAMESRV_FILE = Vocabulary(
    tuple(
        key
        for section in ("namesrv", "remoting", "admin", "log")
        for key in keys_of(section, SECTIONS[section])
        if key.name != "adminAllowedPeers"
    ),
    foreign.NAMESRV_HARMLESS,
    foreign.NAMESRV_UNSUPPORTED,
)
"""A C{namesrv.properties}.  Who may change anything is said by C{namesrvAllowedPeers} there."""

TLS_FILE = Vocabulary(
    keys_of("tls", TlsSettings),
    {
        key.names[-1]: "it is a port's"
        for key in keys_of("remoting", RemotingSettings)
        if key.names[-1].startswith("tls.")
    }
    | {name: why for name, why in foreign.HARMLESS.items() if name.startswith("tls.")},
    foreign.TLS_UNSUPPORTED,
)
"""What a tool reads that connects to nodes, of a file like mqadmin's C{tls.config.file}."""
