"""Each kind of send that stock producers know, through a stock pair and through ours, in turn.

Both masters wait for their slaves.  A transaction counts until its producer goes on, so its end,
which is one-way, costs the next one.  Of one-way messages every 32nd of a thread is waited for.
Timer messages, which RocketMQ has from 5.0 on, count until the last one is delivered.
"""

from __future__ import annotations

import time

from attrs import evolve, frozen

from lab.bench.beside import Field
from lab.bench.report import Row, compared
from lab.bench.sends import BODY, PATIENCE, Sends, cost_row
from lab.bench.serving import QUEUES, Pair, pairs, turns
from lab.harness.nodes import until
from lab.harness.remote import Remote
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

ROUNDS = 5

WARM = 10_000
"""Sends of each kind before what counts, of as many messages as they have."""


@frozen(kw_only=True)
class Kind:
    """One kind of send.

    @ivar what: In words.
    @ivar kind: As C{Timings.java} knows it.
    @ivar count: Sends of a round.
    @ivar goal: Least rate, in parts of the stock pair's.
    """

    what: str
    kind: str = "single"
    count: int
    threads: int = 32
    each: int = 1
    size: int = BODY
    goal: float = 1.0


KINDS = (
    Kind(what="plain", count=40_000),
    Kind(what="transactions, committed", kind="transaction", count=10_000, goal=1.2),
    Kind(what="transactions, rolled back", kind="transaction-rollback", count=10_000, goal=1.2),
    Kind(what="batches of 32", count=4_000, threads=8, each=32, goal=1.2),
    Kind(what="batches of 200", count=1_000, threads=8, each=200, goal=1.2),
    # Behind what has no message on its way any more.
    Kind(what="timer, due after 0.5 s", kind="timer", count=40_000, threads=64, goal=1.5),
    Kind(what="delayed", kind="delay", count=20_000),
    Kind(what="ordered", kind="ordered", count=40_000),
    Kind(what="one-way", kind="oneway", count=40_000),
    Kind(what="keys, tag and ten properties", kind="rich", count=40_000),
    Kind(what="compressed, 8 KiB of text", count=20_000, size=8 << 10),
)


def run(field: Field, until: float) -> list[Row]:
    """Measure the rows about kinds of sends.

    @param until: Seconds of the run after which no more rounds begin.
    """
    found: dict[str, dict[Kind, list[Sends]]] = {}
    old = field.tool.version.startswith("4")
    kinds = [kind for kind in KINDS if not (old and kind.kind == "timer")]
    with pairs(field.folder, field.tool, sync=True, timerWheelEnable="true") as both:
        for pair in both:
            pair.warm_up(field.quick)
            for kind in kinds:
                _sent(pair, kind, WARM // kind.each)
        for number in range(1 if field.quick else ROUNDS):
            if number and time.monotonic() - field.begun > until:
                break
            for kind in kinds:
                for pair in turns(both, number):
                    seen = _sent(pair, kind, kind.count // 4 if field.quick else kind.count)
                    found.setdefault(pair.name, {}).setdefault(kind, []).append(seen)
                    told = f"{pair.name}, {kind.what}: {seen.rate:.0f}/s, {seen.told()}"
                    print(told, flush=True)
    return [row for kind in kinds for row in _rows(kind, found["Ours"][kind], found["Java"][kind])]


def _sent(pair: Pair, kind: Kind, count: int) -> Sends:
    """Send so many, and wait until timer messages are delivered."""
    with Remote(pair.master.port) as broker:
        begun, wanted = time.monotonic(), _end(broker, pair.topic) + count
        seen = pair.send_kind(kind.kind, count, kind.threads, kind.each, kind.size)
        if kind.kind != "timer":
            return seen
        until(lambda: _end(broker, pair.topic) >= wanted, "all are delivered", PATIENCE, pause=0.05)
        return evolve(seen, seconds=time.monotonic() - begun)


def _end(broker: Remote, topic: str) -> int:
    """Messages in all queues of a topic."""
    asked = [{"topic": topic, "queueId": str(queue)} for queue in range(QUEUES)]
    code = RequestCode.GET_MAX_OFFSET
    answers = broker.ask_all([Command(code=code, ext=ext) for ext in asked])
    return sum(int(answer.ext["offset"]) for answer in answers)


def _rows(kind: Kind, ours: list[Sends], java: list[Sends]) -> list[Row]:
    what = f"{kind.what}, SYNC_MASTER and a slave, {kind.threads} threads"
    rates = [one.rate for one in ours], [one.rate for one in java]
    return [compared(what, "sends/s", *rates, kind.goal), cost_row(what, ours, java)]
