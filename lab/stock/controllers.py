"""
A group of stock controllers (RocketMQ 5.3.3) as processes on loopback.
"""

from __future__ import annotations

from pathlib import Path

from lab.harness.nodes import Process
from lab.harness.ports import free_ports
from lab.stock import jars

VERSION = "5.3.3"
"""The release that has them."""

MAIN = "org.apache.rocketmq.controller.ControllerStartup"


class StockController(Process):
    """
    One controller.

    @ivar port: Where it is asked, and its peers speak raft.
    """

    def __init__(self, folder: Path, number: int, ports: list[int]) -> None:
        """
        @param number: Which of the group it is.
        @param ports: Those of all of the group.
        """
        super().__init__(f"controller-{number}", folder / f"controller-{number}.log")
        self.port = ports[number]
        self._home = folder / f"controller-{number}"
        self._conf = folder / f"controller-{number}.conf"
        peers = ";".join(f"n{each}-127.0.0.1:{port}" for each, port in enumerate(ports))
        keys = {
            "controllerDLegerGroup": "interop",
            "controllerDLegerPeers": peers,
            "controllerDLegerSelfId": f"n{number}",
            "controllerStorePath": self._home / "store",
            "mappedFileSize": 1 << 20,
            "enableElectUncleanMaster": "false",
        }
        lines = [f"{key} = {value}\n" for key, value in keys.items()]
        self._conf.write_text("".join(lines), encoding="utf-8")
        self._home.mkdir()

    @property
    def address(self) -> str:
        """
        C{host:port}.
        """
        return f"127.0.0.1:{self.port}"

    def launch(self) -> None:
        """
        Start it, and do not wait.
        """
        self.spawn(jars.java(VERSION, MAIN, self._home, "-c", str(self._conf)))


def controllers(folder: Path, count: int) -> list[StockController]:
    """
    A group, not started.
    """
    ports = free_ports(count)
    return [StockController(folder, number, ports) for number in range(count)]
