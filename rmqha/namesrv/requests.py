"""What clients and administrators ask a name server.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from attrs import AttrsInstance, define, evolve
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmqha.errors import RequestRefused
from rmqha.namesrv.kv import ORDER_TOPICS, KvConfig
from rmqha.namesrv.routes import RouteTable
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Handler
from rmqha.net.remoting.needs import ADMINISTRATION, ANY_PEER, BROKERS, Stated
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.route import TopicRoute
from rmqha.wire.remoting.bodies.tables import TopicList
from rmqha.wire.remoting.codes import V4_9_4, LanguageCode, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.admin import TopicRequest
from rmqha.wire.remoting.headers.namesrv import (
    AddWritePermAnswer,
    BrokerNameRequest,
    ClusterRequest,
    DeleteTopicRequest,
    KvAnswer,
    KvRequest,
    NamespaceRequest,
    PutKvRequest,
    RouteRequest,
    WipeWritePermAnswer,
)

UNIT, UNIT_SUB = 1, 2
"""The bits of C{topicSysFlag}."""

FAQ = "See http://rocketmq.apache.org/docs/faq/ for further details."
"""What 4.9 ends its refusal of an unknown topic with."""


def _keys(strict: bool) -> Literal["bare", "quoted"]:
    return "quoted" if strict else "bare"


@define(eq=False)
class RouteRequests:
    """Answers who has what.

    @ivar ordered: Whether routes tell the queues of ordered topics (C{orderMessageEnable}).
    """

    table: RouteTable
    kv: KvConfig
    ordered: Callable[[], bool]

    def handlers(self) -> Mapping[RequestCode, Stated]:
        every_topic = self._list(lambda flags: True)
        unit_lists: dict[RequestCode, Callable[[int], bool]] = {
            RequestCode.GET_UNIT_TOPIC_LIST: lambda flags: bool(flags & UNIT),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: lambda flags: bool(flags & UNIT_SUB),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (
                lambda flags: flags & (UNIT | UNIT_SUB) == UNIT_SUB
            ),
        }
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: (ANY_PEER, self.route),
            RequestCode.GET_BROKER_CLUSTER_INFO: (ANY_PEER, self.cluster_info),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: (ANY_PEER, every_topic),
            RequestCode.GET_TOPICS_BY_CLUSTER: (ANY_PEER, self.topics_of_cluster),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: (ANY_PEER, self.system_topics),
            **{code: (ANY_PEER, self._list(flags)) for code, flags in unit_lists.items()},
        }

    def route(self, connection: RemotingProtocol, command: Command) -> Answer:
        """105: who has a topic."""
        header = from_ext(RouteRequest, command.ext)
        route = self.table.route(header.topic)
        if route is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {header.topic}\n{FAQ}",
            )
        if self.ordered():
            route = evolve(route, order_topic_conf=self.kv.get(ORDER_TOPICS, header.topic))
        strict = header.accept_standard_json_only or command.version >= V4_9_4
        return command.answer(body=json_body.write(route, numeric_keys=_keys(strict)))

    def cluster_info(self, connection: RemotingProtocol, command: Command) -> Answer:
        """106: all brokers, by name and by cluster."""
        strict = command.version >= V4_9_4 or command.language == LanguageCode.GO
        body = json_body.write(self.table.cluster_info(), numeric_keys=_keys(strict))
        return command.answer(body=body)

    def topics_of_cluster(self, connection: RemotingProtocol, command: Command) -> Answer:
        """224: topics of a cluster's brokers."""
        cluster = from_ext(ClusterRequest, command.ext).cluster
        return _body(command, TopicList(topic_list=self.table.topics_of(cluster)))

    def system_topics(self, connection: RemotingProtocol, command: Command) -> Answer:
        """304: the topics that clusters and brokers bring."""
        names, master = self.table.system_topics()
        return _body(command, TopicList(topic_list=names, broker_addr=master))

    def _list(self, flags: Callable[[int], bool]) -> Handler:
        def topics(connection: RemotingProtocol, command: Command) -> Answer:
            return _body(command, TopicList(topic_list=self.table.topics(flags)))

        return topics


@define(eq=False)
class AdminRequests:
    """Changes what there is, for administrators."""

    table: RouteTable

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: (ADMINISTRATION, self.wipe_write_perm),
            RequestCode.ADD_WRITE_PERM_OF_BROKER: (ADMINISTRATION, self.add_write_perm),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: (ADMINISTRATION, self.delete_topic),
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: (BROKERS, self.add_topic),
        }

    def wipe_write_perm(self, connection: RemotingProtocol, command: Command) -> Answer:
        """205: wipe a broker's write permission."""
        name = from_ext(BrokerNameRequest, command.ext).broker_name
        count = self.table.wipe_write_perm(name)
        self._tell(connection, f"wiped the write permission of broker {name}, {count} topics")
        return command.answer(header=WipeWritePermAnswer(wipe_topic_count=count))

    def add_write_perm(self, connection: RemotingProtocol, command: Command) -> Answer:
        """327: restore a broker's write permission."""
        name = from_ext(BrokerNameRequest, command.ext).broker_name
        count = self.table.add_write_perm(name)
        self._tell(connection, f"restored the write permission of broker {name}, {count} topics")
        return command.answer(header=AddWritePermAnswer(add_topic_count=count))

    def delete_topic(self, connection: RemotingProtocol, command: Command) -> Answer:
        """216: forget a topic's queues; a broker that registers it brings it back."""
        header = from_ext(DeleteTopicRequest, command.ext)
        if self.table.delete_topic(header.topic, header.cluster_name or None):
            self._tell(connection, f"deleted topic {header.topic} from the routes")
        return None

    def add_topic(self, connection: RemotingProtocol, command: Command) -> Answer:
        """217: a topic has these queues."""
        topic = from_ext(TopicRequest, command.ext).topic
        self.table.add_topic(topic, json_body.read(TopicRoute, command.body).queue_datas)
        self._tell(connection, f"added topic {topic} to the routes")
        return None

    def _tell(self, connection: RemotingProtocol, what: str) -> None:
        self._log.info("Administrator {peer} {what}", peer=connection.address, what=what)


@define(eq=False)
class KvRequests:
    """Keeps texts for administrators and brokers."""

    kv: KvConfig

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.PUT_KV_CONFIG: (ADMINISTRATION, self.put),
            RequestCode.GET_KV_CONFIG: (ANY_PEER, self.get),
            RequestCode.DELETE_KV_CONFIG: (ADMINISTRATION, self.delete),
            RequestCode.GET_KVLIST_BY_NAMESPACE: (ANY_PEER, self.table),
        }

    def put(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """100: set a text; answered when it is durable."""
        header = from_ext(PutKvRequest, command.ext)
        return _when(self.kv.put(header.namespace, header.key, header.value))

    def get(self, connection: RemotingProtocol, command: Command) -> Answer:
        """101: read one text, or answer that there is none."""
        header = from_ext(KvRequest, command.ext)
        value = self.kv.get(header.namespace, header.key)
        if value is None:
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return command.answer(header=KvAnswer(value=value))

    def delete(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """102: forget a text; answered when that is durable."""
        header = from_ext(KvRequest, command.ext)
        return _when(self.kv.delete(header.namespace, header.key))

    def table(self, connection: RemotingProtocol, command: Command) -> Answer:
        """219: all of a namespace."""
        namespace = from_ext(NamespaceRequest, command.ext).namespace
        table = self.kv.table(namespace)
        if table is None:
            raise RequestRefused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return _body(command, table)


def _body(command: Command, value: AttrsInstance) -> Answer:
    return command.answer(body=json_body.write(value))


def _when(done: Deferred[None]) -> Deferred[Answer]:
    # What is under way is not undone when who asked is gone.
    answered: Deferred[Answer] = Deferred()
    done.addCallbacks(lambda _: answered.callback(None), answered.errback)
    return answered
