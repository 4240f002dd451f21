"""Others take all the room there is: file descriptors, connections, places on the HA port."""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from attrs import define, field

from lab.harness import flood
from lab.harness.nodes import Node, until
from lab.harness.writer import Driver
from tests.faults.harness import NOT_HELD, SOON_SILENT, FaultTestCase, rounds, seconds

#: Where strangers come from; the nodes' own connections come from 127.0.0.1.
ELSEWHERE = "127.0.0.9"
#: Seconds for writes that each wait for a disk: a busy one may take seconds for a flush.
LONG = 240


@define(eq=False)
class Strangers:
    """Connections that say the same again and again, and come back when they are closed."""

    address: tuple[str, int]
    count: int
    said: bytes = b""
    again: float = 1.0
    host: str = ELSEWHERE
    came: int = field(default=0, init=False)
    _open: list[socket.socket] = field(factory=list, init=False)
    _end: threading.Event = field(factory=threading.Event, init=False)

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join(60)
            for each in self._open:
                each.close()

    def _run(self) -> None:
        while not self._end.is_set():
            self._open = [each for each in self._open if self._lives(each)]
            while len(self._open) < self.count and not self._end.is_set():
                try:
                    peer = socket.create_connection(self.address, 5, (self.host, 0))
                except OSError:
                    break
                peer.setblocking(False)
                self.came += 1
                self._open.append(peer)
            self._end.wait(self.again)

    def _lives(self, peer: socket.socket) -> bool:
        try:
            if self.said:
                peer.send(self.said)
            if peer.recv(1 << 16) != b"":
                return True
        except BlockingIOError:
            return True
        except OSError:
            pass
        peer.close()
        return False


class DescriptorTests(FaultTestCase):
    """No file descriptor is left, or connections would take the last."""

    def attacked(self, node: Node, *ports: int) -> None:
        """Have far more connections than a node may open files, for some seconds.  It keeps
        descriptors for itself, and a log that can be read.
        """
        assert node.files is not None, "its limit is what is to be reached"
        lines, begun = node.log().count("\n"), time.monotonic()
        with contextlib.ExitStack() as attack:
            for port in ports:
                count = 2 * node.files // len(ports)
                strangers = Strangers(("127.0.0.1", port), count, again=0.5)
                attack.enter_context(strangers.at_work())
            self.passes(seconds(2.5, 20))
            self.assertLess(node.open_files(), node.files - 5)
        written, took = node.log().count("\n") - lines, time.monotonic() - begun
        self.tell(f"{node.name}: {written} lines in {took:.0f} s")
        self.assertLess(written, 20 + 15 * took, node.tail())

    def limited(self, master_files: int, slave_files: int | None = None) -> tuple[Driver, Node]:
        """A pair that may open so many files."""
        # A busy machine may be slow; what is asked is that no write fails.
        master = self.master(
            flushDiskType="SYNC_FLUSH", slaveTimeout=30_000, syncFlushTimeout=30_000
        )
        slave = self.slave(master.address)
        master.files, slave.files = master_files, slave_files
        self.start_both(master, slave)
        slave.until_synced(0)
        return master, slave

    def go_on(self, master: Driver, slave: Node) -> None:
        """Both are well again without a restart, and nothing that was promised is lost."""
        master.until(lambda status: status["state"] == "serving", "serving")
        slave.until_synced(master.status()["maxOffset"])
        self.write(master, 100)
        self.settle(master, slave)

    def test_idle_clients(self) -> None:
        """Idle connections to the client port leave a master's writes and its slave alone."""
        master, slave = self.limited(512)
        # A slave may be there before its master serves it.
        before = slave.status()["upstream"]["reconnects"]
        burst = master.put(3_000, size=4_000, rate=600)
        self.attacked(master, master.port)
        self.assertEqual({"PUT_OK"}, {write.status for write in burst.wait(LONG)}, master.tail())
        self.assertEqual(before, slave.status()["upstream"]["reconnects"], slave.log())
        self.go_on(master, slave)

    def test_both_ports(self) -> None:
        """The same with very few descriptors and strangers on the HA port too."""
        master, slave = self.limited(120)
        burst = master.put(1_500, size=4_000, rate=300)
        self.attacked(master, master.port, master.ha_port)
        self.assertEqual({"PUT_OK"}, {write.status for write in burst.wait(LONG)}, master.tail())
        self.go_on(master, slave)

    def test_slave(self) -> None:
        """A slave's ports likewise."""
        master, slave = self.limited(1024, 120)
        burst = master.put(1_500, size=4_000, rate=300)
        self.attacked(slave, slave.port, slave.ha_port)
        self.assertEqual({"PUT_OK"}, {write.status for write in burst.wait(LONG)}, master.tail())
        self.go_on(master, slave)

    def test_none_left(self) -> None:
        """Whatever else takes them all: writes are refused or wait, nothing fails for good, and
        both nodes go on by themselves when there are descriptors again.
        """
        flush = self.random.choice(["SYNC_FLUSH", "ASYNC_FLUSH"])
        master = self.master(flushDiskType=flush)
        slave = self.slave(master.address, flushDiskType=flush)
        self.start_both(master, slave)
        slave.until_synced(0)
        self.write(master, 50)
        for _ in rounds(1):
            for nodes in ((master,), (slave,), (master, slave)):
                burst = master.put(2_000, size=2_000, concurrency=8)
                with contextlib.ExitStack() as taken:
                    for node in nodes:
                        taken.enter_context(node.no_descriptors())
                    self.passes(seconds(0.5, 5) + self.random.random())
                burst.wait(120)
                self.assertLessEqual(
                    {write.status for write in burst.writes},
                    {"PUT_OK", "REFUSED", "FLUSH_DISK_TIMEOUT", *NOT_HELD},
                )
                master.until(lambda status: status["state"] == "serving", "serving")
                slave.until_synced(master.status()["maxOffset"])
        self.assertNotIn("is failed", master.log() + slave.log())
        self.go_on(master, slave)


class PlaceTests(FaultTestCase):
    def test_zeros(self) -> None:
        """Connections that repeat eight zero bytes lock no slave out, and are not waited for."""
        master, slave = self.pair(**SOON_SILENT, haMaxConnections=100)
        for host in (ELSEWHERE, "127.0.0.1"):
            strangers = Strangers(master.address, 150, struct.pack(">q", 0), host=host)
            with strangers.at_work():
                until(lambda strangers=strangers: strangers.came > 300, "strangers come back")
                self.assertLessEqual(master.status()["connections"], 20)
                slave.kill9()
                self.left_alone(master)
                slave.start().until_synced(master.status()["maxOffset"])
                self.write(master, 50)
        self.settle(master, slave)

    def left_alone(self, master: Driver) -> None:
        """Without a slave no write counts, and in the end none waits."""

        def quick() -> bool:
            begun = time.monotonic()
            (write,) = master.put(1).wait()
            self.assertIn(write.status, NOT_HELD)
            return write.status == "SLAVE_NOT_AVAILABLE" and time.monotonic() - begun < 2.5

        until(quick, "writes are answered at once", tell=lambda: str(master.status()["replicas"]))


class AdminTests(FaultTestCase):
    def test_slow(self) -> None:
        """A node answers its probes beside a thousand requests that never end.

        Two hundred of them come back at once, and may crowd out a probe that has connected and not
        yet asked, so a probe tries again, as those of an orchestrator do.
        """
        broker = Node(self.folder, "master")
        self._processes.append(broker)
        broker.start()

        def answered() -> bool:
            try:
                return broker.reasons("livez") == set()
            except OSError:
                return False

        slow = Strangers(("127.0.0.1", broker.admin_port), 200, b"GET /livez HTTP/1.1\r\n")
        with slow.at_work():
            until(lambda: slow.came > 200, "they come back", tell=broker.tail)
            while slow.came < 1000:
                until(answered, "a probe is answered", 5.0, tell=broker.tail)


class SlotTests(FaultTestCase):
    """A slave is away when its master deletes old files."""

    DELETING: dict[str, object] = {
        "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
        "fileReservedTime": 72,
        "cleanResourceInterval": 200,
        "deleteCommitLogFilesInterval": 1,
    }

    def old(self, master: Driver) -> None:
        """Make all that a master has stored so far too old to be kept."""
        master.do("clock", offset=100 * 3600)

    def kept_from(self, master: Driver, offset: int) -> None:
        """Files are deleted, and none that holds a byte above an offset."""
        status = master.until(
            lambda status: status["retention"]["heldBackFrom"] is not None, "held back"
        )
        self.assertEqual(status["minOffset"], offset - offset % (1 << 20))
        (row,) = status["retentionSlots"]
        self.assertEqual((row["connected"], row["offset"]), (False, offset))
        self.assertEqual(row["bytes"], status["maxOffset"] - offset)

    def test_first_copy(self) -> None:
        """A first copy that breaks off goes on where it was, though what it needs is expired."""
        master = self.master(**self.DELETING).start()
        master.put(2_000, size=4_000, concurrency=50).wait()
        slave = self.slave(master.address, haMaxReceiveBytesPerSecond=2 << 20).start()
        slave.until(lambda status: status["confirmedOffset"] > 3 << 20, "some of the copy")
        slave.kill9()
        until(lambda: not self.connected(master), "the slave is away")
        self.old(master)
        (row,) = master.status()["retentionSlots"]
        self.kept_from(master, row["offset"])
        slave.keys["haMaxReceiveBytesPerSecond"] = 0
        slave.start().until_synced(master.status()["maxOffset"])
        self.assertGreaterEqual(slave.status()["recovery"]["end"], row["offset"])
        self.assertNotIn("below-min", slave.log())
        master.until(lambda status: status["minOffset"] > row["offset"], "what it had may go")
        self.write(master, 20)
        slave.until_synced(master.status()["maxOffset"])

    def test_restart_and_drop(self) -> None:
        """A killed master keeps what its slave needs, until told that it will not be back."""
        master = self.master(**self.DELETING).start()
        slave = self.slave(master.address).start()
        slave.until_synced(0)
        self.write(master, 1_500, size=4_000)
        slave.until_synced(master.status()["maxOffset"])
        slave.kill9()
        master.put(500, size=4_000, concurrency=50).wait()
        (row,) = master.status()["retentionSlots"]
        # What is known of a slave is on the disk within a second or so.
        until(lambda: "null" not in (master.root / "rmqha/slots.json").read_text(), "written")
        master.kill9()
        master.start()
        self.old(master)
        self.kept_from(master, row["offset"])
        self.assertEqual(404, self.drop(master, "10.0.0.9"))
        self.assertEqual(200, self.drop(master, row["address"]))
        status = master.until(
            lambda status: status["minOffset"] > row["offset"], "its files are deleted"
        )
        self.assertEqual([], status["retentionSlots"])
        self.assertEqual(0, master.stop())
        self.assertEqual([], master.complaints())

    def connected(self, master: Driver) -> bool:
        return any(row["connected"] for row in master.status()["retentionSlots"])

    def drop(self, master: Driver, address: str) -> int:
        """Ask to keep nothing any more, as C{rmqha slots --drop} does: the answer's code."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{master.admin_port}/slots/{address}", method="DELETE"
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


class FloodTests(FaultTestCase):
    """Clients that ask as much as a broker takes."""

    #: Longest median of a good producer beside them, in seconds.  Alone it is a fifth of a
    #: thousandth, here on an idle machine; before connections had turns it was 0.1 to 0.5, and
    #: 0.02 when a message of more than 1 KiB had to wait for theirs.
    LONGEST = 0.015

    def let_go(self, status: dict[str, Any]) -> bool:
        """Whether anybody was closed for headers that take too long to read."""
        return bool(status["remoting"]["closed"].get("HeaderTooCostly"))

    def test_good_producer(self) -> None:
        """A flood of pulls, or of headers that are slow to read, leaves others their turn; and who
        sends headers that take too long is let go, with a reason that is counted.
        """
        broker = Node(self.folder, "master")
        self._processes.append(broker)
        broker.start()
        flood.prepare(broker.port)
        alone = statistics.median(flood.sends(broker.port, 1.0))
        for kind, connections in (("pulls", 20), ("loose", 20), ("long-loose", 5)):
            with flood.running_beside(self.folder, broker.port, kind, connections):
                self.passes(1.5)
                took = self.at_best(
                    lambda: statistics.median(flood.sends(broker.port, seconds(1.5, 20))),
                    self.LONGEST,
                    kind,
                )
                if kind == "long-loose":
                    broker.until(self.let_go, "who sends costly headers is let go")
            self.tell(f"{kind}: median {took * 1e3:.1f} ms, alone {alone * 1e3:.1f} ms")
        self.assertEqual("serving", broker.status()["state"])
        broker.term()
        self.assertEqual([], broker.complaints(), broker.tail())
