"""The JSON header of a remoting command.

Java writes standard JSON here, and reads a good deal more; what the fast reader refuses
goes to the lenient one before it is called broken.  Source: docs/protocol/remoting.md,
JSON header.

JSON headers of pulls that differ in three numbers only: those that a consumer sends for one
queue.

A header is split around its numbers: the request's own, the queue offset and the committed offset.
What is left is compared byte for byte with headers that were read in the usual way before; where it
is the same, only the numbers are read.  So there is no second reader that might understand a header
in another way.

Source: docs/protocol/remoting.md, JSON header and Pulling.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import Any

import orjson
from attrs import evolve, frozen

from rmqha.errors import HeaderTooCostly, HeaderUndecodable
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import LanguageCode
from rmqha.wire.remoting.command import MOST_FIELDS, AlikeHeader, Command, SerializeType
from rmqha.wire.remoting.fastjson import JsonInvalid

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
class _Known:
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
        self._known: dict[tuple[bytes, ...], _Known] = {}

    def read(self, header: bytes) -> Command | None:
        """Read a header.

        @return: A command; C{None} if none that is alike was learned.
        """
        if len(header) > LONGEST:
            return None
        parts = _NUMBERS.split(header)
        known = self._known.get(_texts(parts)) if len(parts) == _PARTS else None
        if known is None:
            return None
        opaque = int(parts[known.opaque])
        queue_offset, commit_offset = int(parts[known.queue]), int(parts[known.commit])
        if opaque > _INT32_MAX:
            return None
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
        self._known[_texts(parts)] = _Known(kept, AlikeHeader(), opaque, queue, commit)


LOOSE_LIMIT = 8 * 1024
"""Most bytes of a header that is not standard JSON.  The lenient reader takes a thousand times as
long as the fast one, and whoever writes such headers writes short ones."""

_BY_NAME = {language.name: language for language in LanguageCode}
_BY_NUMBER = {language.value: language for language in LanguageCode}
_NAMES = {language: language.name for language in LanguageCode}
_pulls = AlikePulls()


def decode(header: bytes) -> Command:
    """Read a header.

    @raise HeaderUndecodable: If it is no JSON object, or a member is of the wrong kind.
    @raise HeaderTooCostly: If it is not standard and longer than L{LOOSE_LIMIT}, or has more
        fields than L{MOST_FIELDS<rmqha.wire.remoting.command.MOST_FIELDS>}.
    """
    if MARK not in header:
        return _decode(header)
    command = _pulls.read(header)
    if command is None:
        command = _decode(header)
        _pulls.learn(header, command)
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


def encode(command: Command) -> bytes:
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
    for field in value.values():
        if type(field) is not str:
            # C++ and Node clients send numbers and booleans as such.
            return {str(name): _text(field) for name, field in value.items() if field is not None}
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
