"""What a consumer that catches up costs those who send meanwhile: at the slave, where ours sends
it, and at the master.

A stock pair is not beside it: it sends a consumer to its slave only when that lags by more than
40 percent of the machine's memory.
"""

from __future__ import annotations

import statistics
import time
from enum import StrEnum

from lab.bench.beside import Field
from lab.bench.report import Row, spread
from lab.bench.sends import BATCH, BATCHES, BODY, MANY
from lab.bench.serving import QUEUES, Pair, alone
from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

BACKLOG, QUICK = 400_000, 100_000
"""Messages to catch up with: more than are consumed during the writes of one round."""

SENDS, QUICK_SENDS = 40_000, 8000

HELD = 1 << 20
"""Bytes that memory is said to hold: a consumer with all of it before it lags."""

GOAL = 1.2

ROUNDS = 4

PATIENCE = 120.0


class Reader(StrEnum):
    """Where a lagging consumer reads, if there is one."""

    NOBODY = "nobody"
    SLAVE = "at the slave"
    MASTER = "at the master"


def run(field: Field, limit: float) -> list[Row]:
    """Fill a topic, and send to it with and without a consumer that begins at its first message.

    @param limit: Seconds of the run after which no more rounds begin.
    """
    backlog = QUICK if field.quick else BACKLOG
    sends = QUICK_SENDS if field.quick else SENDS
    p99: dict[Reader, list[float]] = {}
    rates: dict[Reader, list[float]] = {}
    with alone(field.folder, field.tool, accessMessageInMemoryBytes=HELD) as pair:
        pair.send(backlog // BATCH, BATCHES, BATCH)
        pair.warm_up(field.quick)
        _synced(pair)
        order = list(Reader)
        for number in range(-1, 1 if field.quick else ROUNDS):
            if number > 0 and time.monotonic() - field.begun > limit:
                break
            for reader in order:
                micros, rate = _round(
                    pair, reader, f"round{number + 1}{reader.name}", backlog, sends
                )
                print(f"{reader}: p99 {micros:.0f} us, {rate:.0f} messages/s read", flush=True)
                if number >= 0:
                    p99.setdefault(reader, []).append(micros)
                    rates.setdefault(reader, []).append(rate)
            order = order[1:] + order[:1]
    return [
        _row(Reader.SLAVE, p99, rates, GOAL),
        _row(Reader.MASTER, p99, rates, None),
    ]


def _row(
    reader: Reader,
    p99: dict[Reader, list[float]],
    rates: dict[Reader, list[float]],
    goal: float | None,
) -> Row:
    ratio = statistics.median(p99[reader]) / statistics.median(p99[Reader.NOBODY])
    return Row(
        what=(
            f"writes to our master, {BODY} bytes, {MANY} threads, p99 while a push consumer catches"
            f" up {reader} with {QUEUES} queues"
        ),
        ours=spread(p99[reader], "us"),
        beside="without it " + spread(p99[Reader.NOBODY], "us"),
        ratio=f"{ratio:.2f}",
        goal="" if goal is None else f"<= {goal:g}x",
        met=None if goal is None else ratio <= goal,
        notes=(f"The consumer {reader}: {spread(rates[reader], 'messages/s')}",),
    )


def _round(pair: Pair, reader: Reader, group: str, backlog: int, sends: int) -> tuple[float, float]:
    """The writes' p99 in microseconds, and how fast was read during them, in messages a second."""
    if reader is Reader.NOBODY:
        return pair.send(sends, MANY).p99, 0.0
    assert isinstance(pair.master, Node) and isinstance(pair.slave, Node)
    _sent_to_slave(pair.master, reader is Reader.SLAVE)
    node = pair.slave if reader is Reader.SLAVE else pair.master
    before = _pulls(node)
    consuming = pair.begin_to_consume(group, backlog)
    until(lambda: _pulls(node) > before + 100, "it reads", PATIENCE, tell=pair.tool.tail)
    micros = pair.send(sends, MANY).p99
    if consuming.done:
        print(f"{reader}: it had caught up before the last write", flush=True)
    found = consuming.wait(PATIENCE)
    return micros, backlog / float(found["seconds"])


def _synced(pair: Pair) -> None:
    assert isinstance(pair.master, Node) and isinstance(pair.slave, Node)
    pair.slave.until_synced(pair.master.status()["maxOffset"], PATIENCE)
    for node in (pair.master, pair.slave):
        node.until(lambda said: said["dispatchedOffset"] == said["maxOffset"], "idle", PATIENCE)


def _pulls(node: Node) -> int:
    return int(node.status()["remoting"]["requests"].get("PULL_MESSAGE", 0))


def _sent_to_slave(master: Node, on: bool) -> None:
    """Say whether consumers that lag go to the slave."""
    text = f"slaveReadEnable={'true' if on else 'false'}"
    with Remote(master.port) as admin:
        answer = admin.ask(Command(code=RequestCode.UPDATE_BROKER_CONFIG, body=text.encode()))
    if answer.code:
        raise AssertionError(f"{text} was answered {answer}")
