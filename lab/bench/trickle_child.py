"""Very many clients that send a message a second each, in one process that costs little:
C{python -m lab.bench.trickle_child PORT}, the child of L{lab.bench.trickle}.

It takes one command at a time, as lines of JSON (L{lab.harness.json_child}): C{connect} with the
number of C{clients}, and C{run} with the C{seconds}.  A run tells C{"span": "begin"} and C{"end"},
and answers the times of all messages.

Each client has a moment of its own in every second.  A message's time counts from that moment to
its answer, so one that this process sends late, or that waits in a socket, is not quicker for it;
how late it was sent is told apart.
"""

from __future__ import annotations

import gc
import json
import random
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator

from attrs import define, field

from lab.bench.report import percentile
from lab.bench.sends import BODY
from lab.harness.remote import send
from lab.stock.python.lines import say, serve
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

TOPIC = "Trickle"

QUEUES = 4
"""Queues of a topic that the first message makes."""

SEED = 14

LONGEST = 0.001
"""Seconds for which answers are waited for at least, so that few calls serve many clients."""

PATIENCE = 60.0
"""Seconds that the last answers may take."""


class Refused(Exception):
    """A message was not taken, or not answered."""


@define
class Client:
    """One connection, and the moments of messages that are not answered yet (C{perf_counter})."""

    peer: socket.socket
    frame: bytes
    due: deque[float] = field(factory=deque)
    frames: FrameDecoder = field(factory=FrameDecoder)
    failed: int = 0

    def send(self, due: float) -> None:
        """Send a message, unless the broker takes no more bytes (L{Refused})."""
        if self.peer.send(self.frame) != len(self.frame):
            raise Refused("a socket took a part of a message")
        self.due.append(due)

    def receive(self, data: bytes) -> Iterator[float]:
        """Take answers, which come in the order of the messages, and say their moments; L{Refused}
        if one answers nothing, or there will be no more.
        """
        if not data:
            raise Refused("the broker closed a connection")
        for answer in self.frames.receive(data):
            if not self.due:
                raise Refused(f"nothing was asked that is answered {answer}")
            self.failed += answer.code != 0
            yield self.due.popleft()


@define
class Trickle:
    """The clients together: their phases in a second, and how many microseconds messages took."""

    clients: list[Client]
    phases: list[float]
    micros: list[float] = field(factory=list)
    late: list[float] = field(factory=list)

    def due(self, number: int) -> float:
        """When a message is to be sent, in seconds from the begin."""
        second, which = divmod(number, len(self.clients))
        return second + self.phases[which]

    def run(self, seconds: int) -> None:
        """Have each client send a message in each second, and wait for the answers."""
        self.micros.clear()
        self.late.clear()
        for client in self.clients:
            client.failed = 0
        by_descriptor = {client.peer.fileno(): client for client in self.clients}
        with select.epoll(len(self.clients)) as poll:
            for descriptor in by_descriptor:
                poll.register(descriptor, select.EPOLLIN)
            total, sent, begun = seconds * len(self.clients), 0, time.perf_counter()
            while len(self.micros) < total:
                now = time.perf_counter() - begun
                while sent < total and self.due(sent) <= now:
                    self.clients[sent % len(self.clients)].send(begun + self.due(sent))
                    self.late.append(1e6 * (now - self.due(sent)))
                    sent += 1
                if now > seconds + PATIENCE:
                    raise Refused(f"{total - len(self.micros)} messages have no answer")
                wait = self.due(sent) - now if sent < total else 1.0
                for descriptor, _ in poll.poll(max(wait, LONGEST), 512):
                    self._read(by_descriptor[descriptor])

    def _read(self, client: Client) -> None:
        data = client.peer.recv(1 << 16)
        now = time.perf_counter()
        self.micros += [1e6 * (now - due) for due in client.receive(data)]


def phases(count: int, seed: int) -> list[float]:
    """Moments in a second, evenly drawn and in their order."""
    drawn = random.Random(seed)
    return sorted(drawn.random() for _ in range(count))


def connect(port: int, count: int) -> Trickle:
    """Open all connections."""
    frames = [encode(send(TOPIC, bytes(BODY), queue_id)) for queue_id in range(QUEUES)]
    clients = [Client(_come(port, number), frames[number % QUEUES]) for number in range(count)]
    # What is there stays: to look at it again and again would make messages late.
    gc.collect()
    gc.freeze()
    return Trickle(clients, phases(count, SEED))


def _come(port: int, number: int) -> socket.socket:
    """A connection that has said who it is, as each client's does (request 34)."""
    says = {"clientID": f"127.0.0.1@{number}", "producerDataSet": [{"groupName": "trickle"}]}
    peer = socket.create_connection(("127.0.0.1", port), PATIENCE)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.sendall(encode(Command.request(RequestCode.HEART_BEAT, body=json.dumps(says).encode())))
    frames = FrameDecoder()
    while not (answers := frames.receive(data := peer.recv(4096))):
        if not data:
            raise Refused("a connection was closed")
    if answers[0].code:
        raise Refused(f"a heartbeat was answered {answers[0]}")
    peer.setblocking(False)
    return peer


def found(trickle: Trickle) -> dict[str, float]:
    """What a run says; times are in microseconds."""
    return {
        "messages": len(trickle.micros),
        "p50": percentile(trickle.micros, 0.5),
        "p99": percentile(trickle.micros, 0.99),
        "most": max(trickle.micros),
        "late": percentile(trickle.late, 0.99),
        "failed": sum(client.failed for client in trickle.clients),
    }


def main(port: int) -> None:
    """Do what is told until stdin ends."""
    trickle = Trickle([], [])

    def connected(number: int, clients: int) -> int:
        nonlocal trickle
        trickle = connect(port, clients)
        return len(trickle.clients)

    def run(number: int, seconds: int) -> dict[str, float]:
        say(number=number, span="begin")
        trickle.run(seconds)
        say(number=number, span="end")
        return found(trickle)

    serve({"connect": connected, "run": run})


if __name__ == "__main__":
    main(int(sys.argv[1]))
