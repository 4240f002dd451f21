"""Catching up: an empty slave and a master with a log, two C{twistd} processes.

Beside it, in turn, the same log is copied by L{lab.bench.raw.copy}.  A slave's speed is
taken from its C{/status} (L{lab.bench.progress}).
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from lab.bench.corpus import write_log
from lab.bench.progress import Look, Run, follow
from lab.bench.raw import copy
from lab.bench.report import Row, compared, limited, spread
from lab.harness.nodes import Node

FILE_SIZE = 1 << 30

STOCK = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "haSendHeartbeatInterval": 5000,
}
"""RocketMQ's defaults, where L{lab.harness.nodes} has small ones."""

LIMIT = 180.0
"""Seconds any run may take."""

DISPATCHED_GOAL = 600
"""MB/s of a first copy until queues and index are built."""


class Source:
    """A master that serves a log made for the purpose."""

    def __init__(self, folder: Path, total: int, bodies: tuple[int, ...]) -> None:
        self.folder = folder
        self.node = Node(folder, "master", **STOCK, messageIndexEnable="false")
        self.log = self.node.root / "commitlog"
        self.end = write_log(self.log, total, file_size=FILE_SIZE, bodies=bodies)

    def start(self) -> None:
        """Start it, and let it dispatch its log, so that it is idle afterwards."""
        self.node.start(LIMIT)
        self.node.until(lambda status: status["dispatchedOffset"] >= self.end, "dispatched", LIMIT)

    def stop(self) -> None:
        """Stop the node and delete its store."""
        self.node.kill9()
        shutil.rmtree(self.folder)

    def raw(self) -> float:
        """Copy the log without us; bytes a second."""
        return self.end / copy(self.log, self.folder / "raw", self.end, FILE_SIZE)

    def bootstrap(self, *, dispatch: bool = False) -> Run:
        """Let an empty slave catch up.

        @param dispatch: Whether to wait for queues and index.
        """
        folder = self.folder / "slave"
        slave = Node(folder, "slave", master=self.node.address, **STOCK)
        try:
            slave.launch()
            return self._follow(slave, dispatch)
        finally:
            slave.kill9()
            shutil.rmtree(folder)

    def _follow(self, slave: Node, dispatch: bool) -> Run:
        return follow(
            lambda: look(slave), self.end, dispatch=dispatch, limit=LIMIT, tell=slave.tail
        )


def look(node: Node) -> Look | None:
    """Ask a node of ours how far it is."""
    try:
        status = node.status()
    except OSError:
        return None
    return Look(status["maxOffset"] or 0, status["dispatchedOffset"] or 0)


def _mb(values: list[float]) -> str:
    return spread([value / 1e6 for value in values], "MB/s")


def run(folder: Path, total: int, rounds: int) -> list[Row]:
    """Measure all rows about catching up.

    @param total: Bytes of the log.
    """
    copies = _copies(Source(folder / "mixed", total, (900, 1900, 2900, 3900)), rounds)
    return copies + _until_dispatched(Source(folder / "one", total, (1024,)), rounds)


def _copies(source: Source, rounds: int) -> list[Row]:
    raw: list[float] = []
    checked: list[float] = []
    try:
        source.start()
        source.raw()  # once for nothing: the first of all is slower
        for _ in range(rounds):
            raw.append(source.raw())
            checked.append(source.bootstrap().copied)
    finally:
        source.stop()
    on, copied = ([value / 1e6 for value in found] for found in (checked, raw))
    return [compared("catch-up, every record checked", "MB/s", on, copied, 0.6, beside="raw copy")]


def _until_dispatched(source: Source, rounds: int) -> list[Row]:
    raw: list[float] = []
    found: list[Run] = []
    try:
        source.start()
        for _ in range(rounds):
            raw.append(source.raw())
            found.append(source.bootstrap(dispatch=True))
    finally:
        source.stop()
    speeds = [run.dispatched for run in found]
    return [
        limited(
            "catch-up until queues and index are built",
            "MB/s",
            [speed / 1e6 for speed in speeds],
            DISPATCHED_GOAL,
            least=True,
            ours=_mb(speeds) + "; bytes alone " + _mb([run.copied for run in found]),
            beside="raw copy " + _mb(raw),
            ratio=f"{statistics.median(speeds) / statistics.median(raw):.2f}",
        )
    ]
