"""Frames of the remoting protocol: a length, a header of one of two kinds, a body; and both kinds
of header, JSON and binary ("ROCKETMQ").

Java writes standard JSON, and reads a good deal more; what the fast reader refuses goes to the
lenient one before it is called broken.

A JSON header of a pull is split around its numbers: the request's own, the queue offset and the
committed offset.  What is left is compared byte for byte with headers that were read in the usual
way before; where it is the same, only the numbers are read.  So there is no second reader that
might understand a header in another way.

Source: docs/protocol/remoting.md, Frames, JSON header, Binary header and Pulling.
"""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter
from struct import Struct
from struct import error as struct_error
from typing import Any

import orjson
from attrs import define, evolve, field, frozen

from rmqha.errors import HeaderTooCostly, HeaderUndecodable, RemotingFrameError
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import LanguageCode
from rmqha.wire.remoting.command import MOST_FIELDS, RESPONSE, AlikeHeader, Command, SerializeType
from rmqha.wire.remoting.fastjson import JsonInvalid

FRAME_LIMIT = 16 * 1024 * 1024
"""Most bytes of a whole frame; what stock brokers and clients take."""

HEADER_LIMIT = 256 * 1024
"""Most bytes of a header we read: room for the longest properties, all escaped."""

#: Bytes that follow the first number; kind of header and its bytes.
_PREFIX = Struct(">iI")
_PIECE = 4096
#: Code, language, version, opaque, flag, bytes of the remark.
_FIXED = Struct(">hBhiii")
_INT16 = Struct(">h")
_INT32 = Struct(">i")

_BY_NUMBER = {language.value: language for language in LanguageCode}


class FrameLengthOutOfRange(RemotingFrameError):
    """A remoting frame is shorter than its own header or longer than the limit.

    @ivar size: Bytes of the whole frame, its length field included.
    """

    sentence = "remoting frame of {size} bytes, must be 8 to {limit}"
    size: int
    limit: int


class HeaderLengthOutOfRange(RemotingFrameError):
    """A remoting header is longer than its frame or than the limit."""

    sentence = "remoting header of {size} bytes, must be 0 to {limit}"
    size: int
    limit: int


class SerializeTypeUnknown(RemotingFrameError):
    """A remoting header is of an unknown kind."""

    sentence = "remoting header of unknown type {number}, must be 0 (JSON) or 1 (ROCKETMQ)"
    number: int


def decode_binary(header: bytes) -> Command:
    """Read a binary header.  Text that is not UTF-8 becomes U+FFFD, as in Java.

    @raise HeaderUndecodable: If a length in it is negative or leads out of it.
    @raise HeaderTooCostly: If it has more than L{MOST_FIELDS} fields.
    """
    try:
        code, language, version, opaque, flag, size = _FIXED.unpack_from(header)
        at = _FIXED.size
        if not 0 <= size <= len(header) - at:
            raise ValueError(f"a remark of {size} bytes, but only {len(header) - at} are left")
        remark = header[at : at + size].decode("utf-8", "replace")
        at += size
        (size,) = _INT32.unpack_from(header, at)
        at += 4
        if size != len(header) - at:
            raise ValueError(f"{size} bytes of fields, but only {len(header) - at} are left")
        ext = _pairs(header, at)
    except ValueError as error:
        raise HeaderUndecodable(len(header), str(error)) from None
    except struct_error:
        raise HeaderUndecodable(len(header), "it ends inside a number") from None
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        language=_BY_NUMBER.get(language, LanguageCode.OTHER),
        version=version,
        remark=remark or None,
        ext=ext,
        serialize=SerializeType.ROCKETMQ,
    )


def encode_binary(command: Command) -> bytes:
    """Write a binary header.  Code and version must fit into 16 bits; those of ours do."""
    pairs: list[bytes] = []
    pack = _INT32.pack
    for name, value in command.ext.items():
        text = value.encode("utf-8", "replace")
        pairs += _key(name), pack(len(text)), text
    fields = b"".join(pairs)
    remark = command.remark.encode("utf-8", "replace") if command.remark else b""
    fixed = _FIXED.pack(
        command.code, command.language, command.version, command.opaque, command.flag, len(remark)
    )
    return b"".join((fixed, remark, pack(len(fields)), fields))


@lru_cache(maxsize=1024)
def _key(name: str) -> bytes:
    raw = name.encode("utf-8", "replace")
    return _INT16.pack(len(raw)) + raw


def _pairs(header: bytes, at: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    end = len(header)
    # Nearly all of it is ASCII, and a slice of a text is cheaper than a decoded slice.
    text = header.decode("latin-1")
    int16, int32 = _INT16.unpack_from, _INT32.unpack_from
    for _ in range(MOST_FIELDS):
        if at >= end:
            return ext
        (size,) = int16(header, at)
        start = at + 2
        at = start + size
        (length,) = int32(header, at)
        if size < 0 or length < 0 or at + 4 + length > end:
            raise ValueError(
                f"a field of {size} and {length} bytes, but only {end - start} are left"
            )
        name = text[start:at]
        start = at + 4
        at = start + length
        value = text[start:at]
        if not name.isascii():
            name = name.encode("latin-1").decode("utf-8", "replace")
        if not value.isascii():
            value = value.encode("latin-1").decode("utf-8", "replace")
        ext[name] = value
    if at < end:
        raise HeaderTooCostly(MOST_FIELDS + 1, MOST_FIELDS, "fields or more")
    return ext


_PULL = 11
MARK = b'"code":%d,' % _PULL
"""Stands in the header of a pull as clients write it."""

LONGEST = 1024
"""Most bytes of a header that is remembered."""

MOST = 4096
"""Most headers that are remembered: one for each queue, group and client that differs."""

_OPAQUE, _QUEUE, _COMMIT = b'"opaque":', b'"queueOffset":', b'"commitOffset":'
_NUMBERS = re.compile(rb'("opaque":"?|"queueOffset":"?|"commitOffset":"?)(0|[1-9][0-9]{0,17})')
# Text, name and number three times, and text.
_PARTS = 10
_texts = itemgetter(0, 1, 3, 4, 6, 7, 9)
_INT32_MAX = 0x7FFFFFFF


@frozen
class KnownPull:
    """A header that was read.

    @ivar header: The custom header of all that are alike, once somebody has read it.
    @ivar opaque: Which part is the request's number.
    @ivar queue: Which is the queue offset.
    @ivar commit: Which is the committed offset.
    """

    command: Command
    header: AlikeHeader
    opaque: int
    queue: int
    commit: int


class AlikePulls:
    """What was read, to read what is alike sooner."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], KnownPull] = {}

    def find(self, header: bytes) -> tuple[KnownPull, int, int, int] | None:
        """Find what was learned of a header that is alike.

        @return: It, and the number, queue offset and committed offset of this one; C{None} if none
            was learned.
        """
        if len(header) > LONGEST:
            return None
        parts = _NUMBERS.split(header)
        known = self._known.get(_texts(parts)) if len(parts) == _PARTS else None
        if known is None:
            return None
        opaque = int(parts[known.opaque])
        if opaque > _INT32_MAX:
            return None
        return known, opaque, int(parts[known.queue]), int(parts[known.commit])

    def read(self, header: bytes) -> Command | None:
        """Read a header.

        @return: A command; C{None} if none that is alike was learned.
        """
        found = self.find(header)
        if found is None:
            return None
        known, opaque, queue_offset, commit_offset = found
        before = known.command
        ext = before.ext.copy()
        ext["queueOffset"], ext["commitOffset"] = str(queue_offset), str(commit_offset)
        return Command(
            code=before.code,
            opaque=opaque,
            flag=before.flag,
            language=before.language,
            version=before.version,
            remark=before.remark,
            ext=ext,
            serialize=before.serialize,
            alike=known.header,
            other={"queue_offset": queue_offset, "commit_offset": commit_offset},
        )

    def learn(self, header: bytes, command: Command) -> None:
        """Remember a header that was read in the usual way, if it is a pull's as clients write it:
        each of the three names is there once, in plain standard JSON.

        @param command: What it was read as; a copy is kept.
        """
        if command.code != _PULL or len(header) > LONGEST or b"\\" in header or b"'" in header:
            return
        parts = _NUMBERS.split(header)
        names = [name.rstrip(b'"') for name in parts[1::3]]
        if sorted(names) != [_COMMIT, _OPAQUE, _QUEUE]:
            return
        if any(header.count(name[1:-2]) > 1 for name in names):
            return
        opaque, queue, commit = (2 + 3 * names.index(name) for name in (_OPAQUE, _QUEUE, _COMMIT))
        ext = command.ext
        said = str(command.opaque), ext.get("queueOffset"), ext.get("commitOffset")
        if tuple(parts[part].decode() for part in (opaque, queue, commit)) != said:
            return
        if len(self._known) >= MOST:
            self._known.clear()
        # Not the command itself, which gets the request's body.
        kept = evolve(command, ext=ext.copy())
        self._known[_texts(parts)] = KnownPull(kept, AlikeHeader(), opaque, queue, commit)


LOOSE_LIMIT = 8 * 1024
"""Most bytes of a header that is not standard JSON.  The lenient reader takes a thousand times as
long as the fast one, and whoever writes such headers writes short ones."""

_BY_NAME = {language.name: language for language in LanguageCode}
_NAMES = {language: language.name for language in LanguageCode}
pulls = AlikePulls()
"""What this process has learned."""


def decode_json(header: bytes) -> Command:
    """Read a JSON header.

    @raise HeaderUndecodable: If it is no JSON object, or a member is of the wrong kind.
    @raise HeaderTooCostly: If it is not standard and longer than L{LOOSE_LIMIT}, or has more
        fields than L{MOST_FIELDS}.
    """
    if MARK not in header:
        return _decode(header)
    command = pulls.read(header)
    if command is None:
        command = _decode(header)
        pulls.learn(header, command)
    return command


def _decode(header: bytes) -> Command:
    try:
        members = orjson.loads(header)
    except orjson.JSONDecodeError:
        if len(header) > LOOSE_LIMIT:
            raise HeaderTooCostly(len(header), LOOSE_LIMIT, "bytes, not in standard JSON") from None
        try:
            members = fastjson.loads(header)
        except JsonInvalid as error:
            raise HeaderUndecodable(len(header), str(error)) from None
    if type(members) is not dict:
        raise HeaderUndecodable(len(header), "it is not a JSON object")
    get = members.get
    try:
        remark = get("remark")
        return Command(
            code=_int32(get("code")),
            opaque=_int32(get("opaque")),
            flag=_int32(get("flag")),
            language=_language(get("language")),
            version=_int32(get("version")),
            remark=remark if remark is None else _text(remark),
            ext=_ext(get("extFields")),
            serialize=SerializeType.JSON,
        )
    except ValueError as error:
        raise HeaderUndecodable(len(header), str(error)) from None


def encode_json(command: Command) -> bytes:
    """Write a command's header as JSON, with RocketMQ's names."""
    members: dict[str, Any] = {
        "code": command.code,
        "flag": command.flag,
        "language": _NAMES[command.language],
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.ext:
        members["extFields"] = command.ext
    if command.remark is not None:
        members["remark"] = command.remark
    return orjson.dumps(members)


def _int32(value: object) -> int:
    if type(value) is int:
        number = value
    elif value is None:
        return 0
    elif type(value) is str and value.lstrip("-").isdecimal() and len(value) < 12:
        number = int(value)
    else:
        raise ValueError(f"{str(value)[:64]!r} is not a number")
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"{number} has more than 32 bits")
    return number


def _language(value: object) -> LanguageCode:
    """A language by name or by number; one that is not known is no fault."""
    known = _BY_NAME.get(value) if type(value) is str else None
    if known is None and type(value) is int:
        known = _BY_NUMBER.get(value)
    return LanguageCode.OTHER if known is None else known


def _ext(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if type(value) is not dict:
        raise ValueError("extFields is not a JSON object")
    if len(value) > MOST_FIELDS:
        raise HeaderTooCostly(len(value), MOST_FIELDS, "fields")
    for each in value.values():
        if type(each) is not str:
            # C++ and Node clients send numbers and booleans as such.
            return {str(name): _text(each) for name, each in value.items() if each is not None}
    return value


def _text(value: object) -> str:
    if type(value) is str:
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int | float):
        return str(value)
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:  # read it can be, but not written: it is too deep
        raise ValueError(str(error)) from None


_DECODERS = {0: decode_json, 1: decode_binary}
_ENCODERS = {SerializeType.JSON: encode_json, SerializeType.ROCKETMQ: encode_binary}


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


def _form(digits: int) -> bytes:
    """An answer of success, but for its number of so many digits."""
    number = 10 ** (digits - 1)
    head, name, tail = encode(Command(code=0, opaque=number, flag=RESPONSE)).partition(b'"opaque":')
    return (head + name).replace(b"%", b"%%") + b"%d" + tail.removeprefix(b"%d" % number)


_FORMS = {digits: _form(digits) for digits in range(1, 11)}


def successes(numbers: list[int]) -> bytes:
    """Answers of success, with nothing to say, to requests of these numbers."""
    digits = len(b"%d" % max(numbers))
    if len(b"%d" % min(numbers)) == digits:
        return _FORMS[digits] * len(numbers) % tuple(numbers)
    return b"".join(successes([number]) for number in numbers)


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
    # The begin of a frame, and how many bytes more have to come before it is looked at again.
    _pieces: list[bytes | bytearray | memoryview] = field(init=False, factory=list)
    _missing: int = field(init=False, default=0)
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
        if self._dead is not None or len(data) < self._missing:
            return None
        return self._next(data)

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
        if len(data) < self._missing:
            self._collect(data)
            return []
        try:
            return self._scan(*self._next(data), most)
        except RemotingFrameError as error:
            self._dead = error
            raise

    def _next(self, data: bytes) -> tuple[bytes, int]:
        """All bytes that were not decoded yet, from a frame's begin."""
        if self._missing:
            data, self._pieces, self._missing = b"".join((*self._pieces, data)), [], 0
        elif self._unread is not None:
            (kept, at), self._unread = self._unread, None
            return (kept[at:] + data, 0) if data else (kept, at)
        return data, 0

    def _scan(self, data: bytes, at: int, most: int | None) -> list[Command]:
        """Decode what lies whole in C{data} and begins in time, and keep the rest."""
        commands: list[Command] = []
        end = len(data)
        stop = end if most is None else at + most
        while at < end:
            if at >= stop:
                self._unread = data, at
                break
            begin = after = at + _PREFIX.size
            if begin <= end:
                size, kind, body_size = self._check(*_PREFIX.unpack_from(data, at))
                body = begin + size
                after = body + body_size
            if after > end:
                self._missing = after - at
                self._collect(memoryview(data)[at:])
                break
            command = _DECODERS[kind](data[begin:body])
            at = after
            if body_size:
                command.body = data[body:at]
            commands.append(command)
            if most is not None and command.is_response:
                # What comes behind the answers to ours may be a run.
                stop = at
        return commands

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

    def _collect(self, piece: bytes | memoryview) -> None:
        """Keep what came of a frame that is not whole."""
        self._missing -= len(piece)
        if len(piece) >= _PIECE:
            self._pieces.append(piece)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            # A peer that sends byte by byte must not make us keep an object for each.
            self._pieces[-1] += piece
        else:
            self._pieces.append(bytearray(piece))
