"""Frames of the remoting protocol: a length, a header of one of two kinds, a body.

Source: docs/protocol/remoting.md, Frames.
"""

from __future__ import annotations

from struct import Struct

from attrs import define, field, frozen

from rmqha.errors import RemotingFrameError
from rmqha.wire.remoting import binary_header, json_header
from rmqha.wire.remoting.command import Command, SerializeType

FRAME_LIMIT = 16 * 1024 * 1024
"""Most bytes of a whole frame; what stock brokers and clients take."""

HEADER_LIMIT = 256 * 1024
"""Most bytes of a header we read: room for the longest properties, all escaped."""

#: Bytes that follow the first number; kind of header and its bytes.
_PREFIX = Struct(">iI")
_PIECE = 4096
_DECODERS = {0: json_header.decode, 1: binary_header.decode}
_ENCODERS = {SerializeType.JSON: json_header.encode, SerializeType.ROCKETMQ: binary_header.encode}


@frozen
class FrameLengthOutOfRange(RemotingFrameError):
    """A remoting frame is shorter than its own header or longer than the limit.

    @ivar size: Bytes of the whole frame, its length field included.
    """

    sentence = "remoting frame of {size} bytes, must be 8 to {limit}"
    size: int
    limit: int


@frozen
class HeaderLengthOutOfRange(RemotingFrameError):
    """A remoting header is longer than its frame or than the limit."""

    sentence = "remoting header of {size} bytes, must be 0 to {limit}"
    size: int
    limit: int


@frozen
class SerializeTypeUnknown(RemotingFrameError):
    """A remoting header is of an unknown kind."""

    sentence = "remoting header of unknown type {number}, must be 0 (JSON) or 1 (ROCKETMQ)"
    number: int


def encode_head(command: Command, body_size: int) -> bytes:
    """A frame up to its body.

    @param body_size: Bytes of the body that will follow.
    @raise RemotingFrameError: If no peer would take such a frame.
    """
    kind = command.serialize
    header = _ENCODERS[kind](command)
    size = len(header)
    if size + body_size + 8 > FRAME_LIMIT:
        raise FrameLengthOutOfRange(size + body_size + 8, FRAME_LIMIT)
    return _PREFIX.pack(size + body_size + 4, kind << 24 | size) + header


def encode(command: Command) -> bytes:
    """A whole frame.

    @raise RemotingFrameError: If no peer would take such a frame.
    """
    body = command.body
    return b"".join((encode_head(command, len(body)), body))


@define
class FrameDecoder:
    """Decode a stream of frames, however it is cut.

    Nothing is kept for a frame beyond the bytes that came, and nothing of it before its
    lengths were found good.

    @ivar limit: Most bytes of a frame.
    """

    limit: int = FRAME_LIMIT
    # What was not looked at yet, from a position on.
    _unread: tuple[bytes, int] | None = field(init=False, default=None)
    _head: bytearray = field(init=False, factory=bytearray)
    _need: int = field(init=False, default=0)
    _open: Command | None = field(init=False, default=None)
    _missing: int = field(init=False, default=0)
    _pieces: list[bytes | bytearray | memoryview] = field(init=False, factory=list)
    _dead: RemotingFrameError | None = field(init=False, default=None)

    @property
    def unread(self) -> bool:
        """Whether bytes were left for the next call."""
        return self._unread is not None

    def next_frame(self, data: bytes) -> tuple[bytes, int] | None:
        """Where the next frame begins, for who reads frames in masses by itself; it says by
        L{leave} how far it came.

        @param data: What came, and was not given to L{receive}.
        @return: Bytes, and the position in them; C{None} within a frame, or after a broken one:
            then C{data} goes to L{receive}.
        """
        if self._open is not None or self._head or self._dead is not None:
            return None
        if self._unread is None:
            return data, 0
        kept, at = self._unread
        return (kept[at:] + data, 0) if data else (kept, at)

    def leave(self, data: bytes, at: int) -> None:
        """Have the next call of L{receive} go on at a frame that begins at C{at}."""
        self._unread = (data, at) if at < len(data) else None

    def receive(self, data: bytes, most: int | None = None) -> list[Command]:
        """@param most: Leave what begins behind so many bytes for the next call, which may bring
            nothing new; C{None} is to leave nothing.
        @return: The commands completed by C{data}, in order; their bodies are C{bytes}.
        @raise RemotingFrameError: If a frame cannot be read.  Where the next one starts is
            then unknown, so every later call raises it again; what the same call
            completed before is lost with the connection.
        """
        if self._dead is not None:
            raise self._dead
        try:
            return self._receive(data, most)
        except RemotingFrameError as error:
            self._dead = error
            raise

    def _receive(self, data: bytes, most: int | None) -> list[Command]:
        commands: list[Command] = []
        at = 0
        if self._unread is not None:
            (kept, at), self._unread = self._unread, None
            data, at = (kept[at:] + data, 0) if data else (kept, at)
        elif self._open is not None:
            at = min(self._missing, len(data))
            self._collect(data, at)
            if self._missing:
                return commands
            self._open.body = b"".join(self._pieces)
            commands.append(self._open)
            self._open = None
            self._pieces = []
        elif self._head:
            self._head += data
            if len(self._head) < self._need:
                return commands
            data = bytes(self._head)
            self._head = bytearray()
        self._scan(data, at, len(data) if most is None else at + most, commands)
        return commands

    def _scan(self, data: bytes, at: int, stop: int, commands: list[Command]) -> None:
        """Decode what lies whole in C{data} and begins before C{stop}, and keep the rest."""
        end = len(data)
        while at < end:
            if at >= stop:
                self._unread = data, at
                return
            body = at + 8
            if body <= end:
                size, kind, body_size = self._check(*_PREFIX.unpack_from(data, at))
                body += size
            if body > end:
                self._head += memoryview(data)[at:]
                self._need = body - at
                return
            command = _DECODERS[kind](data[body - size : body])
            at = body + body_size
            if at > end:
                self._open = command
                self._missing = body_size
                self._collect(memoryview(data)[body:], end - body)
                return
            if body_size:
                command.body = data[body:at]
            commands.append(command)

    def _check(self, total: int, word: int) -> tuple[int, int, int]:
        """@return: Bytes of the header, its kind, bytes of the body."""
        kind, size = word >> 24, word & 0xFFFFFF
        if not 4 <= total <= self.limit - 4:
            raise FrameLengthOutOfRange(total + 4, self.limit)
        if kind not in _DECODERS:
            raise SerializeTypeUnknown(kind)
        most = min(total - 4, HEADER_LIMIT)
        if size > most:
            raise HeaderLengthOutOfRange(size, most)
        return size, kind, total - 4 - size

    def _collect(self, data: bytes | memoryview, size: int) -> None:
        """Keep the first bytes of C{data} for the open command's body."""
        self._missing -= size
        piece = memoryview(data)[:size]
        if size >= _PIECE:
            self._pieces.append(piece)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            # A peer that sends byte by byte must not make us keep an object for each.
            self._pieces[-1] += piece
        else:
            self._pieces.append(bytearray(piece))
