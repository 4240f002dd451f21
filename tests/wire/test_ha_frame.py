"""Tests for L{rmqha.wire.ha_frame}."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.errors import FrameSizeOutOfRange
from rmqha.wire.ha_frame import (
    DEFAULT_BATCH,
    MAX_BODY,
    OBSERVER,
    OFFSET_REPORT,
    TRANSFER_HEADER,
    BodyPart,
    HaHeartbeat,
    OffsetReports,
    TransferDecoder,
    encode_report,
)
from tests.support.ha_frames import encode_header

_offsets = st.integers(-(1 << 63), (1 << 63) - 1)
_frames = st.lists(st.tuples(_offsets, st.binary(max_size=60)), max_size=8)
_cuts = st.lists(st.integers(0, 600), max_size=30)
# Offset and body.
Frame = tuple[int, bytes]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """Cut a stream at the given places."""
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[start:end] for start, end in pairwise(edges)]


def stream_of(frames: list[Frame]) -> bytes:
    """Frames as a master sends them."""
    return b"".join(encode_header(offset, len(body)) + body for offset, body in frames)


def decoded(chunks: list[bytes], decoder: TransferDecoder | None = None) -> list[Frame]:
    """Whole frames of a stream that comes in chunks; what each part says is checked."""
    if decoder is None:
        decoder = TransferDecoder()
    frames: list[Frame] = []
    left = 0
    for chunk in chunks:
        for event in decoder.receive(chunk):
            if isinstance(event, HaHeartbeat):
                assert left == 0
                frames.append((event.offset, b""))
                continue
            assert 0 < len(event.data) <= len(chunk)
            assert event.data.obj is chunk, "a part is a view of what arrived"
            if left:
                offset, body = frames.pop()
                assert event.offset == offset + len(body)
                assert event.left == left - len(event.data)
            else:
                offset, body = event.offset, b""
            frames.append((offset, body + bytes(event.data)))
            assert event.frame == len(frames[-1][1]) + event.left
            left = event.left
    return frames


class OffsetReportsTests(SynchronousTestCase):
    @given(st.lists(_offsets, max_size=20), _cuts, st.binary(max_size=7))
    def test_any_chunking(self, offsets: list[int], cuts: list[int], rest: bytes) -> None:
        """Reports come out whole and in order however the stream is cut."""
        reports = OffsetReports()
        data = b"".join(map(encode_report, offsets)) + rest
        found = [value for piece in pieces(data, cuts) for value in reports.receive(piece)]
        self.assertEqual(found, offsets)
        self.assertEqual(reports.pending, len(rest))

    def test_size(self) -> None:
        """A report is a signed number of 8 bytes, the highest first."""
        self.assertEqual(encode_report(0x64), bytes(7) + b"\x64")
        self.assertEqual((OFFSET_REPORT.size, OffsetReports().receive(b"\xff" * 8)), (8, [-1]))

    def test_observer(self) -> None:
        """Who only compares says -1 first, which a stock master takes for no report."""
        self.assertEqual(encode_report(OBSERVER), b"\xff" * 8)


class TransferDecoderTests(SynchronousTestCase):
    def test_stock_frames(self) -> None:
        """Heartbeat and header are laid out as a stock master's."""
        self.assertEqual(encode_header(0, 0), bytes(12))
        self.assertEqual(encode_header(0, 768), bytes.fromhex("000000000000000000000300"))

    @given(_frames, _cuts)
    def test_any_chunking(self, frames: list[Frame], cuts: list[int]) -> None:
        """Frames come out the same however the stream is cut, and no body is collected."""
        self.assertEqual(decoded(pieces(stream_of(frames), cuts)), frames)

    @given(_frames, st.integers(0, 600), st.integers(0, 12))
    def test_consumer_stops_early(self, frames: list[Frame], cut: int, events: int) -> None:
        """After each event the decoder stands just behind it, whatever else had arrived."""
        stream = stream_of(frames)
        first, rest = stream[:cut], stream[cut:]
        decoder = TransferDecoder()
        taken = 0
        for number, event in enumerate(decoder.receive(first)):
            header, offset, left, frame = decoder.handover()
            self.assertEqual(header, b"")
            if isinstance(event, BodyPart):
                end = event.offset + len(event.data)
                self.assertEqual((offset, left, frame), (end, event.left, event.frame))
            else:
                self.assertEqual((offset, left, frame), (event.offset, 0, 0))
            taken = number + 1
            if number == events:
                return
        # Read to its end, the decoder goes on with the next chunk.
        self.assertLessEqual(taken, events)
        header, _, left, frame = decoder.handover()
        self.assertTrue(len(header) < TRANSFER_HEADER.size and left <= frame)
        whole = [event for event in decoder.receive(rest) if getattr(event, "left", 0) == 0]
        self.assertEqual(bool(whole), bool(rest))

    @given(_frames, st.integers(0, 600))
    def test_handover(self, frames: list[Frame], cut: int) -> None:
        """Another reader can go on anywhere from what the decoder hands over."""
        stream = stream_of(frames)
        cut = min(cut, len(stream))
        decoder = TransferDecoder()
        before = decoded([stream[:cut]], decoder)
        header, offset, left, frame = decoder.handover()
        rest = stream[cut:]
        if left:
            start, body = before.pop() if left < frame else (offset, b"")
            before.append((start, body + rest[:left]))
            rest = rest[left:]
        self.assertEqual(before + decoded([header + rest]), frames)

    def test_bad_sizes(self) -> None:
        """A body that is negative or above the limit ends the stream with its numbers."""
        for size in (-1, -20, -(1 << 31), MAX_BODY + 1, 4194304, (1 << 31) - 1):
            decoder = TransferDecoder()
            good = encode_header(0, 3) + b"abc"
            events = decoder.receive(good + encode_header(3, size) + b"more")
            self.assertIsInstance(next(events), BodyPart)
            with self.assertRaises(FrameSizeOutOfRange) as caught:
                next(events)
            self.assertEqual((caught.exception.size, caught.exception.limit), (size, MAX_BODY))

    def test_dead_after_a_bad_size(self) -> None:
        """Nothing behind a bad header is taken for frames."""
        decoder = TransferDecoder(max_body=10)
        for data in (encode_header(0, 11), encode_header(0, 3) + b"abc"):
            with self.assertRaises(FrameSizeOutOfRange):
                list(decoder.receive(data))

    def test_buffer_of_a_stock_slave(self) -> None:
        """The largest frame fills its 4 MiB, with its header: it could not take one byte more."""
        self.assertEqual(len(encode_header(5, MAX_BODY)) + MAX_BODY, 4_194_304)
        (part,) = TransferDecoder().receive(encode_header(5, 4_194_292) + b"x")
        self.assertEqual(part, BodyPart(5, memoryview(b"x"), 4_194_292, 4_194_291))

    def test_largest_body(self) -> None:
        """A body of just the limit is taken."""
        (part,) = TransferDecoder(max_body=10).receive(encode_header(5, 10) + b"0123456789")
        self.assertEqual(part, BodyPart(5, memoryview(b"0123456789"), 10, 0))


class CaptureTests(SynchronousTestCase):
    def listing(self, name: str) -> tuple[list[int], list[tuple[int, int]]]:
        """What the listing beside a capture says: reports, and frames by offset and size."""
        reports: list[int] = []
        frames: list[tuple[int, int]] = []
        text = (golden.DATA / "captures" / "ha" / f"{name}.txt").read_text("utf-8")
        for line in text.splitlines():
            words = line.split()
            if "report" in words and "s2m" in words:
                reports.append(int(words[words.index("report") + 1]))
            elif "m2s" in words:
                numbers = dict(word.split("=") for word in words if "=" in word)
                frames.append((int(numbers["offset"]), int(numbers.get("size", 0))))
        return reports, frames

    def test_streams(self) -> None:
        """Every stream is whole reports one way and, the other way, frames that continue
        one another, as the listing has them; in pieces of any size. The fullest is as large as we
        expect of a stock master.
        """
        self.assertEqual(len(golden.CAPTURES), 8)
        for name in golden.CAPTURES:
            reports, frames = self.listing(name)
            self.assertTrue(reports, name)
            self.assertEqual(max(size for _, size in frames), DEFAULT_BATCH, name)
            capture = golden.capture(name)
            for step in (1 << 30, 1460, 61):
                found_reports: list[int] = []
                found_frames: list[tuple[int, int]] = []
                for m2s, s2m in capture.connections():
                    cut = list(range(step, max(len(m2s), len(s2m)), step))
                    decoder, receiver = TransferDecoder(), OffsetReports()
                    for piece in pieces(s2m, cut):
                        found_reports += receiver.receive(piece)
                    self.assertEqual(receiver.pending, 0)
                    bodies = _sizes(decoder, pieces(m2s, cut))
                    self.assertEqual((decoder.handover()[0], decoder.handover()[2]), (b"", 0))
                    for before, after in pairwise(bodies):
                        self.assertEqual(before[0] + before[1], after[0])
                    found_frames += bodies
                self.assertEqual((found_reports, found_frames), (reports, frames))


def _sizes(decoder: TransferDecoder, chunks: list[bytes]) -> list[tuple[int, int]]:
    """Offset and size of each whole frame, from its last part or its heartbeat."""
    frames = []
    for chunk in chunks:
        for event in decoder.receive(chunk):
            if isinstance(event, HaHeartbeat):
                frames.append((event.offset, 0))
            elif not event.left:
                end = event.offset + len(event.data)
                frames.append((end - event.frame, event.frame))
    return frames
