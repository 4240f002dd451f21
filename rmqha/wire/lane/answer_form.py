"""What all answers to a stored message have in common, so that only the numbers are written anew.

It is cut from an answer that the codec in Python wrote: nothing about an answer is said twice.

Source: docs/protocol/remoting.md, Sending.
"""

from __future__ import annotations

from typing import Self

from attrs import frozen

from rmqha.wire.remoting.command import RESPONSE, Command, SerializeType
from rmqha.wire.remoting.frame import encode

_OPAQUE = 0x4F504151
_QUEUE_ID, _QUEUE_OFFSET = "1357924680", "9182736455463728190"
_MESSAGE_ID = "M" * 32

PREFIX = 8
"""Bytes of the lengths before a header."""

_LENGTH = 4
"""Bytes of the length before a value of a binary header."""


@frozen
class AnswerForm:
    """The bytes between the numbers.

    @ivar pieces: In JSON what stands before number, id, queue and queue offset, and behind; in
        binary the same without the lengths of the last two, with what is between the number and
        the length of all fields apart.
    """

    pieces: tuple[bytes, ...]

    @classmethod
    def of(cls, kind: SerializeType, always: dict[str, str]) -> Self:
        """The form of a kind of header.

        @param always: Fields that every answer has.
        """
        ext = {"msgId": _MESSAGE_ID, "queueId": _QUEUE_ID, "queueOffset": _QUEUE_OFFSET, **always}
        answer = Command(code=0, opaque=_OPAQUE, flag=RESPONSE, ext=ext, serialize=kind)
        header = encode(answer)[PREFIX:]
        json = kind is SerializeType.JSON
        number = str(_OPAQUE).encode() if json else _OPAQUE.to_bytes(4, "big")
        before, rest = header.split(number)
        pieces = [before]
        for value in (_MESSAGE_ID, _QUEUE_ID, _QUEUE_OFFSET):
            piece, rest = rest.split(value.encode())
            pieces.append(piece)
        pieces.append(rest)
        if not json:
            # Flag and length of the remark; then the length of the fields, which varies.
            between, first = pieces[1][: 2 * _LENGTH], pieces[1][3 * _LENGTH :]
            pieces[1:4] = [between, first, pieces[2][:-_LENGTH], pieces[3][:-_LENGTH]]
        return cls(tuple(pieces))
