"""F48: a stream of the slave's files during faults of the nodes, of the network and its own.

Whatever happens, each message is a row once, in the order of its queue, and no row comes
from above the published point (I10).
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.writer import Driver, Write
from rmqha.store import lost_tail
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from rmqha.store.published.publish import load
from tests.faults.harness import FaultTestCase
from tests.support.spark_needs import why_no_java

try:
    from rmqha.pipeline.scan import scan
    from tests.support.collected_stream import Gathered
    from tests.support.spark import session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why

KEYS: dict[str, object] = {"publishInterval": 300}
"""Seldom enough for a reader that reads beyond the point to be found out."""

PLANNER = "python_streaming_source_runner"
"""The module of PySpark that plans the batches of a stream, in a process of its own."""

LOST = 40_000
"""Bytes of the log that the master loses."""


class StreamFaultTestCase(FaultTestCase):
    """A pair of nodes, and a stream of what the slave has."""

    def gather(self, slave: Node, name: str = "stream", **options: object) -> Gathered:
        place = self.folder / name
        place.mkdir()
        gathered = Gathered(slave.root, place, **options)
        self.addCleanup(gathered.stop)
        gathered.start()
        return gathered

    def load(self, master: Driver) -> None:
        """Writes that go on until they are ended."""
        master.put(1_000_000, concurrency=8, rate=400, size=self.random.choice([300, 1000, 3000]))

    def grow(self, gathered: Gathered, size: int = 100_000) -> None:
        """Let the stream read some more."""
        gathered.until(gathered.end + size, again=True)

    def finish(self, master: Driver, slave: Node) -> int:
        """End the writes, let the slave have them all, and return where the log ends."""
        master.enough()
        end = 0
        while end != master.status()["maxOffset"]:
            end = master.status()["maxOffset"]
            self.passes(0.2)
        slave.until_synced(end)
        return end

    def check_rows(self, rows: list[Any], slave: Node, acked: list[Write]) -> None:
        """The rows are the log's records, each once and in order, and all that was promised."""
        offsets = [row["physical_offset"] for row in rows]
        self.assertEqual(sorted(set(offsets)), offsets)
        table = scan(slave.root, visibility="log", columns="physical_offset").read_all()
        self.assertEqual(table["physical_offset"].to_pylist(), offsets)
        following: Counter[tuple[str, int]] = Counter()
        for row in rows:
            queue = row["topic"], row["queue_id"]
            self.assertEqual(following[queue], row["queue_offset"], row)
            following[queue] += 1
        keys = [row["uniq_key"] for row in rows]
        self.assertEqual(len(set(keys)), len(keys))
        place = dict(zip(keys, offsets, strict=True))
        self.assertTrue(acked)
        self.assertEqual({w.key: w.begin for w in acked}, {w.key: place.get(w.key) for w in acked})

    def lose(self, node: Node, end: int) -> None:
        """What a power cut does to a killed node: its log's last bytes are gone."""
        settings = self.settings(node)
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        cut(folder, end)
        folder.close()


class FaultTests(StreamFaultTestCase):
    """A stream goes on over faults that take nothing away from it."""

    def through(self, master: Driver, slave: Node, fault: Any, times: int = 3) -> Gathered:
        """Let a fault happen some times while a stream reads what is written."""
        gathered = self.gather(slave, maxBytesPerTrigger="2m", readerName="f48")
        self.load(master)
        self.grow(gathered, 1)
        for _ in range(times):
            fault()
            self.grow(gathered)
        gathered.until(self.finish(master, slave), again=True)
        status = slave.status()
        (reader,) = status["readers"]
        self.assertEqual("f48", reader["name"])
        self.assertIn(reader["state"], ("current", "behind"))
        self.assertTrue(0 < reader["offset"] <= status["published"]["confirm"], status)
        gathered.stop()
        self.check_rows(gathered.rows, slave, master.history.acked)
        self.assertEqual([], gathered.beyond)
        return gathered

    def test_master_killed(self) -> None:
        """F01: the master is killed and comes back."""
        master, slave = self.pair(**KEYS)

        def kill() -> None:
            master.kill9()
            self.passes(self.random.uniform(0.0, 1.0))
            master.start()
            self.load(master)

        gathered = self.through(master, slave, kill)
        self.assertEqual(1, gathered.starts)
        self.settle(master, slave)

    def test_power_lost(self) -> None:
        """F13: the slave loses the power, and all it had written and not synced."""
        master, slave = self.pair(**KEYS)

        def lose() -> None:
            slave.kill9()
            point = load(slave.root)
            assert point is not None, "it was read"
            self.lose(slave, point.durable)
            slave.start()

        gathered = self.through(master, slave, lose)
        self.assertEqual(1, gathered.starts)
        self.settle(master, slave)

    def test_network_parted(self) -> None:
        """F19: master and slave do not hear each other for some seconds."""
        master = self.master(**KEYS).start()
        proxy = self.proxy(master.address)
        slave = self.slave(proxy.address, **KEYS).start()
        slave.until_synced(0)

        def part() -> None:
            proxy.part(True)
            self.passes(self.random.choice([1.0, 3.0]))
            proxy.part(False)

        gathered = self.through(master, slave, part, 2)
        self.assertEqual(1, gathered.starts)
        self.settle(master, slave)

    def test_workers_killed(self) -> None:
        """Spark's processes of Python are killed; the stream fails, and is started again."""
        master, slave = self.pair(**KEYS)
        gathered = self.through(master, slave, self.kill_workers)
        self.assertGreater(gathered.starts, 1)
        self.settle(master, slave)

    def kill_workers(self) -> None:
        """Kill what Spark's daemon of Python forked, and who plans the stream's batches."""
        gateway = session().sparkContext._gateway
        assert gateway is not None, "the session is not one of Connect"
        java = gateway.proc.pid

        def killed() -> bool:
            workers = [worker for daemon in children(java) for worker in children(daemon)]
            planners = [child for child in children(java) if PLANNER in command(child)]
            for process in workers + planners:
                kill(process)
            return bool(planners)

        until(killed, "who plans")


class CutBackTests(StreamFaultTestCase):
    """A stream stops when what it read is taken away."""

    def test_cut_back(self) -> None:
        """The guard cuts the slave back to where its master is: the stream stops and says
        where.  Up to there its rows are the log's; another stream from there has the rest.
        """
        master, slave = self.pair(haDivergencePolicy="truncate", slaveTimeout=1000, **KEYS)
        gathered = self.gather(slave)
        self.write(master, 800, size=1000)
        end = master.status()["maxOffset"]
        slave.until_synced(end)
        gathered.until(end)
        master.kill9()
        self.lose(master, end - LOST)
        # No fsync had covered it yet: else the master would not start without it.
        acked = master.history.acked
        flushed = max(write.end for write in acked if write.end <= end - LOST)
        lost_tail.lower(master.root, flushed, lambda: 0)
        master.start()
        left = master.status()["maxOffset"]
        kept = [write for write in master.history.acked if write.end <= left]
        self.assertLess(len(kept), len(master.history.acked))
        # Until the master has other bytes where the slave's were.
        for _ in range(4):
            master.put(LOST // 3000 + 2, size=1000, concurrency=50).wait()
        reason = gathered.until_failed()
        self.assertIn(f"cut back to byte {left}", reason)
        slave.until_synced(master.status()["maxOffset"])
        new = self.write(master, 50)
        rows = [row for row in gathered.rows if row["physical_offset"] < left]
        self.assertEqual(left, rows[-1]["physical_offset"] + rows[-1]["store_size"])
        gathered.start()
        self.assertIn(f"cut back to byte {left}", gathered.until_failed())
        rest = self.gather(slave, "rest", startingOffsets=f'{{"store": {left}}}')
        rest.until(self.finish(master, slave))
        rest.stop()
        self.check_rows(rows + rest.rows, slave, kept + new)
        self.assertEqual([], gathered.beyond + rest.beyond)
        self.settle(master, slave, acked=kept + new)


def kill(pid: int) -> None:
    """Kill a process, if it has not ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def command(pid: int) -> str:
    """A process's command line, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text(encoding="ascii").split())
        except OSError:
            continue  # a thread that has ended
    return found
