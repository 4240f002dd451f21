"""
Every key of a name server's file that means something here.

Names, units and defaults are those of C{NamesrvConfig} and C{NettyServerConfig} of 4.9 and
5.3; keys of our own say so.
"""

from __future__ import annotations

from rmqha.config.foreign import HARMLESS as BROKERS
from rmqha.config.foreign import Foreign, on
from rmqha.config.keys import ADMIN, REMOTING, Key, Origin, Vocabulary, rows_of
from rmqha.config.values import FilePath, Integer, Millis, Networks, Switch

NAMESRV: tuple[Key, ...] = rows_of(
    "namesrv",
    ("listenPort", "listen_port", Integer(1, 65535), "9876",
     "The port. The admin port is counted from it."),
    ("kvConfigPath", "kv_path", FilePath(empty=False), "${user.home}/namesrv/kvConfig.json",
     "The file of what is kept for others, such as the queues of ordered topics."),
    ("orderMessageEnable", "order_messages", Switch(), "false",
     "Whether routes tell the queues of ordered topics."),
    ("scanNotActiveBrokerInterval", "scan_interval", Millis(), "10000",
     "Pause between two looks for brokers that were silent for too long; 5000 in RocketMQ 5.",
     {"origin": Origin.RMQ53}),
    ("brokerChannelGrace", "channel_grace", Millis(0), "0",
     ("How long a broker whose connection is gone keeps its routes, so that it can come back;"
      " RocketMQ removes it at once."), {"origin": Origin.OURS}),
    ("namesrvAllowedPeers", "allowed_peers", Networks(), "",
     ("Addresses or networks that may register brokers, or change anything else; empty is"
      " everybody."), {"origin": Origin.OURS}),
)  # fmt: skip

_PARTS = {
    "it is about Java's process": """
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity defaultThreadPoolNums
        defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity""",
    "what administrators change while it runs lasts until the next start": """
        configStorePath""",
    "the feature it belongs to is refused when switched on": """
        notifyMinBrokerIdChanged""",
    "it means nothing to clients": """
        productEnvName returnOrderTopicConfigToBroker enableAllTopicList enableTopicList
        needWaitForService waitSecondsForService""",
}

_SHARED = (
    "it tunes Netty",
    "it is about Java's process, logs or metrics",
)
"""Of the reasons why a broker's keys mean nothing, those that hold for a name server too."""

HARMLESS: dict[str, str] = {
    **{name: reason for name, reason in BROKERS.items() if reason in _SHARED},
    **{name: reason for reason, names in _PARTS.items() for name in names.split()},
}
"""Keys that are accepted and listed once, with the reason why they mean nothing."""

UNSUPPORTED: dict[str, Foreign] = {
    "clusterTest": on("routes are never fetched from a product environment"),
    "supportActingMaster": on("a slave is never shown as its master"),
    "enableControllerInNamesrv": on("there is no controller here"),
    "deleteTopicWithBrokerRegistration": on("a topic's route stays until it is deleted here too"),
}
"""Keys that refuse to start when they are switched on."""

FILE = Vocabulary((*NAMESRV, *REMOTING, *ADMIN[:2]), HARMLESS, UNSUPPORTED)
"""A C{namesrv.properties}."""
