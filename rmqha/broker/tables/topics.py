"""The topics of a broker: C{config/topics.json}, and what may be a topic.

Source: docs/protocol/remoting.md, Tables and Sending.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from attrs import evolve
from twisted.logger import Logger

from rmqha.broker.tables.table import ConfigTable
from rmqha.config.broker_settings import BrokerSettings
from rmqha.errors import RequestRefused
from rmqha.wire.log.encode import MAX_TOPIC
from rmqha.wire.names import (
    BENCHMARK_TOPIC,
    HALF_DONE_TOPIC,
    HALF_GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)
from rmqha.wire.remoting.bodies.tables import INHERIT, READ, WRITE, TopicConfig, TopicTable
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.store_layout import TOPICS

FORBIDDEN = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        HALF_DONE_TOPIC,
        HALF_GIVEN_UP_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        TIMER_TOPIC,
    }
)
"""Topics no client may send to, beside those of check points of POP."""

READ_WRITE = READ | WRITE
"""The permission of a topic that is consumed and sent to."""

UNIT, UNIT_SUBSCRIBED = 1, 2
"""The bits of a topic's C{topic_sys_flag}: its producers' unit mode, and a group's for its retry
topic."""

_SCHEDULE_QUEUES = 18
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_TEXT = "^[%|a-zA-Z0-9_-]+$"


def is_forbidden(name: str) -> bool:
    """Whether no client may send to a topic."""
    return name in FORBIDDEN or name.startswith(REVIVE_PREFIX)


def check_name(name: str) -> None:
    """Refuse what cannot be a topic's name.

    @raise RequestRefused: With RocketMQ's texts.
    """
    if not name.strip():
        fault = "The specified topic is blank."
    elif _NAME.fullmatch(name) is None:
        fault = (
            "The specified topic contains illegal characters, "
            f"allowing only {_NAME_TEXT}: {name[:MAX_TOPIC]!r}"
        )
    elif len(name) > MAX_TOPIC:
        fault = f"The specified topic is longer than topic max length. {len(name)} > {MAX_TOPIC}"
    else:
        return
    raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)


def reply_topic(cluster: str) -> str:
    """The topic of replies to requests."""
    return f"{cluster}_REPLY_TOPIC"


def perm_text(perm: int) -> str:
    """A permission as RocketMQ shows it."""
    bits = ((READ, "R"), (WRITE, "W"), (INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


class Topics(ConfigTable[TopicConfig, TopicTable, BrokerSettings]):
    """The table of topics, C{topics.json}."""

    NAME, BODY, ROWS = TOPICS, TopicTable, "topic_config_table"

    _log = Logger()

    def presets(self) -> dict[str, TopicConfig]:
        return {topic.topic_name: topic for topic in _presets(self._settings)}

    def load(self) -> None:
        """Read the file; the template in it is only good where topics may be made."""
        super().load()
        template = self.get(TEMPLATE_TOPIC)
        if template is not None and not self._settings.auto_create_topics:
            self._table[TEMPLATE_TOPIC] = evolve(template, perm=template.perm & ~INHERIT)

    @cached_property
    def system(self) -> frozenset[str]:
        """The topics that are not a user's, whether they are there or not."""
        cluster = self._settings.cluster
        return SYSTEM_TOPICS | {cluster, self._settings.name, reply_topic(cluster)}

    def is_system(self, name: str) -> bool:
        """Whether a topic is not a user's."""
        return name in self.system or is_system_topic(name)

    def put(self, config: TopicConfig) -> None:
        """Make a topic, or change it."""
        self.set(config.topic_name, config)

    def auto_create(
        self, name: str, template: str, wanted_queues: int, *, unit: bool = False
    ) -> TopicConfig | None:
        """Make a topic because a message is sent to it.

        @param template: The topic it is made after.
        @param wanted_queues: It gets no more queues than the template has, and at least one.
        @return: C{None} if there is no such template, nothing may be made after it, or there
            are too many.
        """
        pattern = self.get(template)
        if pattern is None or not pattern.perm & INHERIT or self.full:
            return None
        queues = max(1, min(wanted_queues, pattern.write_queue_nums))
        made = TopicConfig(
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=pattern.perm & ~INHERIT,
            topic_filter_type=pattern.topic_filter_type,
            topic_sys_flag=UNIT if unit else 0,
        )
        self.put(made)
        return made

    def ensure(
        self, name: str, queues: int, *, perm: int = READ_WRITE, sys_flag: int = 0
    ) -> TopicConfig:
        """A topic of our own; made if there is none."""
        found = self.get(name)
        if found is None:
            found = TopicConfig(
                topic_name=name,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                topic_sys_flag=sys_flag,
            )
            self.put(found)
        return found

    def bring_back(self, name: str, used: Iterable[int]) -> None:
        """Make a topic again that has messages, and that the table does not have: it is written
        after the messages, so a crash between the two leaves it behind the log.

        @param used: The ids of its queues that have messages; a deleted topic has none.
        """
        count = max(used, default=-1) + 1
        if not count or name in self._table or self.is_system(name):
            return
        self._log.warn(
            "Topic {topic} has messages and is not in {path}: made again with {count} queues",
            topic=name,
            path=self.file.path.name,
            count=count,
        )
        self.ensure(name, count)


def _presets(settings: BrokerSettings) -> Iterable[TopicConfig]:

    def preset(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    def shared(writable: bool) -> int:
        return INHERIT | READ_WRITE if writable else INHERIT

    yield preset(SELF_TEST_TOPIC, 1)
    if settings.auto_create_topics:
        yield preset(TEMPLATE_TOPIC, settings.topic_queues, INHERIT | READ_WRITE)
    yield preset(BENCHMARK_TOPIC, 1024)
    yield preset(settings.cluster, 16, shared(settings.cluster_topic))
    yield preset(settings.name, 1, shared(settings.broker_topic))
    yield preset(OFFSET_MOVED_TOPIC, 1)
    yield preset(SCHEDULE_TOPIC, _SCHEDULE_QUEUES)
    yield preset(TIMER_TOPIC, 1)
    if settings.trace_topic:
        yield preset(settings.trace_topic_name, 1)
    yield preset(reply_topic(settings.cluster), 1)
    # A Java slave deletes what its master has not got.  Where a controller elects it later, and
    # then another one, it makes these again inside the step that ends its leadership, and waits 90
    # seconds for itself.
    yield preset(HALF_TOPIC, 1)
    yield preset(HALF_DONE_TOPIC, 1)
