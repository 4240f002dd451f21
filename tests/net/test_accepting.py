"""A port while there are no file descriptors, and who may have how many of them."""

from __future__ import annotations

import errno
import socket
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.accepting import PAUSE, PatientPort
from rmqha.net.connection_shares import ConnectionShares
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


COUNT = st.integers(1, 2_000_000)


class ConnectionSharesTests(SynchronousTestCase):
    """The limit of open files, shared out."""

    def test_usual_limits(self) -> None:
        """What is left where a process may open few files, many, and very many."""
        for files, stored, clients, ha in (
            (120, 40, 38, 12),
            (1024, 270, 470, 156),
            (20_000, 1100, 16_772, 2000),
            (1_048_576, 3000, 65_536, 2000),
        ):
            shares = ConnectionShares(files=files, ha_wanted=2000, stored=lambda n=stored: n)
            self.assertEqual((shares.clients, shares.ha), (clients, ha))
            self.assertEqual(shares.status(), {"clients": clients, "ha": ha})

    @given(COUNT, st.integers(0, 100_000), st.integers(0, 100_000), st.integers(0, 100_000))
    def test_never_more_than_there_are(
        self, files: int, clients: int, ha: int, stored: int
    ) -> None:
        """Connections, the store's files and the process's own fit into the limit, or it says that
        they do not; nobody has more than was asked for, or nothing.
        """
        shares = ConnectionShares(
            files=files, clients_wanted=clients, ha_wanted=ha, stored=lambda: stored
        )
        taken = shares.clients + shares.ha + stored + shares.own
        if files > 8 and not any("store's files" in text for text in shares.unmet()):
            self.assertLessEqual(taken, files)
        self.assertLessEqual(shares.ha, ha)
        self.assertTrue(1 <= shares.clients <= (clients or 65_536))
        self.assertEqual(bool(ha), bool(shares.ha))

    def test_unmet(self) -> None:
        """A key that cannot be met is told with both numbers; a default that follows is not."""
        shares = ConnectionShares(files=1024, clients_wanted=5000, ha_wanted=2000)
        self.assertEqual(
            shares.unmet(),
            [
                "haMaxConnections=2000 is lowered to 224",
                "clientMaxConnections=5000 is lowered to 672",
            ],
        )
        shares = ConnectionShares(files=1024, ha_wanted=100, stored=lambda: 2000)
        self.assertIn("may need 2000", shares.unmet()[-1])
        self.assertEqual([], ConnectionShares(files=20_000, ha_wanted=2000).unmet())
        self.assertEqual({"clients": 896}, ConnectionShares(files=1024).status())
