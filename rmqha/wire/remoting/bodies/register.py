"""The body of a broker's registration (code 103), in its three forms.

Source: docs/protocol/remoting.md, Registration.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import NoReturn

from attrs import define, field, frozen

from rmqha.errors import BodyInvalid
from rmqha.wire.remoting import fastjson, json_body
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.tables import TopicConfig, TopicTable
from rmqha.wire.remoting.codes import V3_0_11
from rmqha.wire.remoting.fastjson import JsonInvalid

INFLATED_LIMIT = 64 * 1024 * 1024
"""Most bytes a compressed registration may become."""

_INT32 = Struct(">i")
_KIND = "RegisterBroker"


@frozen(kw_only=True)
class RegisterBody:
    """What a broker registers: its topics, in code 103."""

    topic_config_serialize_wrapper: TopicTable = field(factory=TopicTable)
    filter_server_list: tuple[str, ...] = ()


def checksum(body: bytes | memoryview) -> int:
    """The C{bodyCrc32} of a body as it is sent."""
    return zlib.crc32(body) & 0x7FFFFFFF


def read(body: bytes | memoryview, *, version: int, compressed: bool) -> RegisterBody:
    """Read a registration.

    @param version: That of the request's header; old brokers send their topics only.
    @param compressed: The header's field of that name.
    @raise BodyInvalid: If it is none.
    """
    if not body:
        return RegisterBody()
    if version < V3_0_11:
        topics = json_body.read(TopicTable, body)
        return RegisterBody(topic_config_serialize_wrapper=topics)
    if compressed:
        return _Pieces(_inflated(body)).registration()
    return json_body.read(RegisterBody, body)


def write(registration: RegisterBody, *, compressed: bool = False) -> bytes:
    """Write a registration.  The compressed form has no place for C{order}, C{topicSysFlag}
    and whatever newer releases added.
    """
    if not compressed:
        return json_body.write(registration)
    table = registration.topic_config_serialize_wrapper
    parts = [_piece(json_body.write(table.data_version))]
    parts.append(_INT32.pack(len(table.topic_config_table)))
    parts += [_piece(_line(topic).encode()) for topic in table.topic_config_table.values()]
    parts.append(_piece(fastjson.dumps(registration.filter_server_list)))
    return zlib.compress(b"".join(parts), 9)


def _piece(raw: bytes) -> bytes:
    return _INT32.pack(len(raw)) + raw


def _line(topic: TopicConfig) -> str:
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} "
        f"{topic.perm} {topic.topic_filter_type}"
    )


def _inflated(body: bytes | memoryview) -> bytes:
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(body, INFLATED_LIMIT)
    except zlib.error as error:
        raise BodyInvalid(_KIND, str(error)) from None
    if not inflate.eof:
        reason = (
            f"it inflates to more than {INFLATED_LIMIT} bytes"
            if inflate.unconsumed_tail
            else "the compressed bytes end too early"
        )
        raise BodyInvalid(_KIND, reason)
    return raw


@define
class _Pieces:
    """Reads the pieces of a compressed registration, each behind its length."""

    raw: bytes
    at: int = field(init=False, default=0)

    def registration(self) -> RegisterBody:
        version = json_body.read(DataVersion, self._piece())
        count = self._number()
        if not 0 <= count <= len(self.raw) - self.at:
            self._wrong(f"{count} topics in {len(self.raw) - self.at} bytes")
        topics = [self._topic() for _ in range(count)]
        return RegisterBody(
            topic_config_serialize_wrapper=TopicTable(
                data_version=version,
                topic_config_table={topic.topic_name: topic for topic in topics},
            ),
            filter_server_list=self._servers(),
        )

    def _wrong(self, reason: str) -> NoReturn:
        raise BodyInvalid(_KIND, f"at byte {self.at}, uncompressed: {reason}")

    def _number(self) -> int:
        if self.at + 4 > len(self.raw):
            self._wrong("it ends inside a number")
        (number,) = _INT32.unpack_from(self.raw, self.at)
        self.at += 4
        return int(number)

    def _piece(self) -> bytes:
        size = self._number()
        if not 0 <= size <= len(self.raw) - self.at:
            self._wrong(f"a piece of {size} bytes, but only {len(self.raw) - self.at} are left")
        self.at += size
        return self.raw[self.at - size : self.at]

    def _topic(self) -> TopicConfig:
        line = self._piece().decode("utf-8", "replace")
        words = line.split(" ", 5)
        try:
            name, read_queues, write_queues, perm, filter_type = words[:5]
            return TopicConfig(
                topic_name=name,
                read_queue_nums=int(read_queues),
                write_queue_nums=int(write_queues),
                perm=int(perm),
                topic_filter_type=filter_type,
            )
        except ValueError:
            self._wrong(f"{line[:64]!r} is not a topic")

    def _servers(self) -> tuple[str, ...]:
        try:
            servers = fastjson.loads(self._piece())
        except JsonInvalid as error:
            self._wrong(str(error))
        if not isinstance(servers, list):
            self._wrong("the filter servers are not a list")
        return tuple(str(server) for server in servers)
