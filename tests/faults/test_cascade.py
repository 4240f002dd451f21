"""F42: a slave behind a slave, and what it does when the one in the middle has less."""

from __future__ import annotations

from lab.harness.nodes import Node, until
from lab.harness.proxy import Proxy
from lab.harness.writer import Driver
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from tests.faults.harness import SOON_SILENT, FaultTestCase, rounds

#: How long the one behind is watched while it waits, in seconds.
WATCHED = 8.0

#: Log lines a second that are no storm.
LINES = 4.0


class CascadeTestCase(FaultTestCase):
    def row(self, **keys: object) -> tuple[Driver, Proxy, Node, Node]:
        """A master, a slave, and a slave of that: the master, the network before them, and both."""
        master = self.master().start()
        network = self.proxy(master.address)
        calm = {"haReconnectBackoffMax": 1000}
        middle = self.slave(network.address, "middle", **calm).start()
        last = self.slave(middle.address, "last", **{**calm, **SOON_SILENT, **keys}).start()
        self.write(master, 600, size=1000)
        last.until_synced(master.status()["maxOffset"])
        return master, network, middle, last

    def settle_row(self, master: Driver, middle: Node, last: Node) -> None:
        """All three are equal, and no policy has cut anything on the way."""
        self.settle(master, middle, last)
        for node in (middle, last):
            self.assertNotIn("Repaired the log", node.log())


class RowTests(CascadeTestCase):
    def test_killed_in_the_middle(self) -> None:
        """Under load the one in the middle is killed, again and again."""
        master, _, middle, last = self.row()
        burst = master.put(1_000_000, size=900, concurrency=8, rate=1500)
        for _ in rounds(3):
            before = len(burst.writes)
            until(lambda n=before: len(burst.writes) > n + 300, "load", tell=master.tail)
            self.random.choice((middle, last)).kill9()
            middle.kill9()
            self.passes(self.random.uniform(0.1, 1.0))
            for node in (middle, last):
                if not node.running:
                    node.start()
        master.enough()
        burst.wait()
        self.settle_row(master, middle, last)

    def test_the_master_counts_its_own(self) -> None:
        """A write waits for the slave of the master, not for the one behind it."""
        master, _, middle, last = self.row()
        self.assertEqual(1, len(master.status()["replicas"]))
        (row,) = middle.status()["replicas"]
        self.assertEqual("in-sync", row["state"])
        last.kill9()
        self.write(master, 20)
        last.start()
        middle.kill9()
        self.assertNotEqual("PUT_OK", master.put(1).wait()[0].status)
        middle.start()
        self.settle_row(master, middle, last)

    def test_the_master_is_away(self) -> None:
        """What the one in the middle has goes on to be served; nobody loses a connection."""
        master, network, middle, last = self.row()
        network.kill9()
        middle.until_upstream("connecting")
        before = last.status()["upstream"]
        self.passes(5)
        after = last.status()["upstream"]
        self.assertEqual(before, {**after, "secondsSilent": before["secondsSilent"]})
        network.start()
        middle.until_upstream("in-sync")
        self.write(master, 20)
        self.settle_row(master, middle, last)


class AheadTests(CascadeTestCase):
    def waits(self, middle: Node, last: Node) -> None:
        """For as long as we watch, the one behind has what it had, and few words."""
        held = last.status()["maxOffset"]
        self.assertLess(middle.status()["maxOffset"], held)
        said = [node.log().count("\n") for node in (middle, last)]
        self.passes(WATCHED)
        status = last.status()
        self.assertEqual(held, status["maxOffset"])
        self.assertIn(status["upstream"]["state"], ("connecting", "probing", "catching-up"))
        self.assertEqual(200, last.health())
        for node, lines in zip((middle, last), said, strict=True):
            more = node.log().count("\n") - lines
            self.assertLess(more, 10 + LINES * WATCHED, node.tail(60))

    def elsewhere(self, policy: str) -> None:
        """It followed the master meanwhile, and comes back before the middle one has its master."""
        master, network, middle, last = self.row(haDivergencePolicy=policy)
        middle.kill9()
        last.term()
        behind = last.keys["haMasterAddress"]
        last.keys["haMasterAddress"] = f"127.0.0.1:{master.ha_port}"
        last.start()
        last.until_synced(master.status()["maxOffset"])
        self.write(master, self.random.randint(1, 200), size=700)
        last.until_synced(master.status()["maxOffset"])
        last.term()
        network.kill9()
        last.keys["haMasterAddress"] = behind
        middle.start()
        last.start()
        self.waits(middle, last)
        network.start()
        last.until_synced(master.status()["maxOffset"])
        self.write(master, 50)
        self.settle_row(master, middle, last)

    def test_stop(self) -> None:
        """With the policy stop it waits."""
        self.elsewhere("stop")

    def test_truncate(self) -> None:
        """With the policy truncate it waits too: a slave that lags is no reason to cut."""
        self.elsewhere("truncate")

    def test_power_cut(self) -> None:
        """The one in the middle lost its log's end, and gets it again from its master."""
        master, network, middle, last = self.row(haDivergencePolicy="truncate")
        middle.kill9()
        end = master.status()["maxOffset"]
        settings = self.settings(middle)
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        cut(folder, end - self.random.randint(1, 200_000))
        folder.close()
        network.kill9()
        middle.start()
        self.waits(middle, last)
        network.start()
        last.until_synced(end)
        self.write(master, 50)
        self.settle_row(master, middle, last)
