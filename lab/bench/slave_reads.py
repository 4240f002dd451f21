"""What a consumer that catches up at the slave, where ours sends it, costs those who send.

A stock pair is not beside it: it sends a consumer to its slave only when that lags by more than
40 percent of the machine's memory.
"""

from __future__ import annotations

import time

from lab.bench import serving
from lab.bench.beside import Field
from lab.bench.report import Row, compared, spread
from lab.bench.sends import BATCH, BATCHES, BODY, MANY
from lab.bench.serving import QUEUES, Pair
from lab.harness.nodes import Node, until

BACKLOG, QUICK = 400_000, 100_000
"""Messages to catch up with: more than are consumed during the writes of one round."""

SENDS, QUICK_SENDS = 40_000, 8000

HELD = 1 << 20
"""Bytes that memory is said to hold: a consumer with all of it before it lags."""

GOAL = 1.2

ROUNDS = 4

PATIENCE = 120.0


def run(field: Field, limit: float) -> list[Row]:
    """Fill a topic, and send to it with and without a consumer that begins at its first message.

    @param limit: Seconds of the run after which no more rounds begin.
    """
    backlog = QUICK if field.quick else BACKLOG
    sends = QUICK_SENDS if field.quick else SENDS
    alone: list[float] = []
    beside: list[float] = []
    rates: list[float] = []
    with serving.alone(
        field.folder, field.tool, accessMessageInMemoryBytes=HELD, slaveReadEnable="true"
    ) as pair:
        pair.send(backlog // BATCH, BATCHES, BATCH)
        pair.warm_up(field.quick)
        _synced(pair)
        for number in range(-1, 1 if field.quick else ROUNDS):
            if number > 0 and time.monotonic() - field.begun > limit:
                break
            without = pair.send(sends, MANY).p99
            micros, rate = _round(pair, f"round{number + 1}", backlog, sends)
            print(f"p99 {without:.0f} us, {micros:.0f} us beside {rate:.0f} messages/s", flush=True)
            if number >= 0:
                alone.append(without)
                beside.append(micros)
                rates.append(rate)
    what = (
        f"writes to our master, {BODY} bytes, {MANY} threads, p99 while a push consumer catches up"
        f" at the slave with {QUEUES} queues"
    )
    notes = (f"The consumer at the slave: {spread(rates, 'messages/s')}",)
    row = compared(what, "us", beside, alone, GOAL, most=True, beside="without it", notes=notes)
    return [row]


def _round(pair: Pair, group: str, backlog: int, sends: int) -> tuple[float, float]:
    """The writes' p99 in microseconds, and how fast was read during them, in messages a second."""
    assert isinstance(pair.slave, Node)
    node = pair.slave
    before = _pulls(node)
    consuming = pair.begin_to_consume(group, backlog)
    until(lambda: _pulls(node) > before + 100, "it reads", PATIENCE, tell=pair.tool.tail)
    micros = pair.send(sends, MANY).p99
    if consuming.done:
        print("it had caught up before the last write", flush=True)
    found = consuming.wait(PATIENCE)
    return micros, backlog / float(found["seconds"])


def _synced(pair: Pair) -> None:
    assert isinstance(pair.master, Node) and isinstance(pair.slave, Node)
    pair.slave.until_synced(pair.master.status()["maxOffset"], PATIENCE)
    for node in (pair.master, pair.slave):
        node.until(lambda said: said["dispatchedOffset"] == said["maxOffset"], "idle", PATIENCE)


def _pulls(node: Node) -> int:
    return int(node.status()["remoting"]["requests"].get("PULL_MESSAGE", 0))
