"""What probes and logs say while a slave has no master, and a SYNC master no replica."""

from __future__ import annotations

from lab.harness.nodes import Node, until
from tests.faults.harness import NOT_HELD, FaultTestCase

ALARM = {"haNoMasterAlarm": 1500}


class HealthTests(FaultTestCase):
    """A pair, one of which goes away and comes back."""

    def edges(self, node: Node, name: str) -> tuple[int, int]:
        """How many lines say that a reason began, and that it was over."""
        log = node.log()
        return log.count(f"Unhealthy: {name}: "), log.count(f"Healthy again: {name} is over")

    def until_said(self, node: Node, name: str, *, wrong: bool) -> None:
        """Wait until /healthz names a reason, or does so no more."""
        until(lambda: (name in node.reasons()) == wrong, f"{name} on {node.name}: {wrong}")

    def test_master_away(self) -> None:
        """A slave whose master was killed is unhealthy with a reason, stays ready and alive, and is
        well again once the master is back: a line in the log each time.
        """
        master, slave = self.pair(**ALARM)
        self.write(master, 20)
        slave.until_synced(master.status()["maxOffset"])
        self.assertEqual((200, set()), (slave.health(), slave.reasons()))
        before = self.edges(slave, "no-master")
        master.kill9()
        self.until_said(slave, "no-master", wrong=True)
        self.assertEqual(
            [503, 200, 200], [slave.health(probe) for probe in ("healthz", "readyz", "livez")]
        )
        until(lambda: self.edges(slave, "no-master")[0] > before[0], "the line of the edge")
        # Some looks later there is no second line.
        self.passes(3.0)
        self.assertEqual((before[0] + 1, before[1]), self.edges(slave, "no-master"))
        master.start()
        self.until_said(slave, "no-master", wrong=False)
        until(lambda: self.edges(slave, "no-master")[1] > before[1], "the line of the other edge")
        self.settle(master, slave)

    def test_slave_away(self) -> None:
        """A SYNC master without its slave is unhealthy with a reason, and ready, so that the slave
        finds it; writes are told that no replica holds them.
        """
        master, slave = self.pair()
        self.until_said(master, "too-few-replicas", wrong=False)
        self.write(master, 20)
        began = self.edges(master, "too-few-replicas")[0]
        slave.kill9()
        self.until_said(master, "too-few-replicas", wrong=True)
        self.assertEqual((503, 200), (master.health(), master.health("readyz")))
        writes = master.put(5, concurrency=1).wait()
        self.assertLessEqual({write.status for write in writes}, NOT_HELD)
        until(lambda: self.edges(master, "too-few-replicas")[0] > began, "the line of the edge")
        slave.start()
        self.until_said(master, "too-few-replicas", wrong=False)
        self.assertEqual(200, master.health())
        self.write(master, 20)
        self.settle(master, slave)
