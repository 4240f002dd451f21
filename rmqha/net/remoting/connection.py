"""One remoting connection: requests and answers in both directions.

Each side numbers its own requests; whether a frame is one or an answer is told by its flag
alone.  Answers leave in the order they are ready, those of one reactor turn together.

A peer that sends more than can be answered in L{TURN} seconds is not read from until its turn
comes again; in each turn of the reactor one such peer has its own.  One whose JSON only the lenient
reader can read waits longer.

Source: docs/protocol/remoting.md, Requests and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import (
    IDelayedCall,
    IHandshakeListener,
    IReactorTime,
    ISSLTransport,
    ITCPTransport,
)
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from rmqha.errors import ProtocolViolation, RemotingFrameError, RemotingTimeout, RmqhaError
from rmqha.net.door import host_of, peer_of
from rmqha.net.remoting.connections import Connections
from rmqha.net.remoting.outbox import Outbox
from rmqha.net.tls.errors import TlsRefused
from rmqha.net.tls.gate import HANDSHAKE, HANDSHAKE_TIMEOUT, TOO_SLOW, TlsGate
from rmqha.net.tls.refusals import tls_refusal
from rmqha.net.zero_copy_send import Part
from rmqha.periodic import cancelled
from rmqha.wire.remoting.answers import Answer, Scattered, failed, overloaded
from rmqha.wire.remoting.command import ONEWAY, Command
from rmqha.wire.remoting.fastjson import slowly_read
from rmqha.wire.remoting.frame import FrameDecoder, encode, encode_head

_WRAP = 1 << 32
_SIGN = 1 << 31


@frozen
class PendingRequest:
    """One request that waits.

    @ivar timeout: Seconds it may wait.
    @ivar deadline: Until when, in the clock's seconds.
    @ivar answered: Fires with the answer.
    """

    code: int
    timeout: float
    deadline: float
    answered: Deferred[Command]


@define
class PendingRequests:
    """Number requests and find them again by their answers.

    There is one timer for all of them, at or before the earliest deadline: a request that is
    answered in time does not touch it.

    @ivar expired: Called with each request whose time is over, which is forgotten by then.
    """

    _clock: IReactorTime
    expired: Callable[[PendingRequest], None]
    _opaque: int = field(default=0, init=False)
    _questions: dict[int, PendingRequest] = field(factory=dict, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _due: float = field(default=0.0, init=False)

    def __len__(self) -> int:
        return len(self._questions)

    def number(self) -> int:
        """The next request's number: signed, 32 bits, wrapping around."""
        opaque = self._opaque
        self._opaque = (opaque + 1 + _SIGN) % _WRAP - _SIGN
        return opaque

    def ask(self, opaque: int, code: int, timeout: float) -> Deferred[Command]:
        """Wait for an answer.

        @param opaque: The request's L{number}.
        @param timeout: For so many seconds.
        @return: What L{answer} finds.  Cancelling it forgets the request.
        """
        answered: Deferred[Command] = Deferred(partial(self._forget, opaque))
        deadline = self._clock.seconds() + timeout
        self._questions[opaque] = PendingRequest(code, timeout, deadline, answered)
        if self._timer is None or deadline < self._due:
            self._set(deadline)
        return answered

    def answer(self, command: Command) -> bool:
        """Hand an answer to the request it belongs to.

        @return: Whether there is one that still waits.
        """
        question = self._questions.pop(command.opaque, None)
        if question is None:
            return False
        question.answered.callback(command)
        return True

    def fail(self, error: Exception) -> None:
        questions, self._questions = self._questions, {}
        self._timer = cancelled(self._timer)
        for question in questions.values():
            if not question.answered.called:  # who heard of another may have given this one up
                question.answered.errback(error)

    def _forget(self, opaque: int, _: Deferred[Command]) -> None:
        self._questions.pop(opaque, None)

    def _set(self, due: float) -> None:
        cancelled(self._timer)
        self._due = due
        self._timer = self._clock.callLater(max(0.0, due - self._clock.seconds()), self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock.seconds()
        late = [item for item in self._questions.items() if item[1].deadline <= now]
        for opaque, _ in late:
            del self._questions[opaque]
        if self._questions:
            self._set(min(question.deadline for question in self._questions.values()))
        for _, question in late:
            if not question.answered.called:
                self.expired(question)


TURN = 0.0001
"""Seconds that the frames of one read may take before the other connections have their turn."""

RUN = 16 * 1024
"""Bytes of frames that are served in one go: replicas get them while the next are read."""

SLICE = 256
"""Bytes after which the time is looked at: one pull, or one message."""

REQUEST_TIMEOUT = 3.0
"""Seconds a request waits for its answer where its sender does not say; stock clients' default."""


class ConnectionEnded(ConnectionLost, RmqhaError):
    """The connection ended before the answer came.

    @ivar address: Host and port of the peer.
    @ivar cause: Why it ended: one word, or what the peer did.
    """

    def __init__(self, address: str, cause: str) -> None:
        super().__init__(address, cause)
        self.address = address
        self.cause = cause

    def __str__(self) -> str:
        return f"the connection to {self.address} ended: {self.cause}"


class PeerNotReading(ProtocolViolation):
    """A peer asks and does not read the answers."""

    sentence = "{held} bytes of answers wait, the peer has read none for {seconds:.0f} s"
    held: int
    seconds: float


@implementer(IHandshakeListener)
class RemotingProtocol(Protocol):
    """Ask a peer, and answer it.

    @ivar host: The peer's address without the port.
    @ivar address: Host and port.
    @ivar peer: The same as a pair.
    @ivar opened: Whether it can be used: connected, and not given up.
    @ivar ended: Fires with C{None} when it no longer can.
    @ivar in_runs: Requests in progress that were served as runs.
    @ivar close_on_timeout: Whether a request that is not answered in time ends the connection.
    """

    opened = False
    host = address = ""
    peer = ("", 0)
    transport: Any
    _handshake: float | None = None
    _stranger = True

    def __init__(
        self,
        connections: Connections[RemotingProtocol],
        gate: TlsGate | None = None,
        *,
        close_on_timeout: bool = False,
    ) -> None:
        """@param gate: For an accepted connection: whether it may speak TLS."""
        self._all = connections
        self._gate = gate
        self.close_on_timeout = close_on_timeout
        self._decoder = FrameDecoder(connections.limits.frame)
        self._outstanding: PendingRequests | None = None
        self._serving: set[Deferred[Answer]] = set()
        self.in_runs = 0
        self._active = 0.0
        self._held = False
        self._early = b""
        # Whether what came last was more than one turn's worth.
        self._greedy = False
        self._rest: IDelayedCall | None = None

    # --- the connection -------------------------------------------------------

    def connectionMade(self) -> None:
        transport = self.transport
        if ITCPTransport.providedBy(transport):
            transport.setTcpNoDelay(True)
        peer = transport.getPeer()
        self.host, self.address = host_of(peer), peer_of(peer)
        self.peer = (self.host, getattr(peer, "port", None) or 0)
        self._active = self._all.clock.seconds()
        waits = self._gate is not None and self._gate.waits_for_hello
        if waits or ISSLTransport.providedBy(transport):
            self._handshake = self._active
        self._outbox = Outbox(transport, self._all.clock, self._all.soon)
        self.opened = True
        self._all.joined(self)

    def dataReceived(self, data: bytes) -> None:
        """Take frames, in any pieces."""
        if self._gate is not None and self._greet(data):
            return
        if not self.opened:
            return
        self._active = self._all.clock.seconds()
        if self._held:
            self._early += data  # what a TLS transport had read before
        elif self._greedy and self._all.crowded:
            self._early = data
            self._wait_for_turn()
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        loose = slowly_read.size
        self._outbox.cork()
        self._serve_some(data)
        if self._decoder.unread and self.opened:
            self._in_slices()
        self._outbox.flush()
        loose = slowly_read.size - loose
        if not self.opened:
            return
        rest = self._all.loose.take(loose) if loose else 0.0
        if rest or self._decoder.unread:
            self._greedy = True
            self._wait_for_turn(rest)
        elif data:
            self._greedy = False

    def _known(self) -> None:
        """A frame came: it is one of ours."""
        if self._stranger:
            self._stranger = False
            self._all.door.known(self)

    def _in_slices(self) -> None:
        """Take what may be many frames more, for L{TURN} seconds."""
        clock = self._all.clock
        until = clock.seconds() + TURN
        with self._all.registry.together():
            while self._decoder.unread and self.opened and clock.seconds() < until:
                self._serve_some(b"")

    def _serve_some(self, data: bytes) -> None:
        """Take the next frames: a run that is served as such, or those of a slice."""
        found = self._decoder.next_frame(data)
        if found is not None:
            data, at = found
            count, at = self._all.registry.serve_run(self, data, at, at + RUN)
            self._decoder.leave(data, at)
            if count:
                self._known()
                return
            data = b""
        try:
            commands = self._decoder.receive(data, SLICE)
        except RemotingFrameError as error:
            self.close(type(error).__name__, error)
            return
        if commands:
            self._known()
        if len(commands) > 1:
            with self._all.registry.together():
                self._take(commands)
        else:
            self._take(commands)

    def _wait_for_turn(self, seconds: float = 0.0) -> None:
        """Let the others have their turn: read no more until this connection's comes again.

        @param seconds: When it may come at the earliest.
        """
        self._held = True
        self._outbox.hold_back(True)
        if seconds:
            self._rest = self._all.clock.callLater(seconds, self._rested)
        else:
            self._all.in_turn(self)

    def _rested(self) -> None:
        self._rest = None
        self._all.in_turn(self)

    def go_on(self) -> None:
        """It is this connection's turn."""
        if not self.opened:
            return
        self._held = False
        early, self._early = self._early, b""
        self._read(early)
        if self.opened and not self._held:
            self._outbox.hold_back(False)

    def _take(self, commands: list[Command]) -> None:
        for command in commands:
            if not self.opened:
                return
            if not command.is_response:
                self._serve(command)
            elif self._outstanding is None or not self._outstanding.answer(command):
                self._all.unasked += 1

    def _greet(self, data: bytes) -> bool:
        """See whether the peer speaks TLS, by its first byte.

        @return: Whether the bytes were taken care of.
        """
        gate, self._gate = self._gate, None
        if gate is None:
            return False
        hello = data[0] == HANDSHAKE
        refusal = gate.refusal(hello, self.host)
        if refusal is not None:
            self.close(refusal.reason, refusal)
        elif hello:
            self._handshake = self._all.clock.seconds()
            self.transport.startTLS(gate.context)
            self.transport.protocol.dataReceived(data)
        return refusal is not None or hello

    def handshakeCompleted(self) -> None:
        """TLS is up: the sweep need not end a handshake that takes too long."""
        self._handshake = None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Requests that wait for answers fail."""
        refused = tls_refusal(self.transport, reason) if self.opened else None
        self._end("peer" if refused is None else refused.reason, refused)
        self._all.gone(self)

    def close(self, reason: str, error: Exception | None = None, *, gently: bool = False) -> None:
        """Give the connection up.

        @param reason: One word, for the counters.
        @param error: What the peer did, for the log.
        @param gently: Let it have what was written; a peer that is wrong gets nothing more.
        """
        if gently and self.opened:
            self._outbox.finish()
        if self._end(reason, error):
            self.transport.unregisterProducer()
            if gently:
                self.transport.loseConnection()
            else:
                self.transport.abortConnection()

    def release(self) -> None:
        """Give the connection up if anything it was answered is not sent yet: what the answer
        shows is about to change.
        """
        if not self.opened:
            return
        self._outbox.flush()
        if self._outbox.unsent:
            self.close("released")

    def _end(self, reason: str, error: Exception | None) -> bool:
        if not self.opened:
            return False
        self.opened = False
        self._rest = cancelled(self._rest)
        self._outbox.close()
        serving, self._serving = self._serving, set()
        for answer in serving:
            answer.cancel()
        if self._outstanding is not None:
            cause = "the peer closed it" if reason == "peer" else str(error or reason)
            self._outstanding.fail(ConnectionEnded(self.address, cause))
        self._all.ended(self, reason, error)
        return True

    def look(self, now: float) -> None:
        """A sweep: close what is silent or does not read."""
        if not self.opened:
            return
        limits, outbox = self._all.limits, self._outbox
        stuck = 0.0 if outbox.stuck_since is None else now - outbox.stuck_since
        if self._handshake is not None and now - self._handshake >= HANDSHAKE_TIMEOUT:
            self.close("tls-handshake", TlsRefused("tls-handshake", TOO_SLOW))
        elif stuck >= limits.stuck or outbox.held > limits.unread:
            self.close("not-reading", PeerNotReading(outbox.held, stuck))
        elif now - self._active >= limits.idle:
            self.close("idle", gently=True)

    # --- asking -----------------------------------------------------------------

    def request(self, command: Command, timeout: float = REQUEST_TIMEOUT) -> Deferred[Command]:
        """Ask.

        @param command: The request; it is given this connection's next number.
        @param timeout: Seconds to wait.
        @return: The answer, whatever its code.  Fails with L{RemotingTimeout},
            L{ConnectionEnded} or, if the request cannot be a frame, L{RemotingFrameError}.
            Cancelling it forgets the request.
        """
        if not self.opened:
            return fail(ConnectionEnded(self.address, "it was closed before"))
        outstanding = self._outstanding
        if outstanding is None:
            outstanding = self._outstanding = PendingRequests(self._all.clock, self._expired)
        command.opaque = outstanding.number()
        self._all.sign(command)
        try:
            self.send(command)
        except RemotingFrameError as error:
            return fail(error)
        return outstanding.ask(command.opaque, command.code, timeout)

    def oneway(self, command: Command) -> None:
        """Tell; there is no answer."""
        if self._outstanding is None:
            self._outstanding = PendingRequests(self._all.clock, self._expired)
        command.opaque = self._outstanding.number()
        command.flag |= ONEWAY
        self._all.sign(command)
        self.send(command)

    def _expired(self, question: PendingRequest) -> None:
        error = RemotingTimeout(question.code, question.timeout, self.address)
        question.answered.errback(error)
        if self.close_on_timeout:
            self.close("timeout", error)

    # --- answering --------------------------------------------------------------

    def send(self, command: Command | Scattered) -> None:
        """Send a command as it is, together with all else that is ready in this turn.

        @raise RemotingFrameError: If it cannot be a frame.
        """
        if isinstance(command, Scattered):
            size = sum(map(len, command.body))
            self.send_parts((encode_head(command.command, size), *command.body))
        elif isinstance(command.body, memoryview):
            body = command.body
            self.send_parts((encode_head(command, len(body)), body))
        else:
            self.send_frames(encode(command))

    def send_frames(self, frames: bytes) -> None:
        """Send what are frames already, as L{send} does."""
        if self.opened:
            self._active = self._all.clock.seconds()
            self._outbox.add(frames)

    def send_parts(self, parts: Sequence[Part]) -> None:
        """Send a frame in parts, as L{send} does.

        @param parts: What they show must not change until sent.
        """
        if self.opened:
            self._active = self._all.clock.seconds()
            self._outbox.extend(parts)

    def takes(self, requests: int) -> bool:
        """Whether so many more requests may be in progress."""
        return len(self._serving) + self.in_runs + requests <= self._all.limits.requests

    def _serve(self, command: Command) -> None:
        if not self.takes(1):
            self.finish(overloaded(command), command)
            return
        try:
            answer = self._all.registry.serve(self, command)
        except Exception:
            self.finish(Failure(), command)
            return
        if isinstance(answer, Deferred):
            self._serving.add(answer)
            answer.addBoth(self._settled, answer, command)
        else:
            self.finish(answer, command)

    def _settled(
        self, result: Answer | Failure, waiting: Deferred[Answer], command: Command
    ) -> None:
        self._serving.discard(waiting)
        if self.opened or not isinstance(result, Failure) or not result.check(CancelledError):
            self.finish(result, command)

    def finish(self, result: Answer | Failure, command: Command) -> None:
        """Send the answer, unless the request was one-way."""
        if isinstance(result, Failure):
            self._all.failed(self, command, result)
            result = failed(command, result.value)
        if command.is_oneway:
            return
        try:
            self.send(command.answer() if result is None else result)
        except Exception:
            # It cannot be a frame: too big, or not made of what frames are made of.
            failure = Failure()
            self._all.failed(self, command, failure)
            self.send(failed(command, failure.value))
