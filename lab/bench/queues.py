"""A restart with very many queues: how long it takes, and how long the reactor is away.

Ten thousand topics of eight queues have two messages each; a group has an offset in every queue.
The node is started and stopped as it is, asked for its status every second in between.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from lab.bench.corpus import message
from lab.bench.dispatching import QUEUES, opened
from lab.bench.table import Field, Figure, Row, Seen, Turn
from lab.harness.nodes import Node

MESSAGES = 2
"""Messages in each queue."""

LIMIT = 600.0
RESULTS = "turns.json"
LOOKS = 12
"""Times the status is asked for while the node serves, once a second: a sample of all meters and a
flush of all queues are among them."""

KEYS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxMessageSize": 65536,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "fileReservedTime": 24 * 365,
}


def fill(root: Path, topics: int) -> None:
    """Make the store, with the topics, and a group that has an offset in each queue."""
    now = int(time.time() * 1000)
    service, store = opened(root, Clock(), now, **KEYS, brokerRole="ASYNC_MASTER")
    names = [f"BenchTopic{number:05d}" for number in range(topics)]
    for turn in range(MESSAGES):
        for number, name in enumerate(names):
            for queue_id in range(QUEUES):
                key = f"{turn:08X}{number:016X}{queue_id:08X}"
                store.put(message(name, queue_id, b"x" * 100, key))
        while store.dispatcher.run(1.0):
            pass
    service.stopService()
    queues = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
    version = {"timestamp": 1, "counter": 1, "stateVersion": 0}
    tables: dict[str, dict[str, Any]] = {
        "topics.json": {
            "dataVersion": version,
            "topicConfigTable": {name: {"topicName": name, **queues} for name in names},
        },
        "consumerOffset.json": {
            "offsetTable": {
                f"{name}@bench": dict.fromkeys(map(str, range(QUEUES)), 1) for name in names
            }
        },
    }
    (root / "config").mkdir(exist_ok=True)
    for file, table in tables.items():
        (root / "config" / file).write_text(json.dumps(table), encoding="utf-8")


def _filled(field: Field) -> dict[str, Node]:
    """A master whose reactor turns are measured."""
    node = Node(field.folder, "master", **KEYS)
    node.program = ("-m", "lab.bench.turn_child", str(node.folder / RESULTS))
    fill(node.root, 1000 if field.quick else 10_000)
    return {"ours": node}


def _restart(node: Node, turn: Turn) -> Seen:
    results = node.folder / RESULTS
    results.unlink(missing_ok=True)
    node.start(LIMIT)
    node.until(lambda _: node.health("readyz") == 200, "ready", LIMIT)
    for _ in range(LOOKS):
        node.status()
        time.sleep(1.0)
    node.term(LIMIT)
    phases = json.loads(results.read_text(encoding="utf-8"))
    took, used = phases["longest"]
    return {**phases["seconds"], "turn": 1000 * took, "processor": 1000 * used}


_WHAT = f"restart with {QUEUES} queues each of 10,000 topics"
_TURN = f"{_WHAT}: longest reactor turn of start, serving with its status, stop"

ROWS = [
    Row(
        name="queues",
        set_up=_filled,
        load=_restart,
        figures=[
            Figure("start", f"{_WHAT}: start, until clients are served", "s", 10, most=True),
            Figure("stop", f"{_WHAT}: stop", "s", 10, most=True),
            Figure("turn", _TURN, "ms", 50, most=True),
            Figure("processor", f"{_TURN}: processor", "ms"),
        ],
        rounds=3,
        warm=0,
    )
]
