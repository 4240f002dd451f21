# Twisted's transports are only partly annotated.
# mypy: allow-untyped-calls
"""The receiving end of the replication path: from the socket into the mapped log.

The portable path reads C{bytes} and copies them into the log.  L{ZeroCopyClient} instead asks its
sink where the bytes of a body belong and lets the kernel put them there.

What follows in the same call, as where the next frame is not known or is L{SMALL}, goes to a buffer
first: one call then brings a whole frame, or many, and their bodies are copied from there.

A body goes to the log only after its header was accepted: a refused frame leaves nothing there.

What stands before a frame's body is told by whoever hands the stream over, which may happen at any
byte; the decoders of L{rmqha.wire.ha_frame} and L{rmqha.wire.ha_v2} are the tested reference.
"""

from __future__ import annotations

from errno import EAGAIN, EINTR
from typing import Any

from attrs import frozen
from twisted.internet import main, tcp
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.interfaces import (
    IConnector,
    IStreamClientEndpoint,
)
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from zope.interface import Interface

from rmqha.errors import FrameSizeOutOfRange, RmqhaError
from rmqha.wire.ha_dialect import CLASSIC_HEADERS, FrameHeaders, Handover

FIRST_TURN = 256 * 1024
"""
Bytes that are read before the sink is told that a turn ends, where the socket was empty before:
somebody may be waiting for them.
"""

TURN = 1024 * 1024
"""
The same where ever more was there: each turn in a row reads twice what the one before did, so that
the others get theirs.
"""

SMALL = 8 * 1024
"""
Frames with fewer bytes of body are copied: that takes less than a system call.
"""

BUFFER = 256 * 1024
"""
Most bytes that are read at once to be copied: with frames of 32 KiB, as stock masters send them,
that takes less than a system call for each, too.
"""


class IFrameSink(Interface):
    """Where the frames of a stream go.

    Calls come in the order of the stream: C{heartbeat}, or C{frame_starts}, then C{room} and
    C{body_received} in turn until the body is whole, then C{frame_ends}.  Any of them may raise a
    C{ProtocolViolation}, or a C{StoreError} for what is wrong on our side, such as a full disk: it
    is handed to C{violation} and nothing more is read.  Any of them may pause or close the
    transport: no C{room} is asked for after that.
    """

    def frame_starts(offset: int, size: int) -> None:
        """A header arrived, nothing of its body was read.

        @param offset: Where the body's first byte belongs, in bytes.
        @param size: The body's size in bytes, at least 1 and within the limit.
        @raise ProtocolViolation: To refuse the frame.
        """

    def heartbeat(offset: int) -> None:
        """An empty frame arrived.

        @param offset: What its header says, in bytes.
        """

    def room(offset: int, left: int) -> memoryview:
        """Say where the next bytes of the body go.

        @param offset: Where the first of them belongs, in bytes.
        @param left: How many of the body are still to come.
        @return: Writable bytes, 1 to C{left} of them: fewer at the end of a log file, the rest is
            asked for again.  It is written to before the next call to the sink, and never later.
        """

    def body_received(count: int) -> None:
        """The first C{count} bytes of the room asked for last are filled."""

    def frame_ends() -> None:
        """The whole body is there."""

    def turn_ends() -> None:
        """Nothing more comes before the reactor's next turn.

        Once for each turn in which anything arrived, unless it ended in C{violation}.
        """

    def violation(error: RmqhaError) -> None:
        """The stream cannot be followed any further; nothing more is read.  Comes once."""


class ZeroCopyClient(tcp.Client):
    """A client connection that can read frames straight into the log.

    @ivar _sink: Who gets the frames; C{None} as long as bytes go to C{dataReceived}.
    @ivar _max_body: The largest body that is accepted, in bytes.
    @ivar _header: The bytes of a header as they come.
    @ivar _header_size: How many of them are there...
    @ivar _header_whole: ... of how many.
    @ivar _read_header: Reads a whole one.
    @ivar _offset: Where the next byte of the body belongs.
    @ivar _left: Bytes of the body still to come.
    @ivar _large: Whether the frame is not L{SMALL}.
    @ivar _room: Bytes of room that the last read had for a body.
    @ivar _buffer: What was read to be copied.
    @ivar _at: The first byte in it that was not taken yet: a pause may leave some...
    @ivar _filled: ... before this one.
    @ivar _stopped: Reading was stopped (pause, close, abort): ends a turn early.
    @ivar _refused: A violation was told; reading never starts again.
    @ivar _turn: Most bytes of the next turn.
    """

    _sink: Any = None
    _stopped = False
    _refused = False
    _at = 0
    _filled = 0
    _turn = FIRST_TURN

    def start_scatter(
        self, sink: Any, handover: Handover, max_body: int, headers: FrameHeaders = CLASSIC_HEADERS
    ) -> None:
        """From the next byte on, read frames into a sink instead of calling C{dataReceived}.

        May be called from C{dataReceived} once all its data is decoded.  A frame of which only the
        header was decoded is one its consumer never saw: the sink is told of it before this
        returns.  A frame handed over in the middle of its body is not told again.

        @param sink: An L{IFrameSink}.
        @param handover: Where the stream stands.
        @param max_body: The largest body that is accepted, in bytes.
        @param headers: What stands before bodies.
        """
        if self.TLS:
            raise RuntimeError("a TLS connection cannot receive by zero copy")
        header, offset, left, size = handover
        self._header_whole, self._read_header = headers.size, headers.read
        self._header = memoryview(bytearray(headers.size))
        self._header[: len(header)] = header
        self._header_size = len(header)
        self._offset = offset
        self._left = left
        self._large = size >= SMALL
        self._buffer = memoryview(bytearray(BUFFER))
        self._max_body = max_body
        self._sink = sink
        if left and left == size:
            try:
                self._header_received(offset, size)
            except RmqhaError as error:
                self._refuse(error)

    def write(self, data: bytes) -> None:
        """Send bytes, at once if nothing is queued and the socket takes them."""
        if (
            isinstance(data, bytes)
            and self.connected
            and not self.TLS
            and not self._aborting
            and not self._writeDisconnected
            and not self._tempDataLen
            and len(self.dataBuffer) == self.offset
        ):
            try:
                data = data[self.socket.send(data) :]
            except OSError:
                pass  # it is found again, and told, by doWrite
            if not data:
                return
        if not self._aborting:
            super().write(data)

    def doRead(self) -> Any:
        """Read what a turn may, each byte to where it belongs."""
        sink = self._sink
        if sink is None:
            return super().doRead()
        budget = turn = self._turn
        why: Exception | None = None
        try:
            if self._at < self._filled and not self._stopped:
                budget -= self._filled - self._at
                self._copy()
            while budget > 0 and not self._stopped:
                try:
                    count, wanted = self._read(budget)
                except OSError as error:
                    if error.errno not in (EAGAIN, EINTR):
                        why = main.CONNECTION_LOST
                    break
                if not count:
                    why = main.CONNECTION_DONE
                    break
                budget -= count
                self._received(count)
                if count < wanted:
                    break  # the socket is empty
            self._turn = FIRST_TURN if budget > 0 else min(TURN, 2 * turn)
            if budget < turn and self._sink is not None:
                sink.turn_ends()
        except RmqhaError as error:
            self._refuse(error)
            return None
        return None if self._aborting else why

    def stopReading(self) -> None:
        """Read nothing more, in this turn either."""
        self._stopped = True
        super().stopReading()

    def startReading(self) -> None:
        """Go on reading, unless the stream was refused."""
        if not self._refused:
            self._stopped = False
            super().startReading()
            if self._at < self._filled:
                # The socket need not become readable for them.
                reactor: Any = self.reactor
                reactor.callLater(0, self._go_on)

    def connectionLost(self, reason: Failure) -> None:
        """Let the sink go and tell the protocol."""
        self._sink = None
        self._at = self._filled = 0
        super().connectionLost(reason)

    def _go_on(self) -> None:
        """Take what a pause has left in the buffer."""
        sink = self._sink
        if sink is None or self._stopped or self._at == self._filled:
            return
        try:
            self._copy()
            if self._sink is not None:
                sink.turn_ends()
        except RmqhaError as error:
            self._refuse(error)
        except Exception:
            # What the reactor does where it calls doRead.
            self.abortConnection()
            raise

    def _copy(self) -> None:
        """Take frames out of the buffer, as far as it goes or until a pause."""
        sink, buffer, at, filled = self._sink, self._buffer, self._at, self._filled
        whole, read = self._header_whole, self._read_header
        while at < filled and self._sink is not None:
            left = self._left
            if left:
                if self._stopped:
                    break
                room = sink.room(self._offset, left)
                size = len(room)
                if not 0 < size <= left:
                    raise self._wrong_room(size)
                if size > filled - at:
                    size = filled - at
                    room = room[:size]
                room[:] = buffer[at : at + size]
                at += size
                self._offset += size
                self._left = left = left - size
                sink.body_received(size)
                if not left and self._sink is not None:
                    sink.frame_ends()
            elif self._closing():
                at = filled
            elif self._header_size or filled - at < whole:
                have = self._header_size
                more = min(whole - have, filled - at)
                self._header[have : have + more] = buffer[at : at + more]
                at += more
                self._header_size = have + more
                if self._header_size == whole:
                    self._header_received(*read(self._header, 0))
            else:
                at += whole
                self._header_received(*read(buffer, at - whole))
        if self._sink is not None:
            self._at = at

    def _read(self, budget: int) -> tuple[int, int]:
        """Let the kernel write the rest of a large body to where it belongs and, if there is room
        for all of it, what follows to the buffer.

        @param budget: Bytes after which nothing more has to be read.
        @return: How many bytes came, and how many there was room for.
        """
        left, most = self._left if self._large else 0, budget + self._header_whole
        if not left:
            self._room = 0
            wanted = min(BUFFER, most)
            return self.socket.recv_into(self._buffer, wanted), wanted
        room = self._sink.room(self._offset, left)
        self._room = size = len(room)
        if size == left:
            more = max(self._header_whole, min(BUFFER, most - size))
            return self.socket.recvmsg_into((room, self._buffer[:more]))[0], size + more
        if not 0 < size < left:
            raise self._wrong_room(size)
        return self.socket.recv_into(room), size

    def _wrong_room(self, size: int) -> ValueError:
        return ValueError(f"room for {size} bytes, but {self._left} are to come at {self._offset}")

    def _received(self, count: int) -> None:
        """Tell the sink what the kernel wrote, and take what is in the buffer."""
        size = min(count, self._room)
        self._at, self._filled = 0, count - size
        if size:
            self._offset += size
            self._left -= size
            self._sink.body_received(size)
            if not self._left and self._sink is not None:
                self._sink.frame_ends()
        self._copy()

    def _header_received(self, offset: int, size: int) -> None:
        """Act on a whole header.  A pause does not delay this: it was read, and a heartbeat may be
        the last to arrive for long.
        """
        self._header_size = 0
        if not size:
            self._sink.heartbeat(offset)
            return
        if not 0 < size <= self._max_body:
            raise FrameSizeOutOfRange(size, self._max_body)
        self._sink.frame_starts(offset, size)
        self._offset = offset
        self._left = size
        self._large = size >= SMALL

    def _closing(self) -> bool:
        return bool(self._aborting or self.disconnecting or self.disconnected)

    def _refuse(self, error: RmqhaError) -> None:
        self._refused = True
        self._at = self._filled = 0
        sink = self._sink
        if sink is not None:
            self.stopReading()
            sink.violation(error)


class ZeroCopyConnector(tcp.Connector):
    """One attempt to connect whose transport is a L{ZeroCopyClient}."""

    def _makeTransport(self) -> ZeroCopyClient:
        return ZeroCopyClient(self.host, self.port, self.bindAddress, self, self.reactor)


@frozen
class _Dialler:
    """Just enough of a reactor for L{TCP4ClientEndpoint} to make L{ZeroCopyConnector}s."""

    _reactor: Any

    def connectTCP(
        self, host: str, port: int, factory: ClientFactory, timeout: float, bindAddress: Any
    ) -> IConnector:
        connector = ZeroCopyConnector(host, port, factory, timeout, bindAddress, self._reactor)
        connector.connect()
        return connector


def zero_copy_endpoint(
    reactor: Any,
    host: str,
    port: int,
    timeout: float = 30.0,
    bind_address: tuple[str, int] | None = None,
) -> IStreamClientEndpoint:
    """Where to connect by TCP with a L{ZeroCopyClient}.

    @param reactor: One that watches file descriptors (C{IReactorFDSet}).
    @param host: An IPv4 or IPv6 address, or a name (looked up for IPv4).
    @param timeout: Longest time to connect, in seconds.
    @param bind_address: Address and port to connect from.
    """
    return TCP4ClientEndpoint(_Dialler(reactor), host, port, timeout, bind_address)


def scatter(transport: object) -> ZeroCopyClient | None:
    """Say whether a protocol's transport can read frames into the log.

    @return: The transport itself; C{None} when it is anything else, a wrapper around one included,
        or speaks TLS.  Then frames come through C{dataReceived}.
    """
    if isinstance(transport, ZeroCopyClient) and not transport.TLS:
        return transport
    return None
