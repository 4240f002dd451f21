"""F14 and F38: a master that lost its log's end, and a slave that dies while it cuts its own."""

from __future__ import annotations

import shutil

from lab.harness.nodes import Node
from lab.harness.writer import Driver, Write
from rmqha.store import lost_tail
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from tests.faults.harness import FaultTestCase, rounds

FRAME = 32768


class DivergenceTestCase(FaultTestCase):
    def lose_tail(self, master: Driver, end: int) -> None:
        """What a power cut does to a killed master: the log's last, unflushed bytes are gone."""
        settings = self.settings(master)
        folder = LogFolder.load(settings.commitlog, settings.file_size)
        cut(folder, end)
        folder.close()
        flushed = max(write.end for write in master.history.acked if write.end <= end)
        lost_tail.lower(master.root, flushed, lambda: 0)

    def part(self, bytes_lost: int, **keys: object) -> tuple[Driver, Node, list[Write]]:
        """A pair whose master came back without some bytes of its log: the master, running; the
        slave,
        stopped; and the writes that are in both.
        """
        master, slave = self.pair(**keys)
        self.write(master, 2500, size=1000)
        end = master.status()["maxOffset"]
        slave.until_synced(end)
        master.kill9()
        slave.kill9()
        self.lose_tail(master, end - bytes_lost)
        master.start()
        left = master.status()["maxOffset"]
        self.assertLessEqual(left, end - bytes_lost)
        return master, slave, [write for write in master.history.acked if write.end <= left]


class LostTailTests(DivergenceTestCase):
    """F14: the slave is ahead of its master."""

    def lost(self, bytes_lost: int) -> None:
        """Nothing is acknowledged falsely or appended silently; truncate makes both equal."""
        master, slave, kept = self.part(bytes_lost, slaveTimeout=1000)
        slave.start()
        slave.until_upstream("ahead")
        held = slave.status()["maxOffset"]
        self.assertEqual(503, slave.health())
        # Until the master is longer than the slave, and after.
        statuses = set()
        for _ in range(4):
            burst = master.put(bytes_lost // 3000 + 2, size=1000, concurrency=50).wait()
            statuses |= {write.status for write in burst}
        # A slave that asks again is connected for a moment, and may be waited for in vain.
        self.assertLessEqual(statuses, {"SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"})
        self.assertGreater(master.status()["maxOffset"], held)
        slave.until_upstream("diverged")
        self.assertEqual(held, slave.status()["maxOffset"])
        self.assertNotEqual("PUT_OK", master.put(1).wait()[0].status)
        slave.term()
        slave.keys["haDivergencePolicy"] = "truncate"
        slave.start().until_synced(master.status()["maxOffset"])
        self.assertEqual(1, len(slave.cuts))
        self.assertEqual(0, slave.status()["derivedFaults"])
        new = self.write(master, 50)
        self.settle(master, slave, acked=kept + new)

    def test_byte(self) -> None:
        """One byte is lost, and with it a message."""
        self.lost(1)

    def test_message(self) -> None:
        """Some messages are lost."""
        self.lost(self.random.randint(1200, 4000))

    def test_frame(self) -> None:
        """A frame is lost."""
        self.lost(FRAME)

    def test_file(self) -> None:
        """A file and a message are lost."""
        self.lost((1 << 20) + 1200)

    def test_rebootstrap(self) -> None:
        """With the policy rebootstrap the old log is put aside and the master's copied."""
        master, slave, kept = self.part(FRAME)
        slave.keys["haDivergencePolicy"] = "rebootstrap"
        slave.start().until_synced(master.status()["maxOffset"])
        self.assertTrue((slave.root / "commitlog.aside").is_dir())
        new = self.write(master, 50)
        self.settle(master, slave, acked=kept + new)

    def test_empty_master(self) -> None:
        """A master that has nothing at all is never a reason to cut."""
        master, slave = self.pair()
        self.write(master, 100)
        slave.until_synced(master.status()["maxOffset"])
        slave.term()
        master.kill9()
        shutil.rmtree(master.root)
        for policy in ("truncate", "rebootstrap"):
            slave.keys["haDivergencePolicy"] = policy
            master.start()
            held = slave.start().status()["maxOffset"]
            slave.until(
                lambda status: status["upstream"]["state"] in ("ahead", "unproven"), "named"
            )
            self.assertEqual(held, slave.status()["maxOffset"])
            slave.term()
            master.stop()


class CutTests(DivergenceTestCase):
    """F38: a kill at any step of a truncation."""

    def test_each_step(self) -> None:
        """The next start finishes the cut, whatever step it stopped at."""
        master, slave, kept = self.part((1 << 20) + 5000, slaveTimeout=1000)
        self.write_alone(master)
        places = ["step-quarantined", "step-intended", "step-cut", "step-derived", "step-done"]
        places += ["cut-zero", "cut-file"]
        template = self.folder / "diverged"
        shutil.copytree(slave.root, template)
        for _ in rounds(1):
            for place in places:
                self.tell(place)
                shutil.rmtree(slave.root)
                shutil.copytree(template, slave.root)
                dying = Driver(
                    self.folder,
                    "slave",
                    "slave",
                    master=master.address,
                    haDivergencePolicy="truncate",
                    haReconnectBackoffMax=200,
                )
                self._processes.append(dying)
                dying.die = [place]
                dying.launch()
                self.assertEqual(-9, dying.wait(), f"{place}\n{dying.tail()}")
                self.assertEqual(master.status()["maxOffset"], self.revive(master, slave, place))
                slave.term()
        slave.start()
        new = self.write_until_fed(master)
        self.settle(master, slave, acked=kept + new)

    def revive(self, master: Driver, slave: Node, place: str) -> int:
        """Start the slave again; what was cut must be neither lost nor back."""
        slave.keys["haDivergencePolicy"] = "truncate"
        slave.start()
        status = slave.until_synced(master.status()["maxOffset"])
        kept = slave.cuts
        self.assertTrue(kept, place)
        self.assertFalse((slave.root / "rmqha" / "truncate.json").exists(), place)
        return int(status["maxOffset"])

    def write_alone(self, master: Driver) -> None:
        """Other bytes where the slave still has the old ones."""
        for write in master.put(300, size=1500, concurrency=50).wait():
            self.assertNotEqual("PUT_OK", write.status)

    def write_until_fed(self, master: Driver) -> list[Write]:
        """Writes that are acknowledged, as soon as there is a replica."""
        master.until(
            lambda status: any(row["acked"] is not None for row in status["replicas"]), "a replica"
        )
        return self.write(master, 20)
