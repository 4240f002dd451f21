"""Stock RocketMQ as the bench runs it: its own defaults, in a JVM that may become fast.

C{tests.interop} starts the same brokers small; here they have RocketMQ's file sizes, and the JVM
its usual compilers and collector.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from lab.harness.remote import Remote
from lab.stock.brokers import SMALL, Broker, Tool
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

JVM = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC")
"""As C{runbroker.sh}, with a heap for 1 GiB of log instead of 8 GiB."""

FILE_SIZE = 1 << 30

STOCK: dict[str, Any] = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "haSendHeartbeatInterval": 5000,
    "transactionMetricFlushInterval": 3000,
}
"""RocketMQ's defaults, where L{lab.harness.nodes} has small ones."""

COMMON = {key: SMALL[key] for key in ("brokerClusterName", "brokerIP1", "maxMessageSize")}

SYNC = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "totalReplicas": 2}
"""A master whose writes wait for a slave; 4.9 knows only the role."""


class Peer(Tool):
    """A stock name server and stock producers."""

    jvm = JVM


class Stock(Broker):
    """A stock broker with RocketMQ's defaults."""

    def __init__(self, folder: Path, tool: Tool, name: str, **keys: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, tool, name, **{**STOCK, **keys})

    def reached(self) -> tuple[int, int]:
        """How far log and dispatch are, in bytes; nothing while it does not answer (request 28)."""
        try:
            with Remote(self.port) as remote:
                answer = remote.ask(Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        except OSError:
            return 0, 0
        table = json.loads(bytes(answer.body) or b"{}").get("table", {})
        if "dispatchBehindBytes" not in table:
            return 0, 0  # 4.9.7 in its first second
        held = int(table["commitLogMaxOffset"])
        return held, held - int(table["dispatchBehindBytes"])


def java_version() -> str:
    """The JVM, in its own words."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    return (said.stderr.splitlines() or ["java"])[0]
