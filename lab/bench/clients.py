"""Measure a stock pair and ours with stock clients, and write lab/bench/RESULTS-clients.md:
C{python -m lab.bench.clients}, with the options of L{lab.bench.table}.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from lab.bench import timers
from lab.bench.processes import all_descriptors
from lab.bench.report import percentile
from lab.bench.sends import (
    BATCH,
    BATCHES,
    BODY,
    MANY,
    PATIENCE,
    QUICK_WARM_MESSAGES,
    WARM_MESSAGES,
    figures,
)
from lab.bench.serving import QUEUES, Pair, ours, pairs
from lab.bench.table import GIB, Bench, Field, Figure, Row, Seen, Turn
from lab.harness.nodes import Node, until
from lab.harness.remote import Remote
from lab.stock import jars
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write


def writes(pair: Pair, turn: Turn) -> Seen:
    """Writes of many producers, and of one."""
    many = pair.send(20_000 if turn.quick else 40_000, MANY)
    one = pair.send(3000 if turn.quick else 10_000, 1)
    return {**many.seen("many"), **one.seen("one")}


def _of_writes(what: str, many: dict[str, Any], one: dict[str, Any]) -> list[Figure]:
    what = f"{what} and a slave, {BODY} bytes"
    return [
        *figures("many", f"{what}, {MANY} threads", **many),
        *figures("one", f"{what}, one producer thread", **one),
    ]


TOPICS = 1000


def _topics(field: Field) -> dict[str, Pair]:
    field.opened.enter_context(all_descriptors())
    both = pairs(field)
    for pair in both.values():
        pair.make(pair.address, QUEUES, TOPICS)
        pair.warm_up(WARM_MESSAGES // 2, TOPICS)
    return both


def _spread(pair: Pair, turn: Turn) -> Seen:
    """Each message to another topic: to find it, its queue and its next offset each time anew."""
    return pair.send(20_000 if turn.quick else 80_000, MANY, topics=TOPICS).seen("topics")


def _filled(backlog: Callable[[bool], int], field: Field, **how: Any) -> dict[str, Pair]:
    """@param backlog: How many messages there are to consume, by whether it is quick."""
    both = pairs(field, warm=False, **how)
    for pair in both.values():
        pair.send(backlog(field.quick) // BATCH, BATCHES, BATCH)
    return both


def _to_consume(quick: bool) -> int:
    return 100_000 if quick else 1_000_000


def _consume(pair: Pair, turn: Turn) -> Seen:
    # Not all of it for nothing: the consumer has to be compiled.
    count = _to_consume(turn.quick or turn.number < 0)

    def found(name: str, **how: str) -> float:
        return pair.consume(f"{name}{turn.number + 1}{pair.name}", count // TAGS, **how)

    return {
        "consumed": pair.consume(f"round{turn.number + 1}{pair.name}", count),
        "tag": TAGS * found("tag", tags="Tag3"),
        "sql": TAGS * found("sql", sql="TAGS = 'Tag3' AND KEYS IS NOT NULL"),
    }


TAGS = 10
"""Tags of a batch's messages, in turn."""


BACKLOG, HELD = 400_000, 1 << 20
"""Messages that a consumer catches up with at the slave, more than it can during the writes; and
bytes that memory is said to hold, so that it lags."""


@frozen
class Beside:
    """Writes to a pair of ours, beside a consumer at its slave or without one."""

    pair: Pair
    consumer: bool


def _read_slave(field: Field) -> dict[str, Beside]:
    keys = {"accessMessageInMemoryBytes": HELD, "slaveReadEnable": "true"}
    pair = ours(field.folder, field.tool, False, **keys)
    pair.start()
    pair.send(BACKLOG // BATCH, BATCHES, BATCH)
    pair.warm_up(QUICK_WARM_MESSAGES if field.quick else WARM_MESSAGES)
    assert isinstance(pair.master, Node) and isinstance(pair.slave, Node)
    pair.slave.until_synced(pair.master.status()["maxOffset"], PATIENCE)
    for node in (pair.master, pair.slave):
        node.until(lambda said: said["dispatchedOffset"] == said["maxOffset"], "idle", PATIENCE)
    return {"beside it": Beside(pair, True), "without it": Beside(pair, False)}


def _write_beside(beside: Beside, turn: Turn) -> Seen:
    pair, sends = beside.pair, 8000 if turn.quick else 40_000
    if not beside.consumer:
        return pair.send(sends, MANY).seen("writes")
    node = pair.slave
    assert isinstance(node, Node)
    before = _pulls(node)
    consuming = pair.begin_to_consume(f"round{turn.number + 1}", BACKLOG)
    until(lambda: _pulls(node) > before + 100, "it reads", PATIENCE, tell=pair.tool.tail)
    seen = pair.send(sends, MANY).seen("writes")
    if consuming.done:
        print("it had caught up before the last write", flush=True)
    consuming.wait(PATIENCE)
    return seen


def _pulls(node: Node) -> int:
    return int(node.status()["remoting"]["requests"].get("PULL_MESSAGE", 0))


@frozen(kw_only=True)
class Kind:
    """One kind of send.

    @ivar kind: As C{Timings.java} knows it.
    @ivar own: What the name of a topic of its own ends with.
    @ivar code: Of a request to C{ask}, with its C{fields}, which have values in turn.
    @ivar count: Sends of a round; C{each} the messages of one.
    @ivar goal: Least rate, in parts of the stock pair's.
    """

    what: str
    kind: str = "single"
    count: int = 40_000
    threads: int = 32
    each: int = 1
    size: int = BODY
    goal: float = 1.0
    own: str = ""
    code: int = 0
    fields: Mapping[str, Sequence[object]] = {}


KINDS = (
    Kind(what="plain"),
    Kind(what="transactions, committed", kind="transaction", count=10_000, goal=1.2),
    Kind(what="transactions, rolled back", kind="transaction-rollback", count=10_000, goal=1.2),
    Kind(what="batches of 32", count=4_000, threads=8, each=32, goal=1.2),
    Kind(what="batches of 200", count=1_000, threads=8, each=200, goal=1.2),
    Kind(what="delayed", kind="delay", count=20_000),
    Kind(what="ordered", kind="ordered"),
    Kind(what="one-way", kind="oneway"),
    Kind(what="keys, tag and ten properties", kind="rich"),
    Kind(what="compressed, 8 KiB of text", count=20_000, size=8 << 10),
    Kind(what="requests until their reply", kind="request", count=10_000, own="Request"),
    Kind(
        what="messages given back",
        kind="ask",
        count=20_000,
        code=RequestCode.CONSUMER_SEND_MSG_BACK,
        fields={"offset": [0], "group": ["Back"], "delayLevel": [1]},
    ),
    Kind(
        what="offsets committed",
        kind="ask",
        code=RequestCode.UPDATE_CONSUMER_OFFSET,
        fields={
            # To each thread a queue of a group, in which it goes on.
            "consumerGroup": [f"Back{thread // QUEUES}" for thread in range(32)],
            "queueId": range(QUEUES),
            "commitOffset": range(2000),
        },
    ),
)

RETRIES = 20_000


def _of_kinds(field: Field) -> dict[str, Pair]:
    both = pairs(field, sync=True)
    for pair in both.values():
        topic = pair.made(f"{pair.topic}Request")
        how: Any = {"namesrv": pair.tool.names, "topic": topic, "group": f"{topic}Answer"}
        pair.tool.do("answer", kind="single", **how)
        pair.send(RETRIES // BATCH, BATCHES, BATCH, topic=pair.made(f"{pair.topic}Retry"))
    return both


def _kinds(pair: Pair, turn: Turn) -> Seen:
    seen: dict[str, float] = {}
    for kind in KINDS:
        count = kind.count // 4 if turn.quick or turn.number < 0 else kind.count
        how: dict[str, Any] = {"kind": kind.kind, "size": kind.size, "topic": pair.topic + kind.own}
        if kind.code:
            how |= {"address": pair.address, "code": kind.code}
            how["fields"] = {"topic": [pair.topic], **{k: [*v] for k, v in kind.fields.items()}}
        seen |= pair.send(count, kind.threads, kind.each, **how).seen(kind.what)
    group = f"retry{turn.number + 1}{pair.name}"
    pair.made(f"%RETRY%{group}", 1)
    count = RETRIES // 4 if turn.quick or turn.number < 0 else RETRIES
    seen["retries"] = pair.consume(group, count, topic=f"{pair.topic}Retry", back=True)
    return seen


TIMERS = Kind(what="timer, due after 0.5 s", kind="timer", threads=64, goal=1.5)


def _timers(pair: Pair, turn: Turn) -> Seen:
    """Timer messages, until the last one is delivered; and once ten thousand of one second."""
    if pair.tool.version.startswith("4"):
        raise jars.Missing("no timer messages before RocketMQ 5")
    count = TIMERS.count // 4 if turn.quick or turn.number < 0 else TIMERS.count
    with Remote(pair.master.port) as broker:
        begun, wanted = time.monotonic(), timers.end_of(broker, pair.topic, QUEUES) + count
        seen = pair.send(count, TIMERS.threads, kind=TIMERS.kind).seen("timers")
        until(
            lambda: timers.end_of(broker, pair.topic, QUEUES) >= wanted,
            "all are delivered",
            PATIENCE,
            pause=0.05,
        )
    found = {**seen, "delivered": count / (time.monotonic() - begun)}
    if turn.number == 0:
        found["late"] = timers.lateness(pair.master.pid, pair.master.port, "evenly", turn)["p99"]
    return found


MEMBERS, ONE_BY_ONE, BEFORE = 3, 1000, 200
"""Consumers that catch up; messages of which each is sent when the one before has come, and how
many of them count for nothing at first."""

ONE = "POP, one message from its send to a listener"


def _to_pop(quick: bool) -> int:
    return 20_000 if quick else 200_000


def _shared_out(field: Field) -> dict[str, Pair]:
    """@raise Missing: Of a RocketMQ that cannot."""
    if field.version.startswith("4"):
        raise jars.Missing("no consumers in POP mode before RocketMQ 5")
    return _filled(_to_pop, field, timerWheelEnable="true")


def _pop(pair: Pair, turn: Turn) -> Seen:
    """Three consumers that catch up, and then one message after the other."""
    catch, one = (f"{what}{turn.number + 1}{pair.name}" for what in ("catch", "one"))
    _shared(pair, pair.topic, catch)
    count, before = _to_pop(turn.quick), _log_end(pair)
    rate = pair.consume(catch, count, members=MEMBERS, pop=True)
    written = (_log_end(pair) - before) / count
    topic = f"{one}Topic"
    pair.tool.do("topic", address=pair.address, topic=topic, queues=1)
    _shared(pair, topic, one)
    micros = pair.tool.ask(
        "latency",
        namesrv=pair.tool.names,
        kind="single",
        topic=topic,
        group=one,
        count=ONE_BY_ONE,
        before=BEFORE,
        size=BODY,
        members=1,
        pop=True,
        limit=20,
        seconds=60,
    ).wait(PATIENCE)
    p50, p99 = (percentile(micros, share) for share in (0.5, 0.99))
    return {"rate": rate, "written": written, "p50": p50, "p99": p99}


def _log_end(pair: Pair) -> int:
    return int(pair.tool.do("runtime", address=pair.address)["commitLogMaxOffset"])


def _shared(pair: Pair, topic: str, group: str) -> None:
    """Have the broker share out the messages of a topic to a group."""
    told = GroupMode(topic=topic, consumer_group=group, mode=RequestMode.POP, pop_share_queue_num=0)
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    with Remote(pair.master.port) as administrator:
        answer = administrator.ask(Command.request(code, None, write(told)))
    if answer.code:
        raise AssertionError(f"{pair.name}: {answer}")


FLUSH = "SYNC_FLUSH on a disk, ASYNC_MASTER"

LIKE_STOCK = {"p50": 0.9, "p99": 1.0}
"""Goals of one producer."""

COSTS = {"p99": 0.9, "master": 0.6, "slave": 0.9}

WRITES: Sequence[tuple[str, dict[str, Any], str, dict[str, Any], dict[str, Any], float]] = (
    ("sync", {"sync": True}, "SYNC_MASTER", {"rate": 1.3, **COSTS}, LIKE_STOCK, 210.0),
    ("async", {}, "ASYNC_MASTER", {"rate": 1.4, **COSTS}, LIKE_STOCK, 420.0),
    ("flush", {"disk": True, "flushDiskType": "SYNC_FLUSH"}, FLUSH, {"rate": 1.1}, {}, 600.0),
)
"""Rows: name, set-up, what it is, goals of many producers and of one, and their C{until}."""

BENCH = Bench(
    name="bench-clients",
    rows=[
        *(
            Row(
                name=name,
                set_up=partial(pairs, **how),
                load=writes,
                figures=_of_writes(what, many, one),
                until=until,
            )
            for name, how, what, many, one, until in WRITES
        ),
        Row(
            name="topics",
            set_up=_topics,
            load=_spread,
            figures=figures(
                "topics",
                f"{TOPICS:,} topics x {QUEUES} queues, ASYNC_MASTER and a slave, {BODY} bytes, "
                f"{MANY} threads",
                rate=1.2,
                p99=1.0,
            ),
            until=800.0,
        ),
        Row(
            name="consume",
            set_up=partial(_filled, _to_consume, enablePropertyFilter="true"),
            load=_consume,
            figures=[
                Figure(
                    name,
                    f"push consumer catching up{how}, {BODY} bytes in {QUEUES} queues",
                    "messages/s",
                    goal,
                )
                for name, how, goal in (
                    ("consumed", "", 1.3),
                    ("tag", f" by a tag of {TAGS}, all told", 1.0),
                    ("sql", f" by SQL92 that finds one of {TAGS}, all told", 1.0),
                )
            ],
            rounds=3,
            until=950.0,
        ),
        Row(
            name="slave-reads",
            set_up=_read_slave,
            load=_write_beside,
            figures=figures(
                "writes",
                f"writes to our master, {BODY} bytes, {MANY} threads, while a push consumer "
                "catches up at the slave",
                p99=1.2,
            ),
            rounds=4,
            until=1200.0,
        ),
        Row(
            name="kinds",
            set_up=_of_kinds,
            load=_kinds,
            figures=[
                figure
                for kind in KINDS
                for figure in figures(
                    kind.what,
                    f"{kind.what}, SYNC_MASTER and a slave, {kind.threads} threads",
                    ("rate", "master", "slave"),
                    rate=kind.goal,
                )
            ]
            + [
                Figure(
                    "retries",
                    f"push consumer that fails once with each of {RETRIES:,} messages, until the "
                    "last one has come again, SYNC_MASTER and a slave",
                    "messages/s",
                    1.0,
                )
            ],
            until=1600.0,
        ),
        Row(
            name="timers",
            set_up=partial(pairs, sync=True, timerWheelEnable="true"),
            load=_timers,
            figures=[
                Figure(
                    "delivered",
                    f"{TIMERS.what}, SYNC_MASTER and a slave, {TIMERS.threads} threads, accepted "
                    "and delivered",
                    "messages/s",
                    TIMERS.goal,
                ),
                Figure("late", "10,000 timer messages of one second, lateness, p99", "ms"),
            ],
            until=1650.0,
        ),
        Row(
            name="pop",
            set_up=_shared_out,
            load=_pop,
            figures=[
                Figure(
                    "rate",
                    f"POP, {MEMBERS} consumers catching up, {BODY} bytes in {QUEUES} queues",
                    "messages/s",
                    1.5,
                ),
                Figure(
                    "written",
                    "POP, log written for one message and its ack",
                    "bytes",
                    0.6,
                    most=True,
                ),
                Figure("p50", f"{ONE}, p50", "us", 1.0, most=True),
                Figure("p99", f"{ONE}, p99", "us"),
            ],
            until=1750.0,
        ),
    ],
    needed=10 * GIB,
    limit=2100.0,
    versions=jars.VERSIONS,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
