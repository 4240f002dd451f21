"""F31, F34: copies from nothing under load, and messages at the edges of files."""

from __future__ import annotations

import time

from lab.harness.nodes import until
from tests.faults.harness import FaultTestCase, rounds

FILE = 1 << 20

#: Longest time of the whole copy, kills included, in seconds.
COPIED = 60.0

#: Bytes a write of the tests adds to its body, from its size fields to its properties,
#: found out by writing one.
PROBE = 100


class BootstrapTests(FaultTestCase):
    """F31: an empty slave."""

    def test_under_load(self) -> None:
        """A copy goes on where it was when either side is killed, and ends equal."""
        master = self.master().start()
        writes = master.put(6000, size=2000, concurrency=50).wait()
        self.assertEqual(6000, len(writes))
        slave = self.slave(master.address, haMaxReceiveBytesPerSecond=4 * FILE)
        slave.start()
        master.put(1_000_000, rate=200)
        resumed = 0
        for _ in rounds(4):
            held = resumed
            slave.until(lambda status, held=held: status["maxOffset"] > held, "more of the copy")
            moment = time.monotonic() + self.random.uniform(0.0, 0.5)
            until(lambda moment=moment: time.monotonic() > moment, "a moment")
            if self.random.random() < 0.5:
                slave.kill9()
                slave.start()
                resumed = slave.status()["recovery"]["end"]
                self.assertGreaterEqual(resumed, held, "it resumes, it does not restart")
            else:
                master.kill9()
                master.start()
                master.put(1_000_000, rate=200)
                resumed = slave.status()["confirmedOffset"]
        master.enough()
        self.settle(master, slave, timeout=COPIED)

    def test_last_file(self) -> None:
        """With haFirstSync=last-file a copy starts where the last file does."""
        master = self.master(haFirstSync="last-file").start()
        master.put(3000, size=1000, concurrency=50).wait()
        slave = self.slave(master.address, haFirstSync="last-file").start()
        end = master.status()["maxOffset"]
        status = slave.until_synced(end)
        self.assertEqual(end - end % FILE, status["minOffset"])
        self.write(master, 100)
        self.settle(master, slave)


class RollTests(FaultTestCase):
    """F34: the last bytes of a file."""

    def test_edges(self) -> None:
        """Whatever is left at a file's end, from the least blank on, both sides agree."""
        small = 262144
        master, slave = self.pair(mappedFileSizeCommitLog=small)
        probe = self.write(master, 1, size=PROBE)[0]
        around = probe.end - probe.begin - PROBE
        end = probe.end
        for left in range(8, 8 + 17):
            # Fill the file but for two records, and choose the last one's size.
            while (room := small - end % small) > 3 * 20_000:
                size = min(room - 50_000, 150_000) - around
                end = self.write(master, 1, size=size)[0].end
            last = self.write(master, 1, size=room - left - around)[0]
            self.assertEqual(small - left, last.end % small or small, left)
            begin = self.write(master, 1, size=PROBE)[0]
            self.assertEqual(0, begin.begin % small)
            end = begin.end
        self.settle(master, slave)

    def test_frames_over_files(self) -> None:
        """Bursts that cross files arrive as they are, also to a slave that copies later."""
        keys = {"mappedFileSizeCommitLog": 262144, "haTransferBatchSize": 100_000}
        master, slave = self.pair(**keys)
        for _ in rounds(3):
            sizes = [self.random.randint(1, 60_000) for _ in range(30)]
            bursts = [master.put(1, size=size, concurrency=1) for size in sizes]
            for burst in bursts:
                self.assertEqual("PUT_OK", burst.wait()[0].status)
        late = self.slave(master.address, "late", **keys).start()
        late.until_synced(master.status()["maxOffset"])
        self.settle(master, slave, late)

    def test_largest(self) -> None:
        """Messages as large as a file allows, and none larger."""
        small = 262144
        most = small - 8 - 65536
        master, slave = self.pair(mappedFileSizeCommitLog=small)
        self.write(master, 10, size=most, concurrency=1)
        refused = master.put(1, size=most + 1).wait()[0]
        self.assertEqual("REFUSED", refused.status)
        self.assertIn("MessageIllegal", refused.error)
        self.write(master, 5)
        self.settle(master, slave)
