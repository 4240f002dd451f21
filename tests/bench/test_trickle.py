"""Tests for L{lab.bench.trickle} and its child."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

from twisted.trial.unittest import SynchronousTestCase

from lab.bench.trickle import Clients
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
                self.assertRaises(Refused, list, self.client(ours).receive(data))

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
        """Every client's messages are sent at their moments, and timed to their answers."""
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
        self.assertEqual((said["messages"], len(run.late)), (4, 4))
        self.assertGreaterEqual(min(run.late), 0.0)
        self.assertGreaterEqual(min(run.micros), 0.0)
        self.assertLessEqual(said["p50"], said["p99"])
        self.assertLessEqual(said["p99"], said["most"])


class RunTests(SynchronousTestCase):
    @slow
    def test_run(self) -> None:
        """A few clients at a real pair: times, refusals, and what the processes did."""
        with TemporaryDirectory() as folder:
            clients = Clients(Path(folder), "SYNC_MASTER")
            for process in (clients, clients.slave, clients.master):
                self.addCleanup(process.kill9)
            clients.connect(40)
            seen = clients.run(1)
        self.assertEqual(seen["failed"], 0)
        self.assertLessEqual(seen["p50"], seen["p99"])
        told = {"p50", "p99", "most", "late", "failed", "master", "slave", "clients"}
        self.assertEqual(set(seen), told)
