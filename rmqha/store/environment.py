"""What a node gives its stores: clock, threads, and what a store asks and tells the node.

A slave's repair closes one store and opens another on the same files.  Each is given the same
environment when it is made, so that none can be open without the node's callbacks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from math import ceil
from pathlib import Path

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from rmqha.errors import StoreError
from rmqha.store.files.allocate import InThread
from rmqha.store.files.fsync import Fsync

Step = Callable[[str], None]
"""Told each step's name after it is done; tests die there."""


def disk_use(folder: Path) -> float:
    """How full a folder's disk is, as stock brokers count: in whole percent, rounded up.

    What only root may use counts for neither side.

    @return: 0 to 1; -1 if it is not known.
    """
    try:
        found = os.statvfs(folder)
    except OSError:
        return -1.0
    used, usable = found.f_blocks - found.f_bfree, found.f_bavail
    return ceil(100 * used / (used + usable)) / 100 if used + usable > 0 else -1.0


def local_hour(now: float) -> int:
    """The hour of the day here, 0 to 23.

    @param now: Seconds since 1970.
    """
    return time.localtime(now).tm_hour


@frozen(kw_only=True)
class StoreEnvironment:
    """The clock, the threads and the callbacks of a node's stores.

    @ivar in_thread: Runs long work in a thread.
    @ivar fsync: Makes the log's files durable.
    @ivar now_ms: Milliseconds since 1970.
    @ivar disk_use: How full a folder's disk is.
    @ivar local_hour: The hour of the day of a time, both as the operator's clock has them.
    @ivar broker_name: Whose log it is, for those who read the files.
    @ivar cluster: Of which cluster, the same.
    @ivar changed: Called when the store's state changes.
    @ivar bad_record: Told of a bad record that only dispatch found.
    @ivar held_from: The lowest offset a replica still needs, for retention; C{None} if
        none needs any.
    @ivar acknowledged: Up to where enough replicas hold the log; C{None} where no write
        waits for replicas.
    @ivar truncated: Told how many bytes were cut off the log's end, in the thread.
    @ivar step: Told of each step of a truncation; tests die there.
    """

    clock: IReactorTime
    in_thread: InThread
    fsync: Fsync
    now_ms: Callable[[], int] = lambda: int(time.time() * 1000)
    disk_use: Callable[[Path], float] = disk_use
    local_hour: Callable[[float], int] = local_hour
    broker_name: str = ""
    cluster: str = ""
    changed: Callable[[], None] = lambda: None
    bad_record: Callable[[StoreError], None] = lambda error: None
    held_from: Callable[[], int | None] = lambda: None
    acknowledged: Callable[[], int | None] = lambda: None
    truncated: Callable[[int], None] = lambda size: None
    step: Step = lambda name: None
