"""Where a topic's messages can be sent to, as the name servers know.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import define, evolve, field, frozen

from rmqha.pipeline.producing.errors import NoRoute, NoWritableQueue
from rmqha.pipeline.remoting.errors import NameServersSilent
from rmqha.pipeline.remoting.name_servers import FRESH, NameServerClient, read_answer
from rmqha.wire.names import TEMPLATE_TOPIC
from rmqha.wire.remoting.bodies.route import TopicRoute
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.namesrv import RouteRequest

DEFAULT_QUEUES = 4
"""Queues asked for a new topic; stock clients' number."""

_MOST = 65_536
"""Most queues of a topic at one broker; a route with more is refused."""

_MASTER = 0
_WRITE = 2


@frozen(order=True)
class Queue:
    """A queue that takes messages.

    @ivar broker: The broker's name.
    @ivar address: Its master's C{host:port}.
    """

    broker: str
    queue_id: int
    address: str


@define(eq=False)
class Routes:
    """Looks topics up.

    @ivar name_servers: Who is asked.
    """

    name_servers: NameServerClient
    clock: Callable[[], float] = time.monotonic
    _known: dict[str, tuple[float, tuple[Queue, ...]]] = field(factory=dict, init=False)

    def queues(self, topic: str) -> tuple[Queue, ...]:
        """The queues that a topic's messages can be sent to; of a topic that there is not yet,
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
        """Drop a topic's route, so that it is asked for again."""
        self._known.pop(topic, None)

    def route(self, topic: str) -> TopicRoute | None:
        """What the name servers say; C{None} if they know no such topic.

        @raise NoRoute: If none of them says anything.
        """
        request = Command.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            RouteRequest(topic=topic, accept_standard_json_only=True),
        )
        try:
            return self.name_servers.ask(request, _route)
        except NameServersSilent as error:
            raise NoRoute(topic, error.name_servers, error.reason) from error

    def _of_new(self, topic: str) -> tuple[Queue, ...]:
        default = self.route(TEMPLATE_TOPIC)
        found = () if default is None else writable(default, DEFAULT_QUEUES)
        if not found:
            servers = str(self.name_servers)
            raise NoRoute(topic, servers, "the topic does not exist, and no broker creates topics")
        return found


def _route(answer: Command) -> TopicRoute | None:
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    return read_answer(TopicRoute, answer, RequestCode.GET_ROUTEINFO_BY_TOPIC)


def writable(route: TopicRoute, most: int = _MOST) -> tuple[Queue, ...]:
    """The queues of a route that have a master, and may be written to.

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
    """Where a queue is now; C{None} if it takes nothing at present."""
    for each in queues:
        if (each.broker, each.queue_id) == (queue.broker, queue.queue_id):
            return evolve(queue, address=each.address)
    return None
