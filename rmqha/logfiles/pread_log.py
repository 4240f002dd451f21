"""A log of several files read by C{pread} into one buffer, as it is at one moment.

A map would kill the process when somebody cuts the log under it; what is read so at worst
is not there.  What a short file lacks reads as zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from attrs import define, field

from rmqha.logfiles.blocks.open_file import OpenLogFile
from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.log_files import LogFiles


@define(eq=False)
class PreadLog:
    """All bytes of a log's files, valid or not.  To be used in a C{with}, which closes the file
    that was read last.
    """

    files: LogFiles
    _file: LogFile | None = field(default=None, init=False)
    _read: OpenLogFile | None = field(default=None, init=False)
    _buffer: bytearray = field(factory=bytearray, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._read is not None:
            self._read.close()
        self._read, self._file = None, None

    @property
    def file_size(self) -> int:
        return max((file.end - file.start for file in self.files.files), default=0)

    @property
    def min_offset(self) -> int:
        """Physical offset of the first byte there is."""
        return self.files.first

    @property
    def end(self) -> int:
        """Physical offset of the end of the last file."""
        return self.files.limit

    @property
    def confirmed(self) -> int:
        """The same: nothing was checked."""
        return self.end

    def file_end(self, offset: int) -> int:
        """Physical offset of the end of the file that holds C{offset}."""
        return self._at(offset).end

    def extents(self, offset: int) -> Iterator[tuple[int, int]]:
        """Physical ranges from C{offset} on that may hold something, file by file.

        @raise FileNotFoundError: If a file was deleted before it was opened.
        """
        for file, low, _ in self.files.pieces(offset, self.end):
            read = self._open(file)
            for start, stop in read.extents(low - file.start, read.size):
                yield start + file.start, stop + file.start

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of one file, valid until the next call.

        @raise ValueError: If no file holds C{offset}.
        @raise FileNotFoundError: If the file was deleted before it was opened.
        """
        file = self._at(offset)
        read = self._open(file)
        size = min(size, file.end - offset)
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        count = 0
        while count < size:
            more = read.read_into(view[count:], offset - file.start + count)
            if not more:
                view[count:] = bytes(size - count)
                break
            count += more
        return view

    def _open(self, file: LogFile) -> OpenLogFile:
        if self._read is None or self._file is not file:
            read = file.open()
            self._close()
            self._read, self._file = read, file
        return self._read

    def _at(self, offset: int) -> LogFile:
        file = self.files.at(offset)
        if file is None:
            raise ValueError(f"byte {offset} is in no file of {self.files.root}")
        return file
