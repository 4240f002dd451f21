"""F15 to F18: disks that are full, broken or slow."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from lab.harness.nodes import Node, until
from lab.harness.writer import Driver
from tests.faults.harness import FaultTestCase, rounds
from tests.support.small_disk import small_disk

MIB = 1 << 20

#: Longest time from room on the disk to normal work, in seconds.
RESUMED = 10.0

PROMPT = {"flushConsumeQueueThoroughInterval": 200}


class SmallDiskTestCase(FaultTestCase):
    """Tests with a file system of some MiB."""

    def disk(self, size: int, kind: str = "tmpfs") -> Path:
        """A small file system, mounted until the test ends and its nodes are dead."""
        place = small_disk(self, size, kind)
        self.addCleanup(self._end)
        return place

    def fill(self, disk: Path, leave: int) -> Path:
        """Take all room but a little."""
        path = disk / "ballast"
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            have = os.fstat(fd).st_size
            if free > leave:
                os.posix_fallocate(fd, have, free - leave)
        finally:
            os.close(fd)
        return path


class SmallDiskTests(SmallDiskTestCase):
    """F15, F16: one that fills up."""

    def test_slave(self) -> None:
        """F15: a slave on a full disk says so, acknowledges what it holds; with room it goes on."""
        disk = self.disk(16 * MIB)
        master = self.master(slaveTimeout=500, **PROMPT).start()
        slave = self.slave(master.address, root=disk / "store", **PROMPT)
        slave.start().until_synced(0)
        self.write(master, 200)
        for _ in rounds(2):
            ballast = self.fill(disk, self.random.randint(0, 300_000))
            statuses = set()
            deadline = time.monotonic() + 30
            while "disk-full" not in (slave.status()["state"], slave.status()["upstream"]["state"]):
                self.assertLess(time.monotonic(), deadline, f"never full\n{slave.tail()}")
                statuses |= {w.status for w in master.put(100, size=4000, concurrency=20).wait()}
            self.assertEqual(503, slave.health())
            self.assertNotEqual("PUT_OK", master.put(1).wait()[0].status)
            ballast.unlink()
            begun = time.monotonic()
            slave.until_synced(master.status()["maxOffset"], RESUMED)
            self.assertLess(time.monotonic() - begun, RESUMED)
            self.write(master, 20)
            self.assertLess(slave.status()["maxOffset"], 13 * MIB, "the disk has to hold it all")
        self.settle(master, slave)

    def test_master(self) -> None:
        """F16: a master on a full disk refuses writes with a reason, keeps no half message,
        and takes writes again when there is room.
        """
        disk = self.disk(16 * MIB)
        master = self.master(root=disk / "store", **PROMPT).start()
        slave = self.slave(master.address, **PROMPT)
        slave.start().until_synced(0)
        self.write(master, 200)
        for _ in rounds(2):
            ballast = self.fill(disk, self.random.randint(0, 300_000))
            refused = []
            while not refused:
                burst = master.put(100, size=4000, concurrency=20).wait()
                refused = [write for write in burst if write.status == "REFUSED"]
                self.assertLess(master.status()["maxOffset"], 14 * MIB, "never full")
            self.assertIn("disk-full", refused[0].error)
            status = master.status()
            self.assertEqual("disk-full", status["state"])
            self.assertEqual(503, master.health())
            slave.until_synced(status["maxOffset"])
            ballast.unlink()
            master.until(lambda status: status["state"] == "serving", "serving", RESUMED)
            self.write(master, 20)
        self.settle(master, slave)


class FullStartTests(SmallDiskTestCase):
    """A node that is killed on a disk without a free block."""

    def full(self, kind: str, role: str, **keys: Any) -> tuple[Driver, Node, Node, Path]:
        """Fill the disk of one node while it is written to, until it takes no more, and kill it:
        master,
        slave, the one of them that has the disk, and what others took of it.
        """
        disk = self.disk(16 * MIB, kind)
        small: dict[str, Any] = {"root": disk / "store", "cleanFileForciblyEnable": False, **keys}
        given = {"slaveTimeout": 300, **PROMPT}
        master = self.master(**given, **(small if role == "master" else {})).start()
        slave = self.slave(master.address, **given, **(small if role == "slave" else {}))
        slave.start().until_synced(0)
        node: Node = master if role == "master" else slave
        self.write(master, 300, size=4000)
        ballast = disk / "ballast"
        while self.takes(node):
            # Of every size, so that files end anywhere in a page.
            for size in (10, 200, 3000, 20_000):
                master.put(20, size=size, concurrency=20).wait()
            self.assertTrue(node.running, f"it died while its disk filled up\n{node.tail()}")
            self.take(ballast, self.random.randint(100_000, 400_000))
        self.take(ballast, 16 * MIB)
        node.kill9()
        return master, slave, node, ballast

    def takes(self, node: Node) -> bool:
        """Whether there is still room for it."""
        status = node.status()
        states = {status["state"], (status.get("upstream") or {}).get("state")}
        return not states & {"disk-full", "read-only"}

    def take(self, ballast: Path, most: int) -> None:
        """Take room for something else, or what there is of it."""
        with open(ballast, "ab", buffering=0) as out:
            for size in (1 << 16, 512):
                try:
                    while most > 0:
                        most -= out.write(bytes(min(size, most)))
                except OSError:
                    continue

    def starts(self, kind: str, role: str) -> None:
        """It starts, again and again, says why it takes no writes, and goes on with room."""
        master, slave, node, ballast = self.full(kind, role)
        for _ in range(2):
            node.start()
            self.assertIn(node.status()["state"], ("disk-full", "read-only"), node.tail())
            node.kill9()
        ballast.unlink()
        node.start()
        self.settle(master, slave)

    def test_master_in_memory(self) -> None:
        """A master whose disk is memory."""
        self.starts("tmpfs", "master")

    def test_slave_in_memory(self) -> None:
        """A slave whose disk is memory."""
        self.starts("tmpfs", "slave")

    def test_master_with_small_blocks(self) -> None:
        """A master whose disk has blocks smaller than a page of memory."""
        self.starts("ext4", "master")

    def test_slave_with_small_blocks(self) -> None:
        """A slave whose disk has such blocks."""
        self.starts("ext4", "slave")

    def test_retention_makes_room(self) -> None:
        """What fills the disk is the log: a start is enough, as old files go then."""
        _, _, node, _ = self.full("ext4", "master", cleanResourceInterval=500)
        node.keys["cleanFileForciblyEnable"] = True
        node.start()
        node.until(lambda status: status["state"] == "serving", "serving", RESUMED)
        self.assertGreater(node.status()["retention"]["deletedFiles"], 0)

    def test_without_reserve(self) -> None:
        """A store without a reserve yet is served for reading; its epoch begins with room."""
        master, slave, node, ballast = self.full("ext4", "master")
        (node.root / "rmqha" / "reserve").unlink()
        self.take(ballast, 16 * MIB)
        node.start()
        status = node.status()
        self.assertEqual(("disk-full", 0), (status["state"], status["connections"]))
        slave.until_upstream("connecting")
        ballast.unlink()
        node.until(lambda status: status["state"] == "serving", "serving", RESUMED)
        self.write(master, 20)
        self.settle(master, slave)


class BrokenDiskTests(FaultTestCase):
    """F17: fsync says EIO."""

    def test_slave(self) -> None:
        """A slave whose disk failed leaves the sync set within seconds; writes go on as fast."""
        master = self.master().start()
        broken = self.driven_slave(master.address, "broken", flushDiskType="SYNC_FLUSH").start()
        good = self.slave(master.address, "good", haLocalAddress="127.0.0.2").start()
        for slave in (broken, good):
            slave.until_synced(0)
        before = self.rate(master)
        broken.do("sync", how="fail")
        begun = time.monotonic()
        self.write(master, 1)
        until(
            lambda: sum(row["acked"] is not None for row in master.status()["replicas"]) == 1,
            "one replica less",
            5,
            tell=broken.tail,
        )
        self.assertLess(time.monotonic() - begun, 5)
        status = broken.until(lambda status: status["state"] == "failed", "failed")
        self.assertIn("Input/output error", status["reason"])
        self.assertEqual(503, broken.health())
        self.at_best(lambda: 1 / self.rate(master), 2 / before, "seconds a write")
        broken.kill9()
        broken.start()
        self.settle(master, broken, good)

    def rate(self, master: Driver) -> float:
        begun = time.monotonic()
        self.write(master, 500)
        return 500 / (time.monotonic() - begun)

    def test_master(self) -> None:
        """A master whose disk failed takes no more writes, and promises nothing it cannot keep."""
        master, slave = self.pair(flushDiskType="SYNC_FLUSH")
        self.write(master, 50)
        master.do("sync", how="fail")
        statuses = {write.status for write in master.put(20, concurrency=5).wait()}
        self.assertLessEqual(statuses, {"FAILED", "REFUSED"})
        self.assertEqual("failed", master.status()["state"])
        self.assertEqual(503, master.health())
        master.kill9()
        master.start()
        slave.until_synced(master.status()["maxOffset"])
        self.write(master, 20)
        self.settle(master, slave)

    def test_now_and_then(self) -> None:
        """A failure that passes is final all the same: the pages of it are lost."""
        master, slave = self.pair(flushDiskType="SYNC_FLUSH")
        master.do("sync", how="fail", every=20)
        writes = master.put(200, concurrency=1).wait()
        statuses = [write.status for write in writes]
        failed = statuses.index("FAILED")
        self.assertEqual({"PUT_OK"}, set(statuses[:failed]))
        self.assertEqual({"REFUSED"}, set(statuses[failed + 1 :]))
        master.kill9()
        master.start()
        self.settle(master, slave)


class SlowDiskTests(FaultTestCase):
    """F18: fsync that takes its time."""

    #: Longest time the reactor may be late, in seconds: less than the disk is, and more than
    #: the 0.05 that hold on an idle machine.
    LATE = 0.6

    def test_flushed_writes_wait(self) -> None:
        """With SYNC_FLUSH a write waits for the disk, not longer than it may, nor the reactor."""
        master, slave = self.pair(
            flushDiskType="SYNC_FLUSH", syncFlushTimeout=2000, slaveTimeout=10_000
        )
        self.write(master, 20)
        master.do("lateness")
        master.do("sync", how="slow", seconds=0.6)
        writes = self.write(master, 4, concurrency=2)
        self.assertGreater(min(write.micros for write in writes), 300_000)
        master.do("sync", how="slow", seconds=3.0)
        self.assertEqual("FLUSH_DISK_TIMEOUT", master.put(1).wait()[0].status)
        self.assertLess(master.do("lateness"), self.LATE)
        master.do("sync", how="normal")
        master.until(lambda status: status["flushedOffset"] == status["maxOffset"], "flushed")
        self.write(master, 20)
        self.settle(master, slave)

    def test_others_do_not(self) -> None:
        """With ASYNC_FLUSH a write does not notice, on either side."""
        keys = {"flushIntervalCommitLog": 50, "flushCommitLogLeastPages": 0}
        master = self.master(**keys).start()
        slave = self.driven_slave(master.address, **keys).start()
        slave.until_synced(0)
        for node in (master, slave):
            node.do("lateness")
            node.do("sync", how="slow", seconds=1.0)
        begun = time.monotonic()
        writes = self.write(master, 500)
        self.assertLess(time.monotonic() - begun, 10.0)
        self.assertLess(sorted(write.micros for write in writes)[250], 200_000)
        for node in (master, slave):
            self.assertLess(node.do("lateness"), self.LATE)
            node.do("sync", how="normal")
        self.settle(master, slave)

    def test_slow_slave_reports_what_is_flushed(self) -> None:
        """A SYNC_FLUSH slave with a slow disk reports late, and never more than its disk has."""
        master = self.master(slaveTimeout=3000).start()
        slave = self.driven_slave(master.address, flushDiskType="SYNC_FLUSH").start()
        slave.until_synced(0)
        slave.do("sync", how="slow", seconds=0.7)
        burst = master.put(3, concurrency=1)
        while not burst.done:
            acked = [row["acked"] for row in master.status()["replicas"]]
            self.assertLessEqual(max(acked), slave.status()["flushedOffset"])
        self.assertEqual({"PUT_OK"}, {write.status for write in burst.wait()})
        self.assertGreater(min(write.micros for write in burst.writes), 300_000)
        slave.do("sync", how="normal")
        self.settle(master, slave)
