"""One SYNC write at a time, from C{put} to its Deferred, in two processes.

The master is the real service tree with a writer beside it (L{lab.harness.writer}),
the slave a C{twistd} of its own.  Beside it, in turn, two small Python processes send
1 KiB one way and 8 bytes back on blocking sockets.

The split is measured in this process, on a log in the same place, one part at a time;
what is left of the whole is the wire: two reactors that wake up, three system calls on
each side, and Twisted's own way to the protocol and back.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock

from lab.bench.catchup import STOCK
from lab.bench.corpus import message
from lab.bench.raw import ping_pong
from lab.bench.report import Row, spread
from lab.harness.nodes import Node
from lab.harness.writer import Driver
from rmqha.ha.master.ledger import Ledger
from rmqha.ha.master.transfer import GroupTransfer
from rmqha.store.files.allocate import Allocator
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.log.encode import encode

BODY = 1024
LOG_FILE = 64 << 20
GOAL = 4.0

PATIENCE = 120.0


def percentile(times: list[float], share: float) -> float:
    """The value below which so many lie."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def run(folder: Path, writes: int, rounds: int) -> list[Row]:
    """Measure the rows about SYNC writes.

    @param writes: Writes, and raw round trips, of one round.
    """
    master = Driver(folder, "master", **STOCK, brokerRole="SYNC_MASTER")
    raw: list[list[float]] = []
    ours: list[list[float]] = []
    try:
        master.start()
        slave = Node(folder, "slave", master=master.address, **STOCK).start()
        try:
            # The first write waits until the slave has asked; the rest warms both up.
            master.put(1, tell=False).wait(PATIENCE)
            slave.until_upstream("in-sync", timeout=PATIENCE)
            sync_writes(master, writes // 4)
            for _ in range(rounds):
                raw.append([1e6 * seconds for seconds in ping_pong(writes)])
                ours.append(sync_writes(master, writes))
        finally:
            slave.kill9()
    finally:
        master.kill9()
    parts = split(folder / "split")
    return _rows(raw, ours, parts)


def sync_writes(master: Driver, count: int) -> list[float]:
    """Write one after the other.

    @return: Microseconds of each.
    """
    found = master.put(count, size=BODY, concurrency=1, tell=False).summary(PATIENCE)
    if found is None or found["statuses"] != {"PUT_OK": count}:
        raise AssertionError(f"not all were acknowledged: {found and found['statuses']}")
    return list(found["micros"])


def _rows(raw: list[list[float]], ours: list[list[float]], parts: dict[str, float]) -> list[Row]:
    raw50 = [statistics.median(times) for times in raw]
    ours50 = [statistics.median(times) for times in ours]
    ratio = statistics.median(a / b for a, b in zip(ours50, raw50, strict=True))
    whole = statistics.median(ours50)
    told = ", ".join(f"{name} {micros:.1f}" for name, micros in parts.items())
    rest = whole - sum(parts.values())
    return [
        Row(
            what="SYNC write of 1 KiB, one at a time, put to Deferred, p50",
            ours=spread(ours50, "us"),
            beside="1 KiB / 8-byte ping-pong " + spread(raw50, "us"),
            ratio=f"{ratio:.1f}",
            goal=f"p50 <= {GOAL:g}x",
            met=ratio <= GOAL,
            notes=(f"SYNC write, microseconds: {told}, wire (the rest) {rest:.1f}",),
        )
    ]


def _micros(work: Callable[[int], Any], times: int = 5000) -> float:
    found = []
    for n in range(times):
        begun = time.perf_counter()
        work(n)
        found.append(time.perf_counter() - begun)
    return statistics.median(found) * 1e6


def split(folder: Path) -> dict[str, float]:
    """What the parts of one write cost, in microseconds."""
    new = message("BenchTopic", 0, bytes(BODY), "0" * 32)
    record = encode(new, max_message_size=4 << 20)
    log = _log(folder / "master")
    copy = _log(folder / "slave")
    ledger = Ledger(log=log, start=0)
    transfer = GroupTransfer(ledger=ledger, clock=Clock(), needed=1)
    claim = ledger.open("replica", "127.0.0.1")
    claim.first(0)

    def append(n: int) -> None:
        log.put([record], [n], 1_700_000_000_000)

    def take(n: int) -> None:
        size = len(record)
        room = copy.reserve(copy.end, size)
        room[:] = log.read(copy.end, size)
        copy.staged(size)
        copy.accept()
        copy.verify()

    def acknowledge(n: int) -> None:
        begin = n * len(record)
        end = begin + len(record)
        claim.sent = end
        transfer.wait(begin, end)
        claim.report(end)
        transfer.acked(claim)

    try:
        return {
            "encode": _micros(lambda n: encode(new, max_message_size=4 << 20)),
            "append": _micros(append),
            "append and verify on the slave": _micros(take),
            "ledger": _micros(acknowledge),
        }
    finally:
        log.folder.close()
        copy.folder.close()


def _log(folder: Path) -> CommitLog:
    return CommitLog(folder=LogFolder(folder, LOG_FILE), end=0, allocator=Allocator())
