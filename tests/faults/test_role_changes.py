"""F36: the role of the master goes round, after a kill each time."""

from __future__ import annotations

from lab.harness import compare_stores
from lab.harness.nodes import Node, until
from lab.harness.writer import Driver, History
from tests.faults.harness import BRISK, rounds
from tests.faults.test_promote import PromotionTestCase

NAMES = ("a", "b", "c")


class RoundTests(PromotionTestCase):
    """Three stores; the master is killed, the replica that holds most promoted, and followed."""

    def setUp(self) -> None:
        super().setUp()
        self.roots = {name: self.folder / "stores" / name for name in NAMES}
        self.history = History()
        self.started = 0

    def start_master(self, name: str) -> Driver:
        """Start one of the stores as the master."""
        self.started += 1
        master = Driver(
            self.folder,
            "master",
            f"{name}{self.started}",
            root=self.roots[name],
            history=self.history,
            **{**BRISK, "brokerRole": "SYNC_MASTER"},
        )
        self._processes.append(master)
        return master.start()

    def start_slaves(self, master: Driver, names: set[str]) -> dict[str, Node]:
        slaves = {}
        for at, name in enumerate(sorted(names)):
            # A replica is an address; what the old master alone has is for the quarantine.
            slaves[name] = self.slave(
                master.address,
                f"{name}{self.started}",
                root=self.roots[name],
                haLocalAddress=f"127.0.0.{2 + at}",
                haDivergencePolicy="truncate",
                # Where it learns that its first copy is whole.
                haMasterClientAddress=f"127.0.0.1:{master.port}",
            )
            slaves[name].launch()
        for slave in slaves.values():
            slave.until(lambda status: status["state"] != "recovering", "open")
            slave.until_upstream("in-sync")
        return slaves

    def kill_under_load(self, master: Driver) -> None:
        """Kill it after some acknowledged writes and before the end of others."""
        before = len(self.history.acked)
        burst = master.put(20_000, size=500, concurrency=16, rate=3000)
        more = self.random.randint(30, 600)
        until(lambda: len(self.history.acked) > before + more, "writes", tell=master.tail)
        master.kill9()
        burst.wait()

    def stop_at(self, slave: Node) -> int:
        """Stop a slave, and return where its log ends."""
        slave.term()
        log = compare_stores.open_log(self.settings(slave))
        log.folder.close()
        return log.end

    def test_round(self) -> None:
        """Every acknowledged write is on all three at the end; each epoch is higher."""
        current = "a"
        master = self.start_master(current)
        slaves = self.start_slaves(master, set(NAMES) - {current})
        epochs = []
        for _ in rounds(3):
            self.kill_under_load(master)
            ends = {name: self.stop_at(slave) for name, slave in slaves.items()}
            current = max(ends, key=lambda name: ends[name])
            promoted = self.promote(slaves[current])
            self.assertEqual(ends[current], promoted["end"])
            epochs.append(promoted["masterEpoch"])
            master = self.start_master(current)
            slaves = self.start_slaves(master, set(NAMES) - {current})
        self.assertEqual(sorted(set(epochs)), epochs)
        master.until(
            lambda status: sum(row["acked"] is not None for row in status["replicas"]) == 2, "both"
        )
        self.write(master, 50)
        self.settle(master, *slaves.values(), acked=self.history.acked)
