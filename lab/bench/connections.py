"""Memory of a master with a thousand idle replicas.

A real master process; its replicas are plain sockets of ours, each from an address of
its own in 127.0.0.0/8, that report every second and read heartbeats.  What counts is
the master's anonymous memory (RssAnon), before they come, when they are there, and
after they stayed for a while.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from lab.bench.processes import all_descriptors
from lab.bench.report import Row
from lab.harness.nodes import Node
from rmqha.wire.ha_frame import OFFSET_REPORT

GOAL = 64 << 10
"""Bytes a connection may cost."""

DRIFT = 1 << 10
"""Bytes a connection may grow by while it stays, and still be called flat."""

REPORT = OFFSET_REPORT.pack(0)


def connect(address: tuple[str, int], number: int) -> socket.socket:
    """One replica of an empty log, which it has all of."""
    source = f"127.1.{number // 250}.{number % 250 + 1}"
    replica = socket.create_connection(address, 10.0, (source, 0))
    replica.sendall(REPORT)
    return replica


def live(replicas: list[socket.socket], seconds: float) -> int:
    """Report every second and read what comes.

    @return: Bytes read.
    """
    read = 0
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        for replica in replicas:
            replica.sendall(REPORT)
            try:
                received = len(replica.recv(4096, socket.MSG_DONTWAIT))
            except BlockingIOError:
                continue
            if not received:
                raise AssertionError("the master closed a connection")
            read += received
        time.sleep(max(0.0, min(1.0, left)))
    return read


@all_descriptors()
def run(folder: Path, count: int = 1000, seconds: float = 20.0) -> list[Row]:
    """Measure the row about memory.

    @param folder: Where the master's store goes.
    @param seconds: How long the connections stay.
    """
    node = Node(folder, "master", haMaxConnections=count + 10)
    replicas: list[socket.socket] = []
    try:
        node.start()
        # Some come and go first: what the first connection makes once is no connection's.
        for number in range(10):
            connect(node.address, number).close()
        time.sleep(1.0)
        before = node.memory()
        replicas += [connect(node.address, number) for number in range(count)]
        live(replicas, 3.0)
        there = node.memory()
        heartbeats = live(replicas, seconds)
        after = node.memory()
        seen = node.status()["connections"]
    finally:
        for replica in replicas:
            replica.close()
        node.kill9()
    if seen != count or not heartbeats:
        raise AssertionError(f"{seen} of {count} connections, {heartbeats} bytes of heartbeats")
    each, grown = (after - before) / count, (after - there) / count
    return [
        Row(
            what=f"memory for {count} idle replica connections",
            ours=f"{each / 1024:.1f} KiB each, {grown / 1024:+.2f} KiB in {seconds:.0f} s",
            goal=f"<= {GOAL >> 10} KiB each, flat over time",
            met=each <= GOAL and grown <= DRIFT,
            notes=(f"master without connections: {before / (1 << 20):.1f} MiB RssAnon",),
        )
    ]
