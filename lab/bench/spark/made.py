"""Stores to read: valid records of 1 KiB bodies, made as fast as a disk takes them.

Bodies are pieces of one text, from another place for each record: half of it is numbers and
names as in JSON, half of it random, so that codecs have as much to do as with real messages.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from attrs import frozen
from isal.isal_zlib import crc32

from rmqha.logfiles.listing import file_name
from rmqha.wire.columnar.vectors import Array
from rmqha.wire.log.encode import blank, encode
from rmqha.wire.log.properties import encode as encode_properties
from rmqha.wire.log.published import Point, render_point
from rmqha.wire.log.record import Message
from rmqha.wire.names import CLUSTER, TAGS, UNIQUE_KEY, WAIT
from rmqha.wire.store_layout import OWN_FOLDER, POINT

BODY = 1024
FILE_SIZE = 1 << 30
QUEUES = 8
TOPICS = 4
TOPIC = "BenchTopic0"
"""The first one; the others have other digits."""

STORED = 1_700_000_000_000
"""Store time of the first record, in milliseconds since 1970; a thousand come in one."""

SEED = 7
_POOL = 8 << 20
_KEY = b"0" * 32
_CHUNK = 16384
"""Records made at once."""


@frozen
class Made:
    """A store.

    @ivar root: Its root.
    @ivar end: The log's end.
    @ivar records: How many records it has.
    """

    root: Path
    end: int
    records: int

    @property
    def files(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())

    def copied(self, root: Path) -> Made:
        """The same store once more, in pages of its own."""
        shutil.copytree(self.root, root)
        return Made(root, self.end, self.records)


class Maker:
    """Makes records that follow each other.

    @ivar size: Bytes of each.
    """

    def __init__(self, body: int = BODY) -> None:
        properties = {
            UNIQUE_KEY: _KEY.decode(),
            WAIT: "true",
            TAGS: "TagA",
            CLUSTER: "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
        }
        message = Message(
            topic=TOPIC,
            queue_id=0,
            body=bytes(body),
            properties=encode_properties(properties),
            born_timestamp=STORED,
            born_host=("127.0.0.1", 40000),
            store_host=("127.0.0.1", 10911),
        )
        record = bytes(encode(message, max_message_size=4 << 20))
        self.size = len(record)
        self._record = np.frombuffer(record, np.uint8)
        self._body = 88
        self._length = body
        self._topic = record.index(TOPIC.encode()) + len(TOPIC) - 1
        self._key = record.index(_KEY)
        self._pool = np.frombuffer(_text(), np.uint8)
        self._places = np.random.default_rng(SEED)

    def make(self, first: int, count: int, offset: int) -> Array:
        """Records by their numbers, one row each.

        @param offset: Physical offset of the first one.
        """
        numbers = np.arange(first, first + count)
        rows = np.tile(self._record, (count, 1))
        pieces = np.lib.stride_tricks.sliding_window_view(self._pool, self._length)
        places = self._places.integers(0, len(pieces), count)
        bodies = rows[:, self._body : self._body + self._length]
        bodies[:] = pieces[places]
        sums = [crc32(self._pool[at : at + self._length]) & 0x7FFFFFFF for at in places.tolist()]
        queues = numbers // TOPICS % QUEUES
        self._put(rows, 8, np.array(sums), ">i4")
        self._put(rows, 12, queues, ">i4")
        self._put(rows, 20, numbers // (TOPICS * QUEUES), ">i8")
        self._put(rows, 28, offset + self.size * np.arange(count), ">i8")
        times = STORED + numbers // 1000
        self._put(rows, 40, times, ">i8")
        self._put(rows, 56, times, ">i8")
        rows[:, self._topic] = ord("0") + numbers % TOPICS
        digits = numbers[:, None] >> (4 * np.arange(15, -1, -1)) & 15
        rows[:, self._key + 16 : self._key + 32] = np.where(digits < 10, 48 + digits, 55 + digits)
        return rows

    @staticmethod
    def _put(rows: Array, place: int, values: Array, kind: str) -> None:
        wide = np.dtype(kind).itemsize
        rows[:, place : place + wide] = values.astype(kind).view(np.uint8).reshape(-1, wide)

    def chunks(self, first: int, count: int, offset: int) -> Iterator[Array]:
        """Many records, some at a time."""
        for number in range(0, count, _CHUNK):
            some = min(_CHUNK, count - number)
            yield self.make(first + number, some, offset + self.size * number)


@cache
def _text() -> bytes:
    rng = np.random.default_rng(SEED)
    lines = bytearray()
    ids, cents = rng.integers(0, 1 << 40, (2, _POOL // 128)).tolist()
    for one, other in zip(ids, cents, strict=True):
        lines += b'{"order":%d,"customer":"c-%07d","amount":%d.%02d,"state":"paid"}' % (
            one,
            other % 10_000_000,
            other % 9973,
            one % 100,
        )
        lines += rng.bytes(64)
        if len(lines) >= _POOL:
            break
    return bytes(lines)


def make(
    root: Path, total: int, *, file_size: int = FILE_SIZE, name: str = "bench", first: int = 0
) -> Made:
    """Make a store, and publish all of it.

    @param total: Bytes of log, at most.
    @param first: The number of its first record; logs that begin with the same one are the same.
    """
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    maker = Maker()
    number, offset = first, 0
    while True:
        start = offset
        room = (file_size - len(blank(8))) // maker.size
        count = min(room, (total - offset) // maker.size)
        with open(folder / file_name(start), "wb") as file:
            for rows in maker.chunks(number, count, start):
                file.write(rows.data)
            number, offset = number + count, start + count * maker.size
            if count == room:
                file.write(blank(start + file_size - offset))
            file.truncate(file_size)
        if count < room:
            break
        offset = start + file_size
    publish(root, offset, name)
    return Made(root, offset, number - first)


def publish(root: Path, end: int, name: str = "bench") -> None:
    """Say that a log is final up to an end, as a node does."""
    point = Point(confirm=end, durable=end, min_offset=0, broker_name=name, generation="bench")
    folder = root / OWN_FOLDER
    folder.mkdir(exist_ok=True)
    new = folder / f"{POINT}.tmp"
    new.write_bytes(render_point(point))
    new.replace(folder / POINT)
