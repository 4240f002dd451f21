"""Frames: every captured one, any cut of a stream, and what is no frame at all."""

from __future__ import annotations

import tracemalloc
from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import HeaderUndecodable, RemotingFrameError
from rmqha.wire.remoting.codes import LanguageCode, RequestCode
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.frame import (
    FRAME_LIMIT,
    HEADER_LIMIT,
    FrameDecoder,
    FrameLengthOutOfRange,
    HeaderLengthOutOfRange,
    SerializeTypeUnknown,
    encode,
    encode_head,
)
from tests.support.effort import tries
from tests.support.frames import every_frame, streams

NAMES = st.text(max_size=20)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
COMMANDS = st.builds(
    Command,
    code=INT16,
    opaque=INT32,
    flag=INT32,
    language=st.sampled_from(LanguageCode),
    version=INT16,
    remark=st.none() | st.text(min_size=1),
    ext=st.dictionaries(NAMES, st.text(max_size=200), max_size=5),
    body=st.binary(max_size=10_000),
    serialize=st.sampled_from(SerializeType),
)


def decoded(stream: bytes, sizes: list[int]) -> list[Command]:
    """What a decoder makes of a stream that comes in pieces of these sizes, then the rest."""
    decoder = FrameDecoder()
    found = []
    for size in sizes:
        found += decoder.receive(stream[:size])
        stream = stream[size:]
    return found + decoder.receive(stream)


def summary(command: Command) -> tuple[object, ...]:
    """What a capture notes of a command."""
    return (command.code, command.opaque, command.flag, command.remark, bytes(command.body))


class CapturedFrames(SynchronousTestCase):
    def test_every_frame_decodes(self) -> None:
        """What a client, broker or name server sent is understood, field by field."""
        for name, frame in every_frame():
            (command,) = FrameDecoder().receive(frame.raw)
            note = frame.note
            self.assertEqual(
                (note["code"], note["opaque"], note["flag"], note["remark"], frame.body),
                summary(command),
                name,
            )
            self.assertEqual(frame.ext, command.ext, name)
            self.assertEqual(note["version"], command.version, name)
            self.assertEqual(note["language"], command.language.name, name)
            self.assertEqual(note["serializeType"], command.serialize.name, name)

    def test_every_frame_survives_encoding(self) -> None:
        """Our frame for the same values means the same; a binary one is the same bytes."""
        for name, frame in every_frame():
            (command,) = FrameDecoder().receive(frame.raw)
            ours = encode(command)
            self.assertEqual([command], FrameDecoder().receive(ours), name)
            if command.serialize is SerializeType.ROCKETMQ:
                self.assertEqual(frame.raw, ours, name)

    def test_whole_connections(self) -> None:
        """A connection's bytes give its commands, in pieces of a few sizes."""
        for name, sent in streams():
            stream = b"".join(frame.raw for frame in sent)
            for size in (1460, 65536):
                decoder = FrameDecoder()
                found: list[Command] = []
                for at in range(0, len(stream), size):
                    found += decoder.receive(stream[at : at + size])
                self.assertEqual(
                    [(frame.note["opaque"], frame.body) for frame in sent],
                    [(command.opaque, command.body) for command in found],
                    name,
                )


class Streams(SynchronousTestCase):
    @given(st.lists(COMMANDS, max_size=4), st.lists(st.integers(0, 3000), max_size=12))
    def test_any_cut(self, commands: list[Command], sizes: list[int]) -> None:
        """However a stream is cut, the same commands come out, in order."""
        stream = b"".join(encode(command) for command in commands)
        self.assertEqual(commands, decoded(stream, sizes))

    @given(
        st.lists(COMMANDS, max_size=6),
        st.lists(st.integers(0, 3000), max_size=6),
        st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    )
    def test_a_few_at_a_time(
        self, commands: list[Command], sizes: list[int], mosts: list[int]
    ) -> None:
        """However much is looked at in a call, the same commands come out, in order."""
        stream, decoder = b"".join(encode(command) for command in commands), FrameDecoder()
        found, calls = [], 0
        for size in [*sizes, len(stream)]:
            found += decoder.receive(stream[:size], mosts[calls % len(mosts)])
            stream = stream[size:]
            calls += 1
        while decoder.unread:
            before = len(found)
            found += decoder.receive(b"", mosts[calls % len(mosts)])
            self.assertTrue(len(found) > before or not decoder.unread, "it goes on")
            calls += 1
        self.assertEqual(commands, found)

    def test_as_much_as_was_asked_for(self) -> None:
        """A call gives what begins in so many bytes."""
        frame, decoder = encode(Command(code=1, body=bytes(100))), FrameDecoder()
        for most, wanted in ((1, 1), (len(frame), 1), (len(frame) + 1, 2), (10**6, 6)):
            found = decoder.receive(frame * 10 if most == 1 else b"", most)
            self.assertEqual(len(found), wanted)
        self.assertFalse(decoder.unread)

    @settings(max_examples=tries(20))
    @given(COMMANDS)
    def test_byte_by_byte(self, command: Command) -> None:
        """A command is given with its last byte, not earlier and not later."""
        stream = encode(command)
        decoder = FrameDecoder()
        for at in range(len(stream) - 1):
            self.assertEqual([], decoder.receive(stream[at : at + 1]))
        self.assertEqual([command], decoder.receive(stream[-1:]))

    @given(COMMANDS)
    def test_head_and_body(self, command: Command) -> None:
        """A frame's head and its body, sent one after the other, are the frame."""
        body = bytes(command.body)
        self.assertEqual(encode(command), encode_head(command, len(body)) + body)

    def test_bodies_are_bytes(self) -> None:
        """A body is C{bytes} whether it came whole or in pieces, large and small."""
        command = Command(code=10, body=bytes(range(256)) * 256)
        stream = encode(command)
        for sizes in ([], [30_000, 10, 10, 20_000], [200] * 100):
            (found,) = decoded(stream, sizes)
            self.assertIs(bytes, type(found.body))
            self.assertEqual(command.body, found.body)


class BrokenStreams(SynchronousTestCase):
    def test_length(self) -> None:
        """A length that is negative, too small or too large is named with its limit."""
        for total in (-(1 << 31), -1, 0, 3, FRAME_LIMIT - 3, (1 << 31) - 1):
            with self.assertRaises(FrameLengthOutOfRange) as caught:
                FrameDecoder().receive(pack(">iI", total, 0))
            self.assertEqual(total + 4, caught.exception.size)
            self.assertEqual(FRAME_LIMIT, caught.exception.limit)

    def test_the_largest_frame(self) -> None:
        """A frame of exactly the limit is taken, and we refuse to make a larger one."""
        command = Command(code=10)
        body = bytes(FRAME_LIMIT - len(encode(command)))
        command.body = body
        (found,) = FrameDecoder().receive(encode(command))
        self.assertEqual(len(body), len(found.body))
        self.assertRaises(FrameLengthOutOfRange, encode_head, command, len(body) + 1)

    def test_header_length(self) -> None:
        """A header longer than its frame, or than any can be, is named."""
        with self.assertRaises(HeaderLengthOutOfRange) as caught:
            FrameDecoder().receive(pack(">iI", 14, 11))
        self.assertEqual((11, 10), (caught.exception.size, caught.exception.limit))
        with self.assertRaises(HeaderLengthOutOfRange) as caught:
            FrameDecoder().receive(pack(">iI", FRAME_LIMIT - 4, HEADER_LIMIT + 1))
        self.assertEqual(HEADER_LIMIT, caught.exception.limit)

    def test_type(self) -> None:
        """A third kind of header is named."""
        with self.assertRaises(SerializeTypeUnknown) as caught:
            FrameDecoder().receive(pack(">iI", 6, 2 << 24 | 2) + b"{}")
        self.assertEqual(2, caught.exception.number)

    def test_other_protocols(self) -> None:
        """A TLS hello and an HTTP request are no frames."""
        for data in (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n"):
            self.assertRaises(FrameLengthOutOfRange, FrameDecoder().receive, data)

    def test_dead(self) -> None:
        """Behind a broken frame nothing is read, good frames neither."""
        decoder = FrameDecoder()
        self.assertRaises(RemotingFrameError, decoder.receive, bytes(8))
        self.assertRaises(RemotingFrameError, decoder.receive, encode(Command(code=10)))

    def test_a_long_body_is_not_made_room_for(self) -> None:
        """An announced body takes memory as it comes, also byte by byte."""
        head = encode_head(Command(code=10), FRAME_LIMIT // 2)
        decoder = FrameDecoder()
        tracemalloc.start()
        try:
            decoder.receive(head)
            self.assertLess(tracemalloc.get_traced_memory()[0], 100_000)
            for _ in range(50_000):
                decoder.receive(b"x")
            self.assertLess(tracemalloc.get_traced_memory()[0], 300_000)
        finally:
            tracemalloc.stop()

    @given(st.binary(max_size=300), st.lists(st.integers(0, 100), max_size=5))
    def test_garbage(self, garbage: bytes, sizes: list[int]) -> None:
        """Any bytes give commands or a typed error."""
        try:
            decoded(garbage, sizes)
        except RemotingFrameError:
            pass

    @given(st.binary(max_size=200), st.integers(0, 1))
    def test_garbage_in_a_header(self, garbage: bytes, kind: int) -> None:
        """Any header gives a command or says that it is none."""
        frame = pack(">iI", len(garbage) + 4, kind << 24 | len(garbage)) + garbage
        try:
            (command,) = FrameDecoder().receive(frame)
        except HeaderUndecodable as error:
            self.assertEqual(len(garbage), error.size)
        else:
            encode(command)

    @settings(max_examples=tries(200))
    @given(COMMANDS, st.data())
    def test_one_byte_changed(self, command: Command, data: st.DataObject) -> None:
        """A frame with one wrong byte gives a command or a typed error."""
        stream = bytearray(encode(command))
        head = len(stream) - len(command.body)
        stream[data.draw(st.integers(0, head - 1))] = data.draw(st.integers(0, 255))
        try:
            FrameDecoder().receive(bytes(stream))
        except RemotingFrameError:
            pass


class Commands(SynchronousTestCase):
    def test_request(self) -> None:
        """A request of ours is one, in JSON, and of Python."""
        command = Command.request(RequestCode.HEART_BEAT, body=b"{}", oneway=True)
        self.assertTrue(command.is_oneway)
        self.assertFalse(command.is_response)
        self.assertEqual(
            (34, LanguageCode.PYTHON, SerializeType.JSON),
            (command.code, command.language, command.serialize),
        )

    def test_answer(self) -> None:
        """An answer has its request's number and kind of header."""
        request = Command(code=30, opaque=-7, flag=2, serialize=SerializeType.ROCKETMQ)
        answer = request.answer(17, "topic[T] not exist")
        self.assertTrue(answer.is_response)
        self.assertFalse(answer.is_oneway)
        self.assertEqual(
            (17, -7, SerializeType.ROCKETMQ, "topic[T] not exist"),
            (answer.code, answer.opaque, answer.serialize, answer.remark),
        )
