"""Ten thousand clients that send a message a second each: how long a message takes, and what it
costs the master.

The clients are connections of one process beside the pair (L{lab.bench.trickle_child}).  With two
processors, master, slave and that process share them, so its own lateness is told with the rows.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from lab.bench.catchup import STOCK
from lab.bench.processes import Sampler, all_descriptors
from lab.bench.report import Row, limited, spread
from lab.bench.sends import BODY
from lab.bench.trickle_child import QUEUES, TOPIC
from lab.harness.json_child import Piped
from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, send
from rmqha.store.files.descriptors import open_limit

ROLES = ("ASYNC_MASTER", "SYNC_MASTER")

OTHERS = 1000
"""Descriptors left for everything but queues."""

WARM = 5
"""Seconds of messages that do not count."""

P99_GOAL = 20.0
"""Milliseconds that 99 of 100 messages may take."""

SHARE_GOAL = 50.0
"""Percent of a core that the master may use."""

PATIENCE = 120.0

KEYS: dict[str, Any] = dict(STOCK)


@frozen(kw_only=True)
class Seen:
    """One round.

    @ivar p50: Milliseconds a message took; C{p99} and C{most} likewise.
    @ivar late: Milliseconds that 99 of 100 messages were sent after their moment, at most.
    @ivar failed: Messages that were answered with an error, as by a SYNC master without a slave.
    @ivar shares: What each process needs of a core for a second's messages: where they take longer
        than the round, what it used meanwhile is no less.
    """

    p50: float
    p99: float
    most: float
    late: float
    failed: int
    shares: dict[str, float]


class Clients(Piped):
    """The process that has the connections."""

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__("trickle", folder / "trickle.log")
        self.port = port

    def connect(self, count: int) -> None:
        """Start it, and let all clients connect."""
        self.open([sys.executable, "-m", "lab.bench.trickle_child", str(self.port)])
        if self.do("connect", PATIENCE, clients=count) != count:
            raise AssertionError(f"not all clients are connected\n{self.tail()}")

    def run(self, seconds: int, master: Node, slave: Node) -> Seen:
        """Have each client send a message a second."""
        pids = {"master": master.pid, "slave": slave.pid, "clients": self.pid}
        sampler = Sampler(pids)
        asked = self.ask("run", sampler.heard, seconds=seconds)
        said = asked.wait(PATIENCE + seconds)
        used = sampler.result()
        return Seen(
            **{name: said[name] / 1000 for name in ("p50", "p99", "most", "late")},
            failed=said["failed"],
            shares={name: taken / seconds for name, taken in used.items()},
        )


def run(
    folder: Path, count: int, seconds: int, rounds: int, roles: Sequence[str] = ROLES
) -> list[Row]:
    """Measure the rows about very many clients that send.

    @param count: Ten thousand for the goals.
    @param seconds: Of one round.
    @param roles: Of the masters that are measured, one after the other.
    """
    rows: list[Row] = []
    with all_descriptors() as most:
        count = min(count, most - OTHERS - open_limit(most))
        for role in roles:
            seen = _seen(folder / role, role, count, seconds, rounds)
            rows += rows_of(role, count, seen)
    return rows


def _seen(folder: Path, role: str, count: int, seconds: int, rounds: int) -> list[Seen]:
    # Who has few files gives clients what it keeps for slaves and queues that are not there.
    master = Node(folder, "master", **KEYS, brokerRole=role, haMaxConnections=16)
    slave = Node(folder, "slave", master=master.address, **KEYS)
    clients = Clients(folder, master.port)
    try:
        master.start()
        slave.start()
        _prepare(master)
        clients.connect(count)
        clients.run(min(WARM, seconds), master, slave)
        found = []
        for _ in range(rounds):
            found.append(clients.run(seconds, master, slave))
            print(f"{role}: {found[-1]}", flush=True)
            time.sleep(1.0)
    finally:
        for process in (clients, slave, master):
            process.kill9()
    return found


def _prepare(master: Node) -> None:
    """Wait until messages are answered with success: a SYNC master's wait for its slave."""
    with Remote(master.port) as client:
        until(
            lambda: not client.ask(send(TOPIC, bytes(BODY), QUEUES - 1)).code,
            "messages are taken",
            PATIENCE,
            tell=master.tail,
            pause=0.2,
        )


def rows_of(role: str, count: int, seen: Sequence[Seen]) -> list[Row]:
    """What was seen of one master, a value a round."""
    clients = f"{count:,} client connections, a message of {BODY} bytes a second each, {role}"
    p50, p99, late = ([getattr(one, name) for one in seen] for name in ("p50", "p99", "late"))
    shares = {
        name: [100 * one.shares[name] for one in seen] for name in ("master", "slave", "clients")
    }
    times = (
        f"p50 {spread(p50, 'ms')}, at most {max(one.most for one in seen):.0f} ms;"
        f" sent late, p99, {spread(late, 'ms')}"
    )
    failed = sum(one.failed for one in seen)
    others = ", ".join(f"{name} {spread(shares[name], '%')}" for name in ("slave", "clients"))
    return [
        Row(
            what=f"{clients}, p99",
            ours=spread(p99, "ms") + (f"; {failed:,} messages refused" if failed else ""),
            goal=f"<= {P99_GOAL:g} ms",
            met=statistics.median(p99) <= P99_GOAL and not failed,
            notes=(f"{count:,} clients, {role}: {times}",),
        ),
        limited(
            f"{clients}, processor of the master",
            "% of a core",
            shares["master"],
            SHARE_GOAL,
            notes=(f"{count:,} clients, {role}, of a core: {others}",),
        ),
    ]
