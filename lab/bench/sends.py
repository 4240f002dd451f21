"""What stock producers see of a pair, and what each of their messages costs it.

Times are the producers' own, from the begin of a send to its return.  Processor time is taken from
the kernel (L{lab.bench.processes}) at the first send and at the last answer, in the same way for
stock processes and for ours.  What a broker has left to do for its last messages is not in it, and
what it had left from earlier ones is.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from lab.bench.latency import percentile
from lab.bench.processes import Sampler
from lab.bench.report import Row, spread
from lab.bench.stock import Peer
from lab.harness.nodes import Process, until
from lab.harness.remote import Remote
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

BODY = 1024

MANY = 64
"""Threads of a busy producer."""

BATCH = 200
BATCHES = 4
"""Threads that send batches."""

PATIENCE = 120.0

WARM_MESSAGES = 300_000
"""Messages after which a JVM has compiled what it will."""

WARM_SECONDS = 30.0
"""Longest warm-up."""

WARM_PIECE = 20_000
"""Messages of a warm-up between two looks at the clock."""

POLL = 30_000
"""Milliseconds between two looks of a producer at the routes of its topics, as stock ones do."""

ROLES = ("master", "slave", "producer")
"""The processes of which a message costs time."""


@frozen(kw_only=True)
class Sends:
    """What the producers saw.

    @ivar seconds: From the first send's begin to the last one's end.
    @ivar micros: Of every send, sorted.
    @ivar each: Messages of one send.
    @ivar statuses: How many sends were answered how.
    @ivar used: Seconds of processor time of each process, by L{ROLES}.
    """

    seconds: float
    micros: list[float]
    each: int = 1
    statuses: Mapping[str, int] = field(factory=dict)
    used: Mapping[str, float] = field(factory=dict)

    @property
    def rate(self) -> float:
        """Sends per second."""
        return len(self.micros) / self.seconds

    @property
    def p50(self) -> float:
        return statistics.median(self.micros)

    @property
    def p99(self) -> float:
        """What 99 of 100 do not exceed, in microseconds."""
        return percentile(self.micros, 0.99)

    @property
    def costs(self) -> dict[str, float]:
        """Microseconds of processor time a message, by L{ROLES}."""
        messages = len(self.micros) * self.each
        return {role: 1e6 * self.used[role] / messages for role in ROLES}

    def told(self) -> str:
        """What a message cost each process, for people who watch a run."""
        return "processor us " + ", ".join(f"{k} {v:.1f}" for k, v in self.costs.items())


@frozen
class Round:
    """What the producers saw of one pair: one thread, many threads, batches."""

    one: Sends
    many: Sends
    batches: Sends | None = None

    def __str__(self) -> str:
        batches = self.batches
        return "; ".join(
            (
                f"one p50 {self.one.p50:.0f} us, p99 {self.one.p99:.0f} us, {self.one.told()}",
                f"many {self.many.rate:.0f}/s, p99 {self.many.p99:.0f} us, {self.many.told()}",
                *([f"batches {batches.rate:.0f}/s, {batches.told()}"] if batches else []),
            )
        )


@frozen(kw_only=True)
class Target:
    """Where stock producers send to.

    @ivar tool: The producers' process; the name server is in it too.
    @ivar topic: The topic, or what the names of several begin with.
    @ivar master: The broker that is sent to; C{slave} the one that follows it.
    @ivar now: The clock of the warm-up, in seconds.
    """

    tool: Peer
    topic: str
    master: Process
    slave: Process
    now: Callable[[], float] = time.monotonic

    def make(self, address: str, queues: int, topics: int = 0) -> None:
        """Make the topic, or several, on the master, and wait until the name server tells of all.

        A producer that asks earlier takes the template's four queues, and keeps them for L{POLL}.

        @param address: The master's client address.
        @param topics: As in L{send}.
        """
        names = [f"{self.topic}{number}" for number in range(topics)] or [self.topic]
        for name in names:
            self.tool.do("topic", address=address, topic=name, queues=queues)
        with Remote(self.tool.names_port) as server:
            until(
                lambda: set(names) <= _topics(server), "the topics are known", PATIENCE, pause=0.1
            )

    def answered(self) -> bool:
        """Whether sends keep the whole promise; a stock slave is silent for its first five
        seconds.
        """
        return set(self._send(4, 4, 1, 0).statuses) == {"SEND_OK"}

    def send(
        self,
        count: int,
        threads: int,
        each: int = 1,
        topics: int = 0,
        *,
        kind: str = "single",
        size: int = BODY,
    ) -> Sends:
        """Send with stock producers, all of which must be answered with success.

        @param count: Sends of all threads together.
        @param each: Messages of one send.
        @param topics: How many topics are sent to in turn; 0 is the one without a number.
        @param kind: Of message and of send, as C{Timings.java} knows them.
        @param size: Bytes of a body.
        """
        found = self._send(count, threads, each, topics, kind, size)
        if set(found.statuses) != {"SEND_OK"}:
            raise AssertionError(f"{self.topic}: {found.statuses}\n{self.master.tail()}")
        return found

    def warm_up(self, most: int = WARM_MESSAGES, topics: int = 0) -> None:
        """Send until the JVMs of all sides have compiled what they need: so many messages, or
        L{WARM_SECONDS}.
        """
        end = self.now() + WARM_SECONDS
        left = most
        while left > 0 and self.now() < end:
            self.send(min(left, WARM_PIECE), MANY, topics=topics)
            left -= WARM_PIECE

    def _send(
        self,
        count: int,
        threads: int,
        each: int,
        topics: int,
        kind: str = "single",
        size: int = BODY,
    ) -> Sends:
        processes = zip(ROLES, (self.master, self.slave, self.tool), strict=True)
        sampler = Sampler({role: process.pid for role, process in processes})
        asked = self.tool.ask(
            "time",
            sampler.heard,
            namesrv=self.tool.names,
            topic=self.topic,
            kind=kind,
            size=size,
            count=count,
            threads=threads,
            batch=each,
            topics=topics,
            poll=POLL,
            wait=True,
        )
        found: dict[str, Any] = asked.wait(PATIENCE)
        return Sends(each=each, used=sampler.result(), **found)


def _topics(server: Remote) -> set[str]:
    """All that a name server knows."""
    answer = server.ask(Command(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    if answer.code:
        raise AssertionError(f"the name server answered {answer}")
    return set(json.loads(bytes(answer.body))["topicList"])


def of(path: str, ours: Sequence[Round], java: Sequence[Round]) -> tuple[list[float], list[float]]:
    """One number of each round.

    @param path: A field of L{Round}, a dot, and a field of L{Sends}.
    """
    kind, value = path.split(".")
    first, second = sends(kind, ours, java)
    return [getattr(one, value) for one in first], [getattr(one, value) for one in second]


def sends(
    kind: str, ours: Sequence[Round], java: Sequence[Round]
) -> tuple[list[Sends], list[Sends]]:
    """The sends of one kind of each round, where there were any.

    @param kind: A field of L{Round}.
    """
    first, second = (
        [found for one in rounds if (found := getattr(one, kind)) is not None]
        for rounds in (ours, java)
    )
    return first, second


def cost_row(
    what: str,
    ours: Sequence[Sends],
    java: Sequence[Sends],
    goals: Mapping[str, float] | None = None,
    *,
    beside: str = "stock pair",
) -> Row:
    """A row of what a message costs each process.

    @param what: What was sent, and how.
    @param goals: Most microseconds of ours, by L{ROLES}.
    @param beside: The alternative's name.
    """
    goals = goals or {}
    both = [
        {role: [found.costs[role] for found in sends] for role in ROLES} for sends in (ours, java)
    ]
    middle, stock = (
        {role: statistics.median(micros) for role, micros in costs.items()} for costs in both
    )
    cells = ["; ".join(f"{role} {spread(costs[role], 'us')}" for role in ROLES) for costs in both]
    return Row(
        what=f"{what}, processor time a message",
        ours=cells[0],
        beside=f"{beside} {cells[1]}",
        ratio="; ".join(_ratio(middle[role], stock[role]) for role in ROLES),
        goal=", ".join(f"{role} <= {micros:g} us" for role, micros in goals.items()),
        met=all(middle[role] <= micros for role, micros in goals.items()) if goals else None,
    )


def _ratio(ours: float, java: float) -> str:
    # A process that a short run does not use a tick of costs nothing that could be compared.
    return f"{ours / java:.2f}" if java else "-"
