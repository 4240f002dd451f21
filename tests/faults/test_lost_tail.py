"""F14: a SYNC master that lost bytes of its disk, and gets them from its slave first."""

from __future__ import annotations

import json
from collections.abc import Callable

from lab.harness.nodes import Node, until
from lab.harness.writer import Driver, Write
from rmqha.store import lost_tail
from tests.faults.harness import FaultTestCase

FILE = 262_144
ZEROED = 65_536

KEYS: dict[str, object] = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": FILE,
    "haTailFetchTimeout": 20_000,
    # A busy disk may take seconds for a flush.
    "slaveTimeout": 30_000,
    "syncFlushTimeout": 30_000,
}


class LostTailTestCase(FaultTestCase):
    """A pair whose master knows where its slave listens."""

    def knowing_pair(self, **keys: object) -> tuple[Driver, Node]:
        """A pair in sync; what a crash of the master needs to know is written down."""
        master = self.master(**{**KEYS, **keys})
        slave = self.slave(
            master.address, **{**KEYS, "haMasterClientAddress": f"127.0.0.1:{master.port}", **keys}
        )
        self.start_both(master, slave)
        slave.until_synced(0)
        # More than a file: of a log that is gone altogether nothing could be compared.
        self.write(master, 400, size=1000)
        slave.until_synced(master.status()["maxOffset"])
        self.until_known(master, slave)
        return master, slave

    def until_known(self, master: Driver, slave: Node) -> None:
        """Wait until the master has written down where its slave listens."""
        path = master.root / "rmqha" / "replicas.json"

        def known() -> bool:
            return path.exists() and slave.ha_port in json.loads(path.read_text())["replicas"].get(
                "127.0.0.1", []
            )

        until(known, "the master knows its slave", tell=master.tail)

    def published(self, master: Driver) -> int:
        """Wait until all is on the master's disk, and the disk says so: where the log ends."""
        end: int = master.status()["maxOffset"]
        master.until(lambda status: status["published"]["durable"] == end, "published")
        return end

    # --- losses -----------------------------------------------------------------

    def zeroed(self, master: Driver, end: int) -> None:
        """The last 64 KiB of the last file are zeros, as a disk leaves them that lied."""
        start = self.last_file(end)
        size = min(ZEROED, end - start)
        with open(master.root / "commitlog" / f"{start:020d}", "r+b") as file:
            file.seek(end - start - size)
            file.write(bytes(size))

    def flipped(self, master: Driver, end: int) -> None:
        """One bit of the last record's body is another.  A body is larger than where it is looked
        for: no CRC covers what follows it.
        """
        last = max(master.history.acked, key=lambda write: write.end)
        self.assertEqual(end, last.end)
        place = self.random.randrange(last.begin + 88, last.begin + 500)
        with open(master.root / "commitlog" / f"{place - place % FILE:020d}", "r+b") as file:
            file.seek(place % FILE)
            byte = file.read(1)[0]
            file.seek(place % FILE)
            file.write(bytes([byte ^ 1 << self.random.randrange(8)]))

    def deleted(self, master: Driver, end: int) -> None:
        for path in (master.root / "commitlog").iterdir():
            if int(path.name) >= self.last_file(end):
                path.unlink()

    def last_file(self, end: int) -> int:
        """Where the file begins that has the log's last byte."""
        return end - 1 - (end - 1) % FILE

    def held_by(self, master: Driver) -> list[Write]:
        """The acknowledged writes that a master's log lacks."""
        log = b"".join(path.read_bytes() for path in sorted((master.root / "commitlog").iterdir()))
        return [write for write in master.history.acked if write.key.encode() not in log]


class FetchedTests(LostTailTestCase):
    """The slave has the bytes, and gives them back."""

    def come_back(self, policy: str) -> None:
        """After each of three losses the master's log is again what it was, no slave is cut or
        stops, and no acknowledged message is missing on either side.
        """
        master, slave = self.knowing_pair(haDivergencePolicy=policy)
        losses: list[Callable[[Driver, int], None]] = [self.zeroed, self.flipped, self.deleted]
        self.random.shuffle(losses)
        for lose in losses:
            self.write(master, 150, size=self.random.randint(500, 4000))
            end = self.published(master)
            slave.until_synced(end)
            master.kill9()
            lose(master, end)
            master.start()
            status = master.status()
            self.assertEqual((end, None), (status["maxOffset"], status["lostTail"]), lose.__name__)
            fetch = status["tailFetch"]
            self.assertEqual(
                ("done", f"127.0.0.1:{slave.ha_port}"), (fetch["state"], fetch["source"])
            )
            self.assertEqual(end - status["recovery"]["end"], fetch["bytes"])
            self.assertGreater(fetch["bytes"], 0)
            self.assertFalse((master.root / "rmqha" / "lost-tail.json").exists())
            slave.until_synced(end)
            until(lambda: master.health() == 200, "well again", tell=master.tail)
        self.write(master, 20)
        self.assertNotIn("ahead", slave.log())
        self.assertNotIn("diverged", slave.log())
        self.settle(master, slave)
        self.assertEqual([], self.held_by(master))

    def test_stop(self) -> None:
        """With the policy stop."""
        self.come_back("stop")

    def test_truncate(self) -> None:
        """With the policy truncate, which would have cut the only copies."""
        self.come_back("truncate")

    def test_what_no_mark_knows(self) -> None:
        """A power cut takes what was acknowledged, not flushed: no mark tells, it comes back."""
        master, slave = self.knowing_pair(flushDiskType="ASYNC_FLUSH")
        self.write(master, 300, size=1000)
        end = master.status()["maxOffset"]
        slave.until_synced(end)
        master.kill9()
        self.zeroed(master, end)
        lost_tail.lower(master.root, self.last_file(end) - FILE, lambda: 0)
        master.start()
        status = master.status()
        self.assertEqual((end, None), (status["maxOffset"], status["lostTail"]))
        self.assertEqual(end - status["recovery"]["end"], status["tailFetch"]["bytes"])
        self.assertGreater(status["tailFetch"]["bytes"], 0)
        self.assertIn("Fetched", master.log())
        self.settle(master, slave)
        self.assertEqual([], self.held_by(master))

    def test_slave_that_starts_too(self) -> None:
        """Both lose power; the slave is back some time after its master, which waits for it."""
        master, slave = self.knowing_pair()
        end = self.published(master)
        slave.until_synced(end)
        master.kill9()
        slave.kill9()
        self.zeroed(master, end)
        master.launch()
        master.until(lambda status: status["tailFetch"] is not None, "asking")
        status = master.status()
        self.assertEqual("recovering", status["state"])
        self.assertIn("asking replicas", status["reason"])
        self.assertEqual(503, master.health())
        slave.start()
        master.until_ready()
        slave.until_synced(end)
        self.settle(master, slave)
        self.assertEqual([], self.held_by(master))


class RefusedTests(LostTailTestCase):
    def test_no_answer(self) -> None:
        """The master does not start without them, however often it tries, until the slave answers;
        nor does it if it is not to ask.
        """
        master, slave = self.knowing_pair(haTailFetchTimeout=1000)
        end = self.published(master)
        slave.until_synced(end)
        slave.term()
        master.kill9()
        self.zeroed(master, end)
        for _ in range(2):
            before = len(master.log())
            master.launch()
            self.assertNotEqual(0, master.wait(), master.tail())
            said = master.log()[before:]
            self.assertIn("did not say whether it has more", said)
            self.assertRegex(said, rf"Cannot start: .* up to byte {end}; \d+ bytes are missing")
            self.assertNotIn("Traceback", said)
        master.keys["haTailFetchTimeout"] = 0
        before = len(master.log())
        master.launch()
        self.assertNotEqual(0, master.wait(), master.tail())
        self.assertNotIn("Asking", master.log()[before:])
        slave.start()
        master.keys["haTailFetchTimeout"] = 20_000
        master.start()
        self.assertEqual(end, master.status()["maxOffset"])
        slave.until_synced(end)
        self.settle(master, slave)
        self.assertEqual([], self.held_by(master))

    def test_accepted(self) -> None:
        """An operator may go on without them: the loss is told and shown, and what is written then
        is read by those who had read further.
        """
        master, slave = self.knowing_pair(haTailFetchTimeout=500)
        end = self.published(master)
        slave.until_synced(end)
        slave.term()
        master.kill9()
        self.zeroed(master, end)
        master.arguments = ["--repair"]
        master.start()
        status = master.status()
        left = status["maxOffset"]
        self.assertEqual({"from": left, "to": end}, status["lostTail"])
        self.assertIn("lost-tail", master.reasons())
        self.assertIn("going on without them (--repair)", master.log())
        slave.start().until_upstream("ahead")
        master.stop()
        master.arguments = []
        master.start()
        self.assertIsNone(master.status()["lostTail"])
        self.assertNotIn("lost-tail", master.reasons())
