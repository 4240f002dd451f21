"""The two directions of the HA port in controller mode (HA protocol v2), sans-IO.

A slave sends a handshake and offset reports; a master answers the handshake with the epoch labels
of its log, and sends transfers, whose bodies are passed on as they arrive and never collected.
It has nothing in common with the classic protocol (L{rmqha.wire.ha_frame}) but its port.

Source: docs/protocol/controller.rst, Bytes on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import ClassVar

from attrs import define, field, frozen

from rmqha.errors import FrameSizeOutOfRange, ProtocolViolation
from rmqha.wire.ha_frame import BodyPart

HANDSHAKE, TRANSFER = 1, 2
"""What a message begins with: the state its sender is in."""

TOKEN_BITS = 62
"""Of the token that a master asks a member of ours to repeat on its connection."""

_TOKENS_FROM = -(1 << 63)
"""A token is told as a report of so much more than this: below all offsets that any slave says."""

LEARNER_ID = -1
"""The id of a learner, which no controller knows."""

FOLLOWERS = 1 << 30
"""Ids from here on are no members': a set with etcd gives them to stock brokers that follow it."""

_STATE = Struct(">i")
SLAVE_HANDSHAKE = Struct(">ihhq")
"""A slave's first message: its state, two flags (it wants the last file only; it takes part as a
learner), and its id."""
REPORT = Struct(">iq")
"""A slave's report: its state, and an offset of the log in bytes."""
ANSWER_HEADER = Struct(">iiqi")
"""What comes before a master's labels: its state, their size in bytes, where its log ends, and its
last label."""
LABEL = Struct(">iq")
"""An epoch label, and where in the log it begins."""
TRANSFER_HEADER = Struct(">iiqiqq")
"""What comes before the bytes of a transfer: the state, and the fields of L{TransferHeader}."""

BUFFER = 4 << 20
"""What a stock slave's buffer holds: a header with its body."""

MAX_BODY = BUFFER - TRANSFER_HEADER.size
"""Most bytes of a transfer's body."""

MAX_LABELS = (BUFFER - ANSWER_HEADER.size) // LABEL.size
"""Most labels of an answer."""


class HaStateUnexpected(ProtocolViolation):
    """A message of HA protocol v2 begins with a state in which nobody speaks: the peer speaks
    another protocol, such as the classic one.

    @ivar reason: For counters.
    """

    sentence = "HA message of state {state}, must be 1 (handshake) or 2 (transfer)"
    reason: ClassVar[str] = "other-protocol"
    state: int


class EpochLabelsMisshapen(ProtocolViolation):
    """The answer to a handshake of HA protocol v2 announces a part of an epoch label."""

    sentence = "epoch labels of {size} bytes, must be a multiple of {each}"
    size: int
    each: int


@frozen
class EpochLabel:
    """From where on a log's bytes are filed under a number.

    @ivar label: The number, 32 bits: as a rule the epoch of the master that wrote them.
    @ivar start: Physical offset of the first of them.
    """

    label: int
    start: int


@frozen(kw_only=True)
class SlaveHandshake:
    """What a slave says first.

    @ivar id: Its controller id; L{LEARNER_ID} for a learner.
    @ivar learner: Whether it is never to be one of the SyncStateSet.
    @ivar from_last_file: Whether it wants the master's last file only, if it has nothing.
    """

    id: int
    learner: bool = False
    from_last_file: bool = False


@frozen
class Report:
    """A slave's report that its log ends at C{offset}."""

    offset: int


@frozen
class Token:
    """A member's proof that the connection on which it comes is its own: the number that its
    client port was asked to repeat.
    """

    number: int


@frozen
class HandshakeAnswer:
    """What a master answers.

    @ivar end: Where its log ends.
    @ivar labels: Of its log, oldest first.
    @ivar last: Its newest label, -1 without one.
    """

    end: int
    labels: tuple[EpochLabel, ...]
    last: int


@frozen
class TransferHeader:
    """The head of a transfer; one without a body is a heartbeat.

    @ivar size: Bytes of the body.
    @ivar offset: Physical offset of its first byte; in a heartbeat of the next one that would be
        sent, -1 where the master has no log file yet.
    @ivar label: A label that the master's log has.
    @ivar start: Where that label starts.
    @ivar confirm: Below it every member of the SyncStateSet holds the bytes.
    """

    size: int
    offset: int
    label: int
    start: int
    confirm: int


def encode_handshake(handshake: SlaveHandshake) -> bytes:
    """A slave's first message."""
    return SLAVE_HANDSHAKE.pack(
        HANDSHAKE, handshake.from_last_file, handshake.learner, handshake.id
    )


def encode_report(offset: int) -> bytes:
    """A slave's report that its log ends at C{offset}."""
    return REPORT.pack(TRANSFER, offset)


def encode_token(number: int) -> bytes:
    """The answer, on the HA connection, to a token that came to the client port; for a master that
    says it takes tokens, and no other: it has the form of a report.

    @param number: Of L{TOKEN_BITS} bits.
    """
    return REPORT.pack(TRANSFER, _TOKENS_FROM + number)


def encode_answer(end: int, labels: Sequence[EpochLabel]) -> bytes:
    """A master's answer to a handshake.

    @param end: Where its log ends.
    @param labels: Oldest first, L{MAX_LABELS} at most.
    @raise FrameSizeOutOfRange: If they are more than a slave's buffer holds.
    """
    if len(labels) > MAX_LABELS:
        raise FrameSizeOutOfRange(len(labels) * LABEL.size, MAX_LABELS * LABEL.size)
    last = labels[-1].label if labels else -1
    head = ANSWER_HEADER.pack(HANDSHAKE, len(labels) * LABEL.size, end, last)
    return head + b"".join(LABEL.pack(each.label, each.start) for each in labels)


def read_transfer_header(
    data: bytes | bytearray | memoryview, at: int = 0, max_body: int = MAX_BODY
) -> TransferHeader:
    """What stands before a transfer's body.

    @param data: Holds all of it, from C{at} on.
    @param max_body: The largest body accepted, in bytes.
    @raise HaStateUnexpected: If it is no transfer.
    @raise FrameSizeOutOfRange: If it announces an impossible body.
    """
    state, size, offset, label, start, confirm = TRANSFER_HEADER.unpack_from(data, at)
    if state != TRANSFER:
        raise HaStateUnexpected(state)
    if not 0 <= size <= max_body:
        raise FrameSizeOutOfRange(size, max_body)
    return TransferHeader(size, offset, label, start, confirm)


def encode_transfer_header(header: TransferHeader) -> bytes:
    """What stands before a transfer's body."""
    return TRANSFER_HEADER.pack(
        TRANSFER, header.size, header.offset, header.label, header.start, header.confirm
    )


@define
class SlaveMessages:
    """Decode what a slave sends."""

    _rest: bytes = field(init=False, default=b"")
    _dead: HaStateUnexpected | None = field(init=False, default=None)

    @property
    def pending(self) -> int:
        """Bytes of a message that has not come whole."""
        return len(self._rest)

    def receive(self, data: bytes) -> list[SlaveHandshake | Report | Token]:
        """@return: The messages completed by C{data}, in order.
        @raise HaStateUnexpected: If one begins with anything else than a state in which a slave
            speaks.  What comes behind it cannot be read, so every later call raises it again; what
            the same call completed before is lost with the connection.
        """
        if self._dead is not None:
            raise self._dead
        data = self._rest + data
        found: list[SlaveHandshake | Report | Token] = []
        at = 0
        while len(data) - at >= _STATE.size:
            (state,) = _STATE.unpack_from(data, at)
            if state == HANDSHAKE:
                shape = SLAVE_HANDSHAKE
            elif state == TRANSFER:
                shape = REPORT
            else:
                self._dead = HaStateUnexpected(state)
                raise self._dead
            if len(data) - at < shape.size:
                break
            if state == TRANSFER:
                _, offset = shape.unpack_from(data, at)
                token = offset - _TOKENS_FROM
                found.append(Report(offset) if token >> TOKEN_BITS else Token(token))
            else:
                _, last_file, learner, number = shape.unpack_from(data, at)
                found.append(
                    SlaveHandshake(id=number, learner=learner != 0, from_last_file=last_file != 0)
                )
            at += shape.size
        self._rest = data[at:]
        return found


@define
class MasterMessages:
    """Decode what a master sends, without ever holding a body."""

    _head: bytearray = field(init=False, factory=bytearray)
    _need: int = field(init=False, default=_STATE.size)
    _header: TransferHeader | None = field(init=False, default=None)
    _left: int = field(init=False, default=0)
    _dead: FrameSizeOutOfRange | HaStateUnexpected | EpochLabelsMisshapen | None = field(
        init=False, default=None
    )

    def receive(self, data: bytes) -> Iterator[HandshakeAnswer | TransferHeader | BodyPart]:
        """Decode a chunk.  A transfer's header is given when it is whole, then the parts of its
        body.

        @raise FrameSizeOutOfRange: If a header announces an impossible size.
        @raise EpochLabelsMisshapen: If labels do not fill what an answer announces.
        @raise HaStateUnexpected: If a message begins with anything else than a state in which a
            master speaks.  What comes behind any of these cannot be read, so every later call
            raises it again.
        """
        if self._dead is not None:
            raise self._dead
        view = memoryview(data)
        while view:
            if self._header is not None and self._left:
                part, view = view[: self._left], view[self._left :]
                offset = self._header.offset + self._header.size - self._left
                self._left -= len(part)
                yield BodyPart(offset, part, self._header.size, self._left)
                continue
            missing = self._need - len(self._head)
            self._head += view[:missing]
            view = view[missing:]
            if len(self._head) < self._need:
                return
            try:
                message = self._whole()
            except (FrameSizeOutOfRange, HaStateUnexpected, EpochLabelsMisshapen) as error:
                self._dead = error
                raise
            if message is not None:
                self._head, self._need = bytearray(), _STATE.size
                yield message

    def handover(self) -> tuple[bytes, int, int, int] | None:
        """Where the stream stands, for another reader of transfers to go on from.

        @return: Header bytes so far, offset of the next body byte, bytes of that body still to
            come, size of that body.  C{None} in the midst of an answer.
        """
        head, header, left = bytes(self._head), self._header, self._left
        if len(head) >= _STATE.size and _STATE.unpack_from(head)[0] != TRANSFER:
            return None
        if header is None:
            return head, 0, 0, 0
        return head, header.offset + header.size - left, left, header.size

    def _whole(self) -> HandshakeAnswer | TransferHeader | None:
        """Read what has come, or find out how much more is needed."""
        head = self._head
        (state,) = _STATE.unpack_from(head)
        if state == TRANSFER:
            if len(head) < TRANSFER_HEADER.size:
                self._need = TRANSFER_HEADER.size
                return None
            header = read_transfer_header(head)
            self._header, self._left = header, header.size
            return header
        if state != HANDSHAKE:
            raise HaStateUnexpected(state)
        if len(head) < ANSWER_HEADER.size:
            self._need = ANSWER_HEADER.size
            return None
        _, size, end, last = ANSWER_HEADER.unpack_from(head)
        if not 0 <= size <= MAX_LABELS * LABEL.size:
            raise FrameSizeOutOfRange(size, MAX_LABELS * LABEL.size)
        if size % LABEL.size:
            raise EpochLabelsMisshapen(size, LABEL.size)
        if len(head) < ANSWER_HEADER.size + size:
            self._need = ANSWER_HEADER.size + size
            return None
        labels = tuple(EpochLabel(*each) for each in LABEL.iter_unpack(head[ANSWER_HEADER.size :]))
        return HandshakeAnswer(end, labels, last)
