"""A log archived while its master and the receiver are killed; and stores restored from it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from lab.harness.nodes import Node, Process, until
from lab.harness.remote import Remote, bodies, pull, send
from lab.harness.writer import Write
from rmqha.archive.errors import shown_time
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.scan import scan
from rmqha.wire.log.record import decode
from rmqha.wire.remoting.codes import ResponseCode
from tests.cli.command import CommandTestCase
from tests.faults.harness import BRISK, FaultTestCase, rounds
from tests.support.commands import RMQHA

TOPIC = "Orders"


class ArchiveTestCase(FaultTestCase, CommandTestCase):
    """Tests with C{rmqha receive} as its own process."""

    def setUp(self) -> None:
        super().setUp()
        self.archive = self.folder / "archive"
        self.receiver = Process("receive", self.folder / "receive.log")
        self._processes.append(self.receiver)

    def receive(self, master: Node, *args: str) -> None:
        """Start it, and wait until it has opened its archive."""
        seen = len(self.receiver.log())
        source = ["--from", f"127.0.0.1:{master.ha_port}", "--client-port", str(master.port)]
        self.receiver.spawn(
            [
                *(sys.executable, str(RMQHA), "receive", str(self.archive)),
                *(*source, "--log-interval", "1", "--fsync-interval", "0.2", *args),
            ]
        )
        until(
            lambda: "; checked " in self.receiver.log()[seen:],
            "an archive",
            tell=self.receiver.tail,
        )

    def until_archived(self, end: int) -> None:
        """Wait until it has everything below an offset."""
        told = f"to {end}, "
        seen = len(self.receiver.log())
        until(
            lambda: told in self.receiver.log()[seen:], f"archived {told}", tell=self.receiver.tail
        )

    def pause(self) -> None:
        self.passes(self.random.uniform(0.1, 0.8))

    def assertSame(self, master: Node) -> None:
        """The archive is the log of its master, file by file, both stopped."""
        found = sorted((self.archive / "commitlog").iterdir())
        partial = [path.name for path in found if path.suffix]
        self.assertEqual([found[-1].name], partial)
        theirs = sorted((master.root / "commitlog").iterdir())
        self.assertEqual([path.name for path in theirs], [path.name[:20] for path in found])
        for mine, other in zip(found, theirs, strict=True):
            self.assertEqual(mine.read_bytes(), other.read_bytes(), mine.name)
        self.succeed("verify", self.archive)
        self.assertEqual([], self.receiver.complaints(), self.receiver.tail())

    def held(self, writes: list[Write]) -> None:
        """Writes are in the archive, each where it was acknowledged."""
        log = OfflineLog(self.archive)
        starts = set[int]()
        for _, block in scan(log, log.min_offset, log.end):
            starts.update(block.start.tolist())
        log.close()
        self.assertEqual([], [write for write in writes if write.begin not in starts])


class KillTests(ArchiveTestCase):
    def test_killed(self) -> None:
        """The receiver and its master, which has a slave, are killed at any moment: the archive is
        the master's log in the end, and the slave has what was acknowledged.
        """
        master, slave = self.pair()
        self.receive(master)
        for _ in rounds(2):
            master.put(1_000_000, concurrency=8, rate=1500, size=self.random.choice([200, 1500]))
            self.pause()
            self.receiver.kill9()
            if self.random.random() < 0.5:
                self.pause()
            self.receive(master)
            self.pause()
            master.kill9()
            master.start()
            slave.until_upstream("in-sync")
            self.pause()
        self.write(master, 50)
        end = master.status()["maxOffset"]
        self.until_archived(end)
        self.assertEqual(0, self.receiver.term(), self.receiver.tail())
        self.settle(master, slave)
        self.assertSame(master)

    def test_nothing_is_acknowledged(self) -> None:
        """Without a slave no SYNC write is acknowledged, whenever the receiver comes and goes."""
        master = self.master(slaveTimeout=400).start()
        self.receive(master)
        until(lambda: master.status()["replicas"], "a connection", tell=self.receiver.tail)
        for _ in rounds(2):
            burst = master.put(40, concurrency=10)
            self.pause()
            self.receiver.kill9()
            self.receive(master)
            burst.wait()
        told = {write.status for write in master.history.writes}
        self.assertNotIn("PUT_OK", told)
        self.assertIn("FLUSH_SLAVE_TIMEOUT", told)
        self.until_archived(master.status()["maxOffset"])
        self.assertEqual(0, self.receiver.term(), self.receiver.tail())
        self.assertEqual(0, master.stop(), master.tail())
        self.assertSame(master)

    def test_synchronous(self) -> None:
        """A synchronous receiver is a replica: killed, its archive has what was acknowledged."""
        master = self.master().start()
        self.receive(master, "--synchronous")
        for _ in rounds(1):
            before = len(master.history.acked)
            burst = master.put(1_000_000, concurrency=8, rate=1000, size=300)
            until(
                lambda: len(master.history.acked) > before + 200,  # noqa: B023
                "acknowledged writes",
                tell=self.receiver.tail,
            )
            self.pause()
            self.receiver.kill9()
            master.enough()
            burst.wait()
            self.held(master.history.acked)
            self.receive(master, "--synchronous")
        self.until_archived(master.status()["maxOffset"])
        self.assertEqual(0, self.receiver.term(), self.receiver.tail())
        self.assertEqual(0, master.stop(), master.tail())
        self.assertSame(master)


class RestoreTests(ArchiveTestCase):
    def sent(self, master: Node, first: int, count: int) -> None:
        with Remote(master.port) as client:
            for number in range(first, first + count):
                answer = client.ask(send(TOPIC, f"{number:06}".encode() + b"x" * 500))
                self.assertIn(
                    answer.code, (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE), answer
                )

    def places(self) -> list[tuple[int, int, int]]:
        """Number, end and store time of each message in the archive."""
        log, found = OfflineLog(self.archive), []
        for view, block in scan(log, log.min_offset, log.end):
            for offset in block.start.tolist():
                record = decode(view, offset - block.base, offset)
                if record.topic == TOPIC:
                    number = int(bytes(record.body[:6]))
                    found.append((number, offset + record.size, record.store_timestamp))
        log.close()
        return found

    def pulled(self, node: Node) -> list[int]:
        """The numbers of all messages that a consumer gets."""
        found: list[int] = []
        with Remote(node.port) as client:
            while True:
                answer = client.ask(pull(TOPIC, "readers", len(found)))
                if answer.code != ResponseCode.SUCCESS:
                    self.assertEqual(ResponseCode.PULL_NOT_FOUND, answer.code, answer)
                    return found
                found += [int(body[:6]) for body in bodies(answer)]

    def restored(self, name: str, until: str, tables: Path) -> tuple[Node, dict[str, Any]]:
        """A master on what was restored, not started."""
        node = Node(self.folder, "master", name, **BRISK)
        self._processes.append(node)
        node.write_conf()
        given = ("--until", until, "--tables", tables, "--conf", node.conf)
        said = self.answer("restore", self.archive, node.root, *given)
        self.succeed("verify", node.root, "--deep", "--conf", node.conf)
        return node, said

    def test_point_in_time(self) -> None:
        """Up to an offset and up to a time, from an archive whose master and receiver were killed:
        a master starts on each, and a consumer gets exactly the messages up to there.
        """
        master = Node(self.folder, "master", **BRISK)
        self._processes.append(master)
        master.start()
        self.receive(master)
        count = 0
        for victim in (self.receiver, master, None):
            self.sent(master, count, 400)
            count += 400
            if victim is not None:
                victim.kill9()
            if victim is self.receiver:
                self.receive(master)
            elif victim is master:
                master.start()
        self.until_archived(master.status()["maxOffset"])
        # It goes on being received while it is restored.
        rows = self.places()
        self.assertEqual(list(range(count)), [number for number, _, _ in rows])
        number = self.random.randrange(count // 4, 3 * count // 4)
        _, end, stored = rows[number]
        at, said = self.restored("offset", str(end + 1), master.root / "config")
        self.assertEqual(said["end"], end)
        then, said = self.restored("time", shown_time(stored), master.root / "config")
        up_to_time = sum(time <= stored for _, _, time in rows)
        self.tell(f"until message {number} at {end}; until {stored}: {up_to_time} messages")
        for node, wanted in ((at, number + 1), (then, up_to_time)):
            node.start()
            self.assertEqual(list(range(wanted)), self.pulled(node))
            self.sent(node, wanted, 5)
            self.assertEqual(list(range(wanted + 5)), self.pulled(node))
            node.term()
            self.assertEqual([], node.complaints(), node.tail())
            self.succeed("verify", node.root, "--deep", "--conf", node.conf)
        self.assertEqual(0, self.receiver.term(), self.receiver.tail())
        master.term()
        self.assertSame(master)

    def test_another_life(self) -> None:
        """The archive of the old life is not continued with the log of a restored master: the
        receiver ends, and the archive stays as it is.
        """
        master = Node(self.folder, "master", **BRISK)
        self._processes.append(master)
        master.start()
        self.receive(master)
        self.sent(master, 0, 200)
        self.until_archived(master.status()["maxOffset"])
        self.assertEqual(0, self.receiver.term(), self.receiver.tail())
        master.term()
        before = self.folder / "before"
        shutil.copytree(self.archive, before)
        end = self.places()[99][1]
        node, _ = self.restored("restored", str(end), master.root / "config")
        node.start()
        self.sent(node, 100, 300)
        self.receive(node)
        self.assertEqual(78, self.receiver.wait(), self.receiver.tail())
        self.assertIn("rmqha: diverged: byte ", self.receiver.log())
        for path in sorted((self.archive / "commitlog").iterdir()):
            self.assertEqual(path.read_bytes(), (before / "commitlog" / path.name).read_bytes())
