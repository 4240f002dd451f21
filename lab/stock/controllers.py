"""A group of stock controllers (5.3.3) on loopback, and members of their sets, Java's and ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred, fail, succeed

from lab.harness.etcd import addresses_of
from lab.harness.nodes import Node, Process
from lab.harness.ports import free_ports
from lab.harness.remote import Remote
from lab.stock import jars
from lab.stock.brokers import SMALL, Broker, Tool
from rmqha.controller.group import ControllerGroup
from rmqha.errors import RemotingUnreachable, RmqhaError
from rmqha.wire.remoting.command import Command

VERSION = "5.3.3"
"""The release that has them."""

T = TypeVar("T")
OurNode = TypeVar("OurNode", bound=Node)
JavaBroker = TypeVar("JavaBroker", bound=Broker)

MAIN = "org.apache.rocketmq.controller.ControllerStartup"


class StockController(Process):
    """One controller, and the folder with all it knows."""

    def __init__(self, folder: Path, number: int, ports: list[int]) -> None:
        super().__init__(f"controller-{number}", folder / f"controller-{number}.log")
        self.port = ports[number]
        self._home = folder / f"controller-{number}"
        self.store = self._home / "store"
        self._conf = folder / f"controller-{number}.conf"
        peers = ";".join(f"n{each}-127.0.0.1:{port}" for each, port in enumerate(ports))
        keys = {
            "controllerDLegerGroup": "interop",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": self.store,
            "mappedFileSize": 1 << 20,
            "enableElectUncleanMaster": "false",
        }
        lines = [f"{key} = {value}\n" for key, value in keys.items()]
        self._conf.write_text("".join(lines), encoding="utf-8")
        self._home.mkdir()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        self.spawn(jars.java(VERSION, MAIN, self._home, "-c", str(self._conf)))


def controllers(folder: Path, count: int) -> list[StockController]:
    """A group, not started."""
    ports = free_ports(count)
    return [StockController(folder, number, ports) for number in range(count)]


@define
class BlockingClient:
    """Asks over connections that stay: a member is alive for controllers while one does."""

    _open: dict[str, Remote] = field(factory=dict)

    def request(self, address: str, command: Command, timeout: float) -> Deferred[Command]:
        return self._told(address, lambda remote: remote.ask(command, timeout))

    def oneway(self, address: str, command: Command) -> Deferred[None]:
        return self._told(address, lambda remote: remote.send(command))

    def close(self) -> None:
        for remote in self._open.values():
            remote.close()
        self._open.clear()

    def _told(self, address: str, tell: Callable[[Remote], Any]) -> Deferred[Any]:
        try:
            if address not in self._open:
                self._open[address] = Remote(int(address.rpartition(":")[2]))
            return succeed(tell(self._open[address]))
        except OSError as error:
            self._open.pop(address, None)
            return fail(RemotingUnreachable(address, str(error)))


def answered(asked: Coroutine[Any, Any, T] | Deferred[T]) -> T | None:
    """What a L{BlockingClient} was answered; C{None} if it was not, for now."""
    found: list[T] = []
    deferred = asked if isinstance(asked, Deferred) else Deferred.fromCoroutine(asked)
    deferred.addCallbacks(found.append, lambda failure: failure.trap(RmqhaError, OSError))
    return found[0] if found else None


def asking(group: Sequence[StockController]) -> ControllerGroup:
    """Asks controllers about the set of L{java_member} and L{our_member}."""
    return ControllerGroup(
        addresses=addresses_of(group).split(";"),
        client=BlockingClient(),
        cluster=str(SMALL["brokerClusterName"]),
        name=str(SMALL["brokerName"]),
        now_ms=lambda: int(time.time() * 1000),
    )


def java_member(
    folder: Path,
    tool: Tool,
    name: str,
    group: Sequence[StockController],
    kind: type[JavaBroker] = Broker,
) -> JavaBroker:
    """A Java member whose SYNC answer waits for all of the SyncStateSet, not started."""
    return kind(
        folder,
        tool,
        name,
        role="SYNC_MASTER",
        enableControllerMode="true",
        controllerAddr=addresses_of(group),
        allAckInSyncStateSet="true",
        inSyncReplicas=2,
        minInSyncReplicas=1,
        haMaxTimeSlaveNotCatchup=5000,
    )


def our_member(
    folder: Path,
    tool: Tool,
    name: str,
    group: Sequence[StockController],
    kind: type[OurNode] = Node,
    **keys: Any,
) -> OurNode:
    """A member of ours in the same set, not started."""
    given = {
        "haReconnectBackoffMax": 500,
        "brokerRole": "SYNC_MASTER",
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "brokerName": SMALL["brokerName"],
        "brokerClusterName": SMALL["brokerClusterName"],
        "namesrvAddr": tool.names,
        "enableControllerMode": "true",
        "controllerAddr": addresses_of(group),
        "haMaxTimeSlaveNotCatchup": 5000,
        **keys,
    }
    return kind(folder, "member", name, **given)
