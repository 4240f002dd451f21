"""Stock consumers in POP mode at a stock pair and at ours, in turn: three that catch up with a
topic, and how long one message takes from its send to a listener.  RocketMQ has such consumers from
5.0 on.
"""

from __future__ import annotations

import time

from lab.bench.beside import Field
from lab.bench.latency import percentile
from lab.bench.report import Row, compared
from lab.bench.sends import BATCH, BATCHES, BODY, PATIENCE
from lab.bench.serving import QUEUES, Pair, pairs, turns
from lab.harness.remote import Remote
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write

MESSAGES, QUICK = 200_000, 20_000

MEMBERS = 3

ONE_BY_ONE, BEFORE = 2000, 500
"""Messages that are sent each when the one before has come, and how many of them count for nothing
at first.
"""

ROUNDS = 5

CATCH_UP_GOAL, LATENCY_GOAL = 1.5, 1.0


def run(field: Field, until: float) -> list[Row]:
    """Measure the rows about POP.

    @param until: Seconds of the run after which no more rounds begin.
    """
    if field.tool.version.startswith("4"):
        print("no consumers in POP mode before RocketMQ 5", flush=True)
        return []
    count = QUICK if field.quick else MESSAGES
    rates: dict[str, list[float]] = {}
    took: dict[str, list[float]] = {}
    slow: dict[str, list[float]] = {}
    with pairs(field.folder, field.tool, timerWheelEnable="true") as both:
        for pair in both:
            pair.send(count // BATCH, BATCHES, BATCH)
        for number in range(-1, 1 if field.quick else ROUNDS):
            if number > 0 and time.monotonic() - field.begun > until:
                break
            for pair in turns(both, number):
                rate = _catch_up(pair, f"catch{number + 1}{pair.name}", count)
                micros = _one_by_one(pair, f"one{number + 1}{pair.name}")
                p50, p99 = percentile(micros, 0.5), percentile(micros, 0.99)
                told = f"{rate:.0f} messages/s; one by one p50 {p50:.0f} us, p99 {p99:.0f} us"
                print(f"{pair.name}: {told}", flush=True)
                if number >= 0:
                    rates.setdefault(pair.name, []).append(rate)
                    took.setdefault(pair.name, []).append(p50)
                    slow.setdefault(pair.name, []).append(p99)
    many = f"POP, {MEMBERS} consumers catching up {count:,} x {BODY} bytes in {QUEUES} queues"
    one = "POP, one message from its send to a listener"
    return [
        compared(many, "messages/s", rates["Ours"], rates["Java"], CATCH_UP_GOAL),
        compared(f"{one}, p50", "us", took["Ours"], took["Java"], LATENCY_GOAL, most=True),
        compared(f"{one}, p99", "us", slow["Ours"], slow["Java"], None),
    ]


def _catch_up(pair: Pair, group: str, count: int) -> float:
    _mode(pair, pair.topic, group)
    asked = pair.tool.ask(
        "catchup",
        namesrv=pair.tool.names,
        topic=pair.topic,
        group=group,
        count=count,
        members=MEMBERS,
        pop=True,
        limit=int(PATIENCE) - 10,
    )
    return count / float(asked.wait(PATIENCE)["seconds"])


def _one_by_one(pair: Pair, group: str) -> list[float]:
    topic = f"One{pair.name}"
    pair.tool.do("topic", address="{}:{}".format(*pair.address), topic=topic, queues=1)
    _mode(pair, topic, group)
    asked = pair.tool.ask(
        "latency",
        namesrv=pair.tool.names,
        kind="single",
        topic=topic,
        group=group,
        count=ONE_BY_ONE,
        before=BEFORE,
        size=BODY,
        members=1,
        pop=True,
        limit=20,
    )
    found: list[float] = asked.wait(PATIENCE)
    return found


def _mode(pair: Pair, topic: str, group: str) -> None:
    """Have the broker share out the messages of a topic to a group."""
    told = GroupMode(topic=topic, consumer_group=group, mode=RequestMode.POP, pop_share_queue_num=0)
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    with Remote(pair.address[1]) as administrator:
        answer = administrator.ask(Command.request(code, None, write(told)))
    if answer.code:
        raise AssertionError(f"{pair.name}: {answer}")
