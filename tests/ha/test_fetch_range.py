"""Fetching a range of a master's log by its HA port."""

from __future__ import annotations

import io
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock

from rmqha.errors import FrameOffsetMismatch, MasterLeft, MasterUnidentified
from rmqha.ha.fetch_range import MasterReplica
from rmqha.ha.observer import PROBE_SILENCE, STALL
from rmqha.ha.slave.master_bounds import AskBounds, BrokerIdentity, MasterBounds, MasterClientPort
from rmqha.net.tls.errors import TlsRefused
from rmqha.net.tls.identity import TlsIdentity
from rmqha.net.tls.material import TlsFiles
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.store.repair.from_replica import ReplicaLacks
from tests.support.effort import tries
from tests.support.ha_frames import encode_header
from tests.support.logs import FILE_SIZE, LogTestCase, content
from tests.support.scripted_master import Connection, PuppetEndpoint

#: A report of -1, as the scripted master reads it.
SAYS_OBSERVER = (1 << 64) - 1

#: A log of three files and a bit, with a blank at each end.
SIZES = ((700, 1500, 900, 600) * 3) + (700,)


class FetchTests(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.endpoint = PuppetEndpoint(self.clock)
        self.theirs = self.filled(*SIZES)
        self.out = io.BytesIO()
        self.came = 0

    def fetch(
        self,
        start: int,
        stop: int,
        bounds: MasterBounds | None = None,
        ask: AskBounds | None = None,
    ) -> Deferred[int]:
        """Begin to fetch; the client port may tell bounds, and is asked where answers differ."""
        self.replica = MasterReplica(
            port=MasterClientPort(
                ask if bounds is None else lambda: succeed(bounds),
                self.clock,
                "10.0.0.1:10912",
                self.endpoint,
            ),
            file_size=FILE_SIZE,
        )

        def came(size: int) -> None:
            self.came += size

        async def both() -> int:
            await self.replica.begins()
            return await self.replica.fetch(start, stop, self.out, came)

        self.addCleanup(self.nothing_left)
        return ensureDeferred(both())

    def nothing_left(self) -> None:
        """No timer and no attempt."""
        self.clock.advance(0)
        self.assertEqual((self.clock.getDelayedCalls(), self.endpoint.waiting), ([], []))

    def fed(self, start: int, stop: int, **more: Any) -> Connection:
        """A fetch that is answered."""
        self.fetching = self.fetch(start, stop)
        connection = self.endpoint.accept()
        connection.feed(self.theirs, connection.reports()[-1], **more)
        return connection

    def test_a_range(self) -> None:
        """It asks where the range begins, takes what is in it, and leaves; never a byte more."""
        connection = self.fed(700, 5000)
        self.assertEqual(self.successResultOf(self.fetching), 5000)
        self.assertEqual(self.out.getvalue(), content(self.theirs, 700, 5000))
        self.assertEqual(connection.reports(), [SAYS_OBSERVER, 700])
        self.assertFalse(connection.open)
        self.assertEqual(self.came, 4300)

    def test_the_first_byte(self) -> None:
        """For byte 0 no slave can ask: it follows from those behind it."""
        self.assertEqual(self.fed(0, 1000).reports(), [SAYS_OBSERVER, 1])
        self.assertEqual(self.successResultOf(self.fetching), 1000)
        self.assertEqual(self.out.getvalue(), content(self.theirs, 0, 1000))

    def test_report_is_repeated(self) -> None:
        """A slow master keeps the connection, and is never told of more than was asked first."""
        fetching = self.fetch(700, 5000)
        connection = self.endpoint.accept()
        for at in range(700, 5000, 430):
            connection.feed(self.theirs, at, at + 430)
            self.clock.advance(4)
        self.assertEqual(self.successResultOf(fetching), 5000)
        self.assertEqual(set(connection.reports()[1:]), {700})
        self.assertGreater(len(connection.reports()), 5)

    def test_master_ends(self) -> None:
        """A heartbeat behind bytes is the master's end."""
        self.fed(700, 1 << 30).heartbeat(self.theirs.end)
        self.assertEqual(self.successResultOf(self.fetching), self.theirs.end)
        self.assertEqual(self.out.getvalue(), content(self.theirs, 700))

    def test_nothing_there(self) -> None:
        """Silence, a close, and heartbeats that echo the report say that there is nothing."""
        fetching = self.fetch(700, 5000)
        self.endpoint.accept().heartbeat(700)
        self.clock.advance(PROBE_SILENCE)
        self.failureResultOf(fetching, ReplicaLacks)
        fetching = self.fetch(700, 5000)
        self.endpoint.accept().close()
        self.failureResultOf(fetching, ReplicaLacks)

    def test_outside_its_bounds(self) -> None:
        """A master is not asked for what it has not: a stock one would believe the report."""
        for bounds in (MasterBounds(4096, 9000, 1), MasterBounds(0, 700, 1)):
            error = self.failureResultOf(self.fetch(700, 5000, bounds), ReplicaLacks).value
            self.assertIn(f"[{bounds.min_offset}, {bounds.max_offset})", str(error))

    def test_leaves(self) -> None:
        """A master that goes away in the middle, or falls silent there."""
        self.fed(700, 5000, end=2000).close()
        self.failureResultOf(self.fetching, MasterLeft)
        self.fed(700, 5000, end=2000)
        self.clock.advance(STALL)
        self.failureResultOf(self.fetching, MasterLeft)

    def test_no_master(self) -> None:
        """A stream that goes on elsewhere, and a port where nothing listens."""
        fetching = self.fetch(700, 5000)
        self.endpoint.accept().feed(self.theirs, 800)
        self.failureResultOf(fetching, FrameOffsetMismatch)
        fetching = self.fetch(700, 5000)
        self.endpoint.refuse()
        self.failureResultOf(fetching, ConnectionRefusedError)

    def test_client_port_does_not_answer(self) -> None:
        """Then it is asked all the same; the caller can tell."""
        replica = MasterReplica(
            port=MasterClientPort(
                lambda: fail(ConnectionRefusedError()), self.clock, "x", self.endpoint
            ),
            file_size=FILE_SIZE,
        )
        self.assertEqual(self.successResultOf(ensureDeferred(replica.begins())), 0)
        self.assertIsNone(replica.port.bounds)
        self.flushLoggedErrors()

    def test_tls(self) -> None:
        """A handshake is begun with a broker of ours, and with one that is not to be asked; a stock
        one hears nothing, nor one whose client port does not answer.
        """
        identity = TlsIdentity("replication", "of replication", TlsFiles())
        identity.load()
        plain: Any = self.endpoint
        self.endpoint = OutgoingTls(identity=identity).wrap("10.0.0.1", plain)
        ours = MasterBounds(0, 9000, 1, BrokerIdentity(run_id="a1"))
        stock = MasterBounds(0, 9000, 1)

        def fetch(*answers: MasterBounds | Exception | None) -> Deferred[int]:
            left = list(answers)

            def ask() -> Deferred[MasterBounds]:
                answer = left.pop(0)
                return fail(answer) if isinstance(answer, Exception) else succeed(answer)

            return self.fetch(700, 5000, ask=ask if answers else None)

        down = ConnectionRefusedError()
        for answers, error in (
            ((stock, stock), TlsRefused),
            ((down, stock), TlsRefused),
            ((down, down), MasterUnidentified),
        ):
            refused = self.failureResultOf(fetch(*answers), error)
            self.assertIn("haTlsEnable=true", refused.getErrorMessage())
            self.assertEqual(plain.waiting, [])
        for answers in ((ours, ours), (down, ours), ()):
            fetching = fetch(*answers)
            connection = plain.accept()
            self.assertEqual(connection.transport.value()[0], 0x16)
            connection.close()
            self.failureResultOf(fetching)
        self.endpoint = plain

    @given(cuts=st.lists(st.integers(1, 4000), max_size=12))
    @hypothesis_settings(max_examples=tries(30), deadline=None)
    def test_split_anywhere(self, cuts: list[int]) -> None:
        """However the stream comes in pieces."""
        self.setUp()
        fetching = self.fetch(0, 3000)
        connection = self.endpoint.accept()
        data = content(self.theirs, 1, 3500)
        stream = b"".join(
            encode_header(1 + at, len(data[at : at + 500])) + data[at : at + 500]
            for at in range(0, len(data), 500)
        )
        position = 0
        for cut in sorted(cuts):
            connection.send(stream[position:cut])
            position = max(position, cut)
        connection.send(stream[position:])
        self.assertEqual(self.successResultOf(fetching), 3000)
        self.assertEqual(self.out.getvalue(), content(self.theirs, 0, 3000))
