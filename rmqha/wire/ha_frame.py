"""The two directions of the HA port, sans-IO.

A slave sends offset reports of 8 bytes, a master frames: a header of 12 bytes and a
body, which is passed on as it arrives and never collected.  Source: docs/protocol/ha.rst,
Bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from attrs import define, field, frozen

from rmqha.errors import FrameSizeOutOfRange

OFFSET_REPORT = Struct(">q")
"""All that a slave says: an offset of the log, in bytes."""
TRANSFER_HEADER = Struct(">qi")
"""What comes before the bytes of a frame: their offset in the log, and how many they are."""

DEFAULT_BATCH = 32 * 1024
"""Most body bytes of a stock master's frame (C{haTransferBatchSize})."""

MAX_BODY = 4 * 1024 * 1024 - TRANSFER_HEADER.size
"""The largest body a stock slave's buffer can take, and so the largest that is sent."""


OBSERVER = -1
"""
What stands before the first report of a peer that only compares: it concludes nothing from where
the bytes end, and holds nothing for us.  A stock broker takes it for no report at all.
"""


def encode_report(offset: int) -> bytes:
    """A slave's report that it holds everything below C{offset}."""
    return OFFSET_REPORT.pack(offset)


@define
class OffsetReports:
    """Decode what a slave sends."""

    _rest: bytes = field(init=False, default=b"")

    @property
    def pending(self) -> int:
        """Bytes of a report that has not come whole."""
        return len(self._rest)

    def receive(self, data: bytes) -> list[int]:
        """@return: The reports completed by C{data}, in order; any 64-bit number."""
        if self._rest:
            data = self._rest + data
        whole = len(data) & ~7
        self._rest = bytes(data[whole:])
        return [value for (value,) in OFFSET_REPORT.iter_unpack(data[:whole])]


@frozen
class HaHeartbeat:
    """An empty frame.

    @ivar offset: The next offset the master would send.
    """

    offset: int


@frozen
class BodyPart:
    """Some bytes of a frame's body, as they arrived.

    @ivar offset: Physical offset of the first of them.
    @ivar data: The bytes; only good until the decoder is fed again.
    @ivar frame: Size of the whole body.
    @ivar left: Bytes of it still to come; 0 ends the frame.
    """

    offset: int
    data: memoryview
    frame: int
    left: int


@define
class TransferDecoder:
    """Decode what a master sends, without ever holding a body.

    @ivar max_body: The largest body accepted, in bytes.
    """

    max_body: int = MAX_BODY
    _header: bytes = field(init=False, default=b"")
    _offset: int = field(init=False, default=0)
    _left: int = field(init=False, default=0)
    _frame: int = field(init=False, default=0)
    _dead: FrameSizeOutOfRange | None = field(init=False, default=None)

    def receive(self, data: bytes) -> Iterator[HaHeartbeat | BodyPart]:
        """Decode a chunk.  State moves before each event is given, so a consumer may stop
        early and read L{handover}, but not feed this decoder again.

        @raise FrameSizeOutOfRange: If a header announces an impossible body.  What comes
            behind it cannot be read, so every later call raises it again.
        """
        if self._dead is not None:
            raise self._dead
        view = memoryview(data)
        while view:
            if self._left:
                part, view = view[: self._left], view[self._left :]
                start = self._offset
                self._offset += len(part)
                self._left -= len(part)
                yield BodyPart(start, part, self._frame, self._left)
                continue
            missing = TRANSFER_HEADER.size - len(self._header)
            self._header += bytes(view[:missing])
            view = view[missing:]
            if len(self._header) == TRANSFER_HEADER.size:
                self._offset, size = TRANSFER_HEADER.unpack(self._header)
                self._header = b""
                if not 0 <= size <= self.max_body:
                    self._dead = FrameSizeOutOfRange(size, self.max_body)
                    raise self._dead
                self._left = self._frame = size
                if not size:
                    yield HaHeartbeat(self._offset)

    def handover(self) -> tuple[bytes, int, int, int]:
        """Where the stream stands, for another reader to go on from.

        @return: Header bytes so far, offset of the next body byte, bytes of that body
            still to come, size of that body.
        """
        return self._header, self._offset, self._left, self._frame
