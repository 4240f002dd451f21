"""Whether a message may be sent where its client wants it: topic, permissions, queue.

The order is RocketMQ's, so that of several faults a client is told the same one.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

from collections.abc import Callable
from random import randrange
from time import localtime, strftime

from attrs import define, field

from rmqha.broker.tables.topics import UNIT_SUBSCRIBED, Topics, check_name, is_forbidden, perm_text
from rmqha.config.broker_settings import BrokerSettings
from rmqha.errors import RequestRefused
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting.bodies.tables import WRITE, TopicConfig
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.headers.send import SendMessageRequest

HELP = "See http://rocketmq.apache.org/docs/faq/ for further details."
"""How RocketMQ ends texts about what a user forgot."""


@define(eq=False)
class Admission:
    """The checks before a message is looked at.

    @ivar now_ms: Milliseconds since 1970.
    """

    settings: BrokerSettings
    topics: Topics
    now_ms: Callable[[], int]
    _opens_at: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._opens_at = self.settings.accept_sends_from * 1000

    def apply(self, settings: BrokerSettings) -> None:
        """Check by other settings from now on."""
        self.settings = settings

    @property
    def open(self) -> bool:
        """Whether C{startAcceptSendRequestTimeStamp} is over."""
        return not self._opens_at or self.now_ms() >= self._opens_at

    def check_open(self) -> None:
        """Refuse what comes before C{startAcceptSendRequestTimeStamp}."""
        if not self.open:
            until = strftime("%Y-%m-%d %H:%M:%S", localtime(self._opens_at / 1000))
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {until}"
            )

    def check_broker(self) -> None:
        """Refuse where the broker itself may not be written to."""
        if not self.settings.permission & WRITE:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self.settings.ip1}] sending message is forbidden",
            )

    def topic(self, header: SendMessageRequest) -> TopicConfig:
        """The topic of a message; made if it may be.

        @raise RequestRefused: If there is none, or it may not be sent to.
        """
        self.check_open()
        name = header.topic
        config = self.topics.get(name)
        if config is None:
            check_name(name)
        # Stock brokers do this for ordered topics alone, and leave it to the route that no
        # others come: then it cannot be told when the last one has come.
        self.check_broker()
        if is_forbidden(name):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{name}] is forbidden."
            )
        if config is None:
            config = self._new(header)
        if not config.perm & WRITE:
            # Stock brokers take such a message, and leave it to the route that none comes.
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        return config

    def _new(self, header: SendMessageRequest) -> TopicConfig:
        name = header.topic
        made = self.topics.auto_create(
            name, header.default_topic, header.default_topic_queue_nums, unit=header.unit_mode
        )
        if made is None and name.startswith(RETRY_PREFIX) and not self.topics.full:
            sys_flag = UNIT_SUBSCRIBED if header.unit_mode else 0
            made = self.topics.ensure(name, 1, sys_flag=sys_flag)
        if made is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please!\n{HELP}",
            )
        return made

    @staticmethod
    def queue(header: SendMessageRequest, config: TopicConfig, peer: str) -> int:
        """The queue of a message; any of them if its client does not mind.

        @param peer: C{ip:port} of the client.
        @raise RequestRefused: If there is none of that number to write to.
        """
        queue_id, queues = header.queue_id, config.write_queue_nums
        if queue_id < 0 < queues:
            return randrange(queues)
        if 0 <= queue_id < queues:
            return queue_id
        # Stock brokers take one that is only there to be read.  To 4.9's answer, 1, a producer in
        # Java asks other brokers the same.
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{queue_id}] is illegal, {_shown(config)} Producer: {peer}",
        )


def _shown(config: TopicConfig) -> str:
    """A topic as RocketMQ shows it."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={str(config.order).lower()}]"
    )
