"""A client's ledger: what its broker acknowledged, message by message, in a file of JSON lines.

It has the names of C{rmqha dump --json}, so that what that prints of one store is a ledger for
another.  Source: docs/operations.rst, Doctor.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from attrs import asdict, evolve, field, frozen

from rmqha.errors import ExtraMissing, RmqhaError
from rmqha.wire.log.record import Record
from rmqha.wire.log.sys_flag import COMPRESSED
from rmqha.wire.names import UNIQUE_KEY

LARGEST_BODY = 64 << 20
"""Bytes that a compressed body may become."""

_NAMES = {
    "offset": "physicalOffset",
    "topic": "topic",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "msg_id": "msgId",
    "body": "body",
    "body_sha256": "bodySha256",
    "body_crc": "bodyCRC",
}
"""The keys of a line, by the names of L{Acknowledged}."""

_OFFSET_MSG_ID, _PROPERTIES = "offsetMsgId", "properties"
_IDS = re.compile(r"[0-9A-Fa-f]{8}([0-9A-Fa-f]{24})?[0-9A-Fa-f]{24}", re.ASCII)
_DIGITS = 32
_SHA = re.compile(r"[0-9a-f]{32,64}", re.ASCII)

_SAID = {"id": "id", "body": "body's SHA-256", "crc": "body's CRC"}

Identity = tuple[str, Any]
"""What tells a message from all others: by what, and that."""


@frozen(kw_only=True)
class Acknowledged:
    """What a client was told of one message.  C{None} is what it was not told.

    @ivar offset: Where its record begins, a physical offset; C{offsetMsgId} ends in it.
    @ivar msg_id: The id that the client gave it (C{UNIQ_KEY}).
    @ivar body: As text, before it was compressed.
    @ivar body_sha256: Its SHA-256, of which 32 digits are enough.
    @ivar body_crc: The CRC of the body as it is stored.
    """

    offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    msg_id: str | None = None
    body: str | None = field(default=None, repr=False)
    body_sha256: str | None = None
    body_crc: int | None = None

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> Self:
        """Take a line.

        @raise ValueError: If it makes no sense, or tells too little.
        """
        found = cls(**{name: _value(row, key) for name, key in _NAMES.items()})
        told = row.get(_OFFSET_MSG_ID)
        if told is not None:
            found = found._at(told)
        properties = row.get(_PROPERTIES)
        if found.msg_id is None and isinstance(properties, dict):
            found = evolve(found, msg_id=_value(properties, UNIQUE_KEY))
        kind, _ = found.identity
        if kind == "place" and found.offset is None:
            raise ValueError("a place in a queue is looked for with its physicalOffset alone")
        return found

    def _at(self, told: Any) -> Self:
        if not isinstance(told, str) or not _IDS.fullmatch(told):
            raise ValueError(f"offsetMsgId is {told!r}, not 32 or 56 hexadecimal digits")
        offset = int(told[-16:], 16)
        if self.offset not in (None, offset) or offset >> 63:
            raise ValueError(f"offsetMsgId ends in byte {offset}, which is not physicalOffset")
        return evolve(self, offset=offset)

    def as_row(self) -> dict[str, Any]:
        told = asdict(self)
        return {key: told[name] for name, key in _NAMES.items() if told[name] is not None}

    @property
    def identity(self) -> Identity:
        """What tells it from other messages, wherever it is.

        @raise ValueError: If nothing does.
        """
        if self.msg_id is not None:
            return "id", self.msg_id
        if self.body is not None:
            return "body", _digest(self.body.encode())
        if self.body_sha256 is not None:
            return "body", self.body_sha256[:_DIGITS]
        if self.body_crc is not None:
            return "crc", self.body_crc
        place = self.topic, self.queue_id, self.queue_offset
        if None in place:
            raise ValueError(
                "it tells no message from another: msgId, body, bodySha256 or bodyCRC, or topic, "
                "queueId and queueOffset are needed"
            )
        return "place", place

    def other_body(self, record: Record) -> str:
        """What is wrong with the body of a record; C{""} if it is this message's."""
        wanted = set[str]()
        if self.body is not None:
            wanted.add(_digest(self.body.encode()))
        if self.body_sha256 is not None:
            wanted.add(self.body_sha256[:_DIGITS])
        if self.body_crc not in (None, record.body_crc) or (
            wanted and not wanted <= set(_digests(record))
        ):
            return "its body is another"
        return ""

    def other(self, record: Record) -> str:
        """What tells a record from this message's; C{""} if nothing does."""
        key = record.properties.get(UNIQUE_KEY, "")
        if self.msg_id not in (None, key):
            return f"another message is there, id {key or 'unknown'}"
        pairs = (
            (self.topic, record.topic),
            (self.queue_id, record.queue_id),
            (self.queue_offset, record.queue_offset),
        )
        if any(wanted not in (None, there) for wanted, there in pairs):
            return f"it is in {place_of(record)}"
        return self.other_body(record)

    def __str__(self) -> str:
        parts = []
        if self.topic is not None:
            queue = "" if self.queue_id is None else f"/{self.queue_id}"
            place = "" if self.queue_offset is None else f"@{self.queue_offset}"
            parts.append(f"{self.topic}{queue}{place}")
        if self.offset is not None:
            parts.append(f"byte {self.offset}")
        kind, value = self.identity
        if kind != "place":
            parts.append(f"{_SAID[kind]} {value}")
        return ", ".join(parts)


@frozen
class ClientLedger:
    """A whole ledger.

    @ivar messages: In its order; at least one.
    @ivar ignored: Keys of its lines that say nothing of where a message is.
    """

    messages: tuple[Acknowledged, ...]
    ignored: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file.

        @raise RmqhaError: If it is no ledger, or an empty one.
        @raise OSError: If it cannot be read.
        """
        messages, keys = [], set[str]()
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    row = _object(line)
                    messages.append(Acknowledged.of_row(row))
                except ValueError as error:
                    raise RmqhaError(f"{path}, line {number}: {error}") from error
                keys |= row.keys()
        if not messages:
            raise RmqhaError(f"{path}: there is no message in it")
        known = {*_NAMES.values(), _OFFSET_MSG_ID, _PROPERTIES}
        return cls(tuple(messages), tuple(sorted(keys - known)))


def write_ledger(path: Path, messages: Iterable[Acknowledged]) -> None:
    """Write a file that L{ClientLedger.read} takes."""
    with open(path, "w", encoding="utf-8") as file:
        for message in messages:
            file.write(json.dumps(message.as_row(), ensure_ascii=False) + "\n")


def place_of(record: Record) -> str:
    """Where a record is among others of its topic, for a person."""
    return f"{record.topic}/{record.queue_id}@{record.queue_offset}"


def identities(record: Record, kinds: Iterable[str]) -> Iterator[Identity]:
    """What of L{Acknowledged.identity} a record answers to.

    @param kinds: Those that are asked for.
    """
    for kind in kinds:
        if kind == "id":
            yield kind, record.properties.get(UNIQUE_KEY)
        elif kind == "body":
            yield from ((kind, each[:_DIGITS]) for each in _digests(record))
        elif kind == "crc":
            yield kind, record.body_crc
        else:
            yield kind, (record.topic, record.queue_id, record.queue_offset)


def _object(line: bytes) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason}") from error
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ValueError("not an object of JSON")
    return row


def _value(row: dict[str, Any], key: str) -> Any:
    """What a line says; C{None} for nothing."""
    value = row.get(key)
    if value is None:
        return None
    if key in ("topic", "msgId", "body", "bodySha256", UNIQUE_KEY):
        good = isinstance(value, str) and (key == "body" or value != "")
        if key == "bodySha256" and not (good and _SHA.fullmatch(value)):
            raise ValueError(f"bodySha256 is {value!r}, not 32 to 64 of its hexadecimal digits")
    else:
        good = type(value) is int and 0 <= value < 1 << 63
    if not good:
        raise ValueError(f"{key} is {value!r}")
    return value


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def _digests(record: Record) -> list[str]:
    """Of the body as it is stored, and as it was before it was compressed."""
    found = [_digest(record.body)]
    if record.sys_flag & COMPRESSED:
        try:
            from rmqha.wire.log.inflate import inflate
        except ImportError as error:
            raise ExtraMissing("a compressed body", "pipeline", error.name or "") from error
        try:
            whole = inflate(record.sys_flag, memoryview(record.body), LARGEST_BODY)
        except ValueError:
            return found  # it is what is stored, and no body that a producer sent
        found.append(_digest(whole))
    return found
