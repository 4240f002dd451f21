"""How one connection of a slave speaks, in the classic protocol or in that of controller mode.

Both ask for bytes by a first report and are answered with frames; in controller mode a handshake
comes before, and frames say more.  What both say is given as the classic protocol's events.

Source: docs/protocol/ha.rst and docs/protocol/controller.rst, Bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from attrs import define, field, frozen

from rmqha.errors import ProtocolViolation
from rmqha.wire import ha_frame, ha_v2
from rmqha.wire.ha_frame import MAX_BODY, OBSERVER, BodyPart, HaHeartbeat, TransferDecoder
from rmqha.wire.ha_v2 import (
    HANDSHAKE,
    LEARNER_ID,
    EpochLabel,
    HandshakeAnswer,
    HaStateUnexpected,
    MasterMessages,
    SlaveHandshake,
    TransferHeader,
)

Handover = tuple[bytes, int, int, int]
"""Where a stream stands: header bytes so far, offset of the next body byte, body bytes left, size
of the frame they belong to."""

Bytes = bytes | bytearray | memoryview

Said = HaHeartbeat | BodyPart | HandshakeAnswer | TransferHeader
"""What a master says."""


class EpochLabelWentBack(ProtocolViolation):
    """A master tells of a label that cannot be one of its log, by what it told before on the same
    connection, or by where its bytes end.

    @ivar before: The label that was told before; -1 for none.
    """

    sentence = (
        "epoch label {label} from byte {start} came with bytes up to {end} and "
        "after label {before} from byte {before_start}"
    )
    label: int
    start: int
    before: int
    before_start: int
    end: int


class HandshakeUnexpected(ProtocolViolation):
    """A message of HA protocol v2 does not come where it may."""

    sentence = "unexpected in HA protocol v2: {what}"
    what: str


@frozen
class FrameHeaders:
    """What stands before the frames of a stream, for a reader that takes only frames.

    @ivar size: Bytes of each.
    @ivar read: Reads a whole one, by where it begins in some bytes: gives the physical offset of
        the body's first byte, and the body's size, which is 0 in a heartbeat.  It may raise a
        C{ProtocolViolation}.
    """

    size: int
    read: Callable[[Bytes, int], tuple[int, int]]


CLASSIC_HEADERS = FrameHeaders(ha_frame.TRANSFER_HEADER.size, ha_frame.TRANSFER_HEADER.unpack_from)


class SetListener(Protocol):
    """Hears what an elected master says beside bytes."""

    def on_handshake(self, answer: HandshakeAnswer) -> None:
        """The labels of its log."""

    def transfer(self, header: TransferHeader) -> None:
        """A label of its log, and up to where its set has it."""


class SlaveDialect(Protocol):
    """One connection's way to speak.

    @ivar listener: Hears what is said beside bytes, if anything is.
    @ivar admitted: Whether reports may be sent.
    """

    listener: SetListener | None
    admitted: bool

    def opening(self, report: int) -> bytes:
        """What is said first.

        @param report: The first report, which is part of it unless an answer comes before.
        """

    def report(self, offset: int) -> bytes:
        """A report that the slave holds everything below C{offset}."""

    def receive(self, data: bytes) -> Iterator[Said]:
        """Decode a chunk.

        @raise ProtocolViolation: At what no master says.
        """

    def handover(self) -> Handover | None:
        """Where the stream stands, for another reader to go on from; C{None} if none can."""

    def headers(self, hear: Callable[[TransferHeader], None]) -> FrameHeaders:
        """What that reader meets before bodies.

        @param hear: Is told what else than offset and size a header says, before the frame is.
        """


@define(eq=False)
class ClassicSlaveDialect:
    """The classic protocol: no handshake.

    @ivar observer: Whether it only compares.
    """

    observer: bool = False
    listener: SetListener | None = field(default=None, init=False)
    admitted: bool = field(default=True, init=False)
    _decoder: TransferDecoder = field(init=False, factory=lambda: TransferDecoder(MAX_BODY))

    def opening(self, report: int) -> bytes:
        before = ha_frame.encode_report(OBSERVER) if self.observer else b""
        return before + ha_frame.encode_report(report)

    def report(self, offset: int) -> bytes:
        return ha_frame.encode_report(offset)

    def receive(self, data: bytes) -> Iterator[Said]:
        """Decode a chunk.

        @raise FrameSizeOutOfRange: If a header announces an impossible body.
        """
        return self._decoder.receive(data)

    def handover(self) -> Handover | None:
        """Where the stream stands."""
        return self._decoder.handover()

    def headers(self, hear: Callable[[TransferHeader], None]) -> FrameHeaders:
        """Offset and size, and nothing else."""
        return CLASSIC_HEADERS


SECOND_ANSWER = "a second answer to one handshake"

LEARNER = SlaveHandshake(id=LEARNER_ID, learner=True)
"""What one says that is no member of the set."""


@define(eq=False)
class SetSlaveDialect:
    """Controller mode.

    One handshake is sent, and no second: a stock master answers every one that it notices.

    @ivar handshake: Who speaks.
    """

    handshake: SlaveHandshake = LEARNER
    listener: SetListener | None = None
    admitted: bool = field(default=False, init=False)
    # That of the last transfer.
    _label: EpochLabel = field(default=EpochLabel(-1, 0), init=False)
    _decoder: MasterMessages = field(init=False, factory=MasterMessages)

    def opening(self, report: int) -> bytes:
        """The handshake; the first report follows its answer."""
        return ha_v2.encode_handshake(self.handshake)

    def report(self, offset: int) -> bytes:
        return ha_v2.encode_report(offset)

    def receive(self, data: bytes) -> Iterator[Said]:
        """Decode a chunk.  A transfer's header is given, then the parts of its body or a heartbeat.

        @raise HandshakeUnexpected: If a transfer comes before the answer, or a second answer.
        @raise EpochLabelWentBack: If labels of the answer do not ascend; or if one is below that
            of the transfer before, or its start is, or that is behind the transfer's bytes.
        @raise FrameSizeOutOfRange: And what else L{MasterMessages.receive} raises.
        """
        for message in self._decoder.receive(data):
            if isinstance(message, BodyPart):
                yield message
            elif isinstance(message, HandshakeAnswer):
                if self.admitted:
                    raise HandshakeUnexpected(SECOND_ANSWER)
                self._check_answer(message)
                self.admitted = True
                yield message
            elif not self.admitted:
                raise HandshakeUnexpected("a transfer before the answer to the handshake")
            else:
                self._check(message)
                yield message
                if not message.size:
                    # A master without a log file says -1.
                    yield HaHeartbeat(max(message.offset, 0))

    def _check_answer(self, answer: HandshakeAnswer) -> None:
        before = EpochLabel(-1, 0)
        for now in answer.labels:
            if now.label <= before.label or now.start < before.start:
                raise EpochLabelWentBack(
                    now.label, now.start, before.label, before.start, answer.end
                )
            before = now

    def _check(self, header: TransferHeader) -> None:
        before, end = self._label, max(header.offset, 0) + header.size
        if header.label == before.label and header.start == before.start <= end:
            return  # as nearly always
        now = EpochLabel(header.label, header.start)
        known = now.label == before.label and now.start != before.start
        if now.label < before.label or now.start < before.start or known or now.start > end:
            raise EpochLabelWentBack(now.label, now.start, before.label, before.start, end)
        self._label = now

    def handover(self) -> Handover | None:
        """Where the stream stands, once the handshake is answered."""
        return self._decoder.handover() if self.admitted else None

    def headers(self, hear: Callable[[TransferHeader], None]) -> FrameHeaders:
        """Those of transfers, checked as L{receive} does; nothing else may come."""

        def read(data: Bytes, at: int) -> tuple[int, int]:
            try:
                header = ha_v2.read_transfer_header(data, at)
            except HaStateUnexpected as error:
                if error.state == HANDSHAKE:
                    raise HandshakeUnexpected(SECOND_ANSWER) from None
                raise
            self._check(header)
            hear(header)
            # A master without a log file says -1.
            return header.offset if header.size else max(header.offset, 0), header.size

        return FrameHeaders(ha_v2.TRANSFER_HEADER.size, read)
