"""Tests for L{rmqha.wire.ha_v2}."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import FrameSizeOutOfRange
from rmqha.wire import ha_v2
from rmqha.wire.ha_frame import BodyPart
from rmqha.wire.ha_v2 import (
    LEARNER_ID,
    MAX_BODY,
    TOKEN_BITS,
    EpochLabel,
    EpochLabelsMisshapen,
    HandshakeAnswer,
    HaStateUnexpected,
    MasterMessages,
    Report,
    SlaveHandshake,
    SlaveMessages,
    Token,
    TransferHeader,
    encode_answer,
    encode_handshake,
    encode_report,
    encode_token,
    encode_transfer_header,
)
from tests.support.controller_captures import HA, chunks
from tests.wire.test_ha_frame import pieces

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
CUTS = st.lists(st.integers(0, 900), max_size=30)
HANDSHAKES = st.builds(SlaveHandshake, id=I64, learner=st.booleans(), from_last_file=st.booleans())
REPORTS = st.builds(Report, st.integers(-(1 << 62), (1 << 63) - 1))
TOKENS = st.builds(Token, st.integers(0, (1 << TOKEN_BITS) - 1))
ANSWERS = st.builds(
    lambda end, labels: HandshakeAnswer(end, tuple(labels), labels[-1].label if labels else -1),
    I64,
    st.lists(st.builds(EpochLabel, I32, I64), max_size=5),
)
TRANSFERS = st.builds(
    lambda body, *more: (TransferHeader(len(body), *more), body),
    st.binary(max_size=60),
    I64,
    I32,
    I64,
    I64,
)
STRANGE = {"ha-run4-scripted-9-to35101": int.from_bytes(b"GET "), "ha-run4-scripted-10-to35101": 4}
"""Connections on which a script spoke something else, and what that begins with."""

Message = HandshakeAnswer | tuple[TransferHeader, bytes]


def heard(stream: list[bytes]) -> list[Message]:
    """What a master said, with whole bodies; what each part says is checked."""
    found: list[Message] = []
    decoder = MasterMessages()
    for chunk in stream:
        for event in decoder.receive(chunk):
            if isinstance(event, BodyPart):
                header, body = found.pop()  # type: ignore[misc]
                assert event.frame == header.size
                assert event.data.obj is chunk, "a part is a view of what arrived"
                assert event.offset == header.offset + len(body)
                body += bytes(event.data)
                assert event.left == header.size - len(body)
                found.append((header, body))
            elif isinstance(event, TransferHeader):
                found.append((event, b""))
            else:
                found.append(event)
    return found


def written(message: Message | SlaveHandshake | Report | Token) -> bytes:
    """A message's bytes."""
    if isinstance(message, SlaveHandshake):
        return encode_handshake(message)
    if isinstance(message, Token):
        return encode_token(message.number)
    if isinstance(message, Report):
        return encode_report(message.offset)
    if isinstance(message, HandshakeAnswer):
        return encode_answer(message.end, message.labels)
    header, body = message
    return encode_transfer_header(header) + body


class SlaveMessagesTests(SynchronousTestCase):
    def test_stock(self) -> None:
        """Handshake and report are those of a stock slave."""
        self.assertEqual(
            encode_handshake(SlaveHandshake(id=2)).hex(), "00000001000000000000000000000002"
        )
        self.assertEqual(encode_report(0x133).hex(), "000000020000000000000133")
        learner = encode_handshake(SlaveHandshake(id=LEARNER_ID, learner=True))
        self.assertEqual(learner.hex(), "0000000100000001ffffffffffffffff")

    @given(st.lists(HANDSHAKES | REPORTS | TOKENS, max_size=12), CUTS, st.integers(0, 11))
    def test_any_chunking(
        self, messages: list[SlaveHandshake | Report | Token], cuts: list[int], rest: int
    ) -> None:
        """Messages come out whole and in order however the stream is cut."""
        decoder = SlaveMessages()
        data = b"".join(map(written, messages)) + encode_report(0)[:rest]
        found = [each for piece in pieces(data, cuts) for each in decoder.receive(piece)]
        self.assertEqual((found, decoder.pending), (messages, rest))

    def test_captured(self) -> None:
        """What slaves of a stock set sent is read, and would be written so."""
        for name in HA:
            decoder, stream = SlaveMessages(), chunks(name, "slave")
            if name in STRANGE:
                with self.assertRaises(HaStateUnexpected) as raised:
                    decoder.receive(stream[0])
                self.assertEqual(raised.exception.state, STRANGE[name])
                continue
            messages = [each for chunk in stream for each in decoder.receive(chunk)]
            self.assertEqual(b"".join(map(written, messages)), b"".join(stream))

    def test_classic(self) -> None:
        """A classic slave is told apart by its first report, and stays refused."""
        decoder = SlaveMessages()
        for data in (bytes(8), encode_report(0)):
            with self.assertRaises(HaStateUnexpected) as raised:
                decoder.receive(data)
            self.assertIn("state 0, must be 1", str(raised.exception))


class MasterMessagesTests(SynchronousTestCase):
    def test_stock(self) -> None:
        """The answers, heartbeats and transfers that a stock master sent first."""
        answer, heartbeat, transfer, *_ = heard(chunks("ha-run1-0-to35101", "master"))
        self.assertEqual(answer, HandshakeAnswer(0, (EpochLabel(1, 0),), 1))
        self.assertEqual(heartbeat, (TransferHeader(0, -1, 1, 0, 0), b""))
        header, body = transfer  # type: ignore[misc]
        self.assertEqual(header, TransferHeader(307, 0, 1, 0, 0))
        self.assertEqual(body[:8].hex(), "00000133daa320a7")
        again, *_ = heard(chunks("ha-run1-1-to35201", "master"))
        labels = (EpochLabel(1, 0), EpochLabel(2, 66215))
        self.assertEqual(again, HandshakeAnswer(344675, labels, 2))

    def test_captured(self) -> None:
        """What masters of a stock set sent is read, and would be written so."""
        whole = 0
        for name in HA:
            stream = b"".join(chunks(name, "master"))
            messages = heard([stream]) if stream else []
            made = b"".join(map(written, messages))
            self.assertEqual(made, stream[: len(made)])
            whole += len(made) == len(stream)
        # One recording ends in the middle of a body, which is in there all the same.
        self.assertEqual(whole, len(HA))

    @given(st.lists(ANSWERS | TRANSFERS, max_size=8), CUTS)
    def test_any_chunking(self, messages: list[Message], cuts: list[int]) -> None:
        """Messages come out the same however the stream is cut, and no body is collected."""
        self.assertEqual(heard(pieces(b"".join(map(written, messages)), cuts)), messages)

    def refused(self, data: bytes, error: type[Exception]) -> str:
        """Have a stream refused, now and later, and return the words."""
        decoder = MasterMessages()
        for chunk in (data, encode_answer(0, ())):
            with self.assertRaises(error) as raised:
                list(decoder.receive(chunk))
        return str(raised.exception)

    def test_sizes(self) -> None:
        """A body that fits no slave's buffer, or less than none, ends the stream."""
        for size in (-1, MAX_BODY + 1):
            data = encode_transfer_header(TransferHeader(size, 0, 1, 0, 0))
            self.assertIn(f"{size} bytes", self.refused(data, FrameSizeOutOfRange))
            answer = ha_v2.ANSWER_HEADER.pack(1, size * 12, 0, 1)
            self.assertIn(f"{size * 12} bytes", self.refused(answer, FrameSizeOutOfRange))

    def test_part_of_a_label(self) -> None:
        """So does an answer whose labels are not whole."""
        answer = ha_v2.ANSWER_HEADER.pack(1, 13, 0, 1)
        self.assertIn("13 bytes", self.refused(answer, EpochLabelsMisshapen))

    def test_classic(self) -> None:
        """A classic master's heartbeat is told apart by its offset."""
        self.assertIn("state 0", self.refused(bytes(12), HaStateUnexpected))

    def test_too_many_labels(self) -> None:
        """No answer is written that no slave takes."""
        with self.assertRaises(FrameSizeOutOfRange):
            encode_answer(0, [EpochLabel(1, 0)] * (ha_v2.MAX_LABELS + 1))
