"""
Where a topic's messages can be sent to, as the name servers know.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import define, evolve, field, frozen

from rmqha.errors import RequestRefused, RmqhaError
from rmqha.pipeline.producing.errors import NoRoute, NoWritableQueue
from rmqha.pipeline.producing.peers import Peers
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.route import TopicRoute
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.namesrv import RouteRequest

DEFAULT_TOPIC = "TBW102"
"""The topic that brokers make new ones after, if they do."""

DEFAULT_QUEUES = 4
"""Queues asked for a new topic; stock clients' number."""

FRESH = 30.0
"""Seconds a route is believed, as by stock clients."""

_MOST = 65_536
"""Most queues of a topic at one broker; a route with more is refused."""

_MASTER = 0
_WRITE = 2


@frozen(order=True)
class Queue:
    """
    A queue that takes messages.

    @ivar broker: The broker's name.
    @ivar address: Its master's C{host:port}.
    """

    broker: str
    queue_id: int
    address: str


@define(eq=False)
class Routes:
    """
    Looks topics up.

    @ivar name_servers: C{host:port} of each; the first that answers is asked from then on.
    """

    name_servers: tuple[str, ...]
    peers: Peers
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, tuple[Queue, ...]]] = field(factory=dict, init=False)

    def queues(self, topic: str) -> tuple[Queue, ...]:
        """
        The queues that a topic's messages can be sent to; of a topic that there is not yet,
        those it would be made with.

        @return: Sorted, at least one.
        @raise NoRoute: If no name server knows any.
        @raise NoWritableQueue: If none may be written to.
        """
        now = self.clock()
        until, found = self._known.get(topic, (0.0, ()))
        if until <= now:
            route = self.route(topic)
            if route is None:
                found = self._of_new(topic)
            else:
                found = writable(route)
                if not found:
                    raise NoWritableQueue(topic)
            self._known[topic] = (now + FRESH, found)
        return found

    def forget(self, topic: str) -> None:
        """
        Drop a topic's route, so that it is asked for again.
        """
        self._known.pop(topic, None)

    def route(self, topic: str) -> TopicRoute | None:
        """
        What the name servers say; C{None} if they know no such topic.

        @raise NoRoute: If none of them says anything.
        """
        failure: RmqhaError | None = None
        for address in self.name_servers:
            request = Command.request(
                RequestCode.GET_ROUTEINFO_BY_TOPIC,
                RouteRequest(topic=topic, accept_standard_json_only=True),
            )
            try:
                answer = self.peers.ask(address, request)
                if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                    found = None
                elif answer.code == ResponseCode.SUCCESS:
                    found = json_body.read(TopicRoute, answer.body)
                else:
                    raise RequestRefused(answer.code, answer.remark, request.code)
            except RmqhaError as error:
                failure = error
                continue
            self._prefer(address)
            return found
        raise NoRoute(topic, ";".join(self.name_servers), str(failure))

    def _prefer(self, address: str) -> None:
        if self.name_servers[0] != address:
            others = (other for other in self.name_servers if other != address)
            self.name_servers = (address, *others)

    def _of_new(self, topic: str) -> tuple[Queue, ...]:
        default = self.route(DEFAULT_TOPIC)
        found = () if default is None else writable(default, DEFAULT_QUEUES)
        if not found:
            servers = ";".join(self.name_servers)
            raise NoRoute(topic, servers, "the topic does not exist, and no broker creates topics")
        return found


def writable(route: TopicRoute, most: int = _MOST) -> tuple[Queue, ...]:
    """
    The queues of a route that have a master, and may be written to.

    @param most: The most queues of each broker.
    """
    masters = {
        data.broker_name: data.broker_addrs[_MASTER]
        for data in route.broker_datas
        if _MASTER in data.broker_addrs
    }
    return tuple(
        sorted(
            Queue(data.broker_name, queue_id, masters[data.broker_name])
            for data in route.queue_datas
            if data.perm & _WRITE and data.broker_name in masters
            for queue_id in range(min(data.write_queue_nums, most))
        )
    )


def moved(queue: Queue, queues: tuple[Queue, ...]) -> Queue | None:
    """
    Where a queue is now; C{None} if it takes nothing at present.
    """
    for each in queues:
        if (each.broker, each.queue_id) == (queue.broker, queue.queue_id):
            return evolve(queue, address=each.address)
    return None
