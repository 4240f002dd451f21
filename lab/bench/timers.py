"""What timer messages cost: how late those are of which thousands are due in one second, evenly
and all at its end, and how long a start takes that finds a million of them.

The broker tells both times itself: when a message is due is one of its properties, and it was
delivered when its copy was stored.  Beside them stands the node's processor time, which other work
of the machine does not change much.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.bench.busy_master import processor
from lab.bench.catchup import STOCK
from lab.bench.latency import percentile
from lab.bench.report import Row
from lab.harness.nodes import Node
from lab.harness.remote import Remote, make_topic, pull, records, send
from rmqha.wire.names import TIMER_DELIVER
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command

TOPIC, QUEUES = "BenchTimers", 4

BODY = b"x" * 256

BATCH = 500
"""Messages of a batch: what waits for long is sent so, which is not measured."""

LATE = 20.0
"""Milliseconds that 99 of 100 may be late."""

START, MEMORY = 10.0, 100.0
"""Seconds and MB of a start that finds a million."""

PATIENCE = 300.0
"""Seconds until something went wrong."""

TOGETHER = 50
"""Batches, or messages, on their way."""


def run(folder: Path, due: int, pending: int) -> list[Row]:
    """Measure the rows about timer messages.

    @param due: How many are due in one second.
    @param pending: How many wait when the node is started.
    """
    return [
        _lateness(folder / "even", due, "evenly", lambda number: 1000 * number // due),
        _lateness(folder / "once", due, "at its end", lambda number: 1000),
        _start(folder / "start", pending),
    ]


def _sent(number: int, due: int) -> Command:
    command = send(TOPIC, b"%d" % number + BODY, number % QUEUES)
    command.ext["i"] = f"{TIMER_DELIVER}\x01{due}\x02UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02"
    return command


def _batch(first: int, due: int) -> Command:
    told = b"UNIQ_KEY\x01%032X\x02TAGS\x01A\x02"
    body = b"".join(
        (22 + len(BODY) + len(text)).to_bytes(4, "big")
        + bytes(12)
        + len(BODY).to_bytes(4, "big")
        + BODY
        + len(text).to_bytes(2, "big")
        + text
        for text in (told % number for number in range(first, first + BATCH))
    )
    command = _sent(first, due)
    command.code, command.body = RequestCode.SEND_BATCH_MESSAGE, body
    command.ext |= {"m": "true", "i": f"{TIMER_DELIVER}\x01{due}\x02"}
    return command


def _send(sender: Remote, commands: Iterator[Command]) -> None:
    some: list[Command] = []
    for command in commands:
        some.append(command)
        if len(some) == TOGETHER:
            _answered(sender, some)
            some = []
    _answered(sender, some)


def _answered(sender: Remote, some: list[Command]) -> None:
    for answer in sender.ask_all(some):
        if answer.code:
            raise AssertionError(f"answered {answer.code}: {answer.remark}")


def _lateness(folder: Path, count: int, how: str, moment: Callable[[int], int]) -> Row:
    """@param moment: Of each message, when it is due, in milliseconds of that second."""
    node = Node(folder, "master", **STOCK)
    try:
        node.start()
        with Remote(node.port) as client:
            client.ask(make_topic(TOPIC, QUEUES))
            begun = round(time.time() * 1000)
            # Whatever the machine does: all have come before the first one is due.
            second = begun + 15_000 + 2 * count
            _send(client, (_sent(number, second + moment(number)) for number in range(count)))
            time.sleep(max(1.0, second / 1000 - 1.0 - time.time()))
            used = processor(node.pid)
            # Nobody asks how it is meanwhile: its status costs as much as hundreds of messages.
            time.sleep(3.0)
            node.until(
                lambda status: not status["remoting"]["timers"]["pending"],
                "all are delivered",
                PATIENCE,
            )
            used = processor(node.pid) - used
            late = sorted(_lates(client))
    finally:
        node.kill9()
    if len(late) != count or late[0] < 0:
        raise AssertionError(f"{len(late)} of {count} came, the first {late[0]} ms late")
    p99 = percentile(late, 0.99)
    return Row(
        what=f"lateness of {count:,} timer messages, due in one second, {how}",
        ours=f"p50 {percentile(late, 0.5):.0f} ms, p99 {p99:.0f} ms, at most {late[-1]:.0f} ms, "
        f"{1e6 * used / count:.1f} us of the processor each",
        goal=f"p99 <= {LATE:g} ms",
        met=p99 <= LATE,
    )


def _lates(client: Remote) -> Iterator[float]:
    """Milliseconds that each was late."""
    for queue_id in range(QUEUES):
        offset = 0
        while not (answer := client.ask(pull(TOPIC, "readers", offset, queue_id))).code:
            offset = int(answer.ext["nextBeginOffset"])
            for record in records(answer):
                yield float(record.store_timestamp - int(record.properties[TIMER_DELIVER]))


def _start(folder: Path, count: int) -> Row:
    node = Node(folder, "master", **STOCK)
    try:
        node.start()
        with Remote(node.port) as client:
            client.ask(make_topic(TOPIC, QUEUES))
            # Over a day, from an hour on.
            begin = round(time.time() * 1000) + 3_600_000
            _send(
                client,
                (
                    _batch(first, begin + (first * 7919) % 86_400_000)
                    for first in range(0, count, BATCH)
                ),
            )
        node.until(lambda status: _waiting(status) == count, "all wait", PATIENCE)
        node.term()
        node.start()
        begun, used, before = time.monotonic(), processor(node.pid), _own(node.pid)
        node.until(
            lambda status: not status["remoting"]["timers"]["reading"], "it has read", PATIENCE
        )
        took, used = time.monotonic() - begun, processor(node.pid) - used
        if node.status()["remoting"]["timers"]["pending"] != {TOPIC: count}:
            raise AssertionError(f"it found {node.status()['remoting']['timers']['pending']}")
        memory = _own(node.pid) - before
    finally:
        node.kill9()
    return Row(
        what=f"a start that finds {count:,} timer messages, until all are known",
        ours=f"{took:.1f} s, {used:.1f} s of the processor, {memory:.0f} MB more",
        goal=f"<= {START:g} s, <= {MEMORY:g} MB",
        met=took <= START and memory <= MEMORY,
    )


def _waiting(status: dict[str, dict[str, dict[str, dict[str, int]]]]) -> int:
    return sum(status["remoting"]["timers"]["pending"].values())


def _own(pid: int) -> float:
    """MB that are a process's own: pages of files are not."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1000
    raise AssertionError("the kernel does not say what is a process's own")
