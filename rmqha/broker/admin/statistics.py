"""How far topics and groups are: requests 202, 208, 303, 315, 317 and 321.

Source: docs/protocol/remoting.md, Statistics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define

from rmqha.broker.access.needs import (
    CONSUMES,
    EITHER,
    KNOWS,
    SUB,
    TELLS_ALL,
    Stated,
    Wanted,
    in_group,
    of,
    reads,
)
from rmqha.broker.meters.meters import MINUTE
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.columnar.queue_units import UNIT
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.offsets import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpan,
    GroupOffset,
    QueueTimeSpan,
    TopicOffset,
    TopicStats,
)
from rmqha.wire.remoting.bodies.status import QueueUnit, QueueUnits
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.admin import (
    AllConsumeStatsRequest,
    BrokerStatsRequest,
    ConsumeStatsRequest,
    TopicGroupRequest,
    TopicRequest,
)
from rmqha.wire.remoting.headers.pull import QueryConsumeQueueRequest
from rmqha.wire.store_layout import UNIT_SIZE

_OF_QUEUES = frozenset({"QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE"})
"""The statistics of topics whose keys name a queue, and no group."""

MOST_UNITS = 1024
"""Most units one answer of 321 has."""


@define(eq=False)
class Statistics:
    """Answers about queues."""

    state: BrokerState

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.GET_TOPIC_STATS_INFO: (KNOWS, self.topic_stats),
            RequestCode.GET_CONSUME_STATS: (
                of("SUB: group, each topic that is named", _named),
                self.consume_stats,
            ),
            RequestCode.GET_BROKER_CONSUME_STATS: (TELLS_ALL, self.all_consume_stats),
            RequestCode.QUERY_CONSUME_TIME_SPAN: (
                reads(topics="topic", groups="group"),
                self.time_span,
            ),
            RequestCode.VIEW_BROKER_STATS_DATA: (
                of("PUB or SUB: topic, SUB: group of the key", _keyed),
                self.counted,
            ),
            RequestCode.QUERY_CONSUME_QUEUE: (CONSUMES, self.units),
        }

    def topic_stats(self, connection: RemotingProtocol, command: Command) -> Answer:
        """202: the range of each queue that is written to."""
        config = self._topic(from_ext(TopicRequest, command.ext).topic)
        table = {}
        for queue_id in range(config.write_queue_nums):
            first, end = self._bounds(config.topic_name, queue_id)
            table[self._queue(config.topic_name, queue_id)] = TopicOffset(
                min_offset=first,
                max_offset=end,
                last_update_timestamp=self._stored(config.topic_name, queue_id, end - 1),
            )
        meter = self.state.counts.meter("TOPIC_PUT_NUMS", config.topic_name)
        stats = TopicStats(
            offset_table=table, topic_put_tps=0.0 if meter is None else meter.over(MINUTE).tps
        )
        return command.answer(body=json_body.write(stats))

    def consume_stats(self, connection: RemotingProtocol, command: Command) -> Answer:
        """208: how far a group is in all its topics, or in some."""
        header = from_ext(ConsumeStatsRequest, command.ext)
        group = header.consumer_group
        table: dict[MessageQueue, GroupOffset] = {}
        for topic in _topics(header) or sorted(self.state.offsets.topics_of(group)):
            table |= self._progress(group, topic)
        return command.answer(body=json_body.write(self._consume_stats(group, table)))

    def all_consume_stats(self, connection: RemotingProtocol, command: Command) -> Answer:
        """317: the same of all groups."""
        ordered = from_ext(AllConsumeStatsRequest, command.ext).is_order
        rows: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = 0
        for group in self.state.groups.table().subscription_group_table:
            stats = []
            for topic in sorted(self.state.offsets.topics_of(group)):
                config = self.state.topics.get(topic)
                if config is None or (ordered and not config.order):
                    continue
                table = self._progress(group, topic)
                behind += sum(row.broker_offset - row.consumer_offset for row in table.values())
                stats.append(self._consume_stats(group, table))
            rows.append({group: tuple(stats)})
        body = ConsumeStatsList(
            broker_addr=self.state.settings.broker.address,
            consume_stats_list=tuple(rows),
            total_diff=behind,
            total_inflight_diff=0,
        )
        return command.answer(body=json_body.write(body))

    def _consume_stats(self, group: str, table: dict[MessageQueue, GroupOffset]) -> ConsumeStats:
        topics = {queue.topic for queue in table}
        meters = (self.state.counts.meter("GROUP_GET_NUMS", f"{topic}@{group}") for topic in topics)
        tps = sum(meter.over(MINUTE).tps for meter in meters if meter is not None)
        return ConsumeStats(offset_table=table, consume_tps=float(tps))

    def _progress(self, group: str, topic: str) -> dict[MessageQueue, GroupOffset]:
        """How far a group is in the queues of a topic it reads.

        @return: Nothing for a topic that is gone, or that the group, being online, does not
            subscribe any more.
        """
        config = self.state.topics.get(topic)
        online = self.state.consumers.group(group)
        if config is None or (online is not None and topic not in online.subscriptions()):
            return {}
        table = {}
        for queue_id in range(config.read_queue_nums):
            _, end = self._bounds(topic, queue_id)
            at = max(0, self.state.offsets.get(group, topic, queue_id) or 0)
            table[self._queue(topic, queue_id)] = GroupOffset(
                broker_offset=end,
                consumer_offset=at,
                last_timestamp=self._stored(topic, queue_id, at - 1),
                pull_offset=max(at, self.state.counts.pulled.get((group, topic, queue_id), 0)),
            )
        return table

    def time_span(self, connection: RemotingProtocol, command: Command) -> Answer:
        """303: the store times of each queue, and of where a group is in it."""
        header = from_ext(TopicGroupRequest, command.ext)
        config = self._topic(header.topic)
        spans = tuple(
            self._span(header.group, header.topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        )
        return command.answer(body=json_body.write(ConsumeTimeSpan(consume_time_span_set=spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        first, end = self._bounds(topic, queue_id)
        at = self.state.offsets.get(group, topic, queue_id) or 0
        newest = self._stored(topic, queue_id, end - 1)
        consumed = self._stored(topic, queue_id, at - 1) if at > 0 else 0
        waiting = self._stored(topic, queue_id, at) if at < end else 0
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=self._stored(topic, queue_id, first),
            max_time_stamp=newest,
            consume_time_stamp=consumed or self._stored(topic, queue_id, first),
            delay_time=max(0, newest - waiting) if waiting else 0,
        )

    def counted(self, connection: RemotingProtocol, command: Command) -> Answer:
        """315: one statistic over the last minute, hour and day."""
        header = from_ext(BrokerStatsRequest, command.ext)
        meter = self.state.counts.meter(header.stats_name, header.stats_key)
        if meter is None:
            name, key = header.stats_name[:64], header.stats_key[:256]
            raise _wrong(f"The stats <{name}> <{key}> not exist")
        return command.answer(body=json_body.write(meter.stats()))

    def units(self, connection: RemotingProtocol, command: Command) -> Answer:
        """321: the units of a queue from some index on, and whether a group gets them."""
        header = from_ext(QueryConsumeQueueRequest, command.ext)
        topic, queue_id, index = header.topic, header.queue_id, header.index
        where = f"{queue_id}@{topic[:256]}"
        queue = self.state.lookup.queues.get(topic, queue_id)
        if queue is None:
            raise _wrong(f"{where} is not exist!")
        if not queue.min_offset <= index < queue.max_offset:
            return command.answer(remark=f"Index {index} of {where} is not exist!")
        group = header.consumer_group
        online = None if group is None else self.state.consumers.group(group)
        wish = None if online is None else online.subscriptions().get(topic)
        raw = queue.units(index, min(max(header.count, 1), MOST_UNITS))
        rows = (UNIT.unpack_from(raw, at) for at in range(0, len(raw), UNIT_SIZE))
        body = QueueUnits(
            queue_data=tuple(
                QueueUnit(
                    physic_offset=offset,
                    physic_size=size,
                    tags_code=code,
                    eval=wish is not None and (wish.codes is None or code in wish.codes),
                )
                for offset, size, code in rows
            ),
            min_queue_index=queue.min_offset,
            max_queue_index=queue.max_offset,
            filter_data=_filter_data(group, topic, online=wish is not None),
            subscription_data=None if wish is None else wish.data,
        )
        return command.answer(body=json_body.write(body))

    # --- parts ------------------------------------------------------------------------------

    def _topic(self, name: str) -> TopicConfig:
        config = self.state.topics.get(name)
        if config is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name[:256]}] not exist")
        return config

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(self.state.name, queue_id, topic)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        return self.state.lookup.bounds(topic, queue_id) or (0, 0)

    def _stored(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored; 0 if there is none."""
        record = self.state.lookup.by_queue_offset(topic, queue_id, offset)
        return 0 if record is None else record.store_timestamp


def _named(command: Command) -> Iterator[Wanted]:
    header = from_ext(ConsumeStatsRequest, command.ext)
    yield in_group(header.consumer_group)
    for topic in _topics(header):
        yield topic, SUB


def _keyed(command: Command) -> Iterator[Wanted]:
    """What 315 needs: its key is a topic, C{topic@queue}, C{topic@group} or
    C{topic@queue@group}.
    """
    header = from_ext(BrokerStatsRequest, command.ext)
    topic, *more = header.stats_key.split("@")
    yield topic, EITHER
    if more and header.stats_name not in _OF_QUEUES:
        yield in_group(more[-1])


def _topics(header: ConsumeStatsRequest) -> list[str]:
    """The topics that 208 asks about; none is all that the group reads."""
    wanted = [header.topic] if header.topic else (header.topic_list or "").split(";")
    return [name for name in wanted if name]


def _filter_data(group: str | None, topic: str, *, online: bool) -> str | None:
    """What tools show of a group's SQL filter: here none has one."""
    if group is None:
        return None
    return "null" if online else f"{group}@{topic} is not online!"


def _wrong(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
