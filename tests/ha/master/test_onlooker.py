"""A peer that only compares, on the side that is asked."""

from __future__ import annotations

from typing import Any

from rmqha.ha.master.transfer import PutStatus
from rmqha.ha.states import Standing
from rmqha.wire.ha_frame import ONLOOKER, encode_report
from tests.ha.master.test_master import MasterCase, Received


class OnlookerTests(MasterCase):
    """It is sent all there is, and counts for nothing."""

    def onlooker(self, *reports: int) -> tuple[Any, Any]:
        protocol, transport = self.connect("10.0.0.7")
        for report in (ONLOOKER, *reports):
            protocol.dataReceived(encode_report(report))
        return protocol, transport

    def test_everything(self) -> None:
        """Without proof, to the last byte, with a heartbeat there, though it may be but a part."""
        self.build(end=250_000)
        self.ledger.start = 1000
        self.factory.standing = lambda: Standing.PART
        _, transport = self.onlooker(200_000)
        received = Received(transport.value())
        self.assertEqual(bytes(received.body), bytes(self.log.read(200_000, 50_000)))
        self.assertEqual(received.heartbeats, [250_000])
        self.fed(200_000)
        self.assertEqual(self.factory.closed["unproven"], 1)

    def test_in_pieces(self) -> None:
        """It says what it is in any pieces, and nothing is sent before it has asked."""
        protocol, transport = self.connect("10.0.0.7")
        said = encode_report(ONLOOKER) + encode_report(249_000)
        for place in range(len(said)):
            self.assertEqual(transport.value(), b"")
            protocol.dataReceived(said[place : place + 1])
        self.assertEqual(len(Received(transport.value()).body), 1000)

    def test_counts_for_nothing(self) -> None:
        """It acknowledges no write, is no row of the status, holds no file, leaves no mark."""
        protocol, _ = self.onlooker(1)
        protocol.dataReceived(encode_report(250_000))
        waiting = self.transfer.wait(249_000, 250_000)
        self.assertEqual(self.successResultOf(waiting), PutStatus.SLAVE_NOT_AVAILABLE)
        good, _ = self.fed(host="10.0.0.1")
        self.log.put(b"x" * 100)
        waiting = self.transfer.wait(250_000, 250_100)
        protocol.dataReceived(encode_report(250_100))
        self.assertNoResult(waiting)
        good.dataReceived(encode_report(250_100))
        self.assertEqual(self.successResultOf(waiting), PutStatus.PUT_OK)
        self.assertEqual([row.address[:8] for row in self.factory.replicas()], ["10.0.0.1"])
        self.lose(good)
        self.assertIsNone(self.factory.held_from())
        self.lose(protocol)
        self.assertEqual(list(self.ledger.all_marks()), ["10.0.0.1"])

    def test_refused(self) -> None:
        """It may not ask for what there is not, nor say twice what it is, and is no verdict."""
        for reason, reports in {"ahead": [250_001], "negative": [ONLOOKER]}.items():
            protocol, transport = self.onlooker(*reports)
            self.assertTrue(transport.disconnected, reason)
            self.assertEqual(self.factory.closed[reason], 1)
            self.lose(protocol)
        self.assertEqual(self.factory.replicas(), [])

    def test_silent(self) -> None:
        """One that never asks is closed like any peer that reports nothing."""
        self.onlooker()
        self.clock.pump([1.0] * 21)
        self.assertEqual(self.factory.closed["no-report"], 1)

    def test_doubtful(self) -> None:
        """A log that may be another's is not shown."""
        self.factory.standing = lambda: Standing.DOUBTFUL
        self.assertIsNone(self.factory.buildProtocol(None))

    def test_known(self) -> None:
        """Replicas that acknowledge what they were sent are told; onlookers are not."""
        told: list[str] = []
        self.factory.known = told.append
        onlooker, _ = self.onlooker(1000)
        onlooker.dataReceived(encode_report(250_000))
        stranger, _ = self.fed(0, "10.0.0.9")
        stranger.dataReceived(encode_report(0))
        empty, _ = self.fed(0, "10.0.0.2")
        self.assertEqual(told, [])
        empty.dataReceived(encode_report(32768))
        empty.dataReceived(encode_report(65536))
        self.assertEqual(told, ["10.0.0.2"])
