"""Two pairs that serve the same clients, stock and ours: a master and a slave each, one name
server, and one JVM of stock producers and consumers for both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from lab.bench.sends import PATIENCE, QUICK_WARM_MESSAGES, WARM_MESSAGES, Target
from lab.bench.stock import COMMON, STOCK, SYNC, Peer, Stock
from lab.bench.table import GIB, Field
from lab.harness.json_child import Asked
from lab.harness.nodes import Node

QUEUES = 8

ON_DISK = 8 * GIB
"""Bytes that both pairs write to a disk."""


@frozen(kw_only=True)
class Pair(Target):
    """A master, its slave, and a topic on the master for producers."""

    name: str
    master: Node | Stock
    slave: Node | Stock

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.master.port}"

    def start(self) -> None:
        """Start both, and wait until the slave has what a producer sends."""
        self.master.start()
        self.slave.launch()
        self.master.until_so(
            lambda: self.address in self.tool.registered(self.tool.names),
            "it is registered",
            PATIENCE,
        )
        self.make(self.address, QUEUES)
        self.until_answered()

    def made(self, topic: str, queues: int = QUEUES) -> str:
        """@return: Another topic's name, which producers and consumers find by now."""
        evolve(self, topic=topic).make(self.address, queues)
        return topic

    def begin_to_consume(self, group: str, count: int, **how: Any) -> Asked:
        """Let a stock push consumer of a new group consume what there is: its answer has the
        C{seconds} from the first message to the last.
        """
        return self.tool.ask(
            "catchup",
            namesrv=self.tool.names,
            group=group,
            count=count,
            limit=int(PATIENCE) - 10,
            **{"topic": self.topic, **how},
        )

    def consume(self, group: str, count: int, **how: Any) -> float:
        """@return: Messages a second, from the first to the last."""
        return count / float(self.begin_to_consume(group, count, **how).wait(PATIENCE)["seconds"])


def pairs(
    field: Field, *, sync: bool = False, disk: bool = False, warm: bool = True, **masters: object
) -> dict[str, Pair]:
    """Both pairs, started, ours first.

    @param disk: Whether all of it is on a real disk.
    @param warm: Whether what is measured is a JVM that has compiled, on both ends.
    """
    folder = field.on_disk(ON_DISK) if disk else field.folder
    found = [ours(folder / "ours", field.tool, sync), _java(folder / "java", field.tool, sync)]
    for pair in found:
        pair.master.keys.update(masters)
        pair.start()
        if warm:
            pair.warm_up(QUICK_WARM_MESSAGES if field.quick else WARM_MESSAGES)
    return dict(zip(("ours", "stock pair"), found, strict=True))


def ours(folder: Path, tool: Peer, sync: bool, **more: object) -> Pair:
    """A pair of ours, not started."""
    keys: dict[str, Any] = {**STOCK, **COMMON, "namesrvAddr": tool.names, **_names("ours"), **more}
    role = "SYNC_MASTER" if sync else "ASYNC_MASTER"
    master = Node(folder, "master", **keys, brokerRole=role)
    slave = Node(folder, "slave", master=master.address, **keys)
    return Pair(name="Ours", topic="BenchOurs", tool=tool, master=master, slave=slave)


def _names(name: str) -> dict[str, str]:
    """What a pair is called; clusters too, for replies go to any master of a cluster."""
    return {"brokerName": name, "brokerClusterName": name}


def _java(folder: Path, tool: Peer, sync: bool) -> Pair:
    names = _names("java")
    master = Stock(folder, tool, "master", **names, **(SYNC if sync else {}))
    slave = Stock(folder, tool, "slave", role="SLAVE", master=master.address, **names)
    return Pair(name="Java", topic="BenchJava", tool=tool, master=master, slave=slave)
