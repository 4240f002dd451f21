"""A port on this machine, in threads, that answers requests as a function says; and one that is
name server and broker at once, and remembers what it was sent.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from attrs import define, field, frozen

from rmqha.wire.log.encode import encode_batch
from rmqha.wire.log.properties import parse
from rmqha.wire.log.record import Message, decode
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.route import BrokerData, QueueData, TopicRoute
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.headers.send import SendMessageAnswer, SendMessageV2Request

Answer = Callable[[Command], bytes | None]
"""Makes of a request what goes back: bytes of frames; C{None} for nothing."""

HOST = ("127.0.0.1", 10911)


class Answering:
    """Listens, and answers requests in pieces of C{chunk} bytes; 0 for all at once."""

    def __init__(self, answer: Answer, chunk: int = 0) -> None:
        self.answer = answer
        self.chunk = chunk
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Listen no more, and cut all connections."""
        _end(self._listening)
        self.cut()

    def cut(self) -> None:
        for connection in list(self._open):
            _end(connection)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open.add(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        decoder = FrameDecoder()
        try:
            while data := connection.recv(1 << 16):
                for request in decoder.receive(data):
                    self._take(connection, request)
        except OSError:
            pass
        finally:
            self._open.discard(connection)
            connection.close()

    def _take(self, connection: socket.socket, request: Command) -> None:
        answer = self.answer(request)
        if answer is not None:
            self._tell(connection, answer)

    def _tell(self, connection: socket.socket, answer: bytes) -> None:
        for start in range(0, len(answer), self.chunk or len(answer)):
            connection.sendall(answer[start : start + (self.chunk or len(answer))])


def _end(held: socket.socket) -> None:
    """Close a socket that another thread may wait for."""
    with suppress(OSError):
        held.shutdown(socket.SHUT_RDWR)
    held.close()


@frozen
class Stored:
    """A message that was sent."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    flag: int = 0
    sys_flag: int = 0
    batch: bool = False


@define(eq=False)
class StandIn:
    """A name server and a broker with queues, without a log.

    @ivar codes: Answers to the next sends, one each, before they go well again: a code; C{None}
        for no answer, and a negative number for a cut connection.
    @ivar late: What is stored though its answer was none of success.
    @ivar route: Says where a topic is, if it is not here alone.
    """

    topics: dict[str, int]
    broker: str = "broker-a"
    stored: list[Stored] = field(factory=list)
    codes: list[int | None] = field(factory=list)
    late: bool = False
    pause: float = 0.0
    requests: list[int] = field(factory=list)
    route: Callable[[str], TopicRoute | None] | None = None
    server: Answering = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.server = Answering(self.answer)

    @property
    def address(self) -> str:
        return self.server.address

    def bodies(self, topic: str, queue_id: int) -> list[bytes]:
        return [m.body for m in self.stored if (m.topic, m.queue_id) == (topic, queue_id)]

    def answer(self, request: Command) -> bytes | None:
        self.requests.append(request.code)
        time.sleep(self.pause)
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            route = (self.route or self.own_route)(request.ext["topic"])
            if route is None:
                return encode(request.answer(ResponseCode.TOPIC_NOT_EXIST, "no such topic"))
            return encode(request.answer(body=json_body.write(route)))
        code = self.codes.pop(0) if self.codes else ResponseCode.SUCCESS
        if code in (0, 10, 11, 12) or self.late:
            self._store(request)
        if code is None:
            return None
        if code < 0:
            self.server.cut()
            return None
        where = SendMessageAnswer(msg_id="0" * 32, queue_id=0, queue_offset=0)
        return encode(request.answer(code, f"as told: {code}" if code else None, where))

    def own_route(self, topic: str) -> TopicRoute | None:
        return route_of(topic, self) if topic in self.topics else None

    def _store(self, request: Command) -> None:
        header = from_ext(SendMessageV2Request, request.ext)
        common = {"topic": header.topic, "queue_id": header.queue_id, "sys_flag": header.sys_flag}
        if not header.batch:
            properties = parse((header.properties or "").encode())
            self.stored.append(
                Stored(body=bytes(request.body), properties=properties, flag=header.flag, **common)
            )
            return
        message = Message(
            body=bytes(request.body),
            properties=(header.properties or "").encode(),
            flag=0,
            born_timestamp=header.born_timestamp,
            born_host=HOST,
            store_host=HOST,
            reconsume_times=0,
            **common,
        )
        for raw in encode_batch(message, max_message_size=4 << 20):
            record = decode(bytes(raw), 0, 0)
            self.stored.append(
                Stored(
                    body=record.body,
                    properties=record.properties,
                    flag=record.flag,
                    batch=True,
                    **common,
                )
            )


def route_of(topic: str, *brokers: StandIn, perm: int = 6) -> TopicRoute:
    """The route to a topic that several brokers have."""
    return TopicRoute(
        broker_datas=tuple(
            BrokerData(broker_name=each.broker, broker_addrs={0: each.address}) for each in brokers
        ),
        queue_datas=tuple(
            QueueData(
                broker_name=each.broker,
                read_queue_nums=each.topics[topic],
                write_queue_nums=each.topics[topic],
                perm=perm,
            )
            for each in brokers
        ),
    )
