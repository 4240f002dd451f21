"""Measure what a cold scan of a slave's files, and their upload to a tier, cost the clients of its
master, and write lab/bench/RESULTS-spark.md: C{python -m lab.bench.spark}, with the options of
L{lab.bench.table}.

The pair is on a real disk, with old files full of messages.  What is done beside it is done again
and again, on the same two processors; the S3 server has the lowest priority, since it would be
elsewhere.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from lab.bench.corpus import write_log
from lab.bench.report import percentile
from lab.bench.sends import BODY
from lab.bench.stock import JVM, STOCK
from lab.bench.table import GIB, Bench, Field, Figure, Row, Seen, Turn
from lab.harness.json_child import Piped
from lab.harness.nodes import Node, rmqha
from lab.harness.writer import Driver
from lab.stock.s3_server import BUCKET, S3Server
from rmqha.priority import Priority

FILE_SIZE = 64 << 20

PATIENCE = 180.0

#: Where a disk is, and not memory.
DISK = os.environ.get("RMQHA_BENCH_DISK") or tempfile.gettempdir()


@frozen
class Beside:
    """A pair's master, and what is done beside it, if anything is."""

    master: Driver
    work: Callable[[], object] | None = None

    def writes(self, turn: Turn) -> Seen:
        """SYNC writes, one after the other."""
        stop = threading.Event()

        def again() -> None:
            while self.work is not None and not stop.is_set():
                self.work()

        thread = threading.Thread(target=again)
        thread.start()
        try:
            count = 2000 if turn.quick or turn.number < 0 else 10_000
            put = self.master.put(count, size=BODY, concurrency=1, tell=False)
            found = put.summary(PATIENCE)
        finally:
            stop.set()
            thread.join()
        if found is None or found["statuses"] != {"PUT_OK": count}:
            raise AssertionError(f"not all were acknowledged: {found and found['statuses']}")
        return {"p99": percentile(found["micros"], 0.99)}


def _pair(field: Field) -> tuple[Driver, Node]:
    """A pair that is in sync."""
    folder = Path(tempfile.mkdtemp(prefix="rmqha-bench-", dir=DISK))
    field.opened.callback(shutil.rmtree, folder, ignore_errors=True)
    keys: dict[str, Any] = {**STOCK, "mappedFileSizeCommitLog": FILE_SIZE}
    master = Driver(folder, "master", **keys, brokerRole="SYNC_MASTER")
    slave = Node(folder, "slave", master=master.address, **keys)
    total = GIB // 8 if field.quick else GIB
    end = write_log(master.root / "commitlog", total, file_size=FILE_SIZE, bodies=(BODY,))
    shutil.copytree(master.root, slave.root)
    # Twice, so that the second time the old files are not mapped.
    for again in (True, False):
        master.start(PATIENCE)
        slave.start(PATIENCE)
        slave.until(lambda now: now["dispatchedOffset"] >= end, "built", PATIENCE)
        if again:
            slave.term()
            master.term()
    master.put(1, tell=False).wait(PATIENCE)
    slave.until_upstream("in-sync", timeout=PATIENCE)
    return master, slave


def _scanned(field: Field) -> dict[str, Beside]:
    master, slave = _pair(field)
    found = {}
    for name in Priority:
        session = Piped(name, field.folder / f"{name}.log")
        module = [sys.executable, "-m", "lab.bench.spark.session", str(field.folder / name), name]
        session.open(module)
        count = partial(session.do, "count", PATIENCE, store=str(slave.root))
        count()
        found[str(name)] = Beside(master, count)
    return {**found, "without": Beside(master)}


def _uploaded(field: Field) -> dict[str, Beside]:
    """@raise Missing: If the server was not fetched."""
    server = S3Server(field.folder)
    server.start(("nice", "-n", "19"), JVM)
    master, slave = _pair(field)
    told = slave.root, server.url("tier")

    def upload() -> None:
        rmqha("tier", *told, timeout=PATIENCE, **server.environment).check_returncode()
        shutil.rmtree(server.folder / BUCKET / "tier")

    return {"upload": Beside(master, upload), "without": Beside(master)}


def _p99(what: str, ours: str) -> Figure:
    what, goal = f"SYNC write p99 while {what}", None if ours == Priority.NORMAL else 1.2
    return Figure("p99", what, "us", goal, most=True, ours=ours, beside="without")


BENCH = Bench(
    name="bench-spark",
    rows=[
        Row(
            name="sync",
            set_up=_scanned,
            load=Beside.writes,
            figures=[
                _p99("a cold scan runs, as rmqha spark starts it", Priority.IDLE),
                _p99("a cold scan runs with --priority normal", Priority.NORMAL),
            ],
            rounds=3,
        ),
        Row(
            name="tier",
            set_up=_uploaded,
            load=Beside.writes,
            figures=[_p99("the slave's files are uploaded to a tier", "upload")],
            rounds=3,
        ),
    ],
    needed=GIB,
    limit=3000.0,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
