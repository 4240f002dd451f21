"""F49: faults one after the other, for as long as one likes.

C{RMQHA_SOAK=3600 python -m pytest -s tests/faults/test_soak.py} runs it for an hour; every day it
runs for some seconds, so that it still can.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable

from lab.harness.nodes import Node
from lab.harness.proxy import Proxy
from lab.harness.writer import Burst, Driver
from tests.faults.harness import SOON_SILENT, NetworkTestCase

#: How long it lasts, in seconds.
LASTS = float(os.environ.get("RMQHA_SOAK", "15"))

#: How long it must last before anything is said of memory.
WARM = 600.0

#: Most that a node's memory may grow, in MiB an hour, and what is noise.
SLOPE, NOISE = 1.0, 8.0


class SoakTests(NetworkTestCase):
    """A pair under a light load, with a fault every few seconds."""

    def test_soak(self) -> None:
        """Whatever comes in whatever order: no acknowledged write is lost, and logs are equal."""
        self.master_, self.proxy_, self.slave_ = self.proxied(**SOON_SILENT)
        self.loads: list[Burst] = []
        faults: list[Callable[[Driver, Proxy, Node], None]] = [
            self.kill_master,
            self.kill_slave,
            self.kill_both,
            self.stop_slave,
            self.freeze_slave,
            self.freeze_master,
            self.cut_link,
            self.part_silently,
        ]
        done: Counter[str] = Counter()
        first: dict[str, int] = {}
        end = time.monotonic() + LASTS
        begun = time.monotonic()
        while time.monotonic() < end:
            self.load()
            fault = self.random.choice(faults)
            done[fault.__name__] += 1
            fault(self.master_, self.proxy_, self.slave_)
            self.slave_.until_upstream("in-sync")
            if time.monotonic() - begun > WARM and not first:
                first = self.memory()
        if first:
            self.check_memory(first, time.monotonic() - begun - WARM)
        self.tell(f"faults: {dict(done)}; {len(self.master_.history.acked)} writes acknowledged")
        self.master_.enough()
        for load in self.loads:
            load.wait()
        self.settle(self.master_, self.slave_)

    def load(self) -> None:
        """Writes for the next while."""
        size = self.random.choice([100, 1000, 16_000])
        count = self.random.randint(200, 2000)
        self.loads.append(self.master_.put(count, size=size, concurrency=8, rate=2000, tell=True))
        self.passes(self.random.uniform(0.0, 1.0))

    def memory(self) -> dict[str, int]:
        return {node.name: node.memory() for node in (self.master_, self.slave_)}

    def check_memory(self, first: dict[str, int], lasted: float) -> None:
        """I5: memory does not grow with time."""
        for name, now in self.memory().items():
            grown = (now - first[name]) / (1 << 20)
            self.tell(f"{name}: {grown:+.1f} MiB in {lasted:.0f} s")
            self.assertLess(grown, NOISE + SLOPE * lasted / 3600, name)

    # --- faults -------------------------------------------------------------

    def kill_master(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        master.kill9()
        master.start()

    def kill_slave(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        slave.kill9()
        slave.start()

    def kill_both(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        for node in self.random.sample([master, slave], 2):
            node.kill9()
        slave.launch()
        master.start()
        slave.until(lambda status: status["state"] != "recovering", "open")

    def stop_slave(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        slave.term()
        slave.start()

    def freeze_slave(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        self.freeze(slave)

    def freeze_master(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        self.freeze(master)

    def freeze(self, node: Node) -> None:
        """For less and for more than the housekeeping interval."""
        node.freeze()
        self.passes(self.random.uniform(0.1, 4.0))
        node.thaw()

    def cut_link(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        proxy.cut()

    def part_silently(self, master: Driver, proxy: Proxy, slave: Node) -> None:
        """A partition of which neither side is told."""
        proxy.part(True)
        self.passes(self.random.uniform(0.1, 4.0))
        proxy.part(False)
