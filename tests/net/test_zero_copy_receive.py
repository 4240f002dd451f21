"""Frames from a socket into a sink: any chunking, refusals, pauses.

Most of it drives C{doRead} by hand at one end of a socket pair, so that the test says how the bytes
arrive; L{tests.net.test_both_ends} has the reactor's part.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterable
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import tcp
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from rmqha.errors import FrameOffsetMismatch, FrameSizeOutOfRange, ProtocolViolation
from rmqha.net import zero_copy_receive
from rmqha.net.zero_copy_receive import IFrameSink, ZeroCopyClient
from rmqha.wire.ha_dialect import EpochLabelWentBack, SetSlaveDialect
from rmqha.wire.ha_frame import BodyPart, TransferDecoder
from rmqha.wire.ha_v2 import TransferHeader, encode_answer, encode_transfer_header
from tests.support.ha_frames import encode_header
from tests.support.sinks import Event, MemorySink

MAX = 100_000
FRESH = (b"", 0, 0, 0)


class Descriptors:
    """A reactor that only remembers who wants to read and write."""

    def __init__(self) -> None:
        self.readers: set[object] = set()
        self.writers: set[object] = set()
        self.addReader = self.readers.add
        self.addWriter = self.writers.add
        self.removeReader = self.readers.discard
        self.removeWriter = self.writers.discard
        self.later: list[Callable[[], object]] = []

    def callLater(self, delay: float, call: Callable[..., object], *args: object) -> None:
        self.later.append(lambda: call(*args))


class Counted:
    """A socket that counts how often it is read."""

    def __init__(self, inner: socket.socket) -> None:
        self.calls = 0
        self._inner = inner

    def __getattr__(self, name: str) -> object:
        if name.startswith("recv"):
            self.calls += 1
        return getattr(self._inner, name)


class Recorder(Protocol):
    """What reaches the portable path."""

    def __init__(self) -> None:
        self.data = b""
        self.lost: Failure | None = None

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = reason


class Pair:
    """A L{ZeroCopyClient} on one end of a socket pair, the test on the other."""

    def __init__(self) -> None:
        self.peer, near = socket.socketpair()
        self.reactor = Descriptors()
        self.protocol = Recorder()
        self.client = ZeroCopyClient.__new__(ZeroCopyClient)
        tcp.Connection.__init__(self.client, near, self.protocol, self.reactor)  # type: ignore[arg-type]
        self.client.connector = self.protocol  # only told of the end
        self.client.connected = 1
        self.client.startReading()
        self.protocol.makeConnection(self.client)

    def feed(self, chunk: bytes) -> object:
        """Let a chunk arrive, and read in turns until it is taken or reading stops."""
        view = memoryview(chunk)
        why = None
        while view and self.client in self.reactor.readers and why is None:
            # The pair's buffer is small: a chunk may take several turns.
            view = view[self.peer.send(view[:65536]) :]
            why = self.client.doRead()
        return why

    def close(self) -> None:
        self.peer.close()
        if self.client.connected:
            self.client.connectionLost(Failure(ConnectionDone()))


def reference(stream: bytes, size: int) -> tuple[list[Event], bytearray]:
    """What the portable decoder makes of a stream."""
    events: list[Event] = []
    log = bytearray(size)
    try:
        for event in TransferDecoder(MAX).receive(stream):
            if not isinstance(event, BodyPart):
                events.append(("heartbeat", event.offset))
                continue
            if event.left + len(event.data) == event.frame:
                events.append(("frame", event.offset, event.frame))
            log[event.offset : event.offset + len(event.data)] = event.data
            if not event.left:
                events.append(("end",))
    except FrameSizeOutOfRange as error:
        events.append(("violation", repr(error)))
    return events, log


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    """The stream in chunks."""
    edges = [0, *sorted({place % (len(stream) + 1) for place in places}), len(stream)]
    return [stream[a:b] for a, b in pairwise(edges)]


def frame(offset: int, body: bytes) -> bytes:
    """One frame."""
    return encode_header(offset, len(body)) + body


frames = st.lists(
    st.tuples(
        st.integers(0, 5000),
        st.one_of(st.just(0), st.integers(1, 60), st.integers(1, 3000), st.sampled_from([-1])),
    ),
    max_size=12,
)


class ChunkingTests(SynchronousTestCase):
    """The scatter path is the portable decoder by other means."""

    @given(frames, st.lists(st.integers(0, 1 << 20), max_size=40), st.integers(1, 4000), st.data())
    def test_equals_portable(
        self, shape: list[tuple[int, int]], places: list[int], file_size: int, data: st.DataObject
    ) -> None:
        """However chunked or handed over, events and log are those of the portable decoder."""
        source = random.Random(len(places))
        stream = b"".join(
            encode_header(offset, size) + source.randbytes(max(size, 0)) for offset, size in shape
        )
        good = sum(12 + size for _, size in shape if size >= 0)
        if any(size < 0 for _, size in shape):
            good = sum(12 + s for _, s in shape[: [s < 0 for _, s in shape].index(True)])
        switch = data.draw(st.integers(0, good))
        sink = MemorySink(size=8000, file_size=file_size)
        decoder = TransferDecoder(MAX)
        for event in decoder.receive(stream[:switch]):
            if isinstance(event, BodyPart):
                if event.left + len(event.data) == event.frame:
                    sink.frame_starts(event.offset, event.frame)
                sink.log[event.offset : event.offset + len(event.data)] = event.data
                if not event.left:
                    sink.frame_ends()
            else:
                sink.heartbeat(event.offset)
        pair = Pair()
        try:
            pair.client.start_scatter(sink, decoder.handover(), MAX)
            for chunk in cut(stream[switch:], places):
                self.assertIsNone(pair.feed(chunk))
        finally:
            pair.close()
        events, log = reference(stream, 8000)
        self.assertEqual((sink.events, sink.log), (events, log))

    def test_byte_by_byte(self) -> None:
        """One byte a turn is the hardest chunking and has the most turns."""
        stream = frame(5, b"hello") + encode_header(10, 0) + frame(10, b"world!")
        sink = MemorySink(size=100, file_size=4)
        pair = Pair()
        self.addCleanup(pair.close)
        pair.client.start_scatter(sink, FRESH, MAX)
        for place in range(len(stream)):
            pair.feed(stream[place : place + 1])
        events, log = reference(stream, 100)
        self.assertEqual((sink.events, sink.log), (events, log))
        self.assertEqual(len(sink.turns), len(stream))

    def test_portable_until_told(self) -> None:
        """Before C{start_scatter} bytes go to the protocol."""
        pair = Pair()
        self.addCleanup(pair.close)
        pair.feed(b"abc")
        self.assertEqual(pair.protocol.data, b"abc")

    def test_one_call_a_frame(self) -> None:
        """The rest of a body and the next header come in one system call."""
        sink = MemorySink()
        pair = Pair()
        self.addCleanup(pair.close)
        pair.client.start_scatter(sink, FRESH, MAX)
        pair.peer.send(b"".join(frame(n * 1000, bytes(1000)) for n in range(10)))
        pair.client.doRead()
        self.assertEqual(sink.rooms, [(n * 1000, 1000) for n in range(10)])
        self.assertEqual(sink.turns, [10_000])

    def test_one_call_for_what_is_there(self) -> None:
        """What is there comes in one system call: frames of a size that stock masters send, too."""
        for count, size, calls in ((1, 1000, 1), (20, 1000, 1), (5, 32_768, 1)):
            with self.subTest(count=count, size=size):
                sink = MemorySink()
                pair = Pair()
                self.addCleanup(pair.close)
                pair.client.start_scatter(sink, FRESH, MAX)
                pair.client.socket = counted = Counted(pair.client.socket)  # type: ignore[assignment]
                pair.peer.send(b"".join(frame(n * size, b"z" * size) for n in range(count)))
                pair.client.doRead()
                self.assertEqual((sink.received, sink.turns), (count * size, [count * size]))
                self.assertEqual(counted.calls, calls)

    def test_short_room(self) -> None:
        """A room shorter than the body is asked for again where it ended."""
        sink = MemorySink(file_size=1000)
        pair = Pair()
        self.addCleanup(pair.close)
        pair.client.start_scatter(sink, FRESH, MAX)
        pair.feed(frame(700, b"x" * 2000))
        self.assertEqual(sink.rooms, [(700, 2000), (1000, 1700), (2000, 700)])
        self.assertEqual(sink.log[700:2700], b"x" * 2000)

    def test_wrong_room(self) -> None:
        """A room of no bytes, or more than the body has left, is our mistake, not written."""
        for size in (0, 51):
            sink = MemorySink()
            room = memoryview(bytearray(size))
            pair = Pair()
            self.addCleanup(pair.close)
            pair.client.start_scatter(sink, FRESH, MAX)
            with patch.object(MemorySink, "room", lambda *_, room=room: room):
                self.assertRaises(ValueError, pair.feed, frame(0, b"y" * 50))
            self.assertEqual(bytes(room), bytes(size))

    def test_turn_grows(self) -> None:
        """What comes alone is told soon; while more is there each turn reads twice as much as the
        one before, up to a bound, and what comes after a pause is told soon again.
        """
        sink = MemorySink()
        pair = Pair()
        self.addCleanup(pair.close)
        pair.client.start_scatter(sink, FRESH, MAX)
        pair.client._turn = 1000
        stream = b"".join(frame(n * 100, bytes(100)) for n in range(200))
        with patch.multiple(zero_copy_receive, FIRST_TURN=1000, TURN=4000):
            for part in (stream[: len(stream) // 2], stream[len(stream) // 2 :]):
                pair.peer.send(part)
                before, sizes = sink.received, []
                while sink.received < before + 10_000:
                    pair.client.doRead()
                    sizes.append(sink.received - before - sum(sizes))
                self.assertEqual([1, 2, 4, 4, 0], [round(size / 1000) for size in sizes])


class ElectedTests(SynchronousTestCase):
    """Transfers of an elected master, whose headers say more."""

    @given(
        st.lists(st.tuples(st.sampled_from([0, 1, 50, 3000, 9000]), st.integers(0, 99))),
        st.lists(st.integers(0, 1 << 20), max_size=40),
        st.data(),
    )
    def test_equals_portable(
        self, shape: list[tuple[int, int]], places: list[int], data: st.DataObject
    ) -> None:
        """However chunked or handed over, each header is heard once, before its body."""
        stream, at, sent = b"", 0, []
        for size, confirm in shape:
            sent.append(TransferHeader(size, at, 1, 0, confirm))
            stream += encode_transfer_header(sent[-1]) + random.Random(at).randbytes(size)
            at += size
        dialect, heard, sink = SetSlaveDialect(), list[Event](), MemorySink(file_size=4000)
        list(dialect.receive(encode_answer(0, [])))
        switch = data.draw(st.integers(0, len(stream)))
        for event in dialect.receive(stream[:switch]):
            if isinstance(event, TransferHeader):
                heard.append((event, sink.received))
            elif isinstance(event, BodyPart):
                sink.log[event.offset : event.offset + len(event.data)] = event.data
                sink.received += len(event.data)
        headers = dialect.headers(lambda header: heard.append((header, sink.received)))
        pair = Pair()
        try:
            handover = dialect.handover()
            assert handover is not None, "it is answered"
            pair.client.start_scatter(sink, handover, MAX, headers)
            for chunk in cut(stream[switch:], places):
                self.assertIsNone(pair.feed(chunk))
        finally:
            pair.close()
        self.assertEqual(heard, [(header, header.offset) for header in sent])
        self.assertEqual(sink.received, at)
        body = b"".join(random.Random(each.offset).randbytes(each.size) for each in sent)
        self.assertEqual(bytes(sink.log[:at]), body)

    def test_refused(self) -> None:
        """What no master says at this place ends the stream, and nothing of it is log."""
        dialect, sink, pair = SetSlaveDialect(), MemorySink(), Pair()
        self.addCleanup(pair.close)
        list(dialect.receive(encode_answer(0, [])))
        pair.client.start_scatter(sink, FRESH, MAX, dialect.headers(lambda header: None))
        pair.feed(encode_transfer_header(TransferHeader(4, 0, 1, 9, 0)) + b"abcd")
        self.assertEqual([type(each) for each in sink.violations], [EpochLabelWentBack])
        self.assertEqual(sink.received, 0)
        self.assertNotIn(pair.client, pair.reactor.readers)


class RefusalTests(SynchronousTestCase):
    """What happens to a stream nobody can follow."""

    def setUp(self) -> None:
        self.sink = MemorySink(size=10_000)
        verifyObject(IFrameSink, self.sink)
        self.pair = Pair()
        self.addCleanup(self.pair.close)
        self.client = self.pair.client
        self.client.start_scatter(self.sink, FRESH, MAX)

    def refuse(self) -> None:
        """Raise what a sink raises for a gap."""
        raise FrameOffsetMismatch(0, 100)

    def assert_stopped(self, kind: type[ProtocolViolation]) -> None:
        """One violation, no more reading, not even when asked to go on."""
        self.assertEqual([type(error) for error in self.sink.violations], [kind])
        self.assertNotIn(self.client, self.pair.reactor.readers)
        before = bytes(self.sink.log), list(self.sink.events)
        self.client.resumeProducing()
        self.assertNotIn(self.client, self.pair.reactor.readers)
        self.pair.peer.send(frame(200, b"more"))
        self.client.doRead()
        self.assertEqual((bytes(self.sink.log), self.sink.events), before)

    def test_size(self) -> None:
        """A size out of range is told with its numbers, and nothing of the frame is read."""
        for size in (-1, -(1 << 31), MAX + 1, (1 << 31) - 1):
            with self.subTest(size=size):
                self.setUp()
                self.pair.feed(frame(0, b"good") + encode_header(4, size) + b"bad" * 100)
                expected = FrameSizeOutOfRange(size, MAX)
                self.assertEqual(self.sink.events[-1], ("violation", repr(expected)))
                self.assertEqual(self.sink.log.rstrip(b"\0"), b"good")
                self.assert_stopped(FrameSizeOutOfRange)

    def test_largest(self) -> None:
        """The limit itself is allowed."""
        self.client.start_scatter(self.sink, FRESH, 10_000)
        self.pair.feed(frame(0, b"z" * 10_000))
        self.assertEqual(self.sink.events[-1], ("end",))

    def test_frame_refused(self) -> None:
        """A header the sink refuses leaves no byte of its body, wherever it came in."""
        stream = frame(0, b"good") + frame(100, b"bad" * 100)
        for places in ([], [5], [14], [16], [20], [27], [28], [29], [100]):
            with self.subTest(places=places):
                self.setUp()
                self.sink.on["frame_ends"] = lambda: self.sink.on.update(frame_starts=self.refuse)
                for chunk in cut(stream, places):
                    self.pair.feed(chunk)
                self.assertEqual(self.sink.log.rstrip(b"\0"), b"good")
                self.assertEqual(self.sink.rooms[-1][0] < 100, True)
                self.assert_stopped(FrameOffsetMismatch)

    def test_every_call_may_refuse(self) -> None:
        """A violation raised in any call is told once and ends the reading."""
        for call in ("room", "heartbeat", "body_received", "frame_ends", "turn_ends"):
            with self.subTest(call=call):
                self.setUp()
                self.sink.on[call] = self.refuse
                self.pair.feed(encode_header(0, 0) + frame(0, b"body"))
                self.assert_stopped(FrameOffsetMismatch)

    def test_abort_in_violation(self) -> None:
        """The usual answer to a violation is to leave, and the peer sees it."""
        self.sink.on["violation"] = self.client.abortConnection
        self.pair.feed(encode_header(0, -1))
        self.pair.reactor.later.pop()()
        self.assertIsNotNone(self.pair.protocol.lost)

    def test_our_own_error(self) -> None:
        """Any other exception is ours: the reactor gets it, logs it and drops the connection."""
        self.sink.on["room"] = lambda: 1 // 0  # type: ignore[assignment,return-value]
        self.assertRaises(ZeroDivisionError, self.pair.feed, frame(0, b"body"))


class PauseTests(SynchronousTestCase):
    """Stopping in the middle, for a while or for good."""

    def setUp(self) -> None:
        self.sink = MemorySink(size=10_000)
        self.pair = Pair()
        self.addCleanup(self.pair.close)
        self.client = self.pair.client
        self.client.start_scatter(self.sink, FRESH, MAX)

    def test_pause(self) -> None:
        """After a pause no room is asked for, though bytes are there; resumed, nothing is lost."""
        stream = b"".join(frame(n * 100, bytes([n]) * 100) for n in range(1, 50))
        self.sink.on["frame_ends"] = self.client.pauseProducing
        self.pair.peer.send(stream)
        for ended in range(1, 50):
            self.client.doRead()
            self.assertNotIn(self.client, self.pair.reactor.readers)
            self.assertEqual(self.sink.events.count(("end",)), ended)
            self.assertEqual(self.sink.turns[-1], ended * 100)
            self.client.resumeProducing()
            self.assertIn(self.client, self.pair.reactor.readers)
        events, log = reference(stream, 10_000)
        self.assertEqual((self.sink.events, self.sink.log), (events, log))

    def test_resumed_without_the_socket(self) -> None:
        """What was read before a pause is told after it, dry socket or not, and in order."""
        for feeds in (False, True):
            with self.subTest(feeds=feeds):
                self.setUp()
                self.sink.on["frame_ends"] = self.client.pauseProducing
                self.pair.feed(b"".join(frame(n * 4, b"abcd") for n in range(3)))
                self.assertEqual((self.sink.received, self.sink.turns), (4, [4]))
                self.sink.on.clear()
                self.client.resumeProducing()
                if feeds:
                    self.pair.feed(frame(12, b"efgh"))
                for call in self.pair.reactor.later:
                    call()
                self.assertEqual(self.sink.turns, [4, 16] if feeds else [4, 12])
                self.assertEqual(
                    bytes(self.sink.log[:16]),
                    b"abcd" * 3 + b"efgh" * feeds + b"\0" * 4 * (not feeds),
                )

    def test_resumed_and_refused(self) -> None:
        """What was read before a pause may be refused after it, or meet an error of ours: both end
        the connection as they do in a read.
        """
        self.sink.on["frame_ends"] = self.client.pauseProducing
        self.pair.feed(frame(0, b"abcd") + frame(4, b"abcd") + encode_header(8, -1))
        self.sink.on.clear()
        self.client.resumeProducing()
        self.pair.reactor.later.pop()()
        self.assertEqual(len(self.sink.violations), 1)
        self.setUp()
        self.sink.on["frame_ends"] = self.client.pauseProducing
        self.pair.feed(frame(0, b"abcd") + frame(4, b"abcd"))
        self.sink.on["room"] = lambda: 1 // 0  # type: ignore[assignment,return-value]
        self.client.resumeProducing()
        self.assertRaises(ZeroDivisionError, self.pair.reactor.later.pop(0))
        self.pair.reactor.later.pop()()
        self.assertIsNotNone(self.pair.protocol.lost)

    def test_paused_again(self) -> None:
        """A pause that is taken back and made again in one turn leaves the rest where it is."""
        self.sink.on["frame_ends"] = self.client.pauseProducing
        self.pair.feed(frame(0, b"abcd") + frame(4, b"abcd"))
        self.client.resumeProducing()
        self.client.pauseProducing()
        self.pair.reactor.later.pop()()
        self.assertEqual(self.sink.received, 4)
        self.client.resumeProducing()
        self.pair.reactor.later.pop()()
        self.assertEqual((self.sink.received, self.pair.reactor.later), (8, []))

    def test_pause_and_resume_at_once(self) -> None:
        """A pause taken back before the turn ends changes nothing."""

        def hiccup() -> None:
            self.client.pauseProducing()
            self.client.resumeProducing()

        self.sink.on["frame_ends"] = hiccup
        self.pair.feed(frame(0, b"a") + frame(1, b"b"))
        self.assertEqual(self.sink.events.count(("end",)), 2)

    def test_heartbeat_behind_a_pause(self) -> None:
        """A heartbeat read with the body before it is told in spite of a pause."""
        self.sink.on["frame_ends"] = self.client.pauseProducing
        self.pair.feed(frame(0, b"abc") + encode_header(3, 0))
        self.assertEqual(self.sink.events[-1], ("heartbeat", 3))

    def test_abort(self) -> None:
        """After an abort nothing is told and nothing is written."""
        for call in ("frame_starts", "room", "body_received", "frame_ends", "heartbeat"):
            with self.subTest(call=call):
                self.setUp()
                self.sink.on[call] = self.client.abortConnection
                self.pair.peer.send(encode_header(0, 0) + frame(0, b"abc") + frame(3, b"def"))
                self.assertIsNone(self.client.doRead())
                self.assertNotIn(("frame", 3, 3), self.sink.events)
                self.assertEqual(bytes(self.sink.log[3:]), bytes(9997))
                seen = list(self.sink.events)
                self.client.doRead()
                self.pair.reactor.later.pop()()
                self.assertEqual(self.sink.events, seen)

    def test_lose(self) -> None:
        """After C{loseConnection} no further frame is told."""
        self.sink.on["frame_ends"] = self.client.loseConnection
        self.pair.feed(frame(0, b"abc") + frame(3, b"def"))
        self.assertEqual(self.sink.events, [("frame", 0, 3), ("end",)])

    def test_end_of_stream(self) -> None:
        """What came before the end is told; then the connection is done, and no view written."""
        self.pair.peer.send(frame(0, b"abc") + encode_header(3, 100) + b"part")
        self.pair.peer.close()
        why = None
        while why is None:
            why = self.client.doRead()
        self.assertIsInstance(why, ConnectionDone)
        self.assertEqual(self.sink.turns, [7])
        self.client.connectionLost(Failure(why))
        self.assertIsNotNone(self.pair.protocol.lost)
        self.assertEqual(self.sink.events[-1], ("frame", 3, 100))

    def test_socket_error(self) -> None:
        """A broken socket ends the connection."""
        self.client.socket.close()
        self.assertIsInstance(self.client.doRead(), ConnectionLost)
        del self.client.socket  # the descriptor is gone already

    def test_write_at_once(self) -> None:
        """A small reply is with the kernel when C{write} returns, and keeps its place."""
        self.client.write(b"12345678")
        self.assertNotIn(self.client, self.pair.reactor.writers)
        self.assertEqual(self.pair.peer.recv(100), b"12345678")
        big = bytes(4 << 20)
        self.client.write(big)
        self.client.write(b"after")
        self.assertIn(self.client, self.pair.reactor.writers)
        got = bytearray()
        while len(got) < len(big) + 5:
            self.client.doWrite()
            got += self.pair.peer.recv(1 << 20)
        self.assertTrue(got.endswith(b"\0after"))

    def test_write_after_abort(self) -> None:
        """Nothing is sent after an abort."""
        self.client.abortConnection()
        self.client.write(b"late")
        self.pair.peer.setblocking(False)
        self.assertRaises(BlockingIOError, self.pair.peer.recv, 10)

    def test_only_bytes(self) -> None:
        """As with any transport only C{bytes} can be written."""
        self.assertRaises(TypeError, self.client.write, bytearray(3))
