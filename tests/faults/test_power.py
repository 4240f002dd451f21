"""F13: power cuts, which take what was written and not waited for."""

from __future__ import annotations

from lab.harness import compare_stores
from lab.harness.nodes import until
from lab.harness.power_cut import cut
from lab.harness.writer import Driver
from tests.faults.harness import FaultTestCase, rounds

#: How likely a page stays that nobody waited for: none, some, most.
KEPT = (0.0, 0.5, 0.9)


class PowerCutTests(FaultTestCase):
    """F13, with SYNC_FLUSH on both nodes: what was acknowledged was on both disks."""

    def couple(self) -> tuple[Driver, Driver]:
        """A pair of nodes that know what they made durable."""
        keys = {"flushDiskType": "SYNC_FLUSH"}
        master = self.master(**keys)
        slave = self.driven_slave(master.address, **keys)
        for node in (master, slave):
            node.synced = self.folder / f"{node.name}-synced"
        self.start_both(master, slave)
        slave.until_synced(0)
        return master, slave

    def load(self, master: Driver) -> None:
        """Writes go on; some of them are acknowledged."""
        before = len(master.history.acked)
        master.put(
            1_000_000,
            concurrency=self.random.choice([1, 8, 32]),
            size=self.random.choice([100, 1000, 9000]),
            rate=2000,
        )
        wanted = before + self.random.randint(5, 60)
        until(lambda: len(master.history.acked) > wanted, "writes", tell=master.tail)

    def lose_power(self, master: Driver, *nodes: Driver) -> None:
        """All at once; what the master had acknowledged is on each disk."""
        acked = master.history.acked
        for node in nodes:
            node.kill9()
        for node in nodes:
            kept = self.random.choice(KEPT)
            assert node.synced is not None
            lost = cut(node.root, node.synced, self.random, kept)
            self.tell(f"{node.name}: {lost} pages lost, {kept:.0%} kept")
            with self.evidence(acked):
                missing = compare_stores.lost(self.settings(node), acked)
                self.assertEqual([], missing[:10], node.tail())

    def test_slave(self) -> None:
        """A slave has what it said is on its disk, and fetches the rest again."""
        master, slave = self.couple()
        for _ in rounds(4):
            self.load(master)
            self.lose_power(master, slave)
            slave.start()
            slave.until_upstream("in-sync")
        master.enough()
        self.settle(master, slave)

    def test_master(self) -> None:
        """A master has what it acknowledged; what else its slave had, it fetches back."""
        master, slave = self.couple()
        for _ in rounds(4):
            self.load(master)
            self.lose_power(master, master)
            self.begin_again(master)
            slave.until_upstream("in-sync")
        self.settle(master, slave)

    def test_both(self) -> None:
        """Both at once, as in one rack."""
        master, slave = self.couple()
        for _ in rounds(4):
            self.load(master)
            self.lose_power(master, master, slave)
            slave.launch()
            self.begin_again(master)
            slave.until_ready()
            slave.until_upstream("in-sync")
        self.settle(master, slave)

    def begin_again(self, master: Driver) -> None:
        """Start a master as its operator would: pages that are missing before others look like
        damage, and what lies behind them was never acknowledged.
        """
        try:
            master.start()
        except AssertionError:
            self.assertIn("damage", master.log())
            master.kill9()
            self.tell("master: --repair")
            master.arguments = ["--repair"]
            master.start()
            master.arguments = []
