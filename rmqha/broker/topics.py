"""
The topics of a broker: C{config/topics.json}, and what may be a topic.

Source: docs/protocol/remoting.md, Tables and Sending.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmqha.broker.persisted import Persisted
from rmqha.config.settings import BrokerSettings
from rmqha.errors import RequestRefused
from rmqha.store.allocate import InThread
from rmqha.wire.delay import SCHEDULE_TOPIC
from rmqha.wire.encode import MAX_TOPIC
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.tables import INHERIT, READ, WRITE, TopicConfig, TopicTable
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.json_body import from_json

RETRY_PREFIX = "%RETRY%"
"""Of the topic in which a group's messages come again."""

DLQ_PREFIX = "%DLQ%"
"""Of the topic in which those end that came too often."""

TEMPLATE = "TBW102"
"""The topic others are made after, where topics may be made by sending to them."""

SELF_TEST = "SELF_TEST_TOPIC"
BENCHMARK = "BenchmarkTest"
OFFSET_MOVED = "OFFSET_MOVED_EVENT"
TRACE = "RMQ_SYS_TRACE_TOPIC"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_DONE = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
HALF_GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"

SYSTEM = frozenset(
    {
        TEMPLATE,
        SCHEDULE_TOPIC,
        BENCHMARK,
        HALF,
        TRACE,
        HALF_DONE,
        HALF_GIVEN_UP,
        SELF_TEST,
        OFFSET_MOVED,
    }
)
"""Topics that are not a user's, on every broker."""

SYSTEM_PREFIX = "rmq_sys_"

FORBIDDEN = frozenset({SCHEDULE_TOPIC, HALF, HALF_DONE, HALF_GIVEN_UP, SELF_TEST, OFFSET_MOVED})
"""Topics no client may send to."""

READ_WRITE = READ | WRITE

MOST_MADE = 20_000
"""Topics, or groups, from which on no more are made because a client asks for one; administrators
may go on.  With three times as many of usual names a registration is still a frame."""

UNIT, UNIT_SUBSCRIBED = 1, 2
"""The bits of a topic's C{topic_sys_flag}: its producers' unit mode, and a group's for its retry
topic."""

_SCHEDULE_QUEUES = 18
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_TEXT = "^[%|a-zA-Z0-9_-]+$"

Changed = Callable[[TopicConfig | None], None]


def check_name(name: str) -> None:
    """
    Refuse what cannot be a topic's name.

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
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, fault)


def reply_topic(cluster: str) -> str:
    """
    The topic of replies to requests.
    """
    return f"{cluster}_REPLY_TOPIC"


def perm_text(perm: int) -> str:
    """
    A permission as RocketMQ shows it.
    """
    bits = ((READ, "R"), (WRITE, "W"), (INHERIT, "X"))
    return "".join(letter if perm & bit else "-" for bit, letter in bits)


class Topics:
    """
    The table of topics.

    @ivar changed: Each is called after a change with the topic, C{None} if one was deleted.
    """

    def __init__(
        self,
        folder: Path,
        settings: BrokerSettings,
        clock: IReactorTime,
        in_thread: InThread,
        now_ms: Callable[[], int],
    ) -> None:
        """
        @param folder: C{config} in the store's folder.
        @param now_ms: Milliseconds since 1970, for the table's version.
        """
        self.changed: list[Changed] = []
        self._settings = settings
        self._now_ms = now_ms
        self._file = Persisted(folder / "topics.json", self.table, clock, in_thread)
        self._table = {topic.topic_name: topic for topic in _presets(settings)}
        self._system = SYSTEM | {settings.cluster, settings.name, reply_topic(settings.cluster)}
        self._version = DataVersion()
        self._rest = TopicTable()

    def load(self) -> None:
        """
        Read the file, whose topics win over those that are always there.

        @raise TableUnreadable: If there is one, and it cannot be read.
        @raise BodyInvalid: If it is no table of topics.
        """
        found = self._file.load()
        if found is None:
            return
        table = from_json(TopicTable, found)
        self._rest = evolve(table, topic_config_table={})
        self._version = table.data_version
        self._table |= table.topic_config_table
        template = self._table.get(TEMPLATE)
        if template is not None and not self._settings.auto_create_topics:
            self._table[TEMPLATE] = evolve(template, perm=template.perm & ~INHERIT)

    def stop(self) -> Deferred[None]:
        """
        Write the file.

        @return: Fires when that is done, well or not.
        """
        return self._file.stop()

    # --- reading ------------------------------------------------------------------

    def get(self, name: str) -> TopicConfig | None:
        """
        A topic, if there is one of that name.
        """
        return self._table.get(name)

    def names(self) -> tuple[str, ...]:
        """
        The names of all.
        """
        return tuple(self._table)

    @property
    def version(self) -> DataVersion:
        """
        The table's version.
        """
        return self._version

    def table(self) -> TopicTable:
        """
        The whole table as it is now; it is not changed any more.
        """
        return evolve(self._rest, topic_config_table=dict(self._table), data_version=self._version)

    @property
    def system(self) -> frozenset[str]:
        """
        The topics that are not a user's, whether they are there or not.
        """
        return self._system

    def is_system(self, name: str) -> bool:
        """
        Whether a topic is not a user's.
        """
        return name in self._system or name.startswith(SYSTEM_PREFIX)

    @property
    def full(self) -> bool:
        """
        Whether no more are made for clients.
        """
        return len(self._table) >= MOST_MADE

    # --- changing -------------------------------------------------------------------

    def put(self, config: TopicConfig) -> None:
        """
        Make a topic, or change it.
        """
        self._table[config.topic_name] = config
        self._bump(config)

    def delete(self, name: str) -> bool:
        """
        Forget a topic.

        @return: Whether there was one.
        """
        if self._table.pop(name, None) is None:
            return False
        self._bump(None)
        return True

    def touch(self) -> None:
        """
        What is told of all topics is not what it was, though none has changed.
        """
        self._bump(None)

    def adopt(self, table: TopicTable) -> bool:
        """
        Take over another broker's table at once, all of it, with its version.

        @return: Whether that changed anything.
        """
        new = {topic.topic_name: topic for topic in _presets(self._settings)}
        new |= table.topic_config_table
        rest = evolve(table, topic_config_table={}, data_version=DataVersion())
        same = new == self._table and rest == evolve(self._rest, data_version=DataVersion())
        self._version = table.data_version
        if same:
            return False
        self._table, self._rest = new, rest
        self._file.dirty()
        for listener in tuple(self.changed):
            listener(None)
        return True

    def auto_create(
        self, name: str, template: str, wanted_queues: int, *, unit: bool = False
    ) -> TopicConfig | None:
        """
        Make a topic because somebody sends to it.

        @param template: The topic it is made after.
        @param wanted_queues: It gets no more queues than the template has, and at least one.
        @return: C{None} if there is no such template, nothing may be made after it, or there
            are too many.
        """
        pattern = self._table.get(template)
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
        """
        A topic of our own; made if there is none.
        """
        found = self._table.get(name)
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

    def _bump(self, config: TopicConfig | None) -> None:
        now = max(self._now_ms(), self._version.timestamp)
        self._version = self._version.changed(now)
        self._file.dirty()
        for listener in tuple(self.changed):
            listener(config)


def _presets(settings: BrokerSettings) -> Iterable[TopicConfig]:
    """
    The topics that are there from the start.
    """

    def preset(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    def shared(writable: bool) -> int:
        return INHERIT | READ_WRITE if writable else INHERIT

    yield preset(SELF_TEST, 1)
    if settings.auto_create_topics:
        yield preset(TEMPLATE, settings.topic_queues, INHERIT | READ_WRITE)
    yield preset(BENCHMARK, 1024)
    yield preset(settings.cluster, 16, shared(settings.cluster_topic))
    yield preset(settings.name, 1, shared(settings.broker_topic))
    yield preset(OFFSET_MOVED, 1)
    yield preset(SCHEDULE_TOPIC, _SCHEDULE_QUEUES)
    if settings.trace_topic:
        yield preset(settings.trace_topic_name, 1)
    yield preset(reply_topic(settings.cluster), 1)
