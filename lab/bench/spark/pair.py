"""A pair of ours on a real disk with old files full of messages, to which SYNC writes go while
something else uses the slave's files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import frozen

from lab.bench.catchup import STOCK
from lab.bench.spark.made import make
from lab.harness.nodes import Node
from lab.harness.writer import Driver

BODY = 1024
FILE_SIZE = 64 << 20

PATIENCE = 180.0
#: Where a disk is, and not memory.
DISK = os.environ.get("RMQHA_BENCH_DISK") or tempfile.gettempdir()


@frozen
class LoadedPair:
    """A master and its slave."""

    master: Driver
    slave: Node

    def writes(self, count: int) -> list[float]:
        """Write one after the other.

        @return: What each took, in microseconds.
        @raise AssertionError: If one was not acknowledged.
        """
        found = self.master.put(count, size=BODY, concurrency=1, tell=False).summary(PATIENCE)
        if found is None or found["statuses"] != {"PUT_OK": count}:
            raise AssertionError(f"not all were acknowledged: {found and found['statuses']}")
        return list(found["micros"])

    def start(self, least: int) -> None:
        """Start both, and wait until the slave has the queues of so many bytes."""
        self.master.start(PATIENCE)
        self.slave.start(PATIENCE)
        self.slave.until(lambda now: now["dispatchedOffset"] >= least, "built", PATIENCE)

    def stop(self) -> None:
        self.slave.term()
        self.master.term()


@contextmanager
def loaded_pair(total: int) -> Iterator[LoadedPair]:
    """Start a pair that is in sync.

    @param total: Bytes of log that both have.
    """
    folder = Path(tempfile.mkdtemp(prefix="rmqha-bench-", dir=DISK))
    keys: dict[str, Any] = {**STOCK, "mappedFileSizeCommitLog": FILE_SIZE}
    master = Driver(folder, "master", **keys, brokerRole="SYNC_MASTER")
    slave: Node | None = None
    try:
        for node in ("master", "slave"):
            root = folder / node / "store"
            make(root, total, file_size=FILE_SIZE, name="broker-a")
            shutil.rmtree(root / "rmqha")  # the nodes make their own
        slave = Node(folder, "slave", master=master.address, **keys)
        pair = LoadedPair(master, slave)
        least = round(total * 0.9)
        # Twice, so that the second time the old files are not mapped.
        pair.start(least)
        pair.stop()
        pair.start(least)
        master.put(1, tell=False).wait(PATIENCE)
        slave.until_upstream("in-sync", timeout=PATIENCE)
        yield pair
    finally:
        if slave is not None:
            slave.kill9()
        master.kill9()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def beside(work: Callable[[], object] | None) -> Iterator[list[int]]:
    """Do something again and again in a thread, until the block's end.

    @param work: C{None} for nothing.
    @return: Its only element is how often it was done.
    """
    done, stop = [0], threading.Event()

    def run() -> None:
        while work is not None and not stop.is_set():
            work()
            done[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
