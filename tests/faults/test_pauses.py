"""F05, F06, F07: nodes that are stopped and started, or stand still for a while."""

from __future__ import annotations

import signal
import time

from lab.harness.nodes import Node, until
from lab.harness.writer import Driver
from tests.faults.harness import (
    HOUSEKEEPING,
    NOT_HELD,
    SLACK,
    SOON_SILENT,
    NetworkTestCase,
    rounds,
    seconds,
)


class BounceTests(NetworkTestCase):
    """F05: clean stops under load."""

    def bounce(self, victim: str) -> None:
        """Writes that begin after the return are all acknowledged; none that was is lost."""
        master, slave = self.pair(slaveTimeout=1500)
        for _ in rounds(5):
            burst = master.put(1_000_000, rate=500, concurrency=8)
            until(lambda burst=burst: len(burst.writes) > 50, "load", tell=master.tail)
            if victim == "master":
                self.assertEqual(0, master.stop(), master.tail())
                burst.wait()
                master.start()
            else:
                self.assertEqual(-signal.SIGTERM, slave.term(), slave.tail())
                slave.start()
                master.enough()
                burst.wait()
            until(lambda: self.fed(master), "a replica", tell=slave.tail)
            self.write(master, 50)
        stopping = {"SERVICE_NOT_AVAILABLE", "REFUSED"} if victim == "master" else set()
        self.assertLessEqual(set(master.history.statuses), {"PUT_OK", *NOT_HELD, *stopping})
        self.settle(master, slave)

    def test_master(self) -> None:
        """The master, five times."""
        self.bounce("master")

    def test_slave(self) -> None:
        """The slave, five times."""
        self.bounce("slave")


class StandstillTests(NetworkTestCase):
    """F06, F07: C{SIGSTOP}, and C{SIGCONT} later."""

    def stopped_pair(self) -> tuple[Driver, Node]:
        master, slave = self.pair(**SOON_SILENT, slaveTimeout=500)
        self.write(master, 50)
        return master, slave

    def test_slave_for_a_moment(self) -> None:
        """A pause below the housekeeping interval costs nothing: a write that waits gets its
        acknowledgement, over the same connection.
        """
        master, slave = self.pair(**SOON_SILENT)
        self.write(master, 50)
        before = slave.status()["upstream"]["reconnects"]
        slave.freeze()
        burst = master.put(5, concurrency=5)
        self.passes(HOUSEKEEPING / 4)
        self.assertFalse(burst.writes)
        slave.thaw()
        self.assertEqual({"PUT_OK"}, {write.status for write in burst.wait()})
        self.assertEqual(before, slave.status()["upstream"]["reconnects"])
        self.settle(master, slave)

    def test_slave(self) -> None:
        """A master drops a slave that stands still after the housekeeping interval; writes
        time out before that, and do not wait after it.
        """
        master, slave = self.stopped_pair()
        slave.freeze()
        begun = time.monotonic()
        burst = master.put(3, concurrency=3)
        until(lambda: not self.fed(master), "the slave dropped", HOUSEKEEPING + SLACK)
        # Its last report may be one heartbeat old.
        self.assertGreater(time.monotonic() - begun, HOUSEKEEPING - 1.0)
        self.assertEqual({"FLUSH_SLAVE_TIMEOUT"}, {write.status for write in burst.wait()})
        alone = master.put(20).wait()
        self.assertEqual({"SLAVE_NOT_AVAILABLE"}, {write.status for write in alone})
        self.assertLess(sorted(write.micros for write in alone)[10], 400_000)
        self.passes(seconds(1.0, 280.0))
        slave.thaw()
        slave.until_synced(master.status()["maxOffset"])
        until(lambda: self.fed(master), "a replica")
        self.write(master, 50)
        self.settle(master, slave)

    def test_master(self) -> None:
        """A slave leaves a master that stands still after the housekeeping interval and asks
        ever more slowly; when it goes on, so does the slave, and nothing has diverged.
        """
        master, slave = self.stopped_pair()
        burst = master.put(1_000_000, rate=500, concurrency=8)
        until(lambda: len(burst.writes) > 50, "load", tell=master.tail)
        before = slave.status()["upstream"]["reconnects"]
        master.freeze()
        slave.until(
            lambda status: (
                status["upstream"]["reconnects"] > before
                and status["upstream"]["state"] != "in-sync"
            ),
            "the master left",
            HOUSEKEEPING + SLACK,
        )
        pause = seconds(2.0, 30.0)
        self.passes(pause)
        # One connection and what it takes to find it silent, each time.
        tries = slave.status()["upstream"]["reconnects"] - before
        self.assertLessEqual(tries, 2 + pause / (HOUSEKEEPING / 2))
        master.thaw()
        slave.until_upstream("in-sync")
        until(lambda: self.fed(master), "a replica")
        master.enough()
        burst.wait()
        self.write(master, 50)
        self.assertNotIn("diverged", slave.log())
        self.assertNotIn("ahead", slave.log())
        self.settle(master, slave)
