"""Four pairs, stock and ours: how fast an empty slave catches up, and what each of the four
processes costs when there is nothing to do.

Both masters serve copies of one log and stay up; each slave starts empty, in turn.  The
log is a little shorter than a file, as a stock master gives an empty slave its last file
only.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import evolve, frozen

from lab.bench.catchup import FILE_SIZE, LIMIT, STOCK, look
from lab.bench.corpus import write_log
from lab.bench.idle import CPU_GOAL, MEMORY_GOAL, SETTLE
from lab.bench.processes import Span, memory
from lab.bench.progress import Look, Run, follow
from lab.bench.raw import copy
from lab.bench.report import Row, compared, spread
from lab.bench.stock import Peer, Stock
from lab.harness.nodes import Node

BODY = 1024

SHORT_OF_A_FILE = 64 << 10
"""Bytes by which the log is shorter than a file."""

TOLERANCE = 0.9
"""What "at least as fast" may miss."""


@frozen
class Pair:
    """Which implementation is the master, and which the slave."""

    master: str
    slave: str

    def __str__(self) -> str:
        return f"{self.master} -> {self.slave}"


STOCK_PAIR = Pair("Java", "Java")

PAIRS = (STOCK_PAIR, Pair("Java", "ours"), Pair("ours", "Java"), Pair("ours", "ours"))

GOALS = {Pair("ours", "ours"): (3.0, 2.0), Pair("Java", "ours"): (TOLERANCE, TOLERANCE)}
"""How often as fast as the stock pair: copied, and until queues and index are built."""


class Field:
    """Both masters, and slaves one at a time.

    @ivar end: Where the log ends.
    """

    def __init__(self, folder: Path, tool: Peer, total: int) -> None:
        self.folder = folder
        self.tool = tool
        self.ours = Node(folder / "ours", "master", **STOCK, messageIndexEnable="false")
        # Of another broker name: the name server has one master a name.
        self.java = Stock(
            folder / "java", tool, "java", brokerName="broker-b", messageIndexEnable="false"
        )
        self.log = self.ours.root / "commitlog"
        total = min(total, FILE_SIZE - SHORT_OF_A_FILE)
        self.end = write_log(self.log, total, file_size=FILE_SIZE, bodies=(BODY,))

    def start(self) -> None:
        """Build the queues once, give both masters the store, and start them."""
        self.ours.start(LIMIT)
        self.ours.until(lambda status: status["dispatchedOffset"] >= self.end, "ready", LIMIT)
        self.ours.term()
        shutil.copytree(self.ours.root, self.java.root)
        self.ours.start(LIMIT)
        self.java.start()
        if self.tool.version >= "5":
            self.tool.register(self.ours.address)

    def stop(self) -> None:
        """Stop both nodes and delete their stores."""
        self.ours.kill9()
        self.java.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)

    def raw(self) -> float:
        """Copy the log without any of them; bytes a second."""
        return self.end / copy(self.log, self.folder / "raw", self.end, FILE_SIZE)

    def slave(self, pair: Pair) -> Node | Stock:
        master = self.java if pair.master == "Java" else self.ours
        if pair.slave == "Java":
            return Stock(
                self.folder / "java-slave",
                self.tool,
                "slave",
                role="SLAVE",
                master=master.address,
                brokerName=master.keys["brokerName"],
            )
        return Node(self.folder / "our-slave", "slave", master=master.address, **STOCK)

    def bootstrap(self, pair: Pair) -> Run:
        slave = self.slave(pair)
        try:
            return self.catch_up(slave)
        finally:
            slave.kill9()
            shutil.rmtree(slave.folder)

    def catch_up(self, slave: Node | Stock) -> Run:
        """Start a slave and wait until its queues and index are built."""
        slave.launch()
        return follow(_eye(slave), self.end, dispatch=True, limit=LIMIT, tell=slave.tail)


def _eye(slave: Node | Stock) -> Callable[[], Look | None]:
    """How to look at a slave, which must not have ended."""

    def ask() -> Look | None:
        if not slave.running:
            raise AssertionError(f"{slave.name} has ended\n{slave.tail()}")
        return slave.look() if isinstance(slave, Stock) else look(slave)

    return ask


def run(folder: Path, tool: Peer, total: int, rounds: int, until: float, idle: float) -> list[Row]:
    """Measure the rows about catching up and about idling.

    @param total: Bytes of the log.
    @param until: When to begin no more rounds, in the monotonic clock's seconds.
    @param idle: How long idle processes are watched, in seconds.
    """
    field = Field(folder, tool, total)
    raw: list[float] = []
    runs: dict[Pair, list[Run]] = {pair: [] for pair in PAIRS}
    try:
        field.start()
        field.raw()  # once for nothing: the first of all is slower
        for number in range(rounds):
            if number and time.monotonic() > until:
                break
            raw.append(field.raw())
            for pair, found in runs.items():
                found.append(field.bootstrap(pair))
                print(f"{pair}: {found[-1]}", flush=True)
        return _rows(raw, runs) + _idle(field, idle)
    finally:
        field.stop()


def _rows(raw: list[float], runs: dict[Pair, list[Run]]) -> list[Row]:
    rows = []
    for what, part in (("copied", 0), ("until queues and index are built", 1)):
        speeds = {
            pair: [(run.copied, run.dispatched)[part] / 1e6 for run in found]
            for pair, found in runs.items()
        }
        stock = speeds[STOCK_PAIR]
        for pair, found in speeds.items():
            if pair == STOCK_PAIR:
                continue
            goal = GOALS[pair][part] if pair in GOALS else None
            name = f"catch-up, {pair}, {what}"
            rows.append(compared(name, "MB/s", found, stock, goal, beside=str(STOCK_PAIR)))
    note = "the raw copy of `make bench` here: " + spread([speed / 1e6 for speed in raw], "MB/s")
    return [*rows[:-1], evolve(rows[-1], notes=(note,))]


def _idle(field: Field, seconds: float) -> list[Row]:
    """Both pairs at once, each with a slave that has just caught up."""
    slaves: list[Node | Stock] = []
    try:
        for pair in (STOCK_PAIR, Pair("ours", "ours")):
            slave = field.slave(pair)
            slaves.append(slave)
            field.catch_up(slave)
        time.sleep(SETTLE)
        four = (field.java, slaves[0], field.ours, slaves[1])
        span = Span({str(number): process.pid for number, process in enumerate(four)})
        time.sleep(seconds)
        used = [100 * one / seconds for one in span.used().values()]
        anonymous = [memory(process.pid, "RssAnon") >> 20 for process in four]
        resident = [memory(process.pid, "VmRSS") >> 20 for process in four]
    finally:
        for slave in slaves:
            slave.kill9()
    rows = []
    limits: tuple[tuple[str, Sequence[float], str, str, float | None], ...] = (
        ("processor of one core", used, ".2f", "%", CPU_GOAL),
        ("RssAnon", anonymous, ".0f", "MiB", MEMORY_GOAL >> 20),
        ("RSS, mapped pages of log and queues included", resident, ".0f", "MiB", None),
    )
    for what, values, form, unit, limit in limits:
        texts = [f"{value:{form}} {unit}" for value in values]
        rows.append(
            Row(
                what=f"idle pair after catch-up, {what}",
                ours=f"master {texts[2]}, slave {texts[3]}",
                beside=f"Java master {texts[0]}, slave {texts[1]}",
                goal="" if limit is None else f"<= {limit:g} {unit} each",
                met=None if limit is None else max(values[2:]) <= limit,
            )
        )
    return rows
