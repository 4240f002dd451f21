"""A restart with very many queues: how long it takes, and how long the reactor is away.

Ten thousand topics of eight queues have two messages each; a group has an offset in every queue.
The node is started and stopped as it is, asked for its status every second in between.  In the end
it deletes old log files, which every queue might have to follow.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from lab.bench.corpus import message
from lab.bench.report import Row, limited, spread
from lab.harness.nodes import Node
from rmqha.config.load import load
from rmqha.config.store_settings import StoreSettings
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.log import arrival
from rmqha.store.opening import Opening
from rmqha.store.service import StoreService

QUEUES = 8
"""Queues of a topic."""

MESSAGES = 2
"""Messages in each queue."""

LIMIT = 600.0
LOOKS = 12
"""Times the status is asked for while the node serves, once a second: a sample of all meters and a
flush of all queues are among them."""

SECONDS_GOAL = 10.0
TURN_GOAL = 50.0

OLD = 30 * 24 * 3600
"""Seconds since the messages were stored."""

KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": 512 << 10,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxMessageSize": 65536,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
    "fileReservedTime": 24 * 365,
}

DELETING: dict[str, object] = {
    "fileReservedTime": 1,
    "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
    "deleteCommitLogFilesInterval": 100,
}
"""What makes a node delete all files but the last."""


class TurnNode(Node):
    """A master whose reactor turns are measured."""

    def launch(self) -> None:
        self.results.unlink(missing_ok=True)
        self.spawn(
            [sys.executable, "-m", "lab.bench.turn_child", str(self.results), *self.write_conf()]
        )

    @property
    def results(self) -> Path:
        """Where it says at its end how long its turns were."""
        return self.folder / "turns.json"

    def phases(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.results.read_text(encoding="utf-8"))
        return found


@define
class Restarts:
    """What was seen, a value a round; all in seconds.

    @ivar longest: The longest turn of each round, of the processor's seconds in it too, and where
        it was.
    """

    start: list[float] = field(factory=list)
    stop: list[float] = field(factory=list)
    longest: list[tuple[float, float, str]] = field(factory=list)

    def add(self, phases: dict[str, Any]) -> None:
        self.start.append(phases["start"]["seconds"])
        self.stop.append(phases["stop"]["seconds"])
        turns = [tuple(turn) for phase in phases.values() for turn in phase["turns"]]
        self.longest.append(max(turns))


def fill(root: Path, topics: int) -> None:
    """Make the store."""
    keys = [f"{key}={value}" for key, value in KEYS.items()]
    keys += [f"storePathRootDir={root}", "brokerRole=ASYNC_MASTER"]
    stored = int((time.time() - OLD) * 1000)
    environment = StoreEnvironment(
        clock=Clock(),
        in_thread=maybeDeferred,
        fsync=FsyncInThread(maybeDeferred, lambda fd: None),
        now_ms=lambda: stored,
    )
    service = StoreService(load(None, keys, "master").store, Opening(master=True), environment)
    service.startService()
    store = service.opened
    assert store is not None, "a new store is open at once"
    names = [f"BenchTopic{number:05d}" for number in range(topics)]
    for turn in range(MESSAGES):
        for number, name in enumerate(names):
            for queue_id in range(QUEUES):
                key = f"{turn:08X}{number:016X}{queue_id:08X}"
                store.put(message(name, queue_id, b"x" * 100, key))
        while store.dispatcher.run(1.0):
            pass
    service.stopService()
    _tables(root / "config", names)


def _tables(folder: Path, names: list[str]) -> None:
    """The topics, and a group that has an offset in each queue."""
    folder.mkdir(exist_ok=True)
    topics = {
        name: {"topicName": name, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
        for name in names
    }
    offsets = {f"{name}@bench": dict.fromkeys(map(str, range(QUEUES)), 1) for name in names}
    version = {"timestamp": 1, "counter": 1, "stateVersion": 0}
    for name, table in (
        ("topics.json", {"dataVersion": version, "topicConfigTable": topics}),
        ("consumerOffset.json", {"offsetTable": offsets}),
    ):
        (folder / name).write_text(json.dumps(table), encoding="utf-8")


def run(folder: Path, topics: int, rounds: int) -> list[Row]:
    """Measure the rows about restarts.

    @param topics: Ten thousand for the goals.
    """
    node = TurnNode(folder, "master", **KEYS)
    fill(node.root, topics)
    seen, deleting = Restarts(), Restarts()
    try:
        for _ in range(rounds):
            _restart(node, seen)
        node.keys.update(DELETING)
        # What came here just now would be kept.
        arrival.keep(StoreSettings(root=node.root), time.time() - OLD)
        _restart(node, deleting, deletes=True)
    finally:
        node.kill9()
    return _rows(topics * QUEUES, seen, deleting)


def _restart(node: TurnNode, seen: Restarts, *, deletes: bool = False) -> None:
    node.start(LIMIT)
    node.until(lambda _: node.health("readyz") == 200, "ready", LIMIT)
    for _ in range(LOOKS):
        node.status()
        time.sleep(1.0)
    if deletes:
        node.until(lambda status: status["retention"]["deletedFiles"] >= 5, "deleted", LIMIT)
        time.sleep(2.0)
    node.term(LIMIT)
    seen.add(node.phases())


def _rows(queues: int, seen: Restarts, deleting: Restarts) -> list[Row]:
    turns = [1000 * turn[0] for turn in seen.longest]
    used = [1000 * turn[1] for turn in seen.longest]
    away, worked, where = max(deleting.longest)
    return [
        limited(
            f"restart at {queues:,} queues: start, until clients are served",
            "s",
            seen.start,
            SECONDS_GOAL,
        ),
        limited("the same, stop", "s", seen.stop, SECONDS_GOAL),
        limited(
            "the same, longest reactor turn of start, serving with its status, stop",
            "ms",
            turns,
            TURN_GOAL,
            ours=f"{spread(turns, 'ms')}; processor {spread(used, 'ms')}",
            notes=[f"longest turn at {queues:,} queues: {max(seen.longest)[2] or 'not seen'}"],
        ),
        limited(
            "the same, longest reactor turn while old log files are deleted",
            "ms",
            [1000 * away],
            TURN_GOAL,
            ours=f"{1000 * away:.0f} ms; processor {1000 * worked:.0f} ms",
            notes=[f"longest turn of the run that deletes: {where or 'not seen'}"],
        ),
    ]
