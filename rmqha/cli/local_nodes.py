"""Nodes of a command: processes of the installed C{rmqha}, on loopback alone.

None outlives the command, however that ends.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import treq
from attrs import define, field
from twisted.internet.task import deferLater

from rmqha.config.settings import ADMIN_PORT_STEP
from rmqha.errors import RmqhaError
from rmqha.nodes.poll import NodeClient
from rmqha.wire.ports import HA_PORT_STEP, VIP_STEP

LOOPBACK = "127.0.0.1"

PORTS = range(12_000, 31_000, 8)
"""Below those that Linux takes for outgoing connections, and no two of them so near that what is
counted from one is counted from the other too."""

COMMAND = (
    "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL); "
    "from rmqha.cli.start import start; start()"
)
"""C{rmqha}, wherever its script is; killed (C{PR_SET_PDEATHSIG}) when its parent ends."""

T = TypeVar("T")


class LocalNodeFailed(RmqhaError):
    """A command did not see what it should of a node.

    @ivar what: What that was.
    """

    sentence = "{what}"
    what: str


def free_ports() -> Iterator[int]:
    """Client ports that are free on loopback, as are those that a broker counts from each."""
    steps = (-VIP_STEP, 0, HA_PORT_STEP, ADMIN_PORT_STEP)
    bases = list(PORTS)
    random.shuffle(bases)
    for port in bases:
        with ExitStack() as opened:
            try:
                for step in steps:
                    trial = opened.enter_context(socket.socket())
                    trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    trial.bind((LOOPBACK, port + step))
            except OSError:
                continue
        yield port
    raise LocalNodeFailed(
        f"no {len(steps)} ports of {LOOPBACK} from {PORTS.start} to {PORTS.stop} are free"
    )


@define(eq=False)
class LocalNode:
    """One node.

    @ivar words: What follows C{rmqha}.
    @ivar log: The file of what it says.
    @ivar port: Its client port.
    """

    name: str
    words: tuple[str, ...]
    log: Path
    port: int
    process: subprocess.Popen[bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, *self.words],
                cwd=self.log.parent,
                env=dict(os.environ, PYTHONUNBUFFERED="1"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A terminal's Ctrl-C is for the command, which ends them in its own order.
                process_group=0,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def client(self) -> str:
        """Where clients connect."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def admin(self) -> str:
        return f"{LOOPBACK}:{self.port + ADMIN_PORT_STEP}"

    @property
    def ended(self) -> bool:
        """Whether its process has."""
        return self.process.poll() is not None

    def last(self) -> str:
        """The last line it said."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "nothing")

    def kill(self) -> None:
        """End it at once, by C{kill -9}."""
        self.process.kill()
        self.process.wait()


PAUSE = 0.1
"""Seconds between two looks at a node."""


@define(eq=False)
class LocalNodes:
    """All nodes of one command, with their logs in one folder.

    @ivar limit: Seconds that all of it may take.
    @ivar started: Those that were started, ended or not.
    @ivar ports: Client ports for nodes.
    """

    reactor: Any
    folder: Path
    limit: float
    started: list[LocalNode] = field(factory=list, init=False)
    ports: Iterator[int] = field(factory=free_ports, init=False)
    _begun: float = field(init=False)
    _needed: list[LocalNode] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._begun = self.reactor.seconds()

    @property
    def seconds(self) -> float:
        """How long the command has run."""
        return float(self.reactor.seconds() - self._begun)

    def node(self, name: str, port: int, *words: str) -> LocalNode:
        """Start a node, which is needed from now on.

        @param words: What follows C{rmqha run}.
        """
        keys = ("--set", f"listenPort={port}", "--set", f"bindAddress={LOOPBACK}")
        log = self.folder / f"{name.replace(' ', '-')}.log"
        node = LocalNode(name, ("run", *words, *keys), log, port)
        self.started.append(node)
        self._needed.append(node)
        return node

    async def status(self, node: LocalNode, wanted: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until a node is as it should be."""
        look = NodeClient(treq, node.admin, self.reactor)

        async def seen() -> bool:
            status = (await look.once()).status
            return status is not None and wanted(status)

        await self.until(seen, f"the {node.name} was not ready ({node.log.name})")

    def kill(self, node: LocalNode) -> None:
        """End a node at once."""
        self._needed.remove(node)
        node.kill()

    async def stop(self, node: LocalNode) -> None:
        """End a node cleanly."""
        self._needed.remove(node)
        node.process.send_signal(signal.SIGTERM)

        async def ended() -> bool:
            return node.ended

        await self.until(ended, f"the {node.name} did not end")

    async def until(self, wanted: Callable[[], Awaitable[T]], failure: str) -> T:
        """Wait for something, as long as all may take and the nodes run.

        @return: Its first true value.
        @raise LocalNodeFailed: If there was none.
        """
        while not (found := await wanted()):
            for node in self._needed:
                if node.ended:
                    raise LocalNodeFailed(
                        f"the {node.name} has ended, and last said: {node.last()}"
                    )
            if self.seconds > self.limit:
                raise LocalNodeFailed(f"{failure} within {self.limit:g} s")
            await deferLater(self.reactor, PAUSE)
        return found

    def end_all(self) -> None:
        """End all that still run, at once."""
        for node in self.started:
            if not node.ended:
                node.kill()
