"""
Where two implementations meet: whatever can be read like a commit log.
"""

from __future__ import annotations

from collections.abc import Iterator

from zope.interface import Attribute, Interface


class ILogReader(Interface):
    """
    The reading face of a commit log: the live one, one read from disk, one in memory.

    Physical offsets are bytes from the log's very first byte; they are never
    renumbered when old files are deleted.
    """

    file_size: int = Attribute("Size of every file of the log, in bytes.")
    min_offset: int = Attribute("Physical offset of the first byte still held.")
    end: int = Attribute("Physical offset just past the last byte accepted.")
    confirmed: int = Attribute(
        "Physical offset just past the last whole, verified record or blank; never above L{end}."
    )

    def read(offset: int, size: int) -> memoryview:
        """
        Give bytes of the log, without copying where that is possible.

        @param offset: Where to start, physical.
        @param size: The most bytes wanted.
        @return: At most C{size} bytes: cut at the end of the file that holds
            C{offset} and at L{end}, so it is empty when C{offset} is L{end}.
        @raise ValueError: C{offset} is outside C{min_offset..end}.
        """

    def file_end(offset: int) -> int:
        """
        Tell where the file that holds C{offset} ends, as a physical offset.
        """


class ISparseLog(ILogReader):
    """
    A log whose files say where they may hold something, valid or not.
    """

    def extents(offset: int) -> Iterator[tuple[int, int]]:
        """
        Give the physical ranges from C{offset} on outside which there are only zeros,
        ascending; none crosses the end of a file.
        """
