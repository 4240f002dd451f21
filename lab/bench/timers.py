"""What timer messages cost: how late those are of which thousands are due in one second, evenly
and all at its end, and how long a start takes that finds a million of them.

The broker tells both times itself: when a message is due is one of its properties, and it was
delivered when its copy was stored.  Beside them stands the node's processor time, which other work
of the machine does not change much.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lab.bench.busy_master import batch_of, processor
from lab.bench.report import percentile
from lab.bench.stock import STOCK
from lab.bench.table import GIB, Bench, Field, Figure, Row, Seen, Turn
from lab.harness.nodes import Node
from lab.harness.remote import Remote, make_topic, pull, records, send
from rmqha.wire.names import TIMER_DELIVER
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

TOPIC, QUEUES = "BenchTimers", 4

BODY = bytes(256)

BATCH = 500
"""Messages of a batch: what waits for long is sent so, which is not measured."""

PATIENCE = 300.0
"""Seconds until something went wrong."""

DAY = 86_400_000


def _sent(number: int, due: int) -> Command:
    command = send(TOPIC, b"%d" % number + BODY, number % QUEUES)
    command.ext["i"] = f"{TIMER_DELIVER}\x01{due}\x02UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02"
    return command


def _batch(first: int, due: int) -> Command:
    told = [b"UNIQ_KEY\x01%032X\x02TAGS\x01A\x02" % n for n in range(first, first + BATCH)]
    command = _sent(first, due)
    command.code = RequestCode.SEND_BATCH_MESSAGE
    command.body = batch_of([BODY] * BATCH, told)
    command.ext |= {"m": "true", "i": f"{TIMER_DELIVER}\x01{due}\x02"}
    return command


def _send(client: Remote, commands: Sequence[Command]) -> None:
    for answer in client.ask_all(list(commands)):
        if answer.code:
            raise AssertionError(f"answered {answer.code}: {answer.remark}")


@contextmanager
def _masters(field: Field) -> Iterator[dict[str, tuple[Node, Remote]]]:
    found: dict[str, tuple[Node, Remote]] = {}
    try:
        for how in MOMENTS:
            node = Node(field.folder / "timers", "master", how.replace(" ", "-"), **STOCK)
            found[how] = node, Remote(node.start().port)
            found[how][1].ask(make_topic(TOPIC, QUEUES))
        yield found
    finally:
        for node, client in found.values():
            client.close()
            node.kill9()
        shutil.rmtree(field.folder / "timers")


MOMENTS: dict[str, Callable[[int, int], int]] = {
    "evenly": lambda number, count: 1000 * number // count,
    "at its end": lambda number, count: 1000,
}
"""When each message is due, in milliseconds of a second."""


def _lateness(contender: tuple[Node, Remote], turn: Turn) -> Seen:
    node, client = contender
    count, moment = 2000 if turn.quick else 10_000, MOMENTS[node.name.replace("-", " ")]
    # Whatever the machine does: all have come before the first one is due.
    second = round(time.time() * 1000) + 15_000 + 2 * count
    _send(client, [_sent(number, second + moment(number, count)) for number in range(count)])
    time.sleep(max(1.0, second / 1000 - 1.0 - time.time()))
    used = processor(node.pid)
    # Nobody asks how it is meanwhile: its status costs as much as hundreds of messages.
    time.sleep(3.0)
    node.until(lambda status: not _waiting(status), "all are delivered", PATIENCE)
    used = processor(node.pid) - used
    late = [one for queue_id in range(QUEUES) for one in _lates(client, queue_id)]
    if len(late) != count or min(late) < 0:
        raise AssertionError(f"{len(late)} of {count} came, the first {min(late)} ms late")
    p50, p99 = (percentile(late, share) for share in (0.5, 0.99))
    return {"p50": p50, "p99": p99, "most": max(late), "processor": 1e6 * used / count}


def _lates(client: Remote, queue_id: int) -> Iterator[float]:
    """Milliseconds that each was late."""
    offset = 0
    while not (answer := client.ask(pull(TOPIC, "readers", offset, queue_id))).code:
        offset = int(answer.ext["nextBeginOffset"])
        for record in records(answer):
            yield float(record.store_timestamp - int(record.properties[TIMER_DELIVER]))


@contextmanager
def _pending(field: Field) -> Iterator[dict[str, tuple[Node, int]]]:
    """A master that was stopped with messages that wait."""
    node = Node(field.folder / "pending", "master", **STOCK)
    count = 50_000 if field.quick else 1_000_000
    try:
        with Remote(node.start().port) as client:
            client.ask(make_topic(TOPIC, QUEUES))
            # Over a day, from an hour on.
            begin = round(time.time() * 1000) + 3_600_000
            for first in range(0, count, 50 * BATCH):
                some = range(first, min(first + 50 * BATCH, count), BATCH)
                _send(client, [_batch(each, begin + each * 7919 % DAY) for each in some])
        node.until(lambda status: _waiting(status) == count, "all wait", PATIENCE)
        node.term()
        yield {"ours": (node, count)}
    finally:
        node.kill9()
        shutil.rmtree(node.folder)


def _start(contender: tuple[Node, int], turn: Turn) -> Seen:
    node, count = contender
    node.start()
    begun, used, before = time.monotonic(), processor(node.pid), node.memory()
    node.until(lambda status: not status["remoting"]["timers"]["reading"], "it has read", PATIENCE)
    took, used = time.monotonic() - begun, processor(node.pid) - used
    if (found := _waiting(node.status())) != count:
        raise AssertionError(f"it found {found}")
    grown = (node.memory() - before) / 1e6
    node.term()
    return {"seconds": took, "processor": used, "memory": grown}


def _waiting(status: dict[str, dict[str, dict[str, dict[str, int]]]]) -> int:
    return sum(status["remoting"]["timers"]["pending"].values())


_FOUND = "a start that finds timer messages, until all are known"

ROWS = [
    Row(
        name="timers",
        set_up=_masters,
        load=_lateness,
        figures=[
            Figure(
                name,
                f"timer messages, due in one second, {how}: {what}",
                unit,
                goal,
                most=True,
                ours=how,
                beside=None,
            )
            for how in MOMENTS
            for name, what, unit, goal in (
                ("p99", "lateness, p99", "ms", 20),
                ("p50", "lateness, p50", "ms", None),
                ("most", "the latest", "ms", None),
                ("processor", "processor, each", "us", None),
            )
        ],
        rounds=1,
        warm=0,
    ),
    Row(
        name="timers",
        set_up=_pending,
        load=_start,
        figures=[
            Figure("seconds", _FOUND, "s", 10, most=True),
            Figure("processor", f"{_FOUND}: processor", "s"),
            Figure("memory", f"{_FOUND}: memory", "MB", 100, most=True),
        ],
        rounds=1,
        warm=0,
    ),
]

if __name__ == "__main__":
    sys.exit(
        Bench(name="bench", rows=ROWS, needed=GIB, limit=3600.0).main(["timers", *sys.argv[1:]])
    )
