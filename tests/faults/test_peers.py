"""F25 to F28: garbage, hostile slaves, hostile masters, and one slave that comes twice."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lab.harness.nodes import Node, until
from lab.harness.ports import free_ports
from lab.harness.writer import Driver
from tests.faults.harness import FaultTestCase, rounds

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "date": b"2026-11-21 10:00:00",
    "remoting": bytes.fromhex("000000650000005f") + b'{"code":105,"language":"JAVA"}',
    "negative": struct.pack(">q", -1),
    "huge": struct.pack(">q", (1 << 63) - 1),
    "ones": b"\xff" * 64,
}

#: First reports and what follows them, from the master's end and a byte it has.
HOSTILE_REPORTS: dict[str, Callable[[int, int], list[int]]] = {
    "first above the end": lambda end, some: [end + 1],
    "first far above the end": lambda end, some: [1 << 62],
    "first negative": lambda end, some: [-some],
    "later above the end": lambda end, some: [some, end + 1_000_000],
    "later negative": lambda end, some: [some, -1],
    "decreasing": lambda end, some: [some, some - 1],
    "down to nothing": lambda end, some: [some, 0],
    "a flood of one": lambda end, some: [some] * 100_000,
}


class PeerTestCase(FaultTestCase):
    def connect(self, master: Driver) -> socket.socket:
        peer = socket.create_connection(master.address, timeout=10)
        self.addCleanup(peer.close)
        return peer

    def until_closed(self, peer: socket.socket) -> bytes:
        """Read until the other side ends the connection, and return what it said."""
        peer.settimeout(10)
        said = b""
        try:
            while piece := peer.recv(1 << 16):
                said += piece
        except ConnectionResetError:
            pass
        return said


class GarbageTests(PeerTestCase):
    """F25: whoever has mistaken the port."""

    def test_garbage(self) -> None:
        """It is closed, nothing is credited to it, and the good slave does not notice."""
        master, slave = self.pair(haHousekeepingInterval=4000)
        # A slave may be there before its master serves it.
        before = slave.status()["upstream"]["reconnects"]
        self.write(master, 50)
        acked = [row["acked"] for row in master.status()["replicas"]]
        noise = self.random.randbytes(1 << 20)
        for name, data in {**GARBAGE, "random": noise}.items():
            peer = self.connect(master)
            try:
                peer.sendall(data)
            except OSError:
                pass  # closed before it was all said
            # Random bytes and dates are positive numbers above the end, or negative ones.
            self.assertEqual(b"", self.until_closed(peer), name)
        silent = self.connect(master)
        silent.sendall(b"\0" * 7)
        begun = time.monotonic()
        self.assertEqual(b"", self.until_closed(silent))
        self.assertLess(time.monotonic() - begun, 8.0, "seven bytes and silence")
        self.assertEqual(acked, [row["acked"] for row in self.fed(master)])
        self.assertEqual(before, slave.status()["upstream"]["reconnects"], slave.tail())
        self.write(master, 50)
        self.settle(master, slave)

    def fed(self, master: Driver) -> list[dict[str, object]]:
        """The replicas that have reported, and are right."""
        return [
            row for row in master.status()["replicas"] if row["state"] in ("in-sync", "feeding")
        ]

    def test_alone(self) -> None:
        """Without a slave, no garbage makes a write acknowledged."""
        master = self.master(slaveTimeout=1000).start()
        master.put(20).wait()
        for data in GARBAGE.values():
            peer = self.connect(master)
            peer.sendall(data)
            self.assertEqual("SLAVE_NOT_AVAILABLE", master.put(1).wait()[0].status)
        # A peer that speaks, and asks for nothing it could be believed.
        peer = self.connect(master)
        peer.sendall(struct.pack(">q", 0))
        until(lambda: master.status()["replicas"], "a peer")
        self.assertNotIn("PUT_OK", {write.status for write in master.put(3).wait()})
        self.assertEqual(0, master.stop())

    def test_short_connections(self) -> None:
        """Ten thousand silent connections leave no memory, descriptor or flood of log lines."""
        master, slave = self.pair()
        before = slave.status()["upstream"]["reconnects"]
        self.write(master, 50)
        self.flood(master, 200)
        files, memory, lines = master.open_files(), master.memory(), len(master.log())
        count = len(rounds(10_000))
        begun = time.monotonic()
        self.flood(master, count)
        took = time.monotonic() - begun
        until(lambda: master.status()["connections"] == 1, "all gone")
        self.assertLessEqual(master.open_files(), files + 2)
        self.assertLess(master.memory() - memory, 8 << 20)
        self.assertLess(master.log()[lines:].count("\n"), 20 + 15 * took)
        self.write(master, 50)
        self.assertEqual(before, slave.status()["upstream"]["reconnects"], slave.tail())
        self.settle(master, slave)

    def flood(self, master: Driver, count: int) -> None:
        """Many connections, a hundred at a time, some with a word or two."""
        done = 0
        while done < count:
            peers = []
            for _ in range(min(100, count - done)):
                peer = socket.create_connection(master.address, timeout=10)
                peer.send(self.random.choice([b"\0", b"GET ", b"\xff" * 8, b"hello, broker"]))
                peers.append(peer)
            for peer in peers:
                peer.close()
            done += len(peers)


class HostileSlaveTests(PeerTestCase):
    """F26: peers that speak the protocol and say what cannot be."""

    def test_reports(self) -> None:
        """Each is closed with a reason that is counted; no write counts it."""
        master, slave = self.pair(slaveTimeout=500)
        self.write(master, 50)
        slave.term()
        for name, say in HOSTILE_REPORTS.items():
            before = master.status()
            end = before["maxOffset"]
            peer = self.connect(master)
            try:
                peer.sendall(b"".join(struct.pack(">q", n) for n in say(end, end // 2)))
            except OSError:
                pass
            self.until_closed(peer)
            self.assertEqual("SLAVE_NOT_AVAILABLE", master.put(1).wait()[0].status, name)
            after = master.status()["closedConnections"]
            self.assertGreater(sum(after.values()), sum(before["closedConnections"].values()), name)
        self.assertEqual([], [row for row in master.status()["replicas"] if row["acked"]])
        slave.start().until_synced(master.status()["maxOffset"])
        self.write(master, 20)
        self.settle(master, slave)

    def test_middle_of_a_record(self) -> None:
        """A report in the middle of a record is legal, and counts for what it covers."""
        master = self.master().start()
        slave = self.slave(master.address).start()
        slave.until_synced(0)
        self.write(master, 10)
        slave.term()
        peer = self.connect(master)
        end = master.status()["maxOffset"]
        peer.sendall(struct.pack(">q", end - 10))
        until(lambda: master.status()["replicas"], "the peer")
        burst = master.put(1)
        until(lambda: master.status()["maxOffset"] > end, "the write")
        middle = end + 50
        # What was sent to it can be reported; wait for it.
        peer.settimeout(10)
        got = 0
        while got < 12 + middle - end + 10:
            got += len(peer.recv(1 << 16))
        peer.sendall(struct.pack(">q", middle))
        until(
            lambda: any(row["acked"] == middle for row in master.status()["replicas"]), "the report"
        )
        self.assertFalse(burst.done)
        peer.sendall(struct.pack(">q", master.status()["maxOffset"]))
        self.assertEqual("PUT_OK", burst.wait()[0].status)
        peer.close()
        master.stop()


class FakeMaster:
    """A master that sends what it is told to, to each connection, and hears the first report."""

    def __init__(self, answer: Callable[[int], Iterator[bytes]]) -> None:
        self.answer = answer
        self.asked: list[int] = []
        self.closed = 0
        self.port = free_ports(1)[0]
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.open: list[socket.socket] = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(peer)
            threading.Thread(target=self.talk, args=(peer,), daemon=True).start()

    def talk(self, peer: socket.socket) -> None:
        try:
            report = peer.recv(8, socket.MSG_WAITALL)
            if len(report) < 8:
                return
            offset = struct.unpack(">q", report)[0]
            self.asked.append(offset)
            for piece in self.answer(offset):
                peer.sendall(piece)
            while peer.recv(1 << 16):
                pass
        except OSError:
            pass
        finally:
            self.closed += 1
            peer.close()

    def stop(self) -> None:
        self.listener.close()
        for peer in self.open:
            peer.close()


def frame(offset: int, body: bytes, size: int | None = None) -> bytes:
    """A frame, whose size may be a lie."""
    return struct.pack(">qi", offset, len(body) if size is None else size) + body


class HostileMasterTests(FaultTestCase):
    """F27: a master that sends what no master sends."""

    def seeded(self) -> tuple[Node, bytes]:
        """A stopped slave with some log, and its bytes."""
        master, slave = self.pair()
        self.write(master, 100, size=1000)
        end = master.status()["maxOffset"]
        slave.until_synced(end)
        slave.term()
        master.stop()
        log = (slave.root / "commitlog" / f"{0:020d}").read_bytes()[:end]
        return slave, log

    @contextmanager
    def answering(
        self, slave: Node, log: bytes, after: Callable[[int], bytes]
    ) -> Iterator[FakeMaster]:
        """Run the slave against a master that proves itself and then sends something bad."""

        def answer(offset: int) -> Iterator[bytes]:
            if not 0 < offset <= len(log):
                return
            for start in range(offset, len(log), 32768):
                yield frame(start, log[start : min(len(log), start + 32768)])
            yield after(len(log))

        fake = FakeMaster(answer)
        slave.keys["haMasterAddress"] = f"127.0.0.1:{fake.port}"
        try:
            yield fake
        finally:
            slave.kill9()
            fake.stop()

    def test_frames(self) -> None:
        """The slave leaves each time, has appended nothing, and says why."""
        slave, log = self.seeded()
        record = log[: int.from_bytes(log[:4], "big")]
        end = len(log)
        bad: dict[str, bytes] = {
            "negative size": frame(end, b"", -1),
            "size 2^31-1": frame(end, b"", (1 << 31) - 1),
            "size above the limit": frame(end, b"", 4 << 20),
            "one byte early": frame(end - 1, log[-1:] + b"x" * 50),
            "one byte late": frame(end + 1, b"x" * 50),
            "a file late": frame(end + (1 << 20), b"x" * 50),
            "overlap": frame(0, record),
            "gap": frame(end + 5000, record),
            "another offset inside": frame(end, record),
            "nonsense": frame(end, b"\x55" * 4000),
            "zeros": frame(end, bytes(4000)),
        }
        for name, data in bad.items():
            self.tell(name)
            with self.answering(slave, log, lambda end, data=data: data) as fake:
                slave.start()
                until(lambda fake=fake: fake.closed >= 2, f"{name}: left", tell=slave.tail)
                status = slave.status()
                self.assertEqual(end, status["confirmedOffset"], name)
                self.assertEqual(end, status["dispatchedOffset"], name)
            found = (slave.root / "commitlog" / f"{0:020d}").read_bytes()[:end]
            self.assertEqual(log, found, name)
        self.assertEqual([], slave.complaints(), slave.log()[-10_000:])

    def test_named(self) -> None:
        """What is wrong again and again has a name."""
        slave, log = self.seeded()
        states = {
            "gap": frame(len(log) + 1, b"x" * 50),
            "diverged": frame(len(log), b"\x55" * 4000),
        }
        for state, data in states.items():
            with self.answering(slave, log, lambda end, data=data: data):
                slave.start()
                slave.until_upstream(state)


class IdentityTests(FaultTestCase):
    """F28: one slave is one replica, however often it is connected."""

    def test_two_connections_of_one_address(self) -> None:
        """Two slaves behind one address do not make two replicas; with their own they do."""
        keys = {"inSyncReplicas": 3}
        master = self.master(**keys).start()
        one = self.slave(master.address, "one").start()
        two = self.slave(master.address, "two").start()
        for slave in (one, two):
            slave.until_synced(0)
        self.assertEqual([2, 2], [row["connections"] for row in master.status()["replicas"]])
        self.assertEqual("SLAVE_NOT_AVAILABLE", master.put(1).wait()[0].status)
        two.term()
        two.keys["haLocalAddress"] = "127.0.0.2"
        two.start().until_synced(master.status()["maxOffset"])
        self.assertEqual(2, len(master.status()["replicas"]))
        self.write(master, 100)
        self.settle(master, one, two)

    def test_ghost(self) -> None:
        """A connection that nobody is at the end of does not count beside the new one."""
        master = self.master(inSyncReplicas=3, slaveTimeout=500).start()
        proxy = self.proxy(master.address)
        slave = self.slave(proxy.address).start()
        slave.until_synced(0)
        proxy.half_open("server")
        slave.until(lambda status: status["upstream"]["reconnects"] > 0, "a new connection")
        slave.until_synced(master.status()["maxOffset"])
        self.assertEqual(2, master.status()["connections"])
        self.assertEqual("SLAVE_NOT_AVAILABLE", master.put(1).wait()[0].status)
        self.settle(master, slave)
