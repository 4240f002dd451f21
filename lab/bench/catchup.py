"""An empty slave that catches up with a master, beside stock ones or the shortest way to copy a
log; and what both cost afterwards, when there is nothing to do.

The shortest way is C{sendfile} on one side and C{recv_into} freshly made mapped files on the other,
in pieces of a frame's size: no headers, no checks, no queues, no reactor.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import shutil
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve

from lab.bench.corpus import write_log
from lab.bench.processes import Span
from lab.bench.sends import BODY
from lab.bench.stock import FILE_SIZE, STOCK, Peer, Stock
from lab.bench.table import GIB, Field, Figure, Row, Seen, Turn, call
from lab.harness.certificates import Authority
from lab.harness.nodes import Node
from lab.harness.remote import Remote, send

PIECE = 32 << 10
"""Bytes of one C{sendfile} and of one C{recv_into}: RocketMQ's C{haTransferBatchSize}."""

LIMIT = 180.0
"""Seconds any run may take."""

SETTLE = 5.0
"""Seconds until a pair has nothing left to do."""

SHORT_OF_A_FILE = 64 << 10
"""Bytes by which a log that stock masters serve is shorter than a file: they give an empty slave
their last one only."""

FIRST, PAUSE = 0.3, 0.02
"""Seconds that a slave is left alone after its first bytes, and between two looks near the end:
answering costs it time."""


def copy(source: Path, target: Path, total: int) -> float:
    """Copy the front of a log by the shortest way, into a folder that is made, and deleted again.

    @return: Seconds from the first byte to the last.
    """
    target.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = multiprocessing.get_context("fork").Process(
            target=_send, args=(listener.getsockname()[1], sorted(source.iterdir()), total)
        )
        sender.start()
        with listener.accept()[0] as sock:
            seconds = _receive(sock, target, total)
    sender.join()
    shutil.rmtree(target)
    return seconds


def _send(port: int, files: list[Path], total: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        left = total
        for path in files:
            with open(path, "rb") as file:
                size, position = min(left, path.stat().st_size), 0
                while position < size:
                    piece = min(PIECE, size - position)
                    position += os.sendfile(sock.fileno(), file.fileno(), position, piece)
            left -= size
        sock.shutdown(socket.SHUT_WR)
        sock.recv(1)


def _receive(sock: socket.socket, folder: Path, total: int) -> float:
    begun, done = 0.0, 0
    while done < total:
        with open(folder / f"{done:020d}", "w+b") as file:
            file.truncate(FILE_SIZE)
            view = memoryview(mmap.mmap(file.fileno(), FILE_SIZE))
        position, size = 0, min(FILE_SIZE, total - done)
        while position < size:
            count = sock.recv_into(view[position : min(position + PIECE, size)])
            begun = begun or time.perf_counter()
            if not count:
                raise ConnectionError("the sender has gone")
            position += count
        done += size
    return time.perf_counter() - begun


def follow(reached: Callable[[], tuple[int, int]], end: int, tell: Callable[[], str]) -> Seen:
    """Watch a slave that started empty, from the first look that shows bytes.

    @param reached: How far its log, and its queues and index are, in bytes.
    @return: MB a second until its log, and until queues and index were there.
    """
    deadline = time.monotonic() + LIMIT
    first = when = copied = 0.0
    while time.monotonic() < deadline:
        held, dispatched = reached()
        now = time.perf_counter()
        if not held:
            time.sleep(PAUSE)
            continue
        if not when:
            first, when = held, now
            time.sleep(FIRST)
            continue
        if held >= end:
            copied = copied or (end - first) / (now - when) / 1e6
            if dispatched >= end:
                return {"copied": copied, "built": (end - first) / (now - when) / 1e6}
        # Dispatch speeds up once all bytes are there: its first part says nothing of the rest.
        left = 0.0 if copied else 0.5 * (end - held) * (now - when) / held
        time.sleep(max(PAUSE, left))
    raise AssertionError(f"no end within {LIMIT:g} s\n{tell()}")


class Source:
    """A log that is served by a master of ours and, with a tool, by a stock one."""

    def __init__(self, folder: Path, total: int, tool: Peer | None = None, **both: object) -> None:
        """@param both: Keys of our master and of its slaves."""
        self.folder = folder
        self.tool = tool
        self.both = both
        keys: dict[str, Any] = {"messageIndexEnable": "false", **both}
        self.ours = Node(folder / "ours", "master", **STOCK, **keys)
        if tool is not None:
            total = min(total, FILE_SIZE - SHORT_OF_A_FILE)
            # Of another broker name: the name server has one master a name.
            self.java = Stock(folder / "java", tool, "java", brokerName="broker-b", **keys)
        self.log = self.ours.root / "commitlog"
        self.end = write_log(self.log, total, file_size=FILE_SIZE, bodies=(BODY,))

    def start(self) -> None:
        """Build the queues once, give both masters the store, and start them."""
        self.ours.start(LIMIT)
        self.ours.until(lambda status: status["dispatchedOffset"] >= self.end, "ready", LIMIT)
        # What is measured is an ordinary start.
        self.ours.term()
        if self.tool is not None:
            shutil.copytree(self.ours.root, self.java.root)
            self.java.start()
        self.ours.start(LIMIT)
        if self.tool is not None and self.tool.version >= "5":
            self.tool.register(self.ours.address)

    def raw(self, turn: Turn) -> Seen:
        """Copy the log by the shortest way."""
        return {"built": self.end / copy(self.log, self.folder / "raw", self.end) / 1e6}

    @contextmanager
    def slave(self, master: Node | Stock, *, java: bool) -> Iterator[tuple[Node | Stock, Seen]]:
        """An empty slave that has caught up, and how fast."""
        slave: Node | Stock
        if java:
            assert self.tool is not None, "it is stock"
            folder, name = self.folder / "java-slave", master.keys["brokerName"]
            address = master.address
            slave = Stock(folder, self.tool, "slave", role="SLAVE", master=address, brokerName=name)
        else:
            keys = STOCK | self.both
            if self.both:  # before it says TLS it asks who its master is
                keys["haMasterClientAddress"] = f"127.0.0.1:{master.port}"
            slave = Node(self.folder / "our-slave", "slave", master=master.address, **keys)
        try:
            slave.launch()
            yield slave, follow(partial(_reached, slave), self.end, slave.tail)
        finally:
            slave.kill9()
            shutil.rmtree(slave.folder)

    def caught_up(self, master: Node | Stock, java: bool, turn: Turn) -> Seen:
        with self.slave(master, java=java) as (_, seen):
            return seen

    def written(self, turn: Turn) -> Seen:
        """The same, and microseconds of a SYNC write, of one after the other."""
        count, micros = 1000 if turn.quick else 5000, []
        with self.slave(self.ours, java=False) as (slave, seen), Remote(self.ours.port) as client:
            assert isinstance(slave, Node)
            slave.until_upstream("in-sync")
            for _ in range(count):
                begun = time.perf_counter()
                answer = client.ask(send("BenchTls", bytes(BODY)))
                micros.append(1e6 * (time.perf_counter() - begun))
                if answer.code:
                    raise AssertionError(f"answered {answer.code}: {answer.remark}")
        return {**seen, "p50": statistics.median(micros[count // 4 :])}

    def idle(self, master: Node | Stock, java: bool, turn: Turn) -> Seen:
        """Percents of a core, and MiB, of both when nothing happens."""
        seconds = 5.0 if turn.quick else 20.0
        with self.slave(master, java=java) as (slave, _):
            time.sleep(SETTLE)
            both = {"master": master, "slave": slave}
            span = Span({role: process.pid for role, process in both.items()})
            time.sleep(seconds)
            used = {role: 100 * one / seconds for role, one in span.used().items()}
            held = {f"{role} MiB": process.memory() >> 20 for role, process in both.items()}
            return used | held


def _reached(slave: Node | Stock) -> tuple[int, int]:
    if not slave.running:
        raise AssertionError(f"{slave.name} has ended\n{slave.tail()}")
    if isinstance(slave, Stock):
        return slave.reached()
    try:
        status = slave.status()
    except OSError:
        return 0, 0
    return status["maxOffset"] or 0, status["dispatchedOffset"] or 0


Load = Callable[[Turn], Seen]


def _alone(kind: str, field: Field, *, disk: bool = False) -> dict[str, Load]:
    """A master of ours alone; what is measured of a slave is held against a raw copy, if any is."""
    total = GIB // 4 if field.quick else GIB if disk or kind == "idle" else 4 * GIB
    source = Source(field.on_disk(3 * total + GIB) if disk else field.folder, total)
    source.start()
    loads: dict[str, Load] = {"ours": partial(getattr(source, kind), source.ours, False)}
    return loads | ({} if kind == "idle" else {"raw copy": source.raw})


def _encrypted(field: Field) -> dict[str, Load]:
    """Pairs of ours that replicate by TLS, both ends with certificates, and in clear text."""
    authority = Authority(field.folder / "tls")
    key, path = authority.certificate("node")
    files = {"haTlsKeyPath": key, "haTlsCertPath": path, "haTlsTrustCertPath": authority.root}
    ways: dict[str, dict[str, Any]] = {"TLS": {"haTlsMode": "enforcing", **files}, "clear text": {}}
    total = GIB // 4 if field.quick else GIB
    sources = {name: Source(field.folder / name[:3], total, **keys) for name, keys in ways.items()}
    for source in sources.values():
        source.ours.keys["brokerRole"] = "SYNC_MASTER"
        source.start()
    return {name: source.written for name, source in sources.items()}


def _four(kind: str, field: Field) -> dict[str, Load]:
    """Masters of ours and stock ones, with slaves of either."""
    source = Source(field.folder, GIB // 4 if field.quick else GIB, field.tool)
    source.start()
    load = getattr(source, kind)
    return {
        OURS: partial(load, source.ours, False),
        JAVA: partial(load, source.java, True),
        **({} if kind == "idle" else {MIXED: partial(load, source.java, False)}),
    }


OURS, JAVA, MIXED = "ours -> ours", "Java -> Java", "Java -> ours"


def _figures(beside: str, rest: str = "", ours: str = "", **goals: float) -> list[Figure]:
    """Of L{Source.caught_up}: until the bytes were there, and until C{built}."""
    words = (("copied", "bytes alone"), ("built", "until queues and index are built"))
    return [
        Figure(name, f"catch-up{rest}, {what}", "MB/s", goals.get(name), ours=ours, beside=beside)
        for name, what in words
    ]


_IDLE = "idle pair after catch-up"

IDLE = [
    Figure("master", f"{_IDLE}, processor of the master", "%", 0.15, most=True),
    Figure("slave", f"{_IDLE}, processor of the slave", "%", 1.1, most=True),
    Figure("master MiB", f"{_IDLE}, RssAnon of the master", "MiB", 62, most=True),
    Figure("slave MiB", f"{_IDLE}, RssAnon of the slave", "MiB", 106, most=True),
]

ALONE = [
    *(
        Row(
            name=f"catchup{'-disk' * disk}",
            set_up=partial(_alone, "caught_up", disk=disk),
            load=call,
            figures=_figures("", f", {where}", built=goal),
            rounds=3,
        )
        for disk, where, goal in ((False, "in memory", 0.9), (True, "on a disk", 0.6))
    ),
    Row(
        name="idle",
        set_up=partial(_alone, "idle"),
        load=call,
        figures=IDLE,
        rounds=1,
        warm=0,
    ),
    Row(
        name="tls",
        set_up=_encrypted,
        load=call,
        figures=[
            Figure("copied", "first copy, replication by TLS", "MB/s", 0.7),
            Figure("p50", f"SYNC write of {BODY} bytes, replication by TLS, p50", "us", 1.5, True),
        ],
        rounds=3,
    ),
]
"""Without Java."""

BESIDE = [
    Row(
        name="catchup",
        set_up=partial(_four, "caught_up"),
        load=call,
        figures=[
            figure
            for pair in (OURS, MIXED)
            for figure in _figures(JAVA, f", {pair}", pair, copied=0.9, built=0.9)
        ],
        until=300.0,
    ),
    Row(
        name="idle",
        set_up=partial(_four, "idle"),
        load=call,
        figures=[evolve(figure, goal=None) for figure in IDLE],
        rounds=1,
        warm=0,
    ),
]
"""Beside stock RocketMQ."""
