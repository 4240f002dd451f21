"""How far a group is: asked (14), said (15), and how far delayed messages are, for a slave (45).

Source: docs/protocol/remoting.md, Offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define

from rmqha.broker.access.needs import CONSUMES, Stated, reads_all
from rmqha.broker.consuming.queue_reader import QueueReader
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.subscription_groups import check_name
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting.bodies.offsets import DelayOffsets
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.offsets import (
    OffsetAnswer,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rmqha.wire.remoting.json_body import write

NONE_YET = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
"""The remark for a group without an offset, as stock brokers say it."""


@define(eq=False)
class Progress:
    """Answers about the offsets of groups.

    @ivar delays: How far the delivery of delayed messages is.
    """

    state: BrokerState
    reader: QueueReader
    delays: Callable[[], DelayOffsets] = DelayOffsets

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: (CONSUMES, self._query),
            RequestCode.UPDATE_CONSUMER_OFFSET: (CONSUMES, self._update),
            RequestCode.GET_ALL_DELAY_OFFSET: (reads_all(topics=True), self._all_delays),
        }

    def _query(self, connection: RemotingProtocol, command: Command) -> Command:
        request = from_ext(QueryConsumerOffsetRequest, command.ext)
        offset = self.state.offsets.get(request.consumer_group, request.topic, request.queue_id)
        if offset is None and request.set_zero_if_not_found is not False:
            offset = self._young(request.topic, request.queue_id)
        if offset is None:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, NONE_YET)
        return command.answer(header=OffsetAnswer(offset=offset))

    def _young(self, topic: str, queue_id: int) -> int | None:
        """Where a new group starts in a queue that has all its messages, and not many: at the
        first one, whatever its consumers are set to.  Else they decide.
        """
        queue, begin = (
            self.state.store.queues.get(topic, queue_id),
            self.state.store.queues.begins.get((topic, queue_id), 0),
        )
        if queue is None:
            return begin
        if queue.min_offset > begin:
            return None
        unit = queue.unit(queue.min_offset)
        gone = unit is not None and self.reader.on_disk(unit[0])
        return None if gone else queue.min_offset

    def _update(self, connection: RemotingProtocol, command: Command) -> None:
        request = from_ext(UpdateConsumerOffsetRequest, command.ext)
        group, topic, queue_id = request.consumer_group, request.topic, request.queue_id
        self._check(group, topic, queue_id, request.commit_offset)
        self.state.offsets.commit(group, topic, queue_id, request.commit_offset, connection.address)

    def _check(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Refuse what no consumer can have reached: it would stay in the table for ever.  Stock
        brokers take anything.
        """
        if self.state.slave and offset >= 0 and self.reader.holds(topic, queue_id):
            # A slave may have heard neither of the topic nor of the group, and be behind where
            # the consumer is: while the master is away no other broker keeps it.
            check_name(group)
            return
        if self.state.groups.find(group) is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{group[:256]}] does not exist",
            )
        known = self.state.topics.get(topic)
        if known is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic[:256]}] not exist, apply first please!"
            )
        queues = max(known.read_queue_nums, known.write_queue_nums)
        if not 0 <= queue_id < queues:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] has {queues} queues",
            )
        end = self.reader.next_offset(topic, queue_id)
        if offset < 0 or (offset > end and not self.state.slave):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"commitOffset[{offset}] is illegal, topic:[{topic}] queueId:[{queue_id}]"
                f" maxOffset:[{end}]",
            )

    def _all_delays(self, connection: RemotingProtocol, command: Command) -> Command:
        return command.answer(body=write(self.delays(), numeric_keys="bare"))
