"""F50: what no client sends, to the client ports of a real broker and a real name server.

Without processes and for every kind of frame: C{tests/wire}, C{tests/net}, by hypothesis.
"""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import time

from lab.harness.nodes import NameServer, Node
from lab.harness.remote import Remote, send
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.faults.harness import FaultTestCase

#: How long it lasts, in seconds; C{RMQHA_FUZZ=600} for a night.
LASTS = float(os.environ.get("RMQHA_FUZZ", "5"))

#: Longest wait for a good answer meanwhile, in seconds.
SOON = 5.0

#: Bytes that memory may grow: tables made by accident, and what Python keeps.
GROWTH = 48 << 20

FIELDS = ("topic", "queueId", "consumerGroup", "a", "b", "e", "i", "properties", "offset")

#: Kept out: the node would stop doing what is being tested.
NOT_SENT = {RequestCode.UPDATE_BROKER_CONFIG}


class Fuzz:
    """Frames with something wrong in them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def value(self) -> object:
        return self.chance.choice(
            [0, -1, 2**31, 2**63, 1e308, "", "x" * 300, "-7", "\0\1\2", None, True, [], {}, [[[]]]]
        )

    def header(self) -> bytes:
        codes = [code for code in RequestCode if code not in NOT_SENT]
        told: dict[str, object] = {
            "code": self.chance.choice([int(self.chance.choice(codes)), self.value()]),
            "language": self.chance.choice(["JAVA", self.value()]),
            "version": self.chance.choice([401, self.value()]),
            "opaque": self.chance.choice([1, self.value()]),
            "flag": self.chance.choice([0, 0, 1, 2, self.value()]),
            "extFields": {
                name: self.value() for name in self.chance.sample(FIELDS, self.chance.randrange(7))
            },
        }
        data = bytearray(json.dumps(told).encode())
        for _ in range(self.chance.choice([0, 0, 1, 5])):
            data[self.chance.randrange(len(data))] = self.chance.randrange(256)
        return bytes(data)

    def frame(self) -> bytes:
        """A frame, whose lengths are mostly right."""
        header = self.header() if self.chance.random() < 0.9 else self.chance.randbytes(60)
        body = self.chance.randbytes(self.chance.choice([0, 0, 10, 2000]))
        size, kind = len(header), self.chance.choice([0, 0, 0, 1, 9]) << 24
        if self.chance.random() < 0.05:
            size = self.chance.randrange(1 << 24)
        total = 4 + len(header) + len(body)
        if self.chance.random() < 0.05:
            total = self.chance.choice([0, 3, 2**31 - 1, total - 1])
        return struct.pack(">iI", total, size | kind) + header + body


class FuzzTests(FaultTestCase):
    """A broker and its name server, and somebody who sends them rubbish."""

    def test_client_ports(self) -> None:
        """Both answer good clients meanwhile, keep what they had, and log no exception."""
        names = NameServer(self.folder)
        self._processes.append(names)
        names.start()
        broker = Node(self.folder, "master", namesrvAddr=names.client_address)
        self._processes.append(broker)
        broker.start()
        fuzz = Fuzz(self.random)
        self.rubbish(fuzz, broker, 200)
        memory = broker.memory()
        sent = frames = 0
        end = time.monotonic() + LASTS
        while time.monotonic() < end:
            for node in (broker, names):
                frames += self.rubbish(fuzz, node, 100)
            with Remote(broker.port) as client:
                answer = client.ask(send("Good", b"good"), SOON)
                self.assertEqual(0, answer.code, answer)
                sent += 1
            with Remote(names.port) as client:
                client.ask(Command(code=RequestCode.GET_BROKER_CLUSTER_INFO), SOON)
        self.tell(f"{frames} frames; {sent} good messages")
        self.assertLess(broker.memory() - memory, GROWTH)
        for node in (broker, names):
            node.term()
            self.assertEqual([], node.complaints(), node.tail())
        broker.start()
        self.assertEqual("serving", broker.status()["state"])

    def rubbish(self, fuzz: Fuzz, node: Node, count: int) -> int:
        """Send frames, on a new connection whenever the last was closed."""
        for _ in range(count):
            data = b"".join(fuzz.frame() for _ in range(self.random.randint(1, 4)))
            with socket.create_connection(("127.0.0.1", node.port), timeout=10) as peer:
                try:
                    peer.sendall(data)
                    peer.settimeout(0.01)
                    peer.recv(1 << 16)
                except (TimeoutError, ConnectionError):
                    pass
        return count
