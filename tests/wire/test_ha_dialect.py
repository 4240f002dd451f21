"""Tests for L{rmqha.wire.ha_dialect}."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import FrameSizeOutOfRange, ProtocolViolation
from rmqha.wire import ha_frame, ha_v2
from rmqha.wire.ha_dialect import (
    ClassicSlaveDialect,
    EpochLabelWentBack,
    HandshakeUnexpected,
    Said,
    SetSlaveDialect,
)
from rmqha.wire.ha_frame import BodyPart, HaHeartbeat
from rmqha.wire.ha_v2 import EpochLabel, HandshakeAnswer, HaStateUnexpected, TransferHeader
from tests.support.controller_captures import chunks
from tests.wire.test_ha_frame import pieces

CUTS = st.lists(st.integers(0, 900), max_size=30)
ANSWER = ha_v2.encode_answer(0, [])


def transfer(offset: int, body: bytes, label: int = 1, start: int = 0, confirm: int = 0) -> bytes:
    """One transfer."""
    header = TransferHeader(len(body), offset, label, start, confirm)
    return ha_v2.encode_transfer_header(header) + body


def said(dialect: SetSlaveDialect, data: bytes) -> list[Said]:
    """All that is in some bytes, bodies copied."""
    return [
        BodyPart(each.offset, memoryview(bytes(each.data)), each.frame, each.left)
        if isinstance(each, BodyPart)
        else each
        for each in dialect.receive(data)
    ]


class ClassicTests(SynchronousTestCase):
    def test_opening(self) -> None:
        """The first report is the first word; who only looks says so before it."""
        dialect = ClassicSlaveDialect()
        self.assertTrue(dialect.admitted)
        self.assertEqual(dialect.opening(7), ha_frame.encode_report(7))
        looks = ha_frame.encode_report(-1) + ha_frame.encode_report(7)
        self.assertEqual(ClassicSlaveDialect(observer=True).opening(7), looks)
        self.assertEqual(dialect.report(9), ha_frame.encode_report(9))
        self.assertEqual(dialect.handover(), (b"", 0, 0, 0))


class LearnerTests(SynchronousTestCase):
    def test_opening(self) -> None:
        """The handshake alone; reports may follow its answer."""
        dialect = SetSlaveDialect()
        shaken = bytes.fromhex("00000001 0000 0001 ffffffffffffffff")
        self.assertEqual(dialect.opening(7), shaken)
        self.assertFalse(dialect.admitted)
        labels = (EpochLabel(1, 0), EpochLabel(3, 50))
        answer = HandshakeAnswer(60, labels, 3)
        self.assertEqual(said(dialect, ha_v2.encode_answer(60, labels)), [answer])
        self.assertTrue(dialect.admitted)
        self.assertEqual(dialect.report(7), bytes.fromhex("00000002 0000000000000007"))

    def test_handover(self) -> None:
        """Another reader may go on after the handshake's answer, at any byte, not amid it."""
        dialect = SetSlaveDialect()
        self.assertIsNone(dialect.handover())
        said(dialect, ANSWER)
        self.assertEqual(dialect.handover(), (b"", 0, 0, 0))
        sent = transfer(5, b"abcdef")
        said(dialect, sent[:7])
        self.assertEqual(dialect.handover(), (sent[:7], 0, 0, 0))
        said(dialect, sent[7:36])
        self.assertEqual(dialect.handover(), (b"", 5, 6, 6))
        said(dialect, sent[36:38])
        self.assertEqual(dialect.handover(), (b"", 7, 4, 6))
        said(dialect, sent[38:] + ANSWER[:6])
        self.assertIsNone(dialect.handover())

    def test_headers(self) -> None:
        """That reader is told offset and size, others the rest; bad input is refused alike."""
        dialect, heard = SetSlaveDialect(), list[TransferHeader]()
        said(dialect, ANSWER)
        headers = dialect.headers(heard.append)
        self.assertEqual(headers.size, 36)
        stream = b"xx" + transfer(5, b"abc", 3, 5, 4)
        self.assertEqual(headers.read(memoryview(stream), 2), (5, 3))
        self.assertEqual(headers.read(transfer(8, b"", 3, 5, 6), 0), (8, 0))
        told = [TransferHeader(3, 5, 3, 5, 4), TransferHeader(0, 8, 3, 5, 6)]
        self.assertEqual(heard, told)
        for bad, error in (
            (transfer(8, b"d", 2, 5), EpochLabelWentBack),
            (ANSWER + bytes(40), HandshakeUnexpected),
            (b"HTTP/1.1 400" + bytes(40), HaStateUnexpected),
            (bytes.fromhex("00000002 7fffffff") + bytes(40), FrameSizeOutOfRange),
        ):
            with self.assertRaises(error):
                headers.read(bad, 0)
        self.assertEqual(heard, told)
        fresh = SetSlaveDialect().headers(heard.append)
        self.assertEqual(fresh.read(transfer(-1, b"", -1, 0, 0), 0), (0, 0))

    @given(CUTS)
    def test_captured(self, cuts: list[int]) -> None:
        """A stock master's stream under any chunking: what it says without a file is a heartbeat at
        byte 0, and bodies come with the offsets that their headers say.
        """
        stream = b"".join(chunks("ha-run1-0-to35101", "master"))
        dialect, heartbeats, at = SetSlaveDialect(), [], 0
        for piece in pieces(stream, cuts):
            for event in dialect.receive(piece):
                if isinstance(event, HaHeartbeat):
                    heartbeats.append(event.offset)
                elif isinstance(event, BodyPart):
                    self.assertEqual(event.offset, at)
                    at += len(event.data)
        self.assertEqual(heartbeats[0], 0)
        self.assertGreater(at, 614)

    def test_order(self) -> None:
        """No transfer before the answer, and no second answer."""
        with self.assertRaises(HandshakeUnexpected):
            said(SetSlaveDialect(), transfer(0, b"abc"))
        with self.assertRaises(HandshakeUnexpected):
            said(SetSlaveDialect(), ANSWER + ANSWER)
        with self.assertRaises(HaStateUnexpected):
            said(SetSlaveDialect(), b"HTTP/1.1 400")

    def test_labels(self) -> None:
        """Labels ascend with the log, as it is sent from its older ones on."""
        labels = [EpochLabel(1, 0), EpochLabel(4, 6)]
        dialect = SetSlaveDialect()
        good = transfer(0, b"abcdef") + transfer(6, b"gh", 4, 6) + transfer(8, b"", 4, 6)
        found = said(dialect, ha_v2.encode_answer(8, labels) + good)
        self.assertEqual(
            [each for each in found if isinstance(each, HaHeartbeat)], [HaHeartbeat(8)]
        )
        for bad in (
            transfer(6, b"gh", 4, 9),
            transfer(6, b"gh", 4, 5) + transfer(8, b"i", 3, 5),
            transfer(6, b"gh", 4, 6) + transfer(8, b"i", 4, 7),
            transfer(6, b"gh", 4, 6) + transfer(8, b"i", 5, 5),
        ):
            dialect = SetSlaveDialect()
            with self.assertRaises(EpochLabelWentBack):
                said(dialect, ANSWER + transfer(0, b"abcdef") + bad)

    def test_labels_of_the_answer(self) -> None:
        """Those of an answer ascend too, from the first byte on."""
        for bad in (
            [EpochLabel(3, 0), EpochLabel(2, 10)],
            [EpochLabel(1, 10), EpochLabel(2, 5)],
            [EpochLabel(1, 0), EpochLabel(1, 0)],
            [EpochLabel(1, -5)],
            [EpochLabel(-1, 0)],
        ):
            dialect = SetSlaveDialect()
            with self.assertRaises(EpochLabelWentBack):
                said(dialect, ha_v2.encode_answer(20, bad))
            self.assertFalse(dialect.admitted)

    @given(st.booleans(), st.binary(max_size=200), CUTS)
    def test_any_bytes(self, answered: bool, data: bytes, cuts: list[int]) -> None:
        """Whatever comes, it is read, or refused as no master's; never is more told than came."""
        dialect, told = SetSlaveDialect(), 0
        if answered:
            said(dialect, ANSWER)
        with contextlib.suppress(ProtocolViolation):
            for piece in pieces(data, cuts):
                for each in dialect.receive(piece):
                    told += len(each.data) if isinstance(each, BodyPart) else 0
        self.assertLessEqual(told, len(data))
