"""F19, F20, F22, F23, F29, F35: links that break, flap, or are slow."""

from __future__ import annotations

import time

from lab.harness.nodes import Node, until
from lab.harness.proxy import MOST_WAITING
from lab.harness.writer import Burst, Driver
from tests.faults.harness import HOUSEKEEPING, SLACK, SOON_SILENT, NetworkTestCase, rounds, seconds

MIB = 1 << 20

#: Both directions together, in seconds.
ROUND_TRIPS = (0.002, 0.01, 0.05, 0.1, 0.3)

#: 3000 kbit/s, in bytes a second.
SLOW = 375_000


class PartitionTests(NetworkTestCase):
    """F19, F20: nothing goes through, or nothing in one direction."""

    def statuses(self, burst: Burst) -> set[str]:
        return {write.status for write in burst.wait()}

    def test_moment(self) -> None:
        """A partition below the housekeeping interval costs waiting writes its length alone."""
        master, proxy, slave = self.proxied(**SOON_SILENT)
        self.write(master, 20)
        before = slave.status()["upstream"]["reconnects"]
        for _ in rounds(3):
            proxy.part(True)
            burst = master.put(5, concurrency=5)
            self.passes(self.random.uniform(0.1, HOUSEKEEPING / 4))
            self.assertFalse(burst.writes)
            proxy.part(False)
            self.assertEqual({"PUT_OK"}, self.statuses(burst))
        self.assertEqual(before, slave.status()["upstream"]["reconnects"])
        self.settle(master, slave)

    def test_partition(self) -> None:
        """Both sides notice within the interval; once healed the slave counts again."""
        master, proxy, slave = self.proxied(**SOON_SILENT, slaveTimeout=500)
        said = self.in_sync(master, slave)
        load = master.put(1_000_000, rate=300, concurrency=8)
        for _ in rounds(2):
            until(lambda: self.fed(master), "a replica", tell=slave.tail)
            proxy.part(True)
            until(lambda: not self.fed(master), "the slave dropped", HOUSEKEEPING + SLACK)
            slave.until(
                lambda status: status["upstream"]["state"] == "connecting",
                "the master left",
                HOUSEKEEPING + SLACK,
            )
            self.passes(self.random.uniform(0.0, seconds(1.0, 300.0)))
            self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master.put(1)))
            proxy.part(False)
            slave.until_upstream("in-sync", timeout=5)
        until(lambda: self.fed(master), "a replica", tell=slave.tail)
        master.enough()
        load.wait()
        self.write(master, 20)
        self.assertNotIn("-> bootstrapping", slave.log()[said:])
        self.settle(master, slave)

    def test_reports_lost(self) -> None:
        """While the slave's reports are lost no write is acknowledged, although it holds
        them; the master drops it, and a slave that nobody hears is not waited for.
        """
        master, proxy, slave = self.proxied(**SOON_SILENT, slaveTimeout=500)
        self.write(master, 20)
        proxy.set("up", swallow=True)
        burst = master.put(5, concurrency=5)
        slave.until(
            lambda status: status["maxOffset"] == master.status()["maxOffset"], "it holds them"
        )
        self.assertEqual({"FLUSH_SLAVE_TIMEOUT"}, self.statuses(burst))
        until(lambda: not self.fed(master), "the slave dropped", HOUSEKEEPING + SLACK)
        self.assertGreaterEqual(master.status()["closedConnections"].get("silent", 0), 1)
        self.assertEqual({"SLAVE_NOT_AVAILABLE"}, self.statuses(master.put(20)))
        proxy.set("up")
        proxy.cut()
        slave.until_synced(master.status()["maxOffset"])
        until(lambda: self.fed(master), "a replica")
        self.write(master, 20)
        self.settle(master, slave)


class FlappingTests(NetworkTestCase):
    """F22: a link that breaks again and again."""

    def test_progress(self) -> None:
        """The slave gets on between two breaks, and never begins its copy anew."""
        master, proxy, slave = self.proxied()
        said = self.in_sync(master, slave)
        load = master.put(1_000_000, rate=500, concurrency=20, wait=False)
        before = slave.status()["upstream"]["probes"]
        held = slave.status()["maxOffset"]
        end = time.monotonic() + seconds(4.0, 60.0)
        while time.monotonic() < end:
            window = time.monotonic() + 2.0
            while time.monotonic() < window:
                self.passes(0.4)
                self.assertTrue(proxy.cut() or slave.status()["upstream"])
            now = slave.status()["maxOffset"]
            self.assertGreater(now, held, "no progress in this window")
            held = now
        master.enough()
        load.wait()
        self.assertGreaterEqual(slave.status()["upstream"]["probes"], before + 4)
        self.assertNotIn("-> bootstrapping", slave.log()[said:])
        slave.until_synced(master.status()["maxOffset"])
        until(lambda: self.fed(master), "a replica")
        self.write(master, 20)
        self.settle(master, slave)


class SlowLinkTests(NetworkTestCase):
    """F23, F35: round trips of up to 300 ms, 3000 kbit/s, and the largest messages."""

    def test_round_trips(self) -> None:
        """A write takes its round trip; bulk fills the link's window; nobody loses patience."""
        master, proxy, slave = self.proxied(**SOON_SILENT)
        before = slave.status()["upstream"]["reconnects"]
        for round_trip in ROUND_TRIPS:
            proxy.set("both", delay=round_trip / 2)
            writes = self.write(master, 20, concurrency=4)
            median = sorted(write.micros for write in writes)[10] / 1e6
            self.assertGreaterEqual(median, round_trip)
            self.assertLess(median, round_trip + 0.25)
            size = MIB if round_trip < 0.2 else MIB // 2
            # What the proxy takes before it makes the sender wait.
            bound = round_trip / 2 + size / (MOST_WAITING / (round_trip / 2))
            what = f"{round_trip:g} s round trip"
            took = self.at_best(
                lambda size=size: self.bulk(master, slave, size), bound / 0.8 + 0.5, what
            )
            self.tell(f"{what}: {size} bytes in {took:.3f} s, bound {bound:.3f}")
        self.assertEqual(before, slave.status()["upstream"]["reconnects"])
        self.settle(master, slave)

    def test_narrow(self) -> None:
        """A link of 3000 kbit/s is used to four fifths at least."""
        master, proxy, slave = self.proxied(**SOON_SILENT)
        self.write(master, 20)
        before = slave.status()["upstream"]["reconnects"]
        proxy.set("down", rate=SLOW)
        took = self.at_best(
            lambda: self.bulk(master, slave, MIB), MIB / SLOW / 0.8 + 0.3, "3000 kbit/s"
        )
        self.assertGreater(took, 0.5 * MIB / SLOW)
        self.write(master, 20)
        self.assertEqual(before, slave.status()["upstream"]["reconnects"])
        self.settle(master, slave)

    def bulk(self, master: Driver, slave: Node, size: int) -> float:
        """Write much at once, waiting for nobody, and return seconds until the slave has it."""
        begun = time.monotonic()
        master.put(size // 20_000 + 1, size=20_000, concurrency=100, wait=False).wait()
        slave.until_synced(master.status()["maxOffset"])
        return time.monotonic() - begun

    def test_largest(self) -> None:
        """Messages of 4 MiB with almost 32 KiB of properties, in frames of 32 KiB over a link
        on which each takes more than a second: none is given up too early.
        """
        keys = {"mappedFileSizeCommitLog": 16 * MIB}
        master, proxy, slave = self.proxied(**keys)
        self.write(master, 2, size=4 * MIB, properties=32_000, concurrency=1)
        proxy.set("down", rate=3 * MIB, split=[1, 40_000])
        writes = self.write(master, 2, size=4 * MIB, properties=32_000, concurrency=1)
        self.assertGreater(min(write.micros for write in writes), 1_000_000)
        proxy.set("down")
        self.write(master, 20)
        self.settle(master, slave)


class LateReplicaTests(NetworkTestCase):
    """F29: two of three replicas are late."""

    def late(self, needed: int) -> tuple[set[str], float]:
        """Three slaves, of which two get everything much later than a master has patience: how
        writes ended
        from then on, and after how many seconds both were dropped.
        """
        keys = {**SOON_SILENT, "haReplicaIdentity": "connection", "slaveTimeout": 500}
        master = self.master(inSyncReplicas=1 + needed, **keys).start()
        proxy = self.proxy(master.address)
        good = self.slave(master.address, "good", **SOON_SILENT).start()
        slow = [self.slave(proxy.address, name, **SOON_SILENT).start() for name in ("one", "two")]
        for slave in (good, *slow):
            slave.until_synced(0)
        self.write(master, 50)
        begun = time.monotonic()
        proxy.set("both", delay=60.0)
        before = len(master.history.writes)
        load = master.put(1_000_000, rate=200, concurrency=4)
        until(lambda: self.fed(master) == 1, "both dropped", HOUSEKEEPING + SLACK)
        dropped = time.monotonic() - begun
        master.enough()
        load.wait()
        after = {write.status for write in master.put(20).wait()}
        self.assertEqual({"PUT_OK"} if needed == 1 else {"SLAVE_NOT_AVAILABLE"}, after)
        statuses = {write.status for write in master.history.writes[before:]}
        proxy.set("both")
        proxy.cut()
        for slave in slow:
            slave.until_synced(master.status()["maxOffset"])
        until(lambda: self.fed(master) == 3, "all replicas")
        self.write(master, 20)
        self.settle(master, good, *slow, acked=[])
        self.check(master, good)
        return statuses, dropped

    def test_one_is_enough(self) -> None:
        """Where one replica is waited for, nobody notices."""
        statuses, _ = self.late(1)
        self.assertEqual({"PUT_OK"}, statuses)

    def test_two_are_needed(self) -> None:
        """Where two are, writes time out until late ones are dropped, then are refused at once."""
        statuses, dropped = self.late(2)
        self.assertEqual({"FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE"}, statuses)
        self.assertGreater(dropped, HOUSEKEEPING - 1.0)
