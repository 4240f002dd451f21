"""Tests for L{lab.bench.trickle} and its child."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from lab.bench import trickle
from lab.bench.report import Row
from lab.bench.trickle_child import Client, Refused, Trickle, found, phases
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import encode
from tests.support.effort import slow


def answer(code: int = 0) -> bytes:
    """A broker's answer."""
    return encode(Command(code=code, flag=1))


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's socket, which does not block, and the broker's end of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


class ClientTests(SynchronousTestCase):
    def client(self, peer: socket.socket) -> Client:
        """One that sent two messages, which were due after one second and after two."""
        client = Client(peer, b"message")
        client.send(1.0)
        client.send(2.0)
        return client

    def test_answers(self) -> None:
        """Answers are taken in the order of the messages, wherever the stream is cut."""
        both = answer() * 2
        for cut in range(1, len(both)):
            with connected() as (ours, theirs):
                client = self.client(ours)
                self.assertEqual(theirs.recv(100), b"messagemessage")
                due = [*client.receive(both[:cut]), *client.receive(both[cut:])]
                self.assertEqual(due, [1.0, 2.0], cut)
                self.assertEqual(len(client.due), 0)

    def test_errors_are_counted(self) -> None:
        """A message that is answered with an error is answered, and counts as failed."""
        with connected() as (ours, _):
            client = self.client(ours)
            self.assertEqual(list(client.receive(answer(12) + answer())), [1.0, 2.0])
        self.assertEqual(client.failed, 1)

    def test_refused(self) -> None:
        """An answer to nothing and an end of the connection are errors."""
        for data in (answer() * 3, b""):
            with connected() as (ours, _):
                client = self.client(ours)
                self.assertRaises(Refused, list, client.receive(data))

    def test_full_socket(self) -> None:
        """A message of which a socket takes a part only is an error."""
        with connected() as (ours, _):
            self.assertRaises(Refused, Client(ours, bytes(1 << 24)).send, 1.0)


class TrickleTests(SynchronousTestCase):
    def test_due(self) -> None:
        """Each client has its moment in every second."""
        with connected() as (ours, _):
            clients = [Client(ours, b"") for _ in range(3)]
            due = [Trickle(clients, [0.1, 0.2, 0.9]).due(number) for number in range(5)]
        self.assertEqual(due, [0.1, 0.2, 0.9, 1.1, 1.2])

    def test_phases(self) -> None:
        """Moments are drawn over the whole second, by a seed."""
        drawn = phases(1000, 3)
        self.assertEqual(drawn, sorted(drawn))
        self.assertEqual(drawn, phases(1000, 3))
        self.assertNotEqual(drawn, phases(1000, 4))
        self.assertTrue(0 <= drawn[0] < 0.1 and 0.9 < drawn[-1] < 1)

    def test_run(self) -> None:
        """Every client's messages are sent at their moments, and timed from them to their
        answers.
        """
        message = bytes(100)

        def broker(peer: socket.socket) -> None:
            left = 2
            while left and peer.recv(len(message), socket.MSG_WAITALL):
                left -= 1
                peer.sendall(answer())

        with connected() as (one, first), connected() as (two, second):
            threads = [Thread(target=broker, args=(peer,)) for peer in (first, second)]
            for thread in threads:
                thread.start()
            clients = [Client(peer, message) for peer in (one, two)]
            run = Trickle(clients, [0.0, 0.05])
            run.run(2)
            for thread in threads:
                thread.join()
        said = found(run)
        self.assertEqual(said["messages"], 4)
        self.assertEqual(len(run.late), 4)
        self.assertGreaterEqual(min(run.late), 0.0)
        self.assertGreaterEqual(min(run.micros), 0.0)
        self.assertLessEqual(said["p50"], said["p99"])
        self.assertLessEqual(said["p99"], said["most"])


class RowTests(SynchronousTestCase):
    """What a row says."""

    def rows(self, p99: float, failed: int = 0, master: float = 0.4) -> list[Row]:
        shares = {"master": master, "slave": 0.1, "clients": 0.2}
        seen = trickle.Seen(p50=1.0, p99=p99, most=50.0, late=0.5, failed=failed, shares=shares)
        return trickle.rows_of("SYNC_MASTER", 10_000, [seen])

    def test_met(self) -> None:
        """The time of 99 of 100 messages and the master's share are held against their goals."""
        self.assertEqual([row.met for row in self.rows(20.0, master=0.5)], [True, True])
        self.assertEqual([row.met for row in self.rows(20.1, master=0.51)], [False, False])
        self.assertEqual(self.rows(20.0)[1].ours, "40.0 % of a core")

    def test_failed(self) -> None:
        """A row with messages that were refused says so, and is not met."""
        times, _ = self.rows(1.0, failed=3)
        self.assertEqual((times.ours, times.met), ("1.00 ms; 3 messages refused", False))


class RunTests(SynchronousTestCase):
    @slow
    def test_run(self) -> None:
        """A few clients at a real pair: rows with goals, and what the other processes did."""
        with TemporaryDirectory() as folder:
            rows = trickle.run(Path(folder), 40, 1, 1, ["SYNC_MASTER"])
        self.assertEqual(len(rows), 2)
        for row, other in zip(rows, ("sent late", "slave"), strict=True):
            self.assertTrue(row.what.startswith("40 client connections"))
            self.assertIn("SYNC_MASTER", row.what)
            self.assertIsNotNone(row.met)
            self.assertTrue(row.goal)
            self.assertIn(other, row.notes[0])
