"""How late delayed messages are: thousands wait at one time in a stock master and in ours, and come
due evenly over a minute.

A broker tells both times itself: a message is due a delay after it was stored to wait, and is
delivered when its copy is stored.  So no client's clock or speed is in it.  Both brokers work at
the same time: what is measured are moments when they have nothing else to do.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from lab.bench.beside import Field
from lab.bench.catchup import STOCK
from lab.bench.latency import percentile
from lab.bench.report import Row
from lab.bench.sends import PATIENCE
from lab.bench.serving import COMMON
from lab.bench.stock import Stock
from lab.harness.nodes import Node, until
from lab.harness.remote import Remote, pull, records, send
from rmqha.wire.log.record import Record
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.command import Command

MESSAGES, QUICK = 10_000, 2000

SENDING = 10.0
"""Seconds in which all are sent, evenly, to all levels in turn; so each level's messages are due in
as many."""

LEVELS = tuple(12 + 10 * level for level in range(6))
"""The delays in seconds: one level follows on the other."""

TOGETHER = 20
"""Messages sent without waiting for an answer."""

GOAL = 20.0
"""Milliseconds that 99 of 100 may be late."""

TOPIC = "Delays"

DELAYS = {"messageDelayLevel": " ".join(f"{delay}s" for delay in LEVELS)}


def run(field: Field) -> list[Row]:
    """Measure the row about delayed messages."""
    count = QUICK if field.quick else MESSAGES
    brokers = _brokers(field.folder, field)
    try:
        for broker in brokers:
            broker.start()
        senders = [_sender(broker) for broker in brokers]
        _send(senders, count)
        time.sleep(LEVELS[-1])
        late = [
            _lateness(broker, sender, count)
            for broker, sender in zip(brokers, senders, strict=True)
        ]
    finally:
        for broker in brokers:
            broker.kill9()
    ours, java = late
    return [
        Row(
            what=f"lateness of {count:,} delayed messages, due over a minute",
            ours=_told(ours),
            beside="stock master " + _told(java),
            ratio=f"{percentile(ours, 0.99) / percentile(java, 0.99):.3f}",
            goal=f"p99 <= {GOAL:g} ms",
            met=percentile(ours, 0.99) <= GOAL,
        )
    ]


def _brokers(folder: Path, field: Field) -> tuple[Node, Stock]:
    ours = Node(folder / "ours", "master", **{**STOCK, **COMMON, **DELAYS, "brokerName": "ours"})
    java = Stock(folder / "java", field.tool, "master", brokerName="java", **DELAYS)
    return ours, java


def _sender(broker: Node | Stock) -> Remote:
    """A connection to a broker that has the topic."""
    sender = Remote(broker.port)
    until(lambda: sender.ask(send(TOPIC, b"warm", 1)).code == 0, "it takes messages", PATIENCE)
    return sender


def _send(senders: list[Remote], count: int) -> None:
    """Send to all brokers at the same pace."""
    begun = time.monotonic()
    for first in range(0, count, TOGETHER):
        pause = begun + SENDING * first / count - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        some = range(first, min(first + TOGETHER, count))
        for sender in senders:
            answers = sender.ask_all([_message(number) for number in some])
            if any(answer.code for answer in answers):
                raise AssertionError(f"a message was answered {answers}")


def _message(number: int) -> Command:
    return send(TOPIC, b"%d" % number, delay=1 + number % len(LEVELS))


def _lateness(broker: Node | Stock, reader: Remote, count: int) -> list[float]:
    """Milliseconds each message was late, sorted."""
    due = {}
    for level, delay in enumerate(LEVELS):
        for record in _read(reader, SCHEDULE_TOPIC, level):
            due[record.body] = record.store_timestamp + 1000 * delay
    copies = {}

    def all_there() -> bool:
        copies.update({record.body: record for record in _read(reader, TOPIC, 0)})
        return len(copies) == count

    until(all_there, "all are delivered", PATIENCE, tell=broker.tail, pause=1.0)
    return sorted(float(copy.store_timestamp - due[body]) for body, copy in copies.items())


def _read(reader: Remote, topic: str, queue_id: int) -> Iterator[Record]:
    offset = 0
    while not (answer := reader.ask(pull(topic, "readers", offset, queue_id))).code:
        yield from records(answer)
        offset = int(answer.ext["nextBeginOffset"])


def _told(late: list[float]) -> str:
    p50, p99 = statistics.median(late), percentile(late, 0.99)
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, at most {late[-1]:.0f} ms"
