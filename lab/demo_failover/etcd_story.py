"""The story with etcd, three members and a client of ours: no Java."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Collection

from attrs import define, field

from lab.demo_failover.report import HASH
from lab.demo_failover.story import SIZE, TOPIC, Load, Seen, Story
from lab.harness.etcd import Etcd, addresses_of, etcd
from lab.harness.nodes import Node
from lab.harness.remote import Remote, make_topic, send
from lab.stock.brokers import Sent
from rmqha.controller.etcd.client import decoded
from rmqha.wire.remoting.codes import ResponseCode

LEASE = 3
"""Seconds of a member's lease."""


@define(eq=False)
class Producer:
    """Sends to whichever member takes it, asked in turn, one message after the other."""

    nodes: Collection[Node]
    sent: list[Sent] = field(factory=list)
    _enough: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._enough.is_set():
            for node in self.nodes:
                with contextlib.suppress(OSError), Remote(node.port) as broker:
                    while not self._enough.is_set() and self._one(broker):
                        pass
            self._enough.wait(0.02)

    def _one(self, broker: Remote) -> bool:
        """@return: Whether to go on with this one."""
        number = len(self.sent)
        body = (b"%d " % number).ljust(SIZE, b"x")
        answer = broker.ask(send(TOPIC, body, number % 4))
        stored = "msgId" in answer.ext
        well = answer.code == ResponseCode.SUCCESS
        if stored:
            self.sent.append(
                Sent(
                    n=number,
                    status="SEND_OK" if well else ResponseCode(answer.code).name,
                    places=[int(answer.ext["msgId"][-16:], 16)],
                    bodies=[hashlib.sha256(body).hexdigest()[:HASH]],
                )
            )
        return stored


class EtcdStory(Story):
    """Three of etcd, and three members of ours."""

    coordinator = "etcd"
    cluster: list[Etcd]

    def start(self) -> None:
        self.cluster = etcd(self.folder.path, 3)
        self.say("etcd", f"three, at {addresses_of(self.cluster)}; no Java")
        self.nodes = [self.member(f"ours-{number}") for number in (1, 2, 3)]
        self.members = {each.name: each for each in self.nodes}
        for each in self.nodes:
            each.launch()

    def member(self, name: str) -> Node:
        return Node(
            self.folder.path,
            "member",
            name,
            brokerRole="SYNC_MASTER",
            brokerId=0,
            brokerIP1="127.0.0.1",
            brokerIP2="127.0.0.1",
            enableControllerMode="true",
            controllerType="etcd",
            etcdAddresses=addresses_of(self.cluster),
            etcdLeaseSeconds=LEASE,
            haReconnectBackoffMax=500,
            haMaxTimeSlaveNotCatchup=5000,
        )

    def sends(self) -> Load:
        with Remote(self.members[self.master()].port) as broker:
            broker.ask(make_topic(TOPIC))
        self.producer = Producer(self.nodes)
        self.producer.start()
        self.say("client", f"a client of ours sends; leases are {LEASE} s")
        return self.producer

    def enough(self) -> None:
        self.producer.stop()

    def tail(self) -> str:
        return "\n".join(each.tail() for each in self.nodes)

    def seen(self) -> Seen | None:
        try:
            found = self.cluster[0].ask("kv/range", key="AA==", range_end="AA==").get("kvs", ())
        except OSError:
            return None
        values = {
            "/".join(decoded(each["key"]).split("/")[4:]): json.loads(decoded(each["value"]))
            for each in found
        }
        decided = values.get("set")
        if decided is None:
            return None
        living = values.get(f"live/{decided['master']}", {})
        return Seen(
            master=int(living.get("address", ":0").rpartition(":")[2]),
            epoch=decided["masterEpoch"],
            in_sync=len(decided["inSync"]),
            alive=sum(f"live/{number}" in values for number in decided["inSync"]),
        )
