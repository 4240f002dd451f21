"""The JSON header of a remoting command.

Java writes standard JSON here, and reads a good deal more; what the fast reader refuses
goes to the lenient one before it is called broken.  Source: docs/protocol/remoting.md,
JSON header.
"""

from __future__ import annotations

from typing import Any

import orjson

from rmqha.errors import HeaderTooCostly, HeaderUndecodable, JsonInvalid
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.alike_pulls import MARK, AlikePulls
from rmqha.wire.remoting.codes import LanguageCode
from rmqha.wire.remoting.command import MOST_FIELDS, Command, SerializeType

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
