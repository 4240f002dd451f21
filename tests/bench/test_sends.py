"""Tests for L{lab.bench.sends}: what is made of what stock producers and the kernel tell."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lab.bench import sends as sending
from lab.bench.processes import Sampler
from lab.bench.sends import MANY, ROLES, WARM_PIECE, Sends, Target, figures
from lab.bench.stock import Peer
from lab.harness.nodes import Process
from rmqha.wire.remoting.command import Command


def seen(
    count: int, seconds: float, used: tuple[float, float, float] = (0.0, 0.0, 0.0), each: int = 1
) -> Sends:
    """So many sends, which took one microsecond, two, three..."""
    micros = [float(micros) for micros in range(1, count + 1)]
    return Sends(
        seconds=seconds, micros=micros, each=each, used=dict(zip(ROLES, used, strict=True))
    )


class Here(Process):
    """A process that is this one, and logs nothing."""

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def running(self) -> bool:
        return True

    def tail(self, lines: int = 25) -> str:
        return "its log"


class Answer:
    """A command that has been answered."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said

    def wait(self, timeout: float) -> dict[str, Any]:
        return self.said


class Producers:
    """Stands for the JVM: each send takes a second of the clock."""

    names = "127.0.0.1:1"
    names_port = 1
    pid = os.getpid()

    def __init__(self, clock: Clock, status: str = "SEND_OK") -> None:
        self.clock = clock
        self.status = status
        self.asked: list[dict[str, Any]] = []
        self.made: list[tuple[str, str, int]] = []

    def do(self, do: str, address: str, topic: str, queues: int) -> None:
        self.made.append((address, topic, queues))

    def ask(self, do: str, each: Callable[[dict[str, Any]], None], **content: Any) -> Answer:
        self.asked.append(content)
        each({"number": 1, "span": "begin"})
        self.clock.advance(1.0)
        each({"number": 1, "span": "end"})
        count = content["count"]
        return Answer({"seconds": 1.0, "statuses": {self.status: count}, "micros": [1] * count})


class SendsTests(SynchronousTestCase):
    def test_rate_and_times(self) -> None:
        """A rate is sends a second, p50 and p99 are theirs."""
        found = seen(200, 4.0).seen("many")
        wanted = {"many, rate": 50.0, "many, p50": 100.5, "many, p99": 199.0}
        self.assertEqual({name: found[name] for name in wanted}, wanted)

    def test_costs(self) -> None:
        """Processor time is told in microseconds a message, of which a send may have many."""
        used = (0.5, 0.25, 1.0)
        for one in (seen(1000, 1.0, used), seen(10, 1.0, used, each=100)):
            found = one.seen("x")
            costs = [found[f"x, {role}"] for role in ROLES]
            self.assertEqual(costs, [500.0, 250.0, 1000.0])

    def test_figures(self) -> None:
        """Each figure seen has a line, a rate with its least ratio, the others with their most."""
        lines = figures("many", "writes", rate=1.3, p99=0.9)
        self.assertEqual({line.name for line in lines}, set(seen(1, 1.0).seen("many")))
        goals = {line.name: (line.goal, line.most) for line in lines if line.goal is not None}
        self.assertEqual(goals, {"many, rate": (1.3, False), "many, p99": (0.9, True)})


class TargetTestCase(SynchronousTestCase):
    def target(self, clock: Clock, status: str = "SEND_OK") -> tuple[Target, Producers]:
        """One whose processes are all this one."""
        producers = Producers(clock, status)
        path = os.devnull
        here = [Here(name, cast(Any, path)) for name in ("master", "slave")]
        target = Target(
            tool=cast(Peer, producers),
            topic="Bench",
            master=here[0],
            slave=here[1],
            now=clock.seconds,
        )
        return target, producers


class TargetTests(TargetTestCase):
    def test_send(self) -> None:
        """Producers are asked for what is to be sent, and each process is watched meanwhile."""
        target, producers = self.target(Clock())
        found = target.send(10, 2, 5, topics=7)
        (asked,) = producers.asked
        wanted = {"count": 10, "threads": 2, "batch": 5, "topics": 7, "topic": "Bench"}
        self.assertEqual({name: asked[name] for name in wanted}, wanted)
        self.assertEqual((len(found.micros), found.each), (10, 5))
        self.assertEqual(set(found.used), set(ROLES))

    def test_refused(self) -> None:
        """A send that does not keep the whole promise is an error, with the master's log."""
        target, _ = self.target(Clock(), "FLUSH_SLAVE_TIMEOUT")
        error = self.assertRaises(AssertionError, target.send, 10, 2)
        self.assertIn("{'FLUSH_SLAVE_TIMEOUT': 10}\nits log", str(error))

    def test_warm_up(self) -> None:
        """A warm-up is so many messages of many threads."""
        target, producers = self.target(Clock())
        target.warm_up(2 * WARM_PIECE + 10, 3)
        counts = [(asked["count"], asked["threads"], asked["topics"]) for asked in producers.asked]
        pieces = [WARM_PIECE, WARM_PIECE, 10]
        self.assertEqual(counts, [(piece, MANY, 3) for piece in pieces])

    def test_slow_warm_up(self) -> None:
        """A warm-up is over after half a minute, however slow the brokers are."""
        target, producers = self.target(Clock())
        target.warm_up(1000 * WARM_PIECE)
        self.assertEqual(len(producers.asked), 30)


class MakeTests(TargetTestCase):
    def names(self, *answers: tuple[int, list[str]]) -> list[int]:
        """Have name servers give these answers in turn, and return how often they were asked."""
        left, asked = list(answers), []

        class NameServer:
            def __init__(self, port: int) -> None:
                asked.append(port)

            def __enter__(self) -> NameServer:
                return self

            def __exit__(self, *error: object) -> None:
                pass

            def ask(self, command: Command) -> Command:
                code, topics = left.pop(0)
                return Command(code=code, flag=1, body=json.dumps({"topicList": topics}).encode())

        def until(condition: Callable[[], bool], *rest: object, **more: object) -> None:
            while not condition():
                pass

        self.patch(sending, "Remote", NameServer)
        self.patch(sending, "until", until)
        return asked

    def test_one(self) -> None:
        """One topic has the name alone."""
        target, producers = self.target(Clock())
        asked = self.names((0, ["TBW102"]), (0, ["TBW102", "Bench"]))
        target.make("127.0.0.1:2", 8)
        self.assertEqual((producers.made, asked), ([("127.0.0.1:2", "Bench", 8)], [1]))

    def test_many(self) -> None:
        """The name server has to know all of them."""
        target, producers = self.target(Clock())
        self.names((0, ["Bench0", "Bench1"]), (0, ["Bench0", "Bench1", "Bench2"]))
        target.make("127.0.0.1:2", 4, 3)
        names = ["Bench0", "Bench1", "Bench2"]
        self.assertEqual(producers.made, [("127.0.0.1:2", name, 4) for name in names])

    def test_refused(self) -> None:
        """A name server that does not tell its topics is an error."""
        target, _ = self.target(Clock())
        self.names((1, []))
        self.assertRaises(AssertionError, target.make, "127.0.0.1:2", 8)


class SamplerTests(SynchronousTestCase):
    def test_other_news(self) -> None:
        """Only the span's begin and end are looked at."""
        sampler = Sampler({"we": os.getpid()})
        for said in ({"done": True}, {"span": "begin"}, {"status": "SEND_OK"}, {"span": "end"}):
            sampler.heard(said)
        self.assertEqual(set(sampler.result()), {"we"})

    def test_never_ended(self) -> None:
        """A span without an end has no result."""
        sampler = Sampler({"we": os.getpid()})
        sampler.heard({"span": "end"})
        self.assertRaises(AssertionError, sampler.result)
        sampler.heard({"span": "begin"})
        self.assertRaises(AssertionError, sampler.result)

    def test_process_has_ended(self) -> None:
        """A process that is not there fails the result, not the thread that listens."""
        sampler = Sampler({"nobody": (1 << 22) + 1})
        sampler.heard({"span": "begin"})
        sampler.heard({"span": "end"})
        self.assertIn("No such file", str(self.assertRaises(AssertionError, sampler.result)))
