"""Tests for L{rmqha.net.accepting}: a port while there are no file descriptors."""

from __future__ import annotations

import errno
import socket
from typing import Any

from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.accepting import PAUSE, PatientPort
from tests.support.log_lines import log_lines


class Watched(Clock):
    """A reactor that notes what it is to read from."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: set[Any] = set()

    def addReader(self, reader: Any) -> None:
        self.reading.add(reader)

    def removeReader(self, reader: Any) -> None:
        self.reading.discard(reader)

    def removeWriter(self, writer: Any) -> None:
        """Nothing is written."""


class Refusing:
    """A listening socket whose C{accept} fails as told."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.errors: list[int] = []

    def accept(self) -> Any:
        if self.errors:
            raise OSError(self.errors[0], "as told")
        return self.real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class Counting(Factory):
    """@ivar came: How many connections."""

    noisy = False
    came = 0

    def logPrefix(self) -> str:
        return "test port"

    def buildProtocol(self, addr: object) -> Protocol | None:
        self.came += 1
        return None


class PatientPortTests(SynchronousTestCase):
    """Who comes while there is no descriptor waits until there is one."""

    def setUp(self) -> None:
        self.lines = log_lines(self, namespace="rmqha.net.accepting.PatientPort")
        self.reactor, self.factory = Watched(), Counting()
        self.port = PatientPort(0, self.factory, 5, "127.0.0.1", self.reactor)
        self.port.startListening()
        self.addCleanup(self.close)
        self.socket = Refusing(self.port.socket._real)
        self.port.socket._real = self.socket

    def close(self) -> None:
        self.port.stopListening()
        self.reactor.advance(0)

    def come(self) -> None:
        client = socket.create_connection(self.socket.getsockname(), 5)
        self.addCleanup(client.close)

    def read(self) -> None:
        """What the reactor does as long as somebody waits."""
        if self.port in self.reactor.reading:
            self.port.doRead()

    def test_waits(self) -> None:
        """It neither spins nor drops who waits, says so once, and goes on by itself."""
        for number in (errno.EMFILE, errno.ENFILE):
            self.lines.clear()
            came = self.factory.came
            self.come()
            self.socket.errors = [number]
            for _ in range(3):
                self.read()
                self.read()
                self.assertNotIn(self.port, self.reactor.reading)
                self.reactor.advance(PAUSE)
                self.assertIn(self.port, self.reactor.reading)
            self.assertEqual((len(self.lines), self.factory.came), (1, came))
            self.assertIn("No file descriptor left for connections to the test port", self.lines[0])
            self.socket.errors = []
            self.read()
            self.assertEqual(self.factory.came, came + 1)
            self.assertIn("There are file descriptors again", self.lines[1])
        self.assertEqual([], self.flushLoggedErrors())

    def test_other_errors(self) -> None:
        """Whatever else is wrong is not ours to wait for."""
        self.socket.errors = [errno.EBADF]
        self.read()
        self.assertEqual(1, len(self.flushLoggedErrors(OSError)))
        self.socket.errors = []

    def test_stopped_meanwhile(self) -> None:
        """A port that is closed while it waits does not listen again."""
        self.come()
        self.socket.errors = [errno.EMFILE]
        self.read()
        self.port.stopListening()
        self.reactor.advance(PAUSE)
        self.assertEqual(self.reactor.reading, set())
        self.assertEqual(self.reactor.getDelayedCalls(), [])
