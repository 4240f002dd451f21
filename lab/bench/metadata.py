"""How long a slave takes for its master's tables when they are large, and how long its reactor
stands still meanwhile.

4,000 topics, and 1,000 groups with an offset in each of 16 queues; master and slave are ours, a
process each, and the slave's store is new each time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from attrs import frozen

from lab.bench.beside import Field
from lab.bench.report import Row, limited, spread
from lab.harness.nodes import ROOT, Node
from rmqha.logfiles import json_table

TOPICS, GROUPS, QUEUES = 4000, 1000, 16

ROUNDS, QUICK = 7, 3

GOAL, WORST = 1.0, 50.0
"""Seconds for all tables, and milliseconds for one wait for the reactor."""

LIMIT = 60.0
"""Seconds one round may take."""


@frozen
class Sync:
    """One round, in seconds.

    @ivar adopted: Until all tables were the master's.
    @ivar written: Until they were on the disk.
    @ivar worst: The longest that anything had to wait for the reactor.
    """

    adopted: float
    written: float
    worst: float


def fill(root: Path) -> None:
    """Give a master its tables before its start."""
    config = root / "config"
    config.mkdir(parents=True)
    version = {"counter": TOPICS, "timestamp": 1_700_000_000_000}
    json_table.replace(
        config / "topics.json",
        {
            "dataVersion": version,
            "topicConfigTable": {
                name: {
                    "order": False,
                    "perm": 6,
                    "readQueueNums": QUEUES,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": name,
                    "topicSysFlag": 0,
                    "writeQueueNums": QUEUES,
                }
                for name in (f"Topic-{n:05}" for n in range(TOPICS))
            },
        },
    )
    groups = [f"Group-{n:05}" for n in range(GROUPS)]
    json_table.replace(
        config / "subscriptionGroup.json",
        {
            "dataVersion": version,
            "subscriptionGroupTable": {name: {"groupName": name} for name in groups},
        },
    )
    json_table.replace(
        config / "consumerOffset.json",
        {
            "offsetTable": {
                f"Topic-{n:05}@{group}": {queue: n * queue + 1 for queue in range(QUEUES)}
                for n, group in enumerate(groups)
            }
        },
    )


def measure(folder: Path, rounds: int) -> list[Sync]:
    """Let one slave after the other take the tables over."""
    master = Node(folder, "master", brokerIP1="127.0.0.1", brokerIP2="127.0.0.1")
    fill(master.root)
    found = []
    try:
        master.start()
        for n in range(rounds):
            own = folder / f"slave-{n}"
            own.mkdir()
            command = [sys.executable, "-m", "lab.bench.syncing", str(own)]
            addresses = [f"127.0.0.1:{master.ha_port}", f"127.0.0.1:{master.port}"]
            done = subprocess.run(
                [*command, *addresses],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                timeout=LIMIT,
                check=True,
                text=True,
            )
            found.append(Sync(**json.loads(done.stdout.splitlines()[-1])))
            shutil.rmtree(own)
    finally:
        master.term()
    return found


def rows_of(syncs: list[Sync]) -> list[Row]:
    """What is said of them."""
    adopted = [sync.adopted for sync in syncs]
    worst = [1000 * sync.worst for sync in syncs]
    what = f"tables of {TOPICS:,} topics and {GROUPS:,} groups x {QUEUES} queues"
    return [
        limited(
            f"{what}: until the slave has them",
            "s",
            adopted,
            GOAL,
            notes=[f"on the disk after {spread([sync.written for sync in syncs], 's')}"],
        ),
        limited(f"{what}: longest wait for the slave's reactor", "ms", worst, WORST),
    ]


def run(field: Field) -> list[Row]:
    """Measure the rows about tables."""
    return rows_of(measure(field.folder, QUICK if field.quick else ROUNDS))
