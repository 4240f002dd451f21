"""What each member of a group is to consume, as the broker shares it out for clients of 5.x that
leave that to it.

Source: docs/protocol/remoting.md, Consuming by POP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred

from rmqha.broker.access.needs import (
    CHANGES_TABLES,
    READS,
    SUB,
    Stated,
    Wanted,
    in_group,
    of,
    reads_all,
)
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused, StoreError
from rmqha.net.remoting.client import UNREACHED, RemotingClient
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.names import RETRY_PREFIX
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.clients import MessageModel
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.request_modes import (
    AssignmentQuery,
    GroupMode,
    QueueAssignment,
    QueueAssignments,
    RequestMode,
)
from rmqha.wire.remoting.bodies.route import TopicRoute
from rmqha.wire.remoting.bodies.tables import READ
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.namesrv import RouteRequest
from rmqha.wire.remoting.headers.slave import SlaveTablesRequest

FRESH = 20.0
"""Seconds for which a topic's queues are not asked for again; clients ask every 20 s."""

PATIENCE = 1.0
"""Seconds a name server has; clients wait 3 in all."""

REMEMBERED = 10_000
"""Most topics whose queues are kept."""

ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""

Queues = tuple[MessageQueue, ...]

# --- sharing out ----------------------------------------------------------------------


def average(queues: Queues, index: int, members: int) -> Queues:
    """C{AVG}: neighbours, the first members have one more."""
    size, more = divmod(len(queues), members)
    start = index * size + min(index, more)
    return queues[start : start + size + (index < more)]


def circle(queues: Queues, index: int, members: int) -> Queues:
    """C{AVG_BY_CIRCLE}: one in turn to each."""
    return queues[index::members]


STRATEGIES: Mapping[str, Callable[[Queues, int, int], Queues]] = {
    "AVG": average,
    "AVG_BY_CIRCLE": circle,
}
"""How queues are shared out, by the names that clients use."""


def popped(
    queues: Queues,
    members: Sequence[str],
    client_id: str,
    share: int,
    strategy: Callable[[Queues, int, int], Queues],
) -> Queues | None:
    """What one member pops.

    @param share: Of how many members after it it has the queues too; 0 or less: all are
        everybody's.
    @return: C{None} if it is no member and that counts.
    """
    count = len(members)
    if share <= 0 or share >= count - 1:
        brokers = dict.fromkeys(queue.broker_name for queue in queues)
        return tuple(MessageQueue(name, ALL_QUEUES, queues[0].topic) for name in brokers)
    if client_id not in members:
        return None
    index = members.index(client_id)
    if count > len(queues):
        return (queues[index % len(queues)],)
    shared = (strategy(queues, (index + each) % count, count) for each in range(share + 1))
    return tuple(queue for one in shared for queue in one)


# --- where a topic's queues are ---------------------------------------------------------


@frozen
class _Known:
    """What a name server said.

    @ivar when: In the clock's seconds.
    """

    when: float
    queues: Queues


@define(eq=False)
class RoutedQueues:
    """The queues of topics on all brokers, as a name server knows them.

    @ivar servers: Of name servers, C{host:port} each; without any only our own queues are known.
    """

    state: BrokerState
    client: RemotingClient
    servers: Callable[[], Sequence[str]]
    _known: dict[str, _Known] = field(factory=dict, init=False)
    _waiting: dict[str, list[Deferred[Queues]]] = field(factory=dict, init=False)

    async def of(self, topic: str) -> Queues:
        """Those of a topic that may be read, in their order.  Where no name server answers, as one
        said last; none if none ever did, or if there is no such topic.
        """
        if not self.servers():
            return self._own(topic)
        known = self._known.get(topic)
        if known is not None and self.state.clock.seconds() - known.when < FRESH:
            return known.queues
        found: Deferred[Queues] = Deferred()
        waiting = self._waiting.setdefault(topic, [])
        waiting.append(found)
        if len(waiting) == 1:
            Deferred.fromCoroutine(self._ask(topic)).addBoth(self._told, topic)
        return await found

    def _own(self, topic: str) -> Queues:
        config = self.state.topics.get(topic)
        if config is None or not config.perm & READ:
            return ()
        return tuple(MessageQueue(self.state.name, n, topic) for n in range(config.read_queue_nums))

    async def _ask(self, topic: str) -> None:
        """Keep what the first name server says that answers."""
        header = RouteRequest(topic=topic, accept_standard_json_only=True)
        for server in self.servers():
            request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
            try:
                answer = await self.client.request(server, request, PATIENCE)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._known.pop(topic, None)
                    return
                if answer.code == ResponseCode.SUCCESS:
                    queues = tuple(_routed(topic, json_body.read(TopicRoute, answer.body)))
                    self._keep(topic, queues)
                    return
            except UNREACHED:
                continue

    def _keep(self, topic: str, queues: Queues) -> None:
        while len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[topic] = _Known(self.state.clock.seconds(), queues)

    def _told(self, result: object, topic: str) -> object:
        known = self._known.get(topic)
        for found in self._waiting.pop(topic):
            found.callback(() if known is None else known.queues)
        return result


def _routed(topic: str, route: TopicRoute) -> Iterator[MessageQueue]:
    for data in sorted(route.queue_datas, key=lambda data: data.broker_name):
        if data.perm & READ:
            for number in range(data.read_queue_nums):
                yield MessageQueue(data.broker_name, number, topic)


# --- answering --------------------------------------------------------------------------


def _query(command: Command) -> Iterator[Wanted]:
    query = json_body.read(AssignmentQuery, command.body)
    yield query.topic, SUB
    yield in_group(query.consumer_group)


_QUERIED = of("SUB: topic, group", _query)


@define(eq=False)
class Assignments:
    """Answers what clients of 5.x ask about their share, and what is set of it.

    @ivar queues: Gives a topic's queues on all brokers.
    @ivar known: Whether the modes are known: a slave must have heard of its master's.
    """

    state: BrokerState
    queues: Callable[[str], Awaitable[Queues]]
    known: Callable[[], bool] = lambda: True

    def handlers(self) -> Mapping[RequestCode, Stated]:
        tables = reads_all(topics=True, groups=True)
        return {
            RequestCode.QUERY_ASSIGNMENT: (_QUERIED, self.assignment),
            RequestCode.SET_MESSAGE_REQUEST_MODE: (CHANGES_TABLES, self.set_mode),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: (tables, self.all_modes),
            RequestCode.POP_ROLLBACK: (READS, self.roll_back),
        }

    def assignment(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """400: what a client is to consume of a topic."""
        return Deferred.fromCoroutine(self._assignment(command))

    async def _assignment(self, command: Command) -> Answer:
        query = json_body.read(AssignmentQuery, command.body)
        found: tuple[QueueAssignment, ...] | None = None
        if self.known() and (queues := await self.queues(query.topic)):
            mode = self.state.modes.mode(query.topic, query.consumer_group)
            share = self._share(query, mode, queues)
            if share is not None:
                found = tuple(
                    QueueAssignment(message_queue=queue, mode=mode.mode) for queue in share
                )
        return command.answer(
            body=json_body.write(QueueAssignments(message_queue_assignments=found))
        )

    def _share(self, query: AssignmentQuery, mode: GroupMode, queues: Queues) -> Queues | None:
        """@return: C{None} if nothing can be said: the client keeps what it has."""
        if query.message_model is MessageModel.BROADCASTING or not self.state.settings.pop.balance:
            return queues
        group = self.state.consumers.group(query.consumer_group)
        strategy = STRATEGIES.get(query.strategy_name)
        if group is None or strategy is None:
            return None
        members, who = sorted(group.client_ids()), query.client_id
        if mode.mode is RequestMode.POP:
            return popped(queues, members, who, mode.pop_share_queue_num, strategy)
        return strategy(queues, members.index(who), len(members)) if who in members else None

    def set_mode(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """401: set how a group consumes a topic.

        @return: Fires when that is durable.
        """
        mode = evolve(json_body.read(GroupMode, command.body), extra={})
        if mode.topic.startswith(RETRY_PREFIX):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if self.state.topics.get(mode.topic) is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic[:256]}] not exist"
            )
        if self.state.groups.find(mode.consumer_group) is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{mode.consumer_group[:256]}] does not exist",
            )
        if not -(1 << 31) <= mode.pop_share_queue_num < 1 << 31:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"popShareQueueNum is {mode.pop_share_queue_num}, must have 32 bits",
            )
        return Deferred.fromCoroutine(self._set_mode(mode))

    async def _set_mode(self, mode: GroupMode) -> Answer:
        try:
            await self.state.modes.put(mode)
        except (StoreError, OSError) as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the mode is set, but may not be after a restart: {error}; set it again",
            ) from error
        self.state.offsets.journal.stir()
        return None

    def all_modes(self, connection: RemotingProtocol, command: Command) -> Answer:
        """402: all modes that were set, for slaves; for one of ours with their version."""
        ours = from_ext(SlaveTablesRequest, command.ext).ha_listen_port is not None
        return command.answer(body=self.state.modes.told(versioned=ours))

    def roll_back(self, connection: RemotingProtocol, command: Command) -> Answer:
        """200056: bring into the log what is kept elsewhere of messages that were popped.  Here all
        of it is in the log.
        """
        return None
