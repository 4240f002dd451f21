"""The binary ("ROCKETMQ") header of a remoting command.

Source: docs/protocol/remoting.md, Binary header.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as struct_error

from rmqha.errors import HeaderTooCostly, HeaderUndecodable
from rmqha.wire.remoting.codes import LanguageCode
from rmqha.wire.remoting.command import MOST_FIELDS, Command, SerializeType

#: Code, language, version, opaque, flag, bytes of the remark.
_FIXED = Struct(">hBhiii")
_INT16 = Struct(">h")
_INT32 = Struct(">i")

_BY_NUMBER = {language.value: language for language in LanguageCode}


def decode(header: bytes) -> Command:
    """Read a header.  Text that is not UTF-8 becomes U+FFFD, as in Java.

    @raise HeaderUndecodable: If a length in it is negative or leads out of it.
    @raise HeaderTooCostly: If it has more than
        L{MOST_FIELDS<rmqha.wire.remoting.command.MOST_FIELDS>}.
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


def encode(command: Command) -> bytes:
    """Write a header.  Code and version must fit into 16 bits; those of ours do."""
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
    """A field's name behind its length."""
    raw = name.encode("utf-8", "replace")
    return _INT16.pack(len(raw)) + raw


def _pairs(header: bytes, at: int) -> dict[str, str]:
    """The fields from a position to the end."""
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
