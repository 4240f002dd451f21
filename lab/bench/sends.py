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

from lab.bench.processes import Sampler
from lab.bench.report import percentile
from lab.bench.stock import Peer
from lab.bench.table import Figure, Seen
from lab.harness.nodes import Process, until
from lab.harness.remote import Remote
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

BODY = 1024

MANY = 64
"""Threads of a busy producer."""

BATCH, BATCHES = 200, 4
"""Messages of a batch that fills a topic, and threads that send them."""

PATIENCE = 120.0

WARM_MESSAGES, QUICK_WARM_MESSAGES = 300_000, 40_000
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
    """What the producers saw, from the first send's begin to the last one's end.

    @ivar each: Messages of one send.
    @ivar statuses: How many sends were answered how.
    @ivar used: Seconds of processor time of each process, by L{ROLES}.
    """

    seconds: float
    micros: list[float]
    each: int = 1
    statuses: Mapping[str, int] = field(factory=dict)
    used: Mapping[str, float] = field(factory=dict)

    def seen(self, name: str) -> Seen:
        """Sends a second, microseconds of a send, and of processor time a message."""
        messages = len(self.micros) * self.each
        return {
            f"{name}, rate": len(self.micros) / self.seconds,
            f"{name}, p50": statistics.median(self.micros),
            f"{name}, p99": percentile(self.micros, 0.99),
            **{f"{name}, {role}": 1e6 * self.used[role] / messages for role in ROLES},
        }


def figures(
    name: str,
    what: str,
    told: Sequence[str] = ("rate", "p50", "p99", *ROLES),
    *,
    ours: str = "",
    beside: str = "",
    **goals: float,
) -> list[Figure]:
    """Lines about what L{Sends.seen} gives.

    @param told: What has a line.
    @param goals: Least C{rate} and most of all others, in parts of the alternative's.
    """
    words = {"rate": ("", "sends/s"), "p50": (", p50", "us"), "p99": (", p99", "us")}
    words |= {role: (f", processor time of the {role} a message", "us") for role in ROLES}
    return [
        Figure(
            f"{name}, {key}",
            what + more,
            unit,
            goals.get(key),
            most=key != "rate",
            ours=ours,
            beside=beside,
        )
        for key, (more, unit) in words.items()
        if key in told
    ]


@frozen(kw_only=True)
class Target:
    """Where stock producers send to; their process has the name server in it too.

    @ivar topic: The topic, or what the names of several begin with.
    @ivar now: The clock of the warm-up, in seconds.
    """

    tool: Peer
    topic: str
    master: Process
    slave: Process
    now: Callable[[], float] = time.monotonic

    def make(self, address: str, queues: int, topics: int = 0) -> None:
        """Make the topic, or several, on the master, and wait until the name server tells of all: a
        producer that asks earlier takes the template's four queues, and keeps them for L{POLL}.
        """
        names = [f"{self.topic}{number}" for number in range(topics)] or [self.topic]
        for name in names:
            self.tool.do("topic", address=address, topic=name, queues=queues)
        with Remote(self.tool.names_port) as server:
            until(
                lambda: set(names) <= _topics(server), "the topics are known", PATIENCE, pause=0.1
            )

    def until_answered(self) -> None:
        """Wait until sends keep the whole promise; a stock slave is silent at first."""
        self.slave.until_so(
            lambda: set(self._send(4, 4).statuses) == {"SEND_OK"}, "sends are answered", PATIENCE
        )

    def send(self, count: int, threads: int, each: int = 1, **how: Any) -> Sends:
        """Send with stock producers, all of which must be answered with success.

        @param count: Sends of all threads together.
        @param each: Messages of one send.
        @param how: C{topics}, how many are sent to in turn, where it is not the one without a
            number; C{kind} of message and of send, and what else C{Timings.java} knows; C{size}
            of a body; another C{topic}.
        """
        found = self._send(count, threads, each, **how)
        if set(found.statuses) != {"SEND_OK"}:
            raise AssertionError(f"{self.topic}: {found.statuses}\n{self.master.tail()}")
        return found

    def sync_writes(self, writes: int, warm: int) -> Seen:
        """What is seen of many producers and of one, when all JVMs are warm."""
        self.until_answered()
        # Many first: they warm up every JVM for the one.
        self.warm_up(min(warm, 30 * writes))
        many = self.send(2 * writes, MANY)
        self.send(writes // 4, 1)
        return {**many.seen("many"), **self.send(writes, 1).seen("one")}

    def warm_up(self, most: int = WARM_MESSAGES, topics: int = 0) -> None:
        """Send so many messages, or for L{WARM_SECONDS}, until the JVMs have compiled."""
        end = self.now() + WARM_SECONDS
        left = most
        while left > 0 and self.now() < end:
            self.send(min(left, WARM_PIECE), MANY, topics=topics)
            left -= WARM_PIECE

    def _send(self, count: int, threads: int, each: int = 1, **how: Any) -> Sends:
        processes = zip(ROLES, (self.master, self.slave, self.tool), strict=True)
        sampler = Sampler({role: process.pid for role, process in processes})
        asked = self.tool.ask(
            "time",
            sampler.heard,
            namesrv=self.tool.names,
            count=count,
            threads=threads,
            batch=each,
            poll=POLL,
            wait=True,
            **{"topic": self.topic, "kind": "single", "size": BODY, **how},
        )
        found: dict[str, Any] = asked.wait(PATIENCE)
        return Sends(each=each, used=sampler.result(), **found)


def _topics(server: Remote) -> set[str]:
    """All that a name server knows."""
    answer = server.ask(Command(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
    if answer.code:
        raise AssertionError(f"the name server answered {answer}")
    return set(json.loads(bytes(answer.body))["topicList"])
