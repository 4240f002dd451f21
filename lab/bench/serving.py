"""Two pairs that serve the same clients, stock and ours: a master and a slave each, one name
server, and one JVM of stock producers and consumers for both.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.bench.catchup import STOCK
from lab.bench.sends import PATIENCE, WARM_MESSAGES, Sends, Target
from lab.bench.stock import SYNC, Peer, Stock
from lab.harness.json_child import Asked
from lab.harness.nodes import Node, until
from lab.stock.brokers import SMALL

QUEUES = 8
QUICK_WARM_MESSAGES = 40_000

COMMON = {key: SMALL[key] for key in ("brokerClusterName", "brokerIP1", "maxMessageSize")}


class Pair:
    """A master, its slave, and a topic on the master.

    @ivar name: C{ours} or C{Java}.
    @ivar address: Where clients connect.
    @ivar target: The topic, for producers.
    """

    def __init__(self, name: str, tool: Peer, master: Node | Stock, slave: Node | Stock) -> None:
        self.name = name
        self.tool = tool
        self.master = master
        self.slave = slave
        self.topic = f"Bench{name}"
        self.target = Target(tool=tool, topic=self.topic, master=master, slave=slave)
        self.address = "127.0.0.1", master.port

    def start(self) -> None:
        """Start both, and wait until the slave has what a producer sends."""
        self.master.start()
        self.slave.launch()
        address = "{}:{}".format(*self.address)
        self._until(
            lambda: address in self.tool.registered(self.tool.names), "the master is registered"
        )
        self.target.make(address, QUEUES)
        self._until(self.target.answered, "sends are answered")

    def stop(self) -> None:
        self.slave.kill9()
        self.master.kill9()

    def send(self, count: int, threads: int, each: int = 1) -> Sends:
        return self.target.send(count, threads, each)

    def send_kind(self, kind: str, count: int, threads: int, each: int, size: int) -> Sends:
        return self.target.send(count, threads, each, kind=kind, size=size)

    def warm_up(self, quick: bool) -> None:
        """Have all JVMs compile what a send needs, as L{Target.warm_up}.

        @param quick: Whether some seconds are enough.
        """
        self.target.warm_up(QUICK_WARM_MESSAGES if quick else WARM_MESSAGES)

    def consume(self, group: str, count: int) -> float:
        """Let a stock push consumer of a new group consume what there is.

        @return: Messages a second, from the first to the last.
        """
        found = self.begin_to_consume(group, count).wait(PATIENCE)
        return count / float(found["seconds"])

    def begin_to_consume(self, group: str, count: int) -> Asked:
        """Do not wait for it.

        @return: Its answer has the C{seconds} from the first message to the last.
        """
        return self.tool.ask(
            "catchup",
            namesrv=self.tool.names,
            topic=self.topic,
            group=group,
            count=count,
            limit=int(PATIENCE) - 10,
        )

    def _until(self, condition: Any, what: str) -> None:
        def look() -> bool:
            if not self.master.running:
                raise AssertionError(f"{self.name}: the master has ended\n{self.master.tail()}")
            return bool(condition())

        until(look, f"{self.name}: {what}", PATIENCE, tell=self.master.tail, pause=0.2)


@contextmanager
def pairs(
    folder: Path, tool: Peer, *, sync: bool = False, **masters: object
) -> Iterator[list[Pair]]:
    """Both pairs, started; they are ended and deleted afterwards.

    @param sync: Whether the masters wait for their slaves.
    @param masters: More of both masters' configurations.
    @return: Ours and the stock one.
    """
    found = [_ours(folder / "ours", tool, sync), _java(folder / "java", tool, sync)]
    for pair in found:
        pair.master.keys.update(masters)
    try:
        for pair in found:
            pair.start()
        yield found
    finally:
        for pair in found:
            pair.stop()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def alone(folder: Path, tool: Peer, **keys: object) -> Iterator[Pair]:
    """Our pair by itself, in the same way; its master does not wait.

    @param keys: More of both configurations.
    """
    pair = _ours(folder / "ours", tool, False, **keys)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _ours(folder: Path, tool: Peer, sync: bool, **more: object) -> Pair:
    keys: dict[str, Any] = {**STOCK, **COMMON, "brokerName": "ours", "namesrvAddr": tool.names}
    keys |= more
    role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
    master = Node(folder, "master", **keys, brokerRole=role)
    slave = Node(folder, "slave", master=master.address, **keys)
    return Pair("Ours", tool, master, slave)


def _java(folder: Path, tool: Peer, sync: bool) -> Pair:
    master = Stock(folder, tool, "master", brokerName="java", **(SYNC if sync else {}))
    slave = Stock(folder, tool, "slave", role="SLAVE", master=master.address, brokerName="java")
    return Pair("Java", tool, master, slave)


def turns(both: Sequence[Pair], number: int) -> Sequence[Pair]:
    """In which order they are measured: in either one, as what runs later finds a warmer
    machine.
    """
    return both[:: -1 if number % 2 else 1]
