"""What dispatch costs a processor for each message, close behind the log's end.

A store gets messages of 1 KiB, as many at a time as a busy master's reactor finds, and dispatches
them in slices as short as a node's; only these are measured.  Who listens on a master listens here:
its meters, its held pulls, and who makes topics again.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from lab.bench.corpus import message
from lab.bench.table import Field, Figure, Row, Seen, Turn, call
from rmqha.broker.consuming.long_polling import LongPolling
from rmqha.broker.meters.meters import Meters
from rmqha.config.load import load
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.opening import Opening
from rmqha.store.paced_dispatch import LIVE_SLICE
from rmqha.store.service import StoreService
from rmqha.store.store import Store

TOGETHER = 64
"""Messages that come before a slice, as with so many producers."""

QUEUES = 8
"""Queues of a topic."""

GOALS = {1: 1.0, 1000: 2.0}
"""Microseconds of processor a message, by how many topics there are."""

KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": 128 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "brokerRole": "ASYNC_MASTER",
}


class _Wall(Clock):
    """Time goes on by itself."""

    def seconds(self) -> float:
        return perf_counter()


def opened(root: Path, clock: Clock, now_ms: int, **keys: object) -> tuple[StoreService, Store]:
    """A master's store without its node."""
    environment = StoreEnvironment(
        clock=clock,
        in_thread=maybeDeferred,
        fsync=FsyncInThread(maybeDeferred, lambda fd: None),
        now_ms=lambda: now_ms,
    )
    told = [f"{key}={value}" for key, value in (keys | {"storePathRootDir": root}).items()]
    service = StoreService(load(None, told, "master").store, Opening(master=True), environment)
    service.startService()
    assert service.opened is not None, "a new store is open at once"
    return service, service.opened


def _topics(field: Field) -> dict[str, Callable[[Turn], Seen]]:
    return {f"{topics:,}": partial(_round, field.folder / "store", topics) for topics in GOALS}


def _round(root: Path, topics: int, turn: Turn) -> Seen:
    clock = _Wall()
    service, store = opened(root, clock, 1_700_000_000_000, **KEYS)
    meters = Meters(clock=clock, cluster="DefaultCluster")
    meters.watch(store.queues)
    polling = LongPolling(clock, store.queues, store.dispatcher)
    random, body = Random(35), bytes(1024)
    places = [(f"Topic{number:05d}", queue) for number in range(topics) for queue in range(QUEUES)]
    try:
        for topic, queue in places:
            store.put(message(topic, queue, body, f"{random.getrandbits(128):032X}"))
        _dispatch(store)
        gc.collect()
        gc.freeze()  # as a node does before it serves
        taken, slices = 0.0, (8192 if turn.quick else 32_768) // TOGETHER
        for _ in range(slices):
            for topic, queue in random.choices(places, k=TOGETHER):
                store.put(message(topic, queue, body, f"{random.getrandbits(128):032X}"))
            taken += _dispatch(store)
        return {"processor": 1e6 * taken / (slices * TOGETHER)}
    finally:
        gc.unfreeze()
        polling.stop()
        service.stopService()
        shutil.rmtree(root)


def _dispatch(store: Store) -> float:
    begun = process_time()
    while store.dispatcher.run(LIVE_SLICE):
        pass
    return process_time() - begun


ROWS = [
    Row(
        name="dispatching",
        set_up=_topics,
        load=call,
        figures=[
            Figure(
                "processor",
                f"dispatch of one message, {topics:,} topics x {QUEUES} queues, processor",
                "us",
                goal,
                most=True,
                ours=f"{topics:,}",
                beside=None,
            )
            for topics, goal in GOALS.items()
        ],
        rounds=3,
        warm=0,
    )
]
