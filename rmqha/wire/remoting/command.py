"""One remoting command: a request or an answer, whatever its header looked like.

Source: docs/protocol/remoting.md, Commands.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from attrs import AttrsInstance, define, field

from rmqha.wire.remoting.codes import CURRENT_VERSION, LanguageCode
from rmqha.wire.remoting.fields import H, changed, from_ext, to_ext

RESPONSE = 1
"""Flag bit of an answer."""

ONEWAY = 2
"""Flag bit of a request that is not answered."""


class SerializeType(IntEnum):
    """How a frame's header is written; the number is the byte in the frame."""

    JSON = 0
    ROCKETMQ = 1


MOST_FIELDS = 1024
"""Most fields of a header that we read; RocketMQ's longest has some thirty."""


@define
class AlikeHeader:
    """The custom header of commands that differ in some of its values only.

    @ivar first: That of the first one which was read; C{None} before.
    """

    first: Any = None


@define(kw_only=True)
class Command:
    """A request or an answer.

    @ivar code: A L{RequestCode<rmqha.wire.remoting.codes.RequestCode>}, or in an answer a
        L{ResponseCode<rmqha.wire.remoting.codes.ResponseCode>}; any number may come.
    @ivar opaque: The asking side's number for the request, signed 32 bits; an answer
        repeats it.
    @ivar flag: L{RESPONSE} and L{ONEWAY}.
    @ivar language: What the sender is written in.
    @ivar version: The sender's version, see L{CURRENT_VERSION}.
    @ivar remark: A text for a person, or C{None}.
    @ivar ext: The fields of the custom header, and any other a peer added.
    @ivar body: What comes behind the header; none and empty are the same.
    @ivar serialize: The kind of header it came with, or goes with.
    @ivar alike: What is known of others like it; C{None} for nothing.
    @ivar other: Which attributes of its custom header differ from theirs.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    language: LanguageCode = LanguageCode.PYTHON
    version: int = CURRENT_VERSION
    remark: str | None = None
    ext: dict[str, str] = field(factory=dict)
    body: bytes | memoryview = b""
    serialize: SerializeType = SerializeType.JSON
    alike: AlikeHeader | None = field(default=None, eq=False, repr=False)
    other: dict[str, int] | None = field(default=None, eq=False, repr=False)

    def custom(self, cls: type[H]) -> H:
        """The custom header.

        @raise HeaderFieldInvalid: If a mandatory field is missing, or any is not of its type.
        """
        alike = self.alike
        if alike is None:
            return from_ext(cls, self.ext)
        if type(alike.first) is not cls:
            alike.first = header = from_ext(cls, self.ext)
            return header
        return changed(alike.first, self.other or {})

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether no answer is wanted."""
        return self.flag & ONEWAY != 0

    @classmethod
    def request(
        cls,
        code: int,
        header: AttrsInstance | None = None,
        body: bytes | memoryview = b"",
        *,
        oneway: bool = False,
    ) -> Command:
        """A request of ours; the connection that sends it numbers it."""
        ext = {} if header is None else to_ext(header)
        return cls(code=code, flag=ONEWAY if oneway else 0, ext=ext, body=body)

    def answer(
        self,
        code: int = 0,
        remark: str | None = None,
        header: AttrsInstance | None = None,
        body: bytes | memoryview = b"",
    ) -> Command:
        """The answer to this request, with the same number and kind of header."""
        return Command(
            code=code,
            opaque=self.opaque,
            flag=RESPONSE,
            remark=remark,
            ext={} if header is None else to_ext(header),
            body=body,
            serialize=self.serialize,
        )
