"""Stock RocketMQ as the bench runs it: its own defaults, in a JVM that may become fast.

C{tests.interop} starts the same brokers small; here they have RocketMQ's file sizes, and
the JVM its usual compilers and collector.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

from lab.bench.catchup import STOCK
from lab.bench.progress import Look
from lab.stock.brokers import Broker, Tool
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

JVM = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
"""As C{runbroker.sh}, with a heap for 1 GiB of log instead of 8 GiB."""

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 2}
"""A master whose writes wait for a slave; 4.9 knows only the role."""

PATIENCE = 5.0
"""Seconds a broker may take to say how far it is."""


class Peer(Tool):
    """A stock name server and stock producers."""

    jvm = JVM


class Stock(Broker):
    """A stock broker with RocketMQ's defaults."""

    jvm = JVM

    def __init__(self, folder: Path, tool: Tool, name: str, **keys: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, tool, name, **{**STOCK, **keys})

    def look(self) -> Look | None:
        """Ask how far it is (request 28)."""
        try:
            table = runtime(self.port)
        except OSError:
            return None
        if "dispatchBehindBytes" not in table:
            return None  # 4.9.7 in its first second
        held = int(table["commitLogMaxOffset"])
        return Look(held, held - int(table["dispatchBehindBytes"]))


def runtime(port: int) -> dict[str, str]:
    """A broker's runtime information; empty if it has none to give yet.

    @raise OSError: If it does not answer.
    """
    frames = FrameDecoder()
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        sock.sendall(encode(Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)))
        while True:
            data = sock.recv(1 << 16)
            if not data:
                raise ConnectionError("closed without an answer")
            for answer in frames.receive(data):
                table: dict[str, str] = json.loads(bytes(answer.body) or b"{}").get("table", {})
                return table


def java_version() -> str:
    """The JVM, in its own words."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (said.stderr.splitlines() or ["java"])[0]


def remove(broker: Broker) -> None:
    """End a broker and delete what it stored."""
    broker.kill9()
    shutil.rmtree(broker.root.parent, ignore_errors=True)
