"""F01 to F04: kill -9, at random moments and at chosen places."""

from __future__ import annotations

import signal
import time

from lab.harness.nodes import Node, until
from lab.harness.writer import Driver
from tests.faults.harness import FaultTestCase, rounds

#: The quickest of some restarts after a kill, in seconds; a log of some MiB is scanned in well
#: below one.
RESTART = 5.0


class KillTests(FaultTestCase):
    def wait_for_ack(self, master: Driver) -> None:
        """Wait until a new write is acknowledged."""
        before = len(master.history.acked)
        until(lambda: len(master.history.acked) > before, "a write", tell=master.tail)

    def pause(self) -> None:
        moment = time.monotonic() + self.random.uniform(0.0, 0.3)
        until(lambda: time.monotonic() >= moment, "a moment", pause=0.001)

    def restart(self, node: Node) -> float:
        """Start a node, and return seconds until it is open."""
        begun = time.monotonic()
        node.start()
        return time.monotonic() - begun

    def load(self, master: Driver) -> None:
        """Writes of random sizes that go on until they are ended."""
        master.put(
            1_000_000,
            concurrency=8,
            rate=self.random.choice([500, 2000, 5000]),
            size=self.random.choice([100, 1000, 4000]),
        )

    def test_master(self) -> None:
        """F01: killed while it writes, a master is back within seconds and has kept its word."""
        master, slave = self.pair()
        restarts = []
        for _ in rounds(8):
            self.load(master)
            self.wait_for_ack(master)
            self.pause()
            master.kill9()
            restarts.append(self.restart(master))
            self.wait_until_fed(master)
        self.assertLess(min(restarts), RESTART)
        self.write(master, 100)
        self.settle(master, slave)

    def wait_until_fed(self, master: Driver) -> None:
        master.until(
            lambda status: any(row["acked"] is not None for row in status["replicas"]), "a replica"
        )

    def test_slave(self) -> None:
        """F02: killed while it follows, a slave goes on where its log ends."""
        master, slave = self.pair()
        self.load(master)
        restarts = []
        for _ in rounds(8):
            self.wait_for_ack(master)
            self.pause()
            slave.kill9()
            restarts.append(self.restart(slave))
        self.assertLess(min(restarts), RESTART)
        self.wait_for_ack(master)
        master.enough()
        self.settle(master, slave)

    def test_both(self) -> None:
        """F03: killed together, with the disk waited for, both come back to the same log."""
        master, slave = self.pair(flushDiskType="SYNC_FLUSH")
        for _ in rounds(5):
            self.load(master)
            self.wait_for_ack(master)
            self.pause()
            first, second = self.random.sample([master, slave], 2)
            first.kill9()
            second.kill9()
            slave.launch()
            master.start()
            self.wait_until_fed(master)
        self.settle(master, slave)


#: Places of a master, and how often they may be passed before it dies there.
MASTER_PLACES = {
    "half-record": 300,
    "put-told": 300,
    "put-done": 300,
    "sync": 3,
    "synced": 3,
    "frame-header": 100,
    "frame-half": 100,
    "ack-read": 100,
    "ack-resolve": 300,
    "ack-told": 300,
    "roll-empty": 2,
    "roll-made": 2,
    "roll-room": 2,
    "roll-blank": 2,
    "unit": 20,
    "units": 300,
    "key": 300,
    "mark": 3,
    "marked": 3,
    "checkpoint": 3,
    "epoch": 1,
    "close": 1,
}

SLAVE_PLACES = {
    "frame-staged": 100,
    "frame-accept": 100,
    "frame-accepted": 100,
    "frame-verified": 100,
    "report": 100,
    "reported": 100,
    "sync": 3,
    "synced": 3,
    "roll-empty": 2,
    "roll-made": 2,
    "roll-room": 2,
    "dispatch": 100,
    "unit": 20,
    "units": 300,
    "key": 300,
    "mark": 3,
    "marked": 3,
    "checkpoint": 3,
    "discard": 1,
    "close": 1,
}

#: Only a stop passes there.
AT_A_STOP = ("close", "discard")

#: Deaths between two looks at everything.
BETWEEN_CHECKS = 5

LOAD = {"concurrency": 8, "size": 1000, "rate": 1500}

#: Small files, so that a roll comes soon, and everything flushed often.
QUICK_FLUSH = {
    "mappedFileSizeCommitLog": 262144,
    "slaveTimeout": 1000,
    "flushConsumeQueueThoroughInterval": 100,
    "flushIntervalCommitLog": 50,
    "flushCommitLogLeastPages": 1,
}


class PlaceTests(FaultTestCase):
    """F04: dying just there."""

    def die(self, master: Driver, victim: Driver, place: str, count: int) -> None:
        """Start a node that dies at a place, make it pass there, and see it dead."""
        victim.die = [f"{place}:{count}"]
        victim.launch()
        until(lambda: victim.is_ready or not victim.running, "ready or dead", tell=victim.tail)
        if victim is not master and place in AT_A_STOP:
            victim.until_upstream("in-sync")
        burst = master.put(100_000, **LOAD) if master.is_ready else None
        if place in AT_A_STOP:
            victim.signal(signal.SIGTERM)
        until(lambda: not victim.running, f"{victim.name} dead at {place}", tell=victim.tail)
        self.assertEqual(-signal.SIGKILL, victim.wait(), place)
        if burst is not None and victim is not master:
            master.enough()
            burst.wait()

    def visit(self, victim_is_master: bool, places: dict[str, int]) -> None:
        """Die at each place in a random order, looking at everything now and then."""
        master = self.master(**QUICK_FLUSH)
        slave = self.driven_slave(master.address, **QUICK_FLUSH)
        victim = master if victim_is_master else slave
        other = slave if victim_is_master else master
        other.start()
        # Half of them each day; all with RMQHA_FAULT_ROUNDS=2.
        count = min(len(places), len(rounds(len(places) // 2 + 1)))
        names = self.random.sample(list(places), count)
        for row, place in enumerate(names, 1):
            count = self.random.randint(1, places[place])
            self.tell(f"{place}:{count}")
            self.die(master, victim, place, count)
            if row % BETWEEN_CHECKS == 0 or row == len(names):
                victim.start()
                self.settle(master, slave)
                other.start()

    def test_master(self) -> None:
        """A master dies between any two steps of a write, a roll, a flush, a start or a stop."""
        self.visit(True, MASTER_PLACES)

    def test_slave(self) -> None:
        """A slave dies between any two steps of a frame, a roll, a flush or a stop."""
        self.visit(False, SLAVE_PLACES)
