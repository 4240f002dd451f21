"""One broker as administrators see it, through its client port; a stock one as well as one of ours.

Source: docs/protocol/remoting.md, Administration, Offsets, Pulling and Sending.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, TypeVar

from attrs import AttrsInstance, field, frozen

from rmqha.config import properties
from rmqha.config.broker_settings import BrokerRole
from rmqha.errors import BodyInvalid, HeaderFieldInvalid, RmqhaError
from rmqha.net.remoting.client import RemotingClient
from rmqha.wire.log.layout import PHYSICAL_OFFSET_AT
from rmqha.wire.log.properties import encode
from rmqha.wire.log.record import Fault, Record, check, decode
from rmqha.wire.names import TEMPLATE_TOPIC, TOOLS_GROUP, TOOLS_PRODUCER
from rmqha.wire.remoting.bodies.clients import ConsumerConnection
from rmqha.wire.remoting.bodies.offsets import ConsumeStats, ResetOffsets, TopicStats
from rmqha.wire.remoting.bodies.route import KvTable
from rmqha.wire.remoting.bodies.tables import (
    GroupConfig,
    GroupList,
    GroupTable,
    TopicConfig,
    TopicList,
    TopicTable,
)
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.admin import (
    ConsumeStatsRequest,
    CreateTopicRequest,
    DeleteGroupRequest,
    TopicRequest,
)
from rmqha.wire.remoting.headers.clients import ConsumerGroupRequest
from rmqha.wire.remoting.headers.namesrv import ClusterRequest, DeleteTopicRequest
from rmqha.wire.remoting.headers.offsets import (
    MaxOffsetRequest,
    OffsetAnswer,
    QueryConsumerOffsetRequest,
    QueueRequest,
    ResetOffsetRequest,
    SearchOffsetRequest,
    UpdateConsumerOffsetRequest,
)
from rmqha.wire.remoting.headers.pull import (
    PullMessageAnswer,
    PullMessageRequest,
    QueryMessageRequest,
    ViewMessageRequest,
)
from rmqha.wire.remoting.headers.send import SendMessageAnswer, SendMessageV2Request
from rmqha.wire.remoting.json_body import read, write

LONGEST_REMARK = 300
"""Characters of a remark that are shown; stock brokers give stacks of Java."""

WHAT_TO_DO: dict[int, str] = {
    ResponseCode.NO_PERMISSION: "; with access control, --credentials FILE names an account",
    ResponseCode.TOPIC_NOT_EXIST: "; `rmqha topic list` names the topics",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "; `rmqha group list` names the groups",
}
"""By what it answers."""


class BrokerRefused(RmqhaError):
    """A request was answered with a code that is none of success."""

    address: str
    request: RequestCode
    code: int
    remark: str | None

    def __str__(self) -> str:
        return (
            f"{self.address} answered request {self.request.value} ({self.request.name}) with code "
            f"{self.code}: {(self.remark or 'no remark')[:LONGEST_REMARK]}"
            f"{WHAT_TO_DO.get(self.code, '')}"
        )


class NotMaster(RmqhaError):
    """A write is for a master, and this broker is none.

    @ivar master: Where its master is; empty if it is not known.
    """

    address: str
    name: str
    master: str
    then: ClassVar[str] = "give a name server with -n"

    def __str__(self) -> str:
        known = f"write to its master, -b {self.master}" if self.master else self.then
        return f"{self.address} is a slave of {self.name}, which takes no writes: {known}"


class AnswerUnreadable(RmqhaError):
    """What a broker answered is not what was asked for."""

    sentence = "{address} answered request {request} with what cannot be read: {reason}"
    address: str
    request: int
    reason: str


TIMEOUT = 10.0
"""Seconds that an answer may take."""

B = TypeVar("B", bound=AttrsInstance)

LARGEST_TIME = (1 << 63) - 1
LARGEST_RECORD = (1 << 31) - 1

STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
)
"""A message is stored then, though only the first keeps the broker's whole promise."""

MAY_WAIT, WITH_SUBSCRIPTION = 2, 4
"""Bits of a pull's flag."""

LONG_POLL = 15.0
"""Seconds that a pull waits for a message."""


@frozen(kw_only=True)
class BrokerFacts:
    """What a broker's settings say of its place.

    @ivar name_servers: Its C{namesrvAddr}.
    """

    name: str
    cluster: str
    is_master: bool
    name_servers: tuple[str, ...] = ()


@frozen
class PulledMessages:
    """What a pull brought.

    @ivar next: The queue offset to go on from.
    """

    records: list[Record]
    next: int


@frozen
class BrokerAdmin:
    """Asks one broker, or one name server.

    @ivar address: C{host:port} of its client port.
    """

    address: str
    client: RemotingClient = field(repr=False, eq=False)

    async def ask(
        self,
        code: RequestCode,
        header: AttrsInstance | None = None,
        body: bytes = b"",
        *,
        well: Collection[int] = (ResponseCode.SUCCESS,),
        timeout: float = TIMEOUT,
    ) -> Command:
        """Ask anything.

        @param well: The codes of answers that are no refusal.
        @raise BrokerRefused: If the answer has another.
        """
        request = Command.request(code, header, body)
        answer = await self.client.request(self.address, request, timeout)
        if answer.code not in well:
            raise BrokerRefused(self.address, code, answer.code, answer.remark)
        return answer

    async def _ask_for(
        self, nothing: ResponseCode, code: RequestCode, header: AttrsInstance
    ) -> Command | None:
        """Ask for what may not be there: C{None} if the answer's code is that."""
        answer = await self.ask(code, header, well=(ResponseCode.SUCCESS, nothing))
        return None if answer.code == nothing else answer

    async def _body(
        self, cls: type[B], code: RequestCode, header: AttrsInstance | None = None
    ) -> B:
        return self._read(cls, await self.ask(code, header), code)

    def _read(self, cls: type[B], answer: Command, code: RequestCode) -> B:
        try:
            return read(cls, answer.body)
        except BodyInvalid as error:
            raise AnswerUnreadable(self.address, code, str(error)) from error

    async def _offset(self, code: RequestCode, header: AttrsInstance) -> int:
        return self.header(OffsetAnswer, await self.ask(code, header), code).offset

    def header(self, cls: type[B], answer: Command, code: RequestCode) -> B:
        """The header of an answer to C{code}.

        @raise AnswerUnreadable: If it is none.
        """
        try:
            return answer.custom(cls)
        except HeaderFieldInvalid as error:
            raise AnswerUnreadable(self.address, code, str(error)) from error

    async def facts(self) -> BrokerFacts:
        """26: what it is."""
        answer = await self.ask(RequestCode.GET_BROKER_CONFIG)
        entries = properties.parse(properties.decode(bytes(answer.body)))
        keys = {entry.key: entry.value.strip() for entry in entries}
        try:
            role = BrokerRole(keys["brokerRole"])
        except (KeyError, ValueError) as error:
            raise AnswerUnreadable(self.address, 26, f"no brokerRole: {error}") from error
        return BrokerFacts(
            name=keys.get("brokerName", ""),
            cluster=keys.get("brokerClusterName", ""),
            is_master=role.is_master,
            name_servers=tuple(filter(None, keys.get("namesrvAddr", "").split(";"))),
        )

    async def release(self) -> str:
        """28: its version, such as C{V5_3_3}."""
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return (await self._body(KvTable, code)).table.get("brokerVersionDesc", "")

    # --- topics -----------------------------------------------------------------------

    async def topics(self) -> dict[str, TopicConfig]:
        """21: the topics it has."""
        return (await self._body(TopicTable, RequestCode.GET_ALL_TOPIC_CONFIG)).topic_config_table

    async def own_topics(self) -> frozenset[str]:
        """305: the topics that are the broker's, and no user's."""
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        return frozenset((await self._body(TopicList, code)).topic_list)

    async def topic_stats(self, topic: str) -> TopicStats:
        """202: where the queues of a topic begin and end."""
        asked = TopicRequest(topic=topic)
        return await self._body(TopicStats, RequestCode.GET_TOPIC_STATS_INFO, asked)

    async def groups_of(self, topic: str) -> tuple[str, ...]:
        """300: the groups that consume a topic."""
        asked = TopicRequest(topic=topic)
        return (
            await self._body(GroupList, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, asked)
        ).group_list

    async def put_topic(self, topic: TopicConfig, attributes: str = "") -> None:
        """17: make a topic, or change it to be so.

        @param attributes: Changes of those of 5.x, C{+name=value} or C{-name} with commas between.
        """
        asked = CreateTopicRequest(
            topic=topic.topic_name,
            default_topic=TEMPLATE_TOPIC,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_filter_type=topic.topic_filter_type,
            topic_sys_flag=topic.topic_sys_flag,
            order=topic.order,
            attributes=attributes,
        )
        await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, asked)

    async def delete_topic(self, topic: str) -> None:
        """215: delete a topic."""
        await self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequest(topic=topic))

    async def topics_in(self, cluster: str) -> tuple[str, ...]:
        """224, of a name server: the topics of a cluster."""
        asked = ClusterRequest(cluster=cluster)
        return (await self._body(TopicList, RequestCode.GET_TOPICS_BY_CLUSTER, asked)).topic_list

    async def forget_topic(self, topic: str, cluster: str) -> None:
        """216, of a name server: leave the brokers of a cluster out of a topic's route."""
        asked = DeleteTopicRequest(topic=topic, cluster_name=cluster)
        await self.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, asked)

    # --- groups -----------------------------------------------------------------------

    async def groups(self) -> dict[str, GroupConfig]:
        """201: the groups it has."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        return (await self._body(GroupTable, code)).subscription_group_table

    async def put_group(self, group: GroupConfig) -> None:
        """200: make a group, or change it to be so."""
        await self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=write(group))

    async def delete_group(self, group: str, *, offsets: bool) -> None:
        """207: delete a group.

        @param offsets: Whether what it has committed goes too.
        """
        asked = DeleteGroupRequest(group_name=group, remove_offset=offsets, clean_offset=offsets)
        await self.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, asked)

    async def consumers(self, group: str) -> ConsumerConnection:
        """203: the members of a group that are online."""
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        asked = ConsumerGroupRequest(consumer_group=group)
        answer = await self._ask_for(ResponseCode.CONSUMER_NOT_ONLINE, code, asked)
        return (
            ConsumerConnection() if answer is None else self._read(ConsumerConnection, answer, code)
        )

    # --- offsets ----------------------------------------------------------------------

    async def consume_stats(self, group: str, topic: str | None = None) -> ConsumeStats:
        """208: how far a group is in each queue.

        @param topic: In this one only.
        """
        asked = ConsumeStatsRequest(consumer_group=group, topic=topic)
        return await self._body(ConsumeStats, RequestCode.GET_CONSUME_STATS, asked)

    async def first(self, topic: str, queue: int) -> int:
        """31: where a queue begins."""
        asked = QueueRequest(topic=topic, queue_id=queue)
        return await self._offset(RequestCode.GET_MIN_OFFSET, asked)

    async def end(self, topic: str, queue: int) -> int:
        """30: just past a queue's last message."""
        asked = MaxOffsetRequest(topic=topic, queue_id=queue)
        return await self._offset(RequestCode.GET_MAX_OFFSET, asked)

    async def at_time(self, topic: str, queue: int, time: int) -> int:
        """29: the place of a time in a queue.

        @param time: Milliseconds since 1970.
        """
        asked = SearchOffsetRequest(topic=topic, queue_id=queue, timestamp=time)
        return await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, asked)

    async def committed(self, group: str, topic: str, queue: int) -> int | None:
        """14: what a group has committed in a queue; C{None} for nothing.  4.9 tells 0 in its place
        of a queue that has all its messages.
        """
        code = RequestCode.QUERY_CONSUMER_OFFSET
        asked = QueryConsumerOffsetRequest(
            consumer_group=group, topic=topic, queue_id=queue, set_zero_if_not_found=False
        )
        answer = await self._ask_for(ResponseCode.QUERY_NOT_FOUND, code, asked)
        return None if answer is None else self.header(OffsetAnswer, answer, code).offset

    async def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        """15: set what a group has committed in a queue."""
        asked = UpdateConsumerOffsetRequest(
            consumer_group=group, topic=topic, queue_id=queue, commit_offset=offset
        )
        await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, asked)

    async def reset(
        self, group: str, topic: str, time: int, queue: int = -1, offset: int | None = None
    ) -> dict[int, int]:
        """222: have the members of a group that are online go on at a time, or its next ones.

        @param time: Milliseconds since 1970; -1 for the end.
        @param queue: With C{offset}, only known to 5.x: this queue alone, there.
        @return: Where they go on, by queue.
        """
        asked = ResetOffsetRequest(
            topic=topic, group=group, timestamp=time, is_force=True, queue_id=queue, offset=offset
        )
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        table = (await self._body(ResetOffsets, code, asked)).offset_table
        return {each.queue_id: place for each, place in table.items()}

    # --- messages ---------------------------------------------------------------------

    async def send(
        self, topic: str, queue: int, body: bytes, given: Mapping[str, str], now: int
    ) -> tuple[ResponseCode, SendMessageAnswer]:
        """310: send a message.

        @param given: Its properties.
        @param now: Milliseconds since 1970.
        @return: Which of L{STORED}, and where.
        """
        asked = SendMessageV2Request(
            producer_group=TOOLS_PRODUCER,
            topic=topic,
            default_topic=TEMPLATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue,
            sys_flag=0,
            born_timestamp=now,
            flag=0,
            properties=encode(given).decode(),
            reconsume_times=0,
        )
        code = RequestCode.SEND_MESSAGE_V2
        answer = await self.ask(code, asked, body, well=STORED)
        return ResponseCode(answer.code), self.header(SendMessageAnswer, answer, code)

    async def pull(
        self, topic: str, queue: int, offset: int, most: int = 32, wait: bool = False
    ) -> PulledMessages:
        """11: messages of a queue.

        @param wait: Whether to wait L{LONG_POLL} for one.
        """
        asked = PullMessageRequest(
            consumer_group=TOOLS_GROUP,
            topic=topic,
            queue_id=queue,
            queue_offset=offset,
            max_msg_nums=most,
            sys_flag=WITH_SUBSCRIPTION | (MAY_WAIT if wait else 0),
            commit_offset=0,
            suspend_timeout_millis=int(LONG_POLL * 1000),
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        code = RequestCode.PULL_MESSAGE
        nothing = (
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            ResponseCode.PULL_OFFSET_MOVED,
        )
        timeout = TIMEOUT + (LONG_POLL if wait else 0.0)
        answer = await self.ask(code, asked, well=(ResponseCode.SUCCESS, *nothing), timeout=timeout)
        found = self.header(PullMessageAnswer, answer, code)
        records = [] if answer.code in nothing else self._records(answer, code)
        return PulledMessages(records, found.next_begin_offset)

    async def at_byte(self, offset: int) -> Record:
        """33: the message at a physical offset."""
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = await self.ask(code, ViewMessageRequest(offset=offset))
        found = self._records(answer, code)
        if len(found) != 1 or found[0].offset != offset:
            raise AnswerUnreadable(self.address, code, f"no message begins at byte {offset}")
        return found[0]

    async def with_key(
        self,
        topic: str,
        key: str,
        *,
        most: int,
        begin: int = 0,
        end: int = LARGEST_TIME,
        is_id: bool = False,
    ) -> list[Record]:
        """12: messages that have a key.  The index has hashes, so others may be among them.

        @param begin: The first time that is meant, in milliseconds since 1970; so C{end} the last.
        @param is_id: Whether it is the id that a producer gave.
        """
        asked = QueryMessageRequest(
            topic=topic,
            key=key,
            max_num=most,
            begin_timestamp=begin,
            end_timestamp=end,
            unique_key_query=is_id,
        )
        code = RequestCode.QUERY_MESSAGE
        answer = await self._ask_for(ResponseCode.QUERY_NOT_FOUND, code, asked)
        return [] if answer is None else self._records(answer, code)

    def _records(self, answer: Command, code: RequestCode) -> list[Record]:
        """The records in an answer, each checked but for the CRC of its body."""
        view = memoryview(answer.body)
        found: list[Record] = []
        at = 0
        while at < len(view):
            place = at + PHYSICAL_OFFSET_AT
            offset = int.from_bytes(view[place : place + 8], "big")
            size = check(view, at, len(view), offset, 1 << 63, crc=False, max_size=LARGEST_RECORD)
            if isinstance(size, Fault) or size <= 0:
                raise AnswerUnreadable(
                    self.address, code, f"message {len(found)} of the answer: {size}"
                )
            found.append(decode(view, at, offset))
            at += size
        return found
