"""Single questions to brokers here, and a port that passes on and changes answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from lab.harness import remote
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import encode
from tests.support.fake_broker import Answering


def ask(address: str, code: int, body: bytes = b"", **ext: Any) -> Command:
    """Ask C{127.0.0.1:port}, over a connection of its own."""
    fields = {name: str(value) for name, value in ext.items()}
    with remote.Remote(int(address.rpartition(":")[2])) as broker:
        return broker.ask(Command(code=code, ext=fields, body=body))


def must(address: str, code: int, body: bytes = b"", **ext: Any) -> Command:
    """Ask what has to be answered well."""
    answer = ask(address, code, body, **ext)
    assert answer.code == 0, f"{code} at {address}: {answer.code} {answer.remark}"
    return answer


def make_topic(address: str, name: str, queues: int = 4) -> None:
    """Make a topic."""
    asking = remote.make_topic(name, queues)
    must(address, asking.code, **(asking.ext or {}))


def make_group(address: str, name: str) -> None:
    """Make a group."""
    body = fastjson.dumps({"groupName": name})
    must(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


def commit(address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Commit an offset."""
    must(
        address,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=topic,
        queueId=queue_id,
        commitOffset=offset,
    )


def committed(address: str, group: str, topic: str, queue_id: int) -> int | None:
    """A group's offset; C{None} if it has none there."""
    answer = ask(
        address,
        RequestCode.QUERY_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=topic,
        queueId=queue_id,
        setZeroIfNotFound="false",
    )
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    assert answer.code == 0, f"{address} answered {answer}"
    return int(answer.ext["offset"])


def topic_names(address: str) -> set[str]:
    """The names of a broker's topics."""
    answer = must(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    return set(fastjson.loads(bytes(answer.body))["topicConfigTable"])


def group_names(address: str) -> set[str]:
    """The names of its groups."""
    answer = must(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return set(fastjson.loads(bytes(answer.body))["subscriptionGroupTable"])


Change = Callable[[Command, Command], bytes | None]
"""Makes of a request and its answer what goes back: bytes of frames; C{None} for nothing."""


class Between(Answering):
    """A port before a broker's client port, in threads: a question that waits for something to
    happen
    does not hold up those behind it on its connection, as it does not at a broker.
    """

    def __init__(self, broker: str) -> None:
        self.broker = broker
        self.change: Change = lambda request, answer: encode(answer)
        self._telling = threading.Lock()
        super().__init__(self._pass_on)

    def _take(self, connection: socket.socket, request: Command) -> None:
        threading.Thread(target=self._take_one, args=(connection, request), daemon=True).start()

    def _take_one(self, connection: socket.socket, request: Command) -> None:
        with contextlib.suppress(OSError):  # the broker, or who asks, is gone
            super()._take(connection, request)

    def _tell(self, connection: socket.socket, answer: bytes) -> None:
        with self._telling:
            super()._tell(connection, answer)

    def _pass_on(self, request: Command) -> bytes | None:
        answer = ask(self.broker, request.code, bytes(request.body), **request.ext)
        answer.opaque = request.opaque
        return self.change(request, answer)
