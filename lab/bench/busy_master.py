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
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from attrs import define, field

from lab.bench.catchup import STOCK
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

    @ivar costs: Microseconds of the master's processor time a write, of each round.
    """

    node: Node
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
        used = processor(self.node.pid)
        for _ in range(batches):
            self._batches += 1
            self.ask(self._sends + self._commits(), WRITES + COMMITS)
        if kept:
            self.costs.append(1e6 * (processor(self.node.pid) - used) / (batches * WRITES))

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


def without(name: str) -> type[Node]:
    """A node that leaves something out, by its name in L{lab.bench.without_child}."""
    program = ("-m", "lab.bench.without_child", name)
    return type("Without", (Node,), {"program": program})


def metrics(folder: Path, batches: int, rounds: int) -> Row:
    """What metrics cost."""
    plain = without("metrics")(folder, "master", "without", **STOCK)
    return cost("metrics", Node(folder, "master", "with", **STOCK), plain, 0.99, batches, rounds)


def checksums(folder: Path, batches: int, rounds: int) -> list[Row]:
    """What the checksum of each whole record costs."""
    ours = Node(folder, "master", "with", **STOCK)
    plain = without("checksums")(folder, "master", "without", **STOCK)
    return [cost("checksums of records", ours, plain, 0.98, batches, rounds)]


def offsets(folder: Path, batches: int, rounds: int) -> list[Row]:
    """What the journal of consumer offsets costs.  A round is longer than its interval: none is
    cheap because nothing was synced in it.
    """
    ours, plain = (
        Node(folder, "master", name, **STOCK, offsetJournalInterval=interval)
        for name, interval in (("with", 150), ("without", 0))
    )
    return [cost("offset journal", ours, plain, 0.98, batches, rounds)]


def cost(name: str, ours: Node, plain: Node, goal: float, batches: int, rounds: int) -> Row:
    """Measure a row about a cost.

    @param name: What C{plain} does without.
    @param goal: The least part of its writes that a master takes all the same.
    @param batches: Of L{WRITES} writes and L{COMMITS} commits, in one round.
    """
    with Load(ours) as first, Load(plain) as second:
        in_turn(first, second, batches, rounds)
    return cost_row(name, first.costs, second.costs, goal)


def cost_row(name: str, ours: Sequence[float], plain: Sequence[float], goal: float) -> Row:
    """What both said, in microseconds a write."""
    part = _quiet(plain) / _quiet(ours)
    both = f"with it {spread(ours, 'us')}, without it {spread(plain, 'us')}"
    what = f"{name}, {WRITES} writes of {BODY} bytes to {COMMITS} commits"
    return Row(
        what=f"{what}: writes that a master's processor time is enough for",
        ours=f"{_quiet(ours):.1f} us a write in quiet rounds",
        beside=f"without it {_quiet(plain):.1f} us a write",
        ratio=f"{part:.3f}",
        goal=f">= {goal:g}x",
        met=part >= goal,
        notes=(f"{name}: all rounds {both} a write",),
    )


def _quiet(costs: Sequence[float]) -> float:
    """What a tenth of the rounds does not exceed."""
    return statistics.quantiles(costs, n=10)[0]
