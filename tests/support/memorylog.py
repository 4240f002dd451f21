"""A commit log in memory, and records to put into it.

The records are packed here from the field list of docs/protocol/store.rst, not by the
code under test.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

from attrs import define, field

_MAGIC = 0xDAA320A7
_BLANK_MAGIC = 0xCBD43194
_FIXED = struct.Struct(">iIiiiqqiq4siq4siiq")


def record(
    offset: int,
    topic: str,
    queue_id: int = 0,
    queue_offset: int = 0,
    *,
    body: bytes = b"x",
    properties: Mapping[str, str] | None = None,
    sys_flag: int = 0,
    store_timestamp: int = 1_700_000_000_000,
) -> bytes:
    """One record of version 1 with IPv4 hosts, for a physical offset."""
    text = "".join(f"{k}\x01{v}\x02" for k, v in (properties or {}).items()).encode()
    name = topic.encode()
    host = bytes((127, 0, 0, 1))
    size = 91 + len(body) + len(name) + len(text)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    head = _FIXED.pack(
        size,
        _MAGIC,
        crc,
        queue_id,
        0,
        queue_offset,
        offset,
        sys_flag,
        store_timestamp,
        host,
        40000,
        store_timestamp,
        host,
        10911,
        0,
        0,
    )
    strings = [struct.pack(">i", len(body)), body, bytes((len(name),)), name]
    return head + b"".join((*strings, struct.pack(">h", len(text)), text))


@define(eq=False)
class MemoryLog:
    """A log whose bytes are one buffer; unless a test lowers it, all is confirmed at once."""

    file_size: int = 1 << 16
    min_offset: int = 0
    data: bytearray = field(factory=bytearray)
    confirmed: int = field(init=False)
    next_offsets: dict[tuple[str, int], int] = field(init=False, factory=dict)
    starts: list[int] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.confirmed = self.end

    @classmethod
    def of_store(cls, store: Path, end: int, file_size: int) -> MemoryLog:
        """Read the log files of a store, up to its known end."""
        paths = sorted((store / "commitlog").iterdir())
        first = int(paths[0].name)
        data = bytearray().join(path.read_bytes() for path in paths)
        return cls(file_size, first, data[: end - first])

    @property
    def end(self) -> int:
        return self.min_offset + len(self.data)

    def read(self, offset: int, size: int) -> memoryview:
        if not self.min_offset <= offset <= self.end:
            raise ValueError(offset)
        stop = min(offset + size, self.end, self.file_end(offset))
        # A copy: a view would forbid the buffer to grow.
        return memoryview(bytes(self.data[offset - self.min_offset : stop - self.min_offset]))

    def file_end(self, offset: int) -> int:
        return offset - offset % self.file_size + self.file_size

    def put(
        self,
        topic: str,
        queue_id: int = 0,
        queue_offset: int | None = None,
        *,
        body: bytes = b"x",
        properties: Mapping[str, str] | None = None,
        sys_flag: int = 0,
        store_timestamp: int = 1_700_000_000_000,
    ) -> int:
        """Append a record, after a blank if the file is too full; where it begins."""
        name = topic, queue_id
        if queue_offset is None:
            queue_offset = self.next_offsets.get(name, 0)
        if sys_flag & 0xC in (0, 8):
            self.next_offsets[name] = queue_offset + 1

        def packed() -> bytes:
            return record(
                self.end,
                topic,
                queue_id,
                queue_offset,
                body=body,
                properties=properties,
                sys_flag=sys_flag,
                store_timestamp=store_timestamp,
            )

        left = self.file_end(self.end) - self.end
        if len(packed()) + 8 > left:
            self.data += struct.pack(">iI", left, _BLANK_MAGIC) + bytes(left - 8)
        start = self.end
        self.data += packed()
        self.starts.append(start)
        self.confirmed = self.end
        return start

    def cut(self, offset: int) -> None:
        """Shorten the log to a physical offset."""
        del self.data[offset - self.min_offset :]
        self.starts = [start for start in self.starts if start < offset]
        self.confirmed = self.end
