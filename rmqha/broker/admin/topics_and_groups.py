"""Topics and groups as administrators make, change, list and delete them.

Stock brokers take any number; here a topic has queues and a permission that mean something,
and a group a name that fits its retry topic.

Source: docs/protocol/remoting.md, Administration and Tables.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import asdict, define, evolve
from twisted.internet.defer import Deferred, succeed

from rmqha.broker.access.needs import ANY_ACCOUNT, CHANGES_TABLES, KNOWS, Stated, reads, reads_all
from rmqha.broker.state import BrokerState
from rmqha.broker.tables import subscription_groups, topic_attributes
from rmqha.broker.tables import topics as topic_names
from rmqha.errors import RequestRefused, StoreError
from rmqha.logfiles.published import DeletedTopic
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.clients import SubscriptionAnswer
from rmqha.wire.remoting.bodies.tables import (
    DELETED_MEMBER,
    GroupConfig,
    GroupConfigList,
    GroupList,
    TopicConfig,
    TopicConfigList,
    TopicList,
)
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.admin import (
    CreateTopicRequest,
    DeleteGroupRequest,
    GroupRequest,
    TopicConfigRequest,
    TopicGroupRequest,
    TopicRequest,
)
from rmqha.wire.remoting.headers.slave import SlaveTablesRequest

_MOST_PORT = 65535

MOST_QUEUES = 32_768
"""Most queues of a topic, which may also have none; stock brokers take any number.  Of so many the
answer to request 202 is a frame still."""

LEAST_INT, MOST_INT, MOST_LONG = -(1 << 31), (1 << 31) - 1, (1 << 63) - 1
"""What Java's numbers hold: a table with a larger one in it is not read by any Java peer."""

PERMISSIONS = frozenset({0, 2, 4, 6, 7})
"""What a topic's permission may be: nothing, write, read, both, or a template too."""

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


@define(eq=False, kw_only=True)
class Administration:
    """Answers what administrators ask of the tables.

    @ivar publication: Waits until the name servers know what was changed.
    @ivar deleted_topics: Those whose records the log has still.
    @ivar topic_gone: Deletes what is left of a topic that was deleted, and waits until that is
        durable.
    @ivar group_gone: Told of each group that is deleted.
    @ivar retry_topics: Gives the topics in which messages of a topic come again that were handed
        out.
    @ivar slave_listens: Told the address of a slave of ours, and its HA port.
    """

    state: BrokerState
    deleted_topics: Callable[[], Mapping[str, DeletedTopic]]
    topic_gone: Callable[[str], Awaitable[None]]
    publication: Callable[[], Deferred[Any]] = lambda: succeed(None)
    group_gone: Callable[[str], None] = lambda group: None
    retry_topics: Callable[[str], list[str]] = lambda topic: []
    slave_listens: Callable[[str, int], None] = lambda host, port: None

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: (CHANGES_TABLES, self.put_topic),
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: (CHANGES_TABLES, self.put_topics),
            RequestCode.DELETE_TOPIC_IN_BROKER: (CHANGES_TABLES, self.delete_topic),
            RequestCode.GET_ALL_TOPIC_CONFIG: (reads_all(topics=True), self.all_topics),
            RequestCode.GET_TOPIC_CONFIG: (KNOWS, self.topic),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: (ANY_ACCOUNT, self.system_topics),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (CHANGES_TABLES, self.put_group),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (CHANGES_TABLES, self.put_groups),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: (CHANGES_TABLES, self.delete_group),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (reads_all(groups=True), self.all_groups),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: (reads(groups="group"), self.group),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: (reads(topics="topic"), self.consumed_by),
            RequestCode.QUERY_TOPICS_BY_CONSUMER: (reads(groups="group"), self.consumes),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: (
                reads(topics="topic", groups="group"),
                self.subscription,
            ),
        }

    # --- topics -------------------------------------------------------------------------

    def put_topic(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """17: make a topic, or change it.  Its maker will look for its route."""
        header = from_ext(CreateTopicRequest, command.ext)
        before = self.state.topics.get(header.topic)
        config = evolve(
            before or TopicConfig(topic_name=header.topic),
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=topic_attributes.changed(before, topic_attributes.wanted(header.attributes)),
        )
        self._check_topic(config)
        self.state.topics.put(config)
        return self.publication()

    def put_topics(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """18: several of them, all or none.  What is not known of one is left out."""
        asked = json_body.read(TopicConfigList, command.body).topic_config_list
        configs = [
            evolve(config, attributes=self._attributes(config), extra={}) for config in asked
        ]
        for config in configs:
            self._check_topic(config)
        for config in configs:
            self.state.topics.put(config)
        return self.publication()

    def _attributes(self, config: TopicConfig) -> dict[str, str] | None:
        before = self.state.topics.get(config.topic_name)
        return topic_attributes.changed(before, config.attributes or {})

    def _check_topic(self, config: TopicConfig) -> None:
        name = config.topic_name
        topic_names.check_name(name)
        self._check_ours(name)
        _check_range("readQueueNums", config.read_queue_nums, 0, MOST_QUEUES)
        _check_range("writeQueueNums", config.write_queue_nums, 0, MOST_QUEUES)
        _check_range("topicSysFlag", config.topic_sys_flag, LEAST_INT, MOST_INT)
        if config.perm not in PERMISSIONS:
            raise _invalid(f"perm is {config.perm}, must be one of {sorted(PERMISSIONS)}")
        if config.topic_filter_type not in _FILTER_TYPES:
            shown = config.topic_filter_type[:64]
            raise _invalid(
                f"topicFilterType = [{shown}] value invalid, allowed are {', '.join(_FILTER_TYPES)}"
            )

    def _check_ours(self, name: str) -> None:
        if self.state.topics.is_system(name):
            raise _invalid(f"The topic[{name}] is conflict with system topic.")

    def delete_topic(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """215: delete a topic, its queues and all groups' offsets in it, and where its messages
        come again that were handed out.  Its records go with the log's files; nothing finds them
        any more.

        @return: Fires when it stays deleted whatever happens.
        """
        name = from_ext(TopicRequest, command.ext).topic
        if not name.strip():
            raise _invalid("The specified topic is blank.")
        self._check_ours(name)
        names = [*self.retry_topics(name), name]
        for each in names:
            self.state.topics.delete(each)
            self.state.offsets.remove_topic(each)
        return Deferred.fromCoroutine(self._delete_topics(name, names))

    async def _delete_topics(self, name: str, names: list[str]) -> Answer:
        try:
            for each in names:
                await self.topic_gone(each)
        except (StoreError, OSError) as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"topic [{name[:256]}] is deleted, but may be there again after a restart: {error};"
                " delete it again",
            ) from error
        return None

    def all_topics(self, connection: RemotingProtocol, command: Command) -> Answer:
        """21: the whole table of topics, which slaves copy too; one of ours tells its HA port, and
        is told what was deleted.
        """
        port = from_ext(SlaveTablesRequest, command.ext).ha_listen_port
        text = self.state.topics.text()
        if port is not None and 0 <= port <= _MOST_PORT:
            self.slave_listens(connection.host, port)
            text = _with_deleted(text, self.deleted_topics())
        return command.answer(body=text)

    def topic(self, connection: RemotingProtocol, command: Command) -> Answer:
        """351: one topic; 5.x wants to see attributes."""
        name = from_ext(TopicConfigRequest, command.ext).topic
        found = self.state.topics.get(name)
        if found is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name[:256]}"
            )
        return command.answer(
            body=json_body.write(evolve(found, attributes=found.attributes or {}))
        )

    def system_topics(self, connection: RemotingProtocol, command: Command) -> Answer:
        """305: the names that are not a user's."""
        names = tuple(sorted(self.state.topics.system))
        return command.answer(body=json_body.write(TopicList(topic_list=names)))

    # --- groups -------------------------------------------------------------------------

    def put_group(self, connection: RemotingProtocol, command: Command) -> Answer:
        """200: make a group, or replace it.  What is not known of it is left out."""
        config = evolve(json_body.read(GroupConfig, command.body), extra={})
        _check_group(config)
        self.state.groups.put(config)
        return None

    def put_groups(self, connection: RemotingProtocol, command: Command) -> Answer:
        """225: several of them, all or none."""
        asked = json_body.read(GroupConfigList, command.body).group_config_list
        configs = [evolve(config, extra={}) for config in asked]
        for config in configs:
            _check_group(config)
        for config in configs:
            self.state.groups.put(config)
        return None

    def delete_group(self, connection: RemotingProtocol, command: Command) -> Answer:
        """207: forget a group, and its offsets if that is asked for."""
        header = from_ext(DeleteGroupRequest, command.ext)
        self.state.groups.delete(header.group_name)
        if header.with_offsets:
            self.state.offsets.remove_group(header.group_name)
        self.group_gone(header.group_name)
        return None

    def all_groups(self, connection: RemotingProtocol, command: Command) -> Answer:
        """201: the whole table of groups, which slaves copy too."""
        return command.answer(body=self.state.groups.text())

    def group(self, connection: RemotingProtocol, command: Command) -> Answer:
        """352: the settings of one group, which is made where clients may make one: 5.x's proxy
        asks before a group's first consumer is heard of.
        """
        name = from_ext(GroupRequest, command.ext).group
        found = self.state.groups.find(name)
        if found is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker. group: {name[:256]}",
            )
        return command.answer(body=json_body.write(found))

    # --- who consumes what ----------------------------------------------------------------

    def consumed_by(self, connection: RemotingProtocol, command: Command) -> Answer:
        """300: the groups that subscribe a topic, or did."""
        topic = from_ext(TopicRequest, command.ext).topic
        online = {group.name for group in self.state.consumers if topic in group.subscriptions()}
        groups = sorted(online | self.state.offsets.groups_of(topic))
        return command.answer(body=json_body.write(GroupList(group_list=tuple(groups))))

    def consumes(self, connection: RemotingProtocol, command: Command) -> Answer:
        """343: the topics in which a group has offsets."""
        topics = self.state.offsets.topics_of(from_ext(GroupRequest, command.ext).group)
        return command.answer(body=json_body.write(TopicList(topic_list=tuple(sorted(topics)))))

    def subscription(self, connection: RemotingProtocol, command: Command) -> Answer:
        """345: what a group wants of a topic; nothing if it is not online."""
        header = from_ext(TopicGroupRequest, command.ext)
        group = self.state.consumers.group(header.group)
        found = None if group is None else group.subscriptions().get(header.topic)
        answer = SubscriptionAnswer(
            topic=header.topic,
            group=header.group,
            subscription_data=None if found is None else found.data,
        )
        return command.answer(body=json_body.write(answer))


def _with_deleted(text: bytes, topics: Mapping[str, DeletedTopic]) -> bytes:
    """The text of the table of topics with those that were deleted.  The table, which may be large,
    is not written anew for that.
    """
    if not topics:
        return text
    rows = {name: asdict(topic) for name, topic in topics.items()}
    return text[:-1] + b"," + json.dumps({DELETED_MEMBER: rows}).encode()[1:]


def _check_group(config: GroupConfig) -> None:
    subscription_groups.check_name(config.group_name)
    for what, number, least, most in (
        ("retryQueueNums", config.retry_queue_nums, 1, MOST_QUEUES),
        ("retryMaxTimes", config.retry_max_times, 0, MOST_INT),
        ("brokerId", config.broker_id, 0, MOST_LONG),
        ("whichBrokerWhenConsumeSlowly", config.which_broker_when_consume_slowly, 0, MOST_LONG),
        ("consumeTimeoutMinute", config.consume_timeout_minute or 0, LEAST_INT, MOST_INT),
        ("groupSysFlag", config.group_sys_flag or 0, LEAST_INT, MOST_INT),
    ):
        _check_range(what, number, least, most)


def _check_range(what: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise _invalid(f"{what} is {number}, must be {least} to {most}")


def _invalid(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
