"""Messages spread over a thousand topics, beside the same messages to one: what it costs to find
the topic, the queue and its next offset each time anew, and to write to thousands of queue files.

All topics have eight queues; the messages of 64 threads go to the topics in turn, and to a topic's
queues in turn.  Both kinds are measured through the same pair, one after the other.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

from lab.bench.beside import Field
from lab.bench.processes import all_descriptors
from lab.bench.report import Row, spread
from lab.bench.sends import BODY, MANY, WARM_MESSAGES, Sends, cost_row
from lab.bench.serving import QUEUES, QUICK_WARM_MESSAGES, Pair, pairs, turns

TOPICS, QUICK_TOPICS = 1000, 100

SENDS, QUICK_SENDS = 80_000, 20_000

ROUNDS = 5

GOAL = 0.9
"""Least rate over all topics, in parts of the rate to one."""


def run(field: Field, until: float) -> list[Row]:
    """Measure the rows about many topics.

    @param until: Seconds of the run after which no more rounds begin.
    """
    topics = QUICK_TOPICS if field.quick else TOPICS
    sends = QUICK_SENDS if field.quick else SENDS
    found: dict[str, dict[int, list[Sends]]] = {}
    with all_descriptors(), pairs(field.folder, field.tool) as both:
        for pair in both:
            pair.target.make("{}:{}".format(*pair.address), QUEUES, topics)
            for count in (0, topics):
                most = QUICK_WARM_MESSAGES if field.quick else WARM_MESSAGES
                pair.target.warm_up(most // 2, count)
        for number in range(1 if field.quick else ROUNDS):
            if number and time.monotonic() - field.begun > until:
                break
            for pair in turns(both, number):
                seen = found.setdefault(pair.name, {0: [], topics: []})
                _round(pair, seen, sends, number)
    return rows(topics, found["Ours"], found["Java"])


def _round(pair: Pair, seen: dict[int, list[Sends]], sends: int, number: int) -> None:
    for count in list(seen)[:: -1 if number % 2 else 1]:
        one = pair.target.send(sends, MANY, topics=count)
        seen[count].append(one)
        where = f"{count} topics" if count else "one topic"
        print(
            f"{pair.name}, {where}: {one.rate:.0f}/s, p99 {one.p99:.0f} us, {one.told()}",
            flush=True,
        )


def rows(
    topics: int, ours: Mapping[int, Sequence[Sends]], java: Mapping[int, Sequence[Sends]]
) -> list[Row]:
    """What was seen, by how many topics were sent to; 0 is the one."""
    what = f"{topics:,} topics x {QUEUES} queues, ASYNC_MASTER and a slave, {BODY} bytes"
    many = f"{what}, {MANY} threads"
    beside = f"Stock pair, {topics:,} topics"
    ratio, stock = (_ratio(found, topics) for found in (ours, java))
    spreads = [
        spread([one.rate for one in found[count]], "writes/s")
        for found in (ours, java)
        for count in (topics, 0)
    ]
    return [
        Row(
            what=many,
            ours=spreads[0],
            beside=f"one topic {spreads[1]}",
            ratio=f"{ratio:.2f}",
            goal=f">= {GOAL:g}x of one topic",
            met=ratio >= GOAL,
            notes=(f"{beside}: {spreads[2]}, to one topic {spreads[3]}, ratio {stock:.2f}",),
        ),
        cost_row(many, ours[topics], ours[0], beside="one topic"),
    ]


def _ratio(found: Mapping[int, Sequence[Sends]], topics: int) -> float:
    rates = [statistics.median(one.rate for one in found[count]) for count in (topics, 0)]
    return rates[0] / rates[1]
