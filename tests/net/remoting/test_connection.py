"""One connection, in both directions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import HeaderFieldInvalid, RemotingFrameError, RemotingTimeout, RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits
from rmqha.net.remoting.handlers import Registry
from rmqha.wire.remoting.answers import Answer, Scattered
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command, SerializeType
from rmqha.wire.remoting.frame import FrameLengthOutOfRange, encode
from tests.net.remoting.support import Peer
from tests.support.log_lines import log_lines

ECHO, LATER, REFUSE, FIELD, BREAK, NOTHING, VIEWS = range(100, 107)


def echo(connection: RemotingProtocol, command: Command) -> Command:
    """Answer with the body."""
    return command.answer(body=command.body)


class AnsweringTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.later: list[Deferred[Answer]] = []
        self.peer = Peer()
        register = self.peer.registry.register
        register(ECHO, echo)
        register(LATER, self.wait)
        register(REFUSE, self.refuse)
        register(FIELD, self.invalid)
        register(BREAK, lambda connection, command: Command(code=1 // 0))
        register(NOTHING, lambda connection, command: None)
        register(VIEWS, self.views)

    def wait(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        self.later.append(Deferred())
        return self.later[-1]

    def refuse(self, connection: RemotingProtocol, command: Command) -> Answer:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, "no topic T")

    def invalid(self, connection: RemotingProtocol, command: Command) -> Answer:
        raise HeaderFieldInvalid("Pull", "queueId", None, "a number")

    def views(self, connection: RemotingProtocol, command: Command) -> Answer:
        """A body of several pieces."""
        return Scattered(command.answer(), [memoryview(b"abc"), memoryview(b""), memoryview(b"de")])

    def ask(self, code: int, **more: object) -> Command:
        self.peer.send(Command(code=code, opaque=9, **more))  # type: ignore[arg-type]
        (answer,) = self.peer.sent()
        self.assertTrue(answer.is_response)
        self.assertEqual(answer.opaque, 9)
        return answer

    def test_answers(self) -> None:
        """An answer has the request's number and kind of header."""
        for kind in SerializeType:
            answer = self.ask(ECHO, body=b"hello", serialize=kind)
            self.assertEqual((answer.code, answer.body, answer.serialize), (0, b"hello", kind))

    def test_nothing_to_say(self) -> None:
        """A handler without an answer has succeeded, and who asked is told."""
        self.assertEqual(self.ask(NOTHING).code, 0)

    def test_views(self) -> None:
        """A body in pieces arrives whole, as one view does."""
        self.assertEqual(self.ask(VIEWS).body, b"abcde")

    def test_unknown(self) -> None:
        """A code nobody handles is named in the answer, in the field's words."""
        answer = self.ask(31_000)
        self.assertEqual((answer.code, answer.remark), (3, " request type 31000 not supported"))

    def test_errors(self) -> None:
        """A refusal has its own code; other errors have code 1, a text, and no hang-up."""
        for code, expected in (
            (REFUSE, (17, "no topic T")),
            (FIELD, (1, "the custom field <queueId> is null")),
            (BREAK, (1, "ZeroDivisionError: integer division or modulo by zero")),
        ):
            answer = self.ask(code)
            self.assertEqual((answer.code, answer.remark), expected)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        self.assertEqual(self.ask(ECHO).code, 0)

    def test_errors_are_logged_at_a_bounded_rate(self) -> None:
        """A peer that breaks a handler a hundred times makes one traceback a second."""
        self.peer.send(*(Command(code=BREAK) for _ in range(100)))
        self.assertEqual(len(self.peer.sent()), 100)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_late_error(self) -> None:
        """A handler that fails later is answered for as one that fails at once."""
        self.peer.send(Command(code=LATER, opaque=1))
        self.later[0].errback(RequestRefused(2, "busy"))
        self.peer.clock.advance(0)
        self.assertEqual([answer.code for answer in self.peer.sent()], [2])

    def test_answer_is_no_frame(self) -> None:
        """An answer nobody would take becomes an error that can be told."""
        huge = memoryview(bytes(17 << 20))
        self.peer.registry.register(
            200, lambda connection, command: Scattered(command.answer(), [huge])
        )
        self.assertEqual(self.ask(200).code, 1)

    def test_oneway(self) -> None:
        """A one-way request is never answered: not by its handler, an error or an unknown code."""
        for code in (ECHO, REFUSE, FIELD, NOTHING, 31_000):
            self.peer.send(Command(code=code, flag=2))
        self.peer.send(Command(code=LATER, flag=2))
        self.later[0].callback(None)
        self.peer.clock.advance(0)
        self.assertEqual(self.peer.sent(), [])

    def test_order(self) -> None:
        """A request that waits holds nobody up."""
        self.peer.send(Command(code=LATER, opaque=1), Command(code=ECHO, opaque=2))
        self.assertEqual([answer.opaque for answer in self.peer.sent()], [2])

    def test_together(self) -> None:
        """Answers of one turn leave in one write, those to what came together and late ones."""
        writes: list[bytes] = []
        self.patch(self.peer.transport, "write", writes.append)
        self.peer.send(*(Command(code=ECHO, opaque=number) for number in range(64)))
        self.assertEqual(len(writes), 1)
        self.peer.send(*(Command(code=LATER, opaque=number) for number in range(64)))
        for waiting in self.later:
            waiting.callback(None)
        self.assertEqual(len(writes), 1)
        self.peer.clock.advance(0)
        self.assertEqual(len(writes), 2)

    def test_gone(self) -> None:
        """What a handler still waits for is cancelled when who asked is gone."""
        cancelled: list[object] = []
        self.peer.registry.register(201, lambda *_: Deferred(cancelled.append))
        self.peer.send(Command(code=201), Command(code=LATER))
        lost: list[RemotingProtocol] = []
        self.peer.connections.lost.append(lost.append)
        self.peer.connection.connectionLost(Failure(ConnectionDone()))
        self.assertEqual((len(cancelled), lost), (1, [self.peer.connection]))
        self.assertEqual(self.peer.connections.status()["closed"], {"peer": 1})
        self.assertEqual(self.peer.clock.getDelayedCalls(), [])

    def test_too_many(self) -> None:
        """Above the limit of requests in progress the system says that it is busy."""
        peer = Peer(ConnectionLimits(requests=2), registry=self.peer.registry)
        peer.send(*(Command(code=LATER, opaque=number) for number in range(3)))
        (answer,) = peer.sent()
        self.assertEqual((answer.code, answer.opaque), (2, 2))
        self.assertEqual(answer.remark, "[OVERLOAD]system busy, start flow control for a while")
        self.later[0].callback(None)
        peer.clock.advance(0)
        peer.sent()
        peer.send(Command(code=LATER))
        self.assertEqual(peer.sent(), [])

    @given(
        st.lists(
            st.tuples(st.binary(max_size=40), st.sampled_from(SerializeType)),
            min_size=1,
            max_size=8,
        ),
        st.lists(st.integers(1, 60), min_size=1, max_size=30),
    )
    def test_any_chunking(
        self, requests: list[tuple[bytes, SerializeType]], cuts: list[int]
    ) -> None:
        """However the requests are cut on their way, each gets its answer."""
        peer = Peer()
        peer.registry.register(ECHO, lambda c, command: succeed(echo(c, command)))
        stream = b"".join(
            encode(Command(code=ECHO, opaque=number, body=body, serialize=kind))
            for number, (body, kind) in enumerate(requests)
        )
        while stream:
            cut, cuts = cuts[0], cuts[1:] + cuts[:1]
            peer.connection.dataReceived(stream[:cut])
            stream = stream[cut:]
        answers = [(answer.opaque, answer.body, answer.serialize) for answer in peer.sent()]
        self.assertEqual(
            answers, [(number, body, kind) for number, (body, kind) in enumerate(requests)]
        )


class AskingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.peer = Peer()

    def ask(self, timeout: float = 3.0) -> tuple[Deferred[Command], Command]:
        answered = self.peer.connection.request(Command(code=40), timeout)
        self.peer.clock.advance(0)
        (request,) = self.peer.sent()
        return answered, request

    def test_answer(self) -> None:
        """Answers come in any order and find who asked."""
        (first, one), (second, two) = self.ask(), self.ask()
        self.assertNotEqual(one.opaque, two.opaque)
        self.peer.send(two.answer(remark="2"), one.answer(remark="1"))
        self.assertEqual(self.successResultOf(first).remark, "1")
        self.assertEqual(self.successResultOf(second).remark, "2")

    def test_independent_numbers(self) -> None:
        """A peer's request with the number of one of ours is a request."""
        self.peer.registry.register(ECHO, echo)
        answered, request = self.ask()
        self.peer.send(Command(code=ECHO, opaque=request.opaque))
        self.assertEqual([answer.opaque for answer in self.peer.sent()], [request.opaque])
        self.assertNoResult(answered)
        self.peer.send(request.answer())
        self.successResultOf(answered)

    def test_timeout(self) -> None:
        """Who waits too long is told whom he asked; the late answer is dropped and counted."""
        (slow, request), (fast, _) = self.ask(3.0), self.ask(1.0)
        self.peer.clock.advance(1.0)
        error = self.failureResultOf(fast, RemotingTimeout).value
        self.assertEqual(str(error), "192.168.1.1:54321 did not answer request 40 within 1 s")
        self.peer.clock.advance(2.0)
        self.failureResultOf(slow, RemotingTimeout)
        self.peer.send(request.answer())
        self.assertEqual(self.peer.connections.unasked, 1)
        self.assertTrue(self.peer.connection.opened)

    def test_timeout_closes(self) -> None:
        """If so configured a timeout ends the connection, and with it all that waits."""
        self.peer = Peer(close_on_timeout=True)
        (late, _), (other, _) = self.ask(1.0), self.ask(9.0)
        self.peer.clock.advance(1.0)
        self.failureResultOf(late, RemotingTimeout)
        self.failureResultOf(other, ConnectionLost)
        self.assertTrue(self.peer.aborted)
        self.assertEqual(self.peer.connections.closed["timeout"], 1)

    def test_cancel(self) -> None:
        """Who gives up leaves nothing behind."""
        answered, request = self.ask()
        answered.cancel()
        self.failureResultOf(answered)
        self.peer.send(request.answer())
        self.assertEqual(self.peer.connections.unasked, 1)

    def test_unasked(self) -> None:
        """Answers nobody asked for do no harm."""
        self.peer.send(*(Command(code=0, opaque=number, flag=1) for number in range(1000)))
        self.assertEqual(self.peer.connections.unasked, 1000)
        self.assertTrue(self.peer.connection.opened)

    def test_thousand(self) -> None:
        """A thousand requests are outstanding with one timer, and each has its answer."""
        answers = [self.peer.connection.request(Command(code=1), 3.0) for _ in range(1000)]
        self.assertLessEqual(len(self.peer.clock.getDelayedCalls()), 3)
        self.peer.clock.advance(0)
        self.peer.send(*(request.answer() for request in self.peer.sent()))
        for answer in answers:
            self.successResultOf(answer)

    def test_lost(self) -> None:
        """A connection that ends fails all that waits, and takes nothing more."""
        answered, _ = self.ask()
        self.peer.connection.connectionLost(Failure(ConnectionDone()))
        self.failureResultOf(answered, ConnectionLost)
        self.failureResultOf(self.peer.connection.request(Command(code=1)), ConnectionLost)
        self.assertEqual(self.peer.clock.getDelayedCalls(), [])

    def test_given_up_meanwhile(self) -> None:
        """Who hears that one request has failed may give up the others, whatever ended them."""
        for end in (
            lambda: self.peer.clock.advance(3.0),
            lambda: self.peer.connection.connectionLost(Failure(ConnectionDone())),
        ):
            first, second = (self.peer.connection.request(Command(code=1), 3.0) for _ in "12")
            first.addErrback(lambda _, second=second: second.cancel())
            end()
            self.successResultOf(first)
            self.failureResultOf(second, CancelledError)

    def test_no_frame(self) -> None:
        """A request that cannot be a frame fails alone."""
        huge = Command(code=1, body=bytes(17 << 20))
        self.failureResultOf(self.peer.connection.request(huge), RemotingFrameError)
        self.assertTrue(self.peer.connection.opened)

    def test_oneway(self) -> None:
        """What needs no answer waits for none."""
        self.peer.connection.oneway(Command(code=40))
        self.peer.clock.advance(0)
        self.assertTrue(self.peer.sent()[0].is_oneway)

    def test_numbers_wrap(self) -> None:
        """After the largest number comes the smallest."""
        self.ask()
        assert self.peer.connection._outstanding is not None
        self.peer.connection._outstanding._opaque = (1 << 31) - 1
        opaques = [self.ask()[1].opaque for _ in range(2)]
        self.assertEqual(opaques, [(1 << 31) - 1, -(1 << 31)])


class LimitTests(SynchronousTestCase):
    """Silence, nonsense, and peers that do not read."""

    def test_idle(self) -> None:
        """After 120 s without a byte either way a connection is closed; a byte is enough."""
        peer = Peer()
        peer.clock.pump([2.0] * 55)
        peer.connection.dataReceived(b"\0")
        peer.clock.pump([2.0] * 59)
        self.assertTrue(peer.connection.opened)
        peer.clock.pump([2.0])
        self.assertFalse(peer.connection.opened)
        self.assertTrue(peer.transport.disconnecting)
        self.assertEqual(peer.connections.closed["idle"], 1)

    def test_bad_frames(self) -> None:
        """What is no frame ends the connection without an answer, with a reason that is counted."""
        for data, reason in (
            (b"\xff\xff\xff\xff" * 2, "FrameLengthOutOfRange"),
            (b"\0\0\0\1" * 2, "FrameLengthOutOfRange"),
            (b"GET / HTTP/1.1\r\n", "FrameLengthOutOfRange"),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01", "FrameLengthOutOfRange"),
            (b"\0\0\0\x10\0\0\0\x20", "HeaderLengthOutOfRange"),
            (b"\0\0\0\x10\2\0\0\4", "SerializeTypeUnknown"),
            (b"\0\0\0\x06\0\0\0\2[[", "HeaderUndecodable"),
        ):
            peer = Peer()
            peer.connection.dataReceived(data)
            self.assertTrue(peer.aborted, data)
            self.assertEqual(dict(peer.connections.closed), {reason: 1})
            self.assertEqual(peer.transport.value(), b"")
            peer.connection.dataReceived(encode(Command(code=1)))
            self.assertEqual(peer.transport.value(), b"")

    def test_bad_frames_are_logged_at_a_bounded_rate(self) -> None:
        """Of a hundred bad frames from one host one line a second is written, with the numbers."""
        lines = log_lines(self)
        peer = Peer()
        connections = peer.connections
        for _ in range(100):
            connection = RemotingProtocol(connections)
            connection.makeConnection(StringTransport())
            connection.dataReceived(b"\x7f\0\0\0" * 2)
        (line,) = lines
        self.assertTrue(line.startswith("Closed the connection to 192.168.1.1:54321: "), line)
        self.assertIn("frame of 2130706436 bytes, must be 8 to 16777216", line)
        self.assertEqual(connections.closed, {"FrameLengthOutOfRange": 100})
        self.assertTrue(peer.connection.opened)

    @given(st.binary(max_size=60), st.binary(max_size=20), st.integers(0, 60), st.booleans())
    def test_garbage(self, garbage: bytes, patch: bytes, at: int, framed: bool) -> None:
        """Whatever comes, the connection is closed with a reason or waits for more."""
        peer = Peer()
        peer.registry.register(ECHO, echo)
        good = encode(Command(code=ECHO, ext={"a": "b"}, body=b"1234"))
        broken = good[:at] + patch + good[at + len(patch) :] if framed else garbage
        for data in (good, broken, good):
            peer.connection.dataReceived(data)
        self.assertGreaterEqual(len(peer.sent()), 1)
        self.assertEqual(peer.connection.opened, not peer.connections.closed)

    def test_frame_limit(self) -> None:
        """A configured limit of a frame holds."""
        peer = Peer(ConnectionLimits(frame=100))
        peer.send(Command(code=1, body=bytes(100)))
        self.assertEqual(peer.connections.closed[FrameLengthOutOfRange.__name__], 1)


class BackPressureTests(SynchronousTestCase):
    """A peer that asks more than it reads."""

    BODY = bytes(100 * 1024)

    def setUp(self) -> None:
        self.start(ConnectionLimits())

    def start(self, limits: ConnectionLimits) -> None:
        """Have a peer whose requests have answers of 100 KiB, and whose transport is full."""
        registry = Registry()
        registry.register(ECHO, lambda connection, command: command.answer(body=self.BODY))
        self.peer = Peer(limits, registry=registry)
        self.full = self.peer.transport.producer
        self.full.pauseProducing()

    def ask(self, count: int) -> None:
        """Have so many requests come."""
        for _ in range(count):
            self.peer.send(Command(code=ECHO))

    def test_held(self) -> None:
        """What the transport refuses is held; above a limit the peer waits, until it reads."""
        self.ask(2)
        self.assertEqual(self.peer.sent(), [])
        self.assertEqual(self.peer.transport.producerState, "producing")
        self.ask(1)
        self.assertEqual(self.peer.transport.producerState, "paused")
        self.full.resumeProducing()
        self.assertEqual(len(self.peer.sent()), 3)
        self.assertEqual(self.peer.transport.producerState, "producing")

    def test_turns(self) -> None:
        """Of much that is held the transport is given a turn's bytes at a time."""
        self.ask(40)
        writes: list[int] = []

        def write(data: bytes) -> None:
            writes.append(len(data))
            self.full.pauseProducing()

        self.patch(self.peer.transport, "write", write)
        while self.peer.transport.producerState == "paused":
            self.full.resumeProducing()
        self.assertGreater(sum(writes), 40 * len(self.BODY))
        self.assertEqual(len(writes), 4)

    def test_too_long(self) -> None:
        """A peer that takes nothing for 30 s is dropped, others that wait are not."""
        self.ask(1)
        self.peer.clock.pump([2.0] * 14)
        self.assertTrue(self.peer.connection.opened)
        self.peer.clock.pump([2.0])
        self.assertTrue(self.peer.aborted)
        self.assertEqual(dict(self.peer.connections.closed), {"not-reading": 1})

    def test_too_much(self) -> None:
        """A peer for which too many bytes wait is dropped."""
        self.start(ConnectionLimits(unread=1 << 20))
        self.ask(11)
        self.peer.clock.pump([2.0])
        self.assertTrue(self.peer.aborted)
        self.assertEqual(dict(self.peer.connections.closed), {"not-reading": 1})

    def test_stop(self) -> None:
        """At a stop a connection is given what it waits for, and a second to take it."""
        self.ask(1)
        stopped = self.peer.connections.stop()
        self.assertEqual(len(self.peer.sent()), 1)
        self.assertTrue(self.peer.transport.disconnecting)
        self.peer.clock.advance(1.0)
        self.assertTrue(self.peer.aborted)
        self.assertNoResult(stopped)
        self.peer.connection.connectionLost(Failure(ConnectionDone()))
        self.successResultOf(stopped)
        self.successResultOf(self.peer.connections.stop())
        self.assertEqual(self.peer.clock.getDelayedCalls(), [])
