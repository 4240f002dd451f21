"""What metrics cost: a busy master that counts beside one that counts nothing
(L{lab.bench.busy_master}), and scrapes of a broker with a thousand topics of eight queues, each
read by a group.

Before half of the scrapes all groups have moved in all queues, which is dearest: when the oldest
message of each was stored has to be looked up again.
"""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

from lab.bench import busy_master
from lab.bench.busy_master import Load, processor
from lab.bench.report import Row, limited, spread
from lab.harness.nodes import Node
from lab.harness.remote import commit, make_topic, send
from rmqha.wire.remoting.frame import encode

TOPICS, QUEUES = 1000, 8

PIECE = 250
"""Requests that are sent together to fill the broker."""

SCRAPE_GOAL = 50.0
"""Most milliseconds of a scrape of all of them."""

PERIOD = 15.0
"""Seconds between two scrapes, as C{conf/prometheus} has it."""

REST = 2.5
"""Seconds after which a broker has looked up what a scrape left out."""


def run(folder: Path, batches: int, rounds: int, scrapes: int) -> list[Row]:
    """Measure the rows about metrics.

    @param batches: Of writes and commits, in one round.
    @param scrapes: Of either kind.
    """
    row = busy_master.metrics(folder, batches, rounds)
    with Load(Node(folder, "master", "topics")) as load:
        return [row, *_scraped(load, scrapes)]


def _scraped(load: Load, rounds: int) -> list[Row]:
    topics = [f"BenchTopic{number:04d}" for number in range(TOPICS)]
    queues = [(topic, queue_id) for topic in topics for queue_id in range(QUEUES)]
    _ask(load, [encode(make_topic(topic, QUEUES)) for topic in topics])
    for _ in range(rounds + 2):
        _ask(load, [encode(send(topic, b"x" * 100, queue_id)) for topic, queue_id in queues])
    time.sleep(REST)  # until all of it is in the queues
    quiet: list[float] = []
    moved: list[float] = []
    used: list[float] = []
    for offset in range(rounds + 1):
        _ask(load, [encode(commit(topic, "g0", offset, at)) for topic, at in queues])
        for kept in (moved, quiet):
            before = processor(load.node.pid)
            took = _scrape(load.node)
            if offset:  # the first finds nothing that it knows
                kept.append(1000 * took)
                used.append(1000 * (processor(load.node.pid) - before))
            time.sleep(REST)
    what = f"a scrape of {TOPICS:,} topics of {QUEUES} queues, each read by a group"
    share = f"one in {PERIOD:g} s is {max(used) / PERIOD / 10:.2f} % of a core at most"
    return [
        limited(
            f"{what}, that moved in all of them",
            "ms",
            moved,
            SCRAPE_GOAL,
            notes=(f"metrics: a scrape takes {spread(used, 'ms')} of the processor; {share}",),
        ),
        limited("the same, groups that did not move", "ms", quiet, SCRAPE_GOAL),
    ]


def _ask(load: Load, requests: list[bytes]) -> None:
    for first in range(0, len(requests), PIECE):
        piece = requests[first : first + PIECE]
        load.ask(b"".join(piece), len(piece))


def _scrape(node: Node) -> float:
    """@return: Seconds until the whole answer was there."""
    begun = time.perf_counter()
    with urllib.request.urlopen(
        f"http://127.0.0.1:{node.admin_port}/metrics", timeout=60
    ) as answer:
        text = answer.read()
    took = time.perf_counter() - begun
    found = text.count(b"rocketmq_consumer_lag_messages{")
    if found < TOPICS:
        raise AssertionError(f"{found} groups are told, of {TOPICS}")
    return took
