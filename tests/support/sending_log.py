"""A log in memory, as the sending side of replication sees one."""

from __future__ import annotations

from collections.abc import Callable


class MemoryLog:
    """A log of whatever bytes a test puts into it, in files that exist once they are touched."""

    def __init__(self, end: int = 0, min_offset: int = 0, file_size: int = 1 << 20) -> None:
        self.file_size = file_size
        self.min_offset = min_offset
        self.end = self.confirmed = self.flushed = end
        self.appended: list[Callable[[], None]] = []
        self.flush_listeners: list[Callable[[], None]] = []
        self._files: dict[int, bytearray] = {}

    def file_end(self, offset: int) -> int:
        """Where the file that holds C{offset} ends."""
        return offset - offset % self.file_size + self.file_size

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes, cut at the file's end and the log's."""
        if not self.min_offset <= offset <= self.end:
            raise ValueError(f"byte {offset} is outside [{self.min_offset}, {self.end}]")
        stop = min(offset + size, self.end, self.file_end(offset))
        start = offset - offset % self.file_size
        return memoryview(self._file(start))[offset - start : stop - start].toreadonly()

    def put(self, data: bytes) -> tuple[int, int]:
        """Append bytes and tell the listeners, and return where they begin and end."""
        begin = self.end
        view = memoryview(data)
        while view:
            start = self.end - self.end % self.file_size
            room = memoryview(self._file(start))[self.end - start :]
            part, view = view[: len(room)], view[len(room) :]
            room[: len(part)] = part
            self.end += len(part)
        self.confirmed = self.end
        for listener in list(self.appended):
            listener()
        return begin, self.end

    def flush(self) -> None:
        """All there is survives a power cut."""
        self.flushed = self.end
        for listener in list(self.flush_listeners):
            listener()

    def content(self, start: int, end: int) -> bytes:
        """A copy of the bytes of a range."""
        parts = []
        while start < end:
            parts.append(bytes(self.read(start, end - start)))
            start += len(parts[-1])
        return b"".join(parts)

    def _file(self, start: int) -> bytearray:
        if start not in self._files:
            self._files[start] = bytearray(self.file_size)
        return self._files[start]
