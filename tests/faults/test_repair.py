"""Damage at rest that a replica has whole: brought back, whenever the command is killed."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from lab.harness.nodes import Node
from lab.harness.writer import Driver
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from tests.faults.harness import FaultTestCase, rounds
from tests.support import damage
from tests.support.commands import RMQHA, ended
from tests.support.effort import slow

#: Size of each file of these logs.
SIZE = 1 << 18

#: Size of each body.
BODY = 4000

SMALL_FILES: dict[str, object] = {"mappedFileSizeCommitLog": SIZE}

#: Runs the command and kills it by itself, just behind a step.
KILLED = """
import os, signal, sys
from rmqha.cli import repair
from rmqha.store.repair.stopped_store import StoppedStore

left = int(sys.argv[1])

def step(name):
    global left
    left -= 1
    if left == 0:
        print("killed at", name, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

repair.StoppedStore = lambda **given: StoppedStore(step=step, **given)
from rmqha.cli.main import main
main(sys.argv[2:])
"""


class RepairTestCase(FaultTestCase):
    """A pair whose logs have many files; one of them is damaged at rest."""

    def stopped_pair(self) -> tuple[Driver, Node, dict[str, bytes]]:
        """A pair with the same log, the master stopped; and the files of that log."""
        master, slave = self.pair(**SMALL_FILES)
        self.write(master, 360, size=BODY)
        slave.until_synced(master.status()["maxOffset"])
        self.assertEqual(0, master.stop())
        return master, slave, self.files(master)

    def files(self, node: Node) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (node.root / "commitlog").iterdir()}

    def harm(self, node: Node) -> None:
        """A hole, a missing file, and flipped bits of bodies, at places of the test's seed.  Not in
        the first file: that one is missing is what retention leaves.
        """
        log = OfflineLog(node.root)
        starts = [start for _, block in scan(log, 0, log.end) for start in block.start.tolist()]
        log.close()
        files = sorted((node.root / "commitlog").iterdir())
        self.assertGreater(len(files), 5)
        hole, gone, flipped = self.random.sample(files[1:-1], 3)
        at = self.random.randrange(SIZE - 9000)
        damage.overwrite(hole, at, random.Random(self.seed).randbytes(9000))
        gone.unlink()
        first = int(flipped.name)
        inside = [start for start in starts if first <= start < first + SIZE]
        for start in self.random.sample(inside, 3):
            place = start - first + self.random.randrange(100, BODY)
            damage.flip(flipped, place, self.random.randrange(8))
        self.tell(f"hole in {hole.name} at {at}, {gone.name} gone, bits of {flipped.name}")

    def command(self, store: Path, source: str, *, die: int = 0) -> list[str]:
        """C{rmqha repair}, which dies at a step."""
        program = [str(RMQHA)] if not die else ["-c", KILLED, str(die)]
        return [sys.executable, *program, "repair", str(store), "--from", source]

    def run_it(self, command: list[str], code: int = 0, *, tell: Callable[[], str] = str) -> str:
        """Run it to its end."""
        done = ended(*command)
        said = done.stdout + done.stderr
        self.assertEqual(code, done.returncode, f"{said}{tell()}")
        return done.stdout

    def assert_as_before(self, node: Node, files: dict[str, bytes], why: str) -> None:
        """The log is what it was, byte for byte."""
        found = self.files(node)
        self.assertEqual(sorted(files), sorted(found), why)
        differ = [name for name, data in files.items() if found[name] != data]
        self.assertEqual([], differ, why)

    def source_of(self, slave: Node, live: bool) -> str:
        """Where to fetch from: the HA port of the running slave, or its store when stopped."""
        if live:
            return f"127.0.0.1:{slave.ha_port}"
        if slave.running:
            slave.term()
        return str(slave.root)


class RepairTests(RepairTestCase):
    @slow
    def test_brought_back(self) -> None:
        """A damaged master gets its bytes from its slave's HA port, and from its store: it starts,
        the slave follows, and no acknowledged write is missing.
        """
        for live in (True, False):
            self.setUp()
            master, slave, whole = self.stopped_pair()
            self.harm(master)
            source = self.source_of(slave, live)
            said = self.run_it(self.command(master.root, source), tell=slave.tail)
            self.tell(said)
            self.assert_as_before(master, whole, said)
            if not live:
                slave.launch()
            slave.until_synced(master.start().status()["maxOffset"])
            self.write(master, 20)
            self.settle(master, slave)

    @slow
    def test_killed(self) -> None:
        """Killed behind each step in turn, then run again, or started: the log is whole."""
        master, slave, whole = self.stopped_pair()
        source = self.source_of(slave, live=False)
        for number in rounds(4):
            self.harm(master)
            die = 1 + number % 4
            said = self.run_it(self.command(master.root, source, die=die), code=-signal.SIGKILL)
            self.tell(said.strip())
            certain = (master.root / "rmqha" / "repair.json").exists()
            self.assertEqual(certain, die > 1, said)
            if certain and number % 2:
                master.start()
                self.assertEqual(0, master.stop())
            else:
                said = self.run_it(self.command(master.root, source))
            self.assertFalse((master.root / "rmqha" / "repair.json").exists())
            self.assert_as_before(master, whole, said)
        self.ended("verify", "--deep", master.root)


class DamagedMasterTests(RepairTestCase):
    """A master that has lost a body long ago, and does not know; and an empty slave."""

    @slow
    def test_empty_slave_gets_past_it(self) -> None:
        """The slave copies everything and says which record is damaged; SYNC writes succeed; a
        restart cuts nothing; and another replica has the bytes that bring the record back.
        """
        master, whole, files = self.stopped_pair()
        whole.term()
        path = sorted((master.root / "commitlog").iterdir())[1]
        place = self.random.randrange(100, BODY)
        damage.flip(path, place)
        self.tell(f"bit of {path.name} at {place}")
        damaged = self.files(master)
        slave = self.slave(master.address, "empty", **SMALL_FILES)
        self.start_both(master, slave)
        end = master.status()["maxOffset"]
        status = slave.until_synced(end)
        faults = status["faultsFromMaster"]
        self.assertEqual(1, faults["count"])
        at = faults["records"][0]["offset"]
        self.assertEqual(int(path.name), at)
        self.assertEqual(503, slave.health())
        self.assertEqual(1, slave.log().count(f"byte {at}, {faults['records'][0]['size']} bytes"))
        self.write(master, 20)
        slave.until_synced(master.status()["maxOffset"])
        slave.term()
        slave.start()
        slave.until_synced(master.status()["maxOffset"])
        self.assertEqual(1, slave.status()["faultsFromMaster"]["count"])
        self.assertFalse((slave.root / "rmqha" / "quarantine").exists(), "nothing was cut")
        slave.term()
        self.assertEqual(0, master.stop())
        self.assertEqual(self.files(slave), self.files(master))
        self.assertNotEqual(damaged, files)
        for node in (slave, master):
            self.run_it(self.command(node.root, str(whole.root)))
        self.assertEqual(self.files(slave), self.files(master))
        self.assertEqual(files[path.name], path.read_bytes())
        self.start_both(master, slave)
        slave.until(lambda status: status["faultsFromMaster"]["count"] == 0, "no fault is left")
        self.settle(master, slave)


class LiveTests(RepairTestCase):
    """A slave whose disk loses something while it serves."""

    def scrubbed(self) -> tuple[Driver, Node, Path]:
        """A pair whose scrubbers look again and again, and a file of the slave's log."""
        keys = {**SMALL_FILES, "scrubInterval": 500, "scrubBytesPerSecond": 200 << 20}
        master, slave = self.pair(**keys)
        self.write(master, 300, size=BODY)
        slave.until_synced(master.status()["maxOffset"])
        return master, slave, sorted((slave.root / "commitlog").iterdir())[1]

    @slow
    def test_slave_repairs_itself(self) -> None:
        """Its scrubber finds the damage, it fetches the bytes from its master without missing a
        write, says what it has replaced, and the fault is gone from the status.
        """
        master, slave, path = self.scrubbed()
        whole = path.read_bytes()
        damage.overwrite(path, self.random.randrange(100, 3000), random.Random(7).randbytes(9000))
        writing = master.put(200, size=500, concurrency=2)
        status = slave.until(lambda status: status["repair"]["ranges"], "repaired")
        self.assertEqual("", status["repair"]["trouble"])
        slave.until(lambda status: not status["scrub"]["faultCount"], "no fault is left")
        self.assertEqual(whole, path.read_bytes())
        self.assertIn("Damage at rest: ", slave.log())
        self.assertRegex(
            slave.log(), r"Repaired bytes \d+ to \d+ of the log with those of the master"
        )
        self.assertEqual({"PUT_OK"}, {write.status for write in writing.wait()})
        self.assertEqual(1, len([*(slave.root / "rmqha" / "quarantine").iterdir()]))
        self.settle(master, slave)

    @slow
    def test_properties_differ_on_the_master(self) -> None:
        """A body that the slave's disk has lost comes from the master; properties of that record
        that the master's disk has lost do not, and that they differ is named until somebody has
        looked.
        """
        master, slave, path = self.scrubbed()
        whole, first = path.read_bytes(), int(path.name)
        log = OfflineLog(slave.root)
        starts = [start for _, block in scan(log, 0, log.end) for start in block.start.tolist()]
        log.close()
        at, behind = [start - first for start in starts if start > first][5:7]
        # Of the properties, in the value of the last one.
        damage.flip(master.root / "commitlog" / path.name, behind - 3)
        damage.flip(path, at + 200)
        slave.until(lambda status: status["repair"]["ranges"], "repaired")
        slave.until(lambda status: not status["scrub"]["faultCount"], "no fault is left")
        self.assertEqual(whole, path.read_bytes())
        (other,) = slave.status()["comparison"]["differences"]
        self.assertEqual(first + behind - 3, other["offset"])
        self.assertIn("the checksum kept here says that ours is right", other["reason"])
        self.assertEqual(503, slave.health())
        # The master's scrubber sees it by itself.
        master.until(lambda status: status["scrub"]["faultCount"], "the master knows")

    @slow
    def test_properties_of_the_slave(self) -> None:
        """A bit of a record's properties, which no CRC of RocketMQ covers, is found on the slave's
        disk by its checksum, and comes from the master.
        """
        _, slave, path = self.scrubbed()
        whole, first = path.read_bytes(), int(path.name)
        log = OfflineLog(slave.root)
        starts = [start for _, block in scan(log, 0, log.end) for start in block.start.tolist()]
        log.close()
        damage.flip(path, next(start for start in starts if start > first + 9000) - first - 3)
        slave.until(lambda status: status["repair"]["ranges"], "repaired")
        slave.until(lambda status: not status["scrub"]["faultCount"], "no fault is left")
        self.assertEqual(whole, path.read_bytes())
        self.assertEqual([], slave.status()["comparison"]["differences"])
