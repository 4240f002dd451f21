"""Ten thousand clients that send a message a second each: how long a message takes, and what it
costs the master.

The clients are connections of one process beside the pair (L{lab.bench.trickle_child}).  With two
processors, master, slave and that process share them, so its own lateness is told with the rows.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from lab.bench.processes import Sampler, all_descriptors
from lab.bench.sends import BODY, PATIENCE
from lab.bench.stock import STOCK
from lab.bench.table import Field, Figure, Row, Seen
from lab.bench.trickle_child import QUEUES, TOPIC
from lab.harness.json_child import Piped
from lab.harness.nodes import Node
from lab.harness.remote import Remote, send
from rmqha.store.files.descriptors import open_limit

CLIENTS = 10_000

OTHERS = 1000
"""Descriptors left for everything but queues."""


class Clients(Piped):
    """The process that has the connections, and the pair that they are to."""

    def __init__(self, folder: Path, role: str) -> None:
        super().__init__("trickle", folder / "trickle.log")
        # Who has few files gives clients what it keeps for slaves and queues that are not there.
        self.master = Node(folder, "master", **STOCK, brokerRole=role, haMaxConnections=16)
        self.slave = Node(folder, "slave", master=self.master.address, **STOCK)

    def connect(self, count: int) -> None:
        """Start all, and let the clients connect when messages are answered with success."""
        self.master.start()
        self.slave.start()
        with Remote(self.master.port) as client:
            first = send(TOPIC, bytes(BODY), QUEUES - 1)
            self.master.until_so(lambda: not client.ask(first).code, "it takes messages", PATIENCE)
        self.open([sys.executable, "-m", "lab.bench.trickle_child", str(self.master.port)])
        if self.do("connect", PATIENCE, clients=count) != count:
            raise AssertionError(f"not all clients are connected\n{self.tail()}")

    def run(self, seconds: int) -> Seen:
        """Have each client send a message a second.

        @return: Milliseconds of a message; how many were refused, as by a SYNC master without a
            slave; and percents of a core, by process: where messages take longer than the round,
            what was used meanwhile is no less.
        """
        pids = {"master": self.master.pid, "slave": self.slave.pid, "clients": self.pid}
        sampler = Sampler(pids)
        said = self.ask("run", sampler.heard, seconds=seconds).wait(PATIENCE + seconds)
        times = {name: said[name] / 1000 for name in ("p50", "p99", "most", "late")}
        used = {name: 100 * taken / seconds for name, taken in sampler.result().items()}
        return {**times, "failed": said["failed"], **used}


def connected(role: str, field: Field) -> dict[str, Clients]:
    """The clients of one pair."""
    clients = Clients(field.folder, role)
    most = field.opened.enter_context(all_descriptors())
    clients.connect(min(1000 if field.quick else CLIENTS, most - OTHERS - open_limit(most)))
    return {"ours": clients}


def _figures(role: str) -> list[Figure]:
    what = f"{CLIENTS:,} client connections, a message of {BODY} bytes a second each, {role}"
    return [
        Figure("p99", f"{what}, p99", "ms", 20, most=True),
        Figure("master", f"{what}, processor of the master", "% of a core", 50, most=True),
        Figure("failed", f"{what}, refused", "messages", 0, most=True),
        Figure("late", f"{what}, sent late, p99", "ms"),
        *(Figure(name, f"{what}, processor of the {name}", "%") for name in ("slave", "clients")),
    ]


ROWS = [
    Row(
        name="trickle",
        set_up=partial(connected, role),
        load=lambda clients, turn: clients.run(20 if turn.number >= 0 and not turn.quick else 5),
        figures=_figures(role),
        rounds=3,
    )
    for role in ("ASYNC_MASTER", "SYNC_MASTER")
]
