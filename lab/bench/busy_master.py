"""What something costs a busy master that it does beside its writes: two masters, one with it and
one without it, take the same writes and commits on one connection each, in turn.

A node has one thread for all of this, so what it can take is one second by the processor time of a
write.  That says more than writes a second: those are also the client's, and the machine's.

Other work of the machine makes a round up to three times as dear, and never cheaper.  So many
rounds are run, and the quiet tenth of them is compared.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from attrs import define, field

from lab.bench.report import Row, spread
from lab.harness.nodes import Node
from lab.harness.remote import SOON, commit, make_topic, send
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.json_body import write

BODY = 1024
TOPIC, QUEUES, GROUPS = "BenchBusy", 16, 4

WRITES, COMMITS = 224, 32
"""Requests that are sent together: a consumer that commits every seventh message is a busy one."""


@define(eq=False)
class Load:
    """A master and a connection to it.

    @ivar rates: Writes a second, of each round.
    @ivar costs: Microseconds of the master's processor time a write, of each round.
    """

    node: Node
    rates: list[float] = field(factory=list, init=False)
    costs: list[float] = field(factory=list, init=False)
    _socket: socket.socket = field(init=False)
    _decoder: FrameDecoder = field(factory=FrameDecoder, init=False)
    _sends: bytes = field(init=False)
    _batches: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        body = b"x" * BODY
        self._sends = b"".join(encode(send(TOPIC, body, n % QUEUES)) for n in range(WRITES))

    def __enter__(self) -> Self:
        """Start the master, and make what the writes and commits are for."""
        self.node.start()
        self._socket = socket.create_connection(("127.0.0.1", self.node.port), SOON)
        self.ask(encode(make_topic(TOPIC, QUEUES)), 1)
        for number in range(GROUPS):
            group = write(GroupConfig(group_name=f"g{number}"))
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            self.ask(encode(Command(code=code, body=group)), 1)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self.node.kill9()

    def round(self, batches: int, *, kept: bool = True) -> None:
        """Write and commit.

        @param kept: Whether this is one that counts.
        """
        begun, used = time.perf_counter(), processor(self.node.pid)
        for _ in range(batches):
            self._batches += 1
            self.ask(self._sends + self._commits(), WRITES + COMMITS)
        took = time.perf_counter() - begun
        if kept:
            self.rates.append(batches * WRITES / took)
            cost = processor(self.node.pid) - used
            self.costs.append(1e6 * cost / (batches * WRITES))

    def _commits(self) -> bytes:
        """Commits of another part of the queues each time; each is further than the one before."""
        first = self._batches * COMMITS
        places = [divmod(number % (QUEUES * GROUPS), QUEUES) for number in range(first, first + 32)]
        return b"".join(
            encode(commit(TOPIC, f"g{group}", self._batches, queue)) for group, queue in places
        )

    def ask(self, data: bytes, answers: int) -> None:
        """Send requests, and wait for so many answers.

        @raise AssertionError: If one is not answered well.
        """
        self._socket.sendall(data)
        while answers:
            for answer in self._decoder.receive(self._socket.recv(1 << 20)):
                if answer.code:
                    raise AssertionError(f"answered {answer.code}: {answer.remark}")
                answers -= 1


def processor(pid: int) -> float:
    """Seconds of processor time that a process's threads have used, to the nanosecond: what
    C{/proc/PID/stat} counts are hundredths.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    spent = [(task / "schedstat").read_text(encoding="ascii").split()[0] for task in tasks]
    return sum(map(int, spent)) / 1e9


def in_turn(ours: Load, plain: Load, batches: int, rounds: int) -> None:
    """Run rounds of both, which are started.

    @param batches: Of L{WRITES} writes and L{COMMITS} commits, in one round.
    """
    for load in (ours, plain):
        load.round(batches // 4, kept=False)
    for number in range(rounds):
        # In either order: what runs later finds a warmer machine.
        for load in (ours, plain)[:: -1 if number % 2 else 1]:
            load.round(batches)


def cost_rows(name: str, ours: Load, plain: Load, goal: float, notes: Sequence[str]) -> list[Row]:
    """What both said.

    @param name: What C{plain} does without.
    @param goal: The least part of its writes that a master takes all the same.
    @param notes: Lines below the table.
    """
    rate = statistics.median(a / b for a, b in zip(ours.rates, plain.rates, strict=True))
    cost = _quiet(plain.costs) / _quiet(ours.costs)
    both = f"with it {spread(ours.costs, 'us')}, without it {spread(plain.costs, 'us')}"
    what = f"{name}, {WRITES} writes of {BODY} bytes to {COMMITS} commits"
    return [
        Row(
            what=f"{what}: writes that a master's processor time is enough for",
            ours=f"{_quiet(ours.costs):.1f} us a write in quiet rounds",
            beside=f"without it {_quiet(plain.costs):.1f} us a write",
            ratio=f"{cost:.3f}",
            goal=f">= {goal:g}x",
            met=cost >= goal,
            notes=(f"{name}: all rounds {both} a write", *notes),
        ),
        Row(
            what="the same, writes a second",
            ours=spread(ours.rates, "writes/s"),
            beside="without it " + spread(plain.rates, "writes/s"),
            ratio=f"{rate:.3f}",
        ),
    ]


def _quiet(costs: list[float]) -> float:
    """What a tenth of the rounds does not exceed."""
    return statistics.quantiles(costs, n=10)[0]
