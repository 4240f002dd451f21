"""What timer messages cost: how late those are of which thousands are due in one second, evenly
and all at its end, and how long a start takes that finds a million of them.

The broker tells both times itself: when a message is due is one of its properties, and it was
delivered when its copy was stored.  Beside them stands the node's processor time, which other work
of the machine does not change much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from lab.bench.busy_master import batch_of
from lab.bench.processes import processor
from lab.bench.report import percentile
from lab.bench.stock import STOCK
from lab.bench.table import Field, Figure, Row, Seen, Turn
from lab.harness.nodes import Node, until
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


def _sent(number: int, due: int, topic: str = TOPIC) -> Command:
    command = send(topic, b"%d" % number + BODY, number % QUEUES)
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


def _master(field: Field) -> dict[str, tuple[Node, str]]:
    node = Node(field.folder, "master", **STOCK).start()
    return {how: (node, how) for how in MOMENTS}


MOMENTS: dict[str, Callable[[int, int], int]] = {
    "evenly": lambda number, count: 1000 * number // count,
    "at its end": lambda number, count: 1000,
}
"""When each message is due, in milliseconds of a second."""


def _lateness(contender: tuple[Node, str], turn: Turn) -> Seen:
    node, how = contender
    return lateness(node.pid, node.port, how, turn)


def lateness(pid: int, port: int, how: str, turn: Turn) -> Seen:
    """How late messages are that are due in one second.

    @param pid: The broker's, which has a topic by the name C{how} once only.
    @param how: One of L{MOMENTS}.
    """
    count, topic = 2000 if turn.quick else 10_000, "".join(how.split())
    with Remote(port) as client:
        client.ask(make_topic(topic, QUEUES))
        # Whatever the machine does: all have come before the first one is due.
        second = round(time.time() * 1000) + 15_000 + 2 * count
        dues = [second + MOMENTS[how](number, count) for number in range(count)]
        _send(client, [_sent(number, due, topic) for number, due in enumerate(dues)])
        time.sleep(max(1.0, second / 1000 - 1.0 - time.time()))
        used = processor(pid)
        # Nobody asks how it is meanwhile: its status costs as much as hundreds of messages.
        time.sleep(3.0)
        until(lambda: end_of(client, topic, QUEUES) == count, "delivered", PATIENCE, pause=0.1)
        used = processor(pid) - used
        late = [one for queue_id in range(QUEUES) for one in _lates(client, topic, queue_id)]
    if len(late) != count or min(late) < 0:
        raise AssertionError(f"{len(late)} of {count} came, the first {min(late)} ms late")
    p50, p99 = (percentile(late, share) for share in (0.5, 0.99))
    return {"p50": p50, "p99": p99, "most": max(late), "processor": 1e6 * used / count}


def end_of(broker: Remote, topic: str, queues: int) -> int:
    """Messages in all queues of a topic."""
    asked = [{"topic": topic, "queueId": str(queue)} for queue in range(queues)]
    code = RequestCode.GET_MAX_OFFSET
    answers = broker.ask_all([Command(code=code, ext=ext) for ext in asked])
    return sum(int(answer.ext["offset"]) for answer in answers)


def _lates(client: Remote, topic: str, queue_id: int) -> Iterator[float]:
    """Milliseconds that each was late."""
    offset = 0
    while not (answer := client.ask(pull(topic, "readers", offset, queue_id))).code:
        offset = int(answer.ext["nextBeginOffset"])
        for record in records(answer):
            yield float(record.store_timestamp - int(record.properties[TIMER_DELIVER]))


def _pending(field: Field) -> dict[str, tuple[Node, int]]:
    """A master that was stopped with messages that wait."""
    node = Node(field.folder, "master", **STOCK)
    count = 50_000 if field.quick else 1_000_000
    with Remote(node.start().port) as client:
        client.ask(make_topic(TOPIC, QUEUES))
        # Over a day, from an hour on.
        begin = round(time.time() * 1000) + 3_600_000
        for first in range(0, count, 50 * BATCH):
            some = range(first, min(first + 50 * BATCH, count), BATCH)
            _send(client, [_batch(each, begin + each * 7919 % DAY) for each in some])
    node.until(lambda status: _waiting(status) == count, "all wait", PATIENCE)
    node.term()
    return {"ours": (node, count)}


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
        set_up=_master,
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
