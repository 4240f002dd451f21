"""Which contents of a table are known, and what follows where a file's is not.

A table in C{config} is written and read by stock brokers too, so no checksum can stand in it.  The
checksums lie in a file of our own, which is written B{before} a table and then names the
generation that is about to be written besides the one that is there: whenever a crash comes, each
of the two is known.

Source: docs/protocol/store.rst, Checksums of tables.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from attrs import frozen

from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import Table

MOST = 4
"""Most generations of a C{.bak} that are kept in mind: more than two there are only after writes
that failed."""

_CRC, _TABLES = "crc", "tables"
_PRESENT, _BEFORE = "present", "before"

_VERSION = "dataVersion"
"""The member in which a table has its version."""


@frozen(kw_only=True)
class Fingerprint:
    """What tells one generation of a table from another.

    @ivar size: Bytes of the file.
    @ivar version: The counter of the table's data version; C{None} if it has none.
    @ivar journal: From which file of the offset journal on changes follow this generation; C{None}
        for a table without a journal.
    """

    size: int
    crc: int
    version: int | None = None
    journal: int | None = None

    @classmethod
    def of(cls, data: bytes, table: Table | None, journal: int | None = None) -> Self:
        """Of a file's content, and what it means."""
        version = (table or {}).get(_VERSION)
        counter = version.get("counter") if isinstance(version, dict) else None
        return cls(
            size=len(data),
            crc=zlib.crc32(data),
            version=counter if type(counter) is int else None,
            journal=journal,
        )

    def fits(self, data: bytes) -> bool:
        """Whether a file's content is this generation."""
        return len(data) == self.size and zlib.crc32(data) == self.crc

    def __str__(self) -> str:
        version = "" if self.version is None else f", version {self.version}"
        return f"{self.size} bytes with CRC {self.crc:08x}{version}"

    def as_table(self) -> Table:
        row: Table = {"size": self.size, "crc": self.crc}
        more = {"version": self.version, "journal": self.journal}
        return row | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def read(cls, row: Any) -> Self:
        """Read what L{as_table} wrote.

        @raise ValueError: If it is something else.
        """
        names = {"size", "crc", "version", "journal"}
        sound = isinstance(row, dict) and {"size", "crc"} <= row.keys() <= names
        if not sound or any(type(value) is not int for value in row.values()):
            raise ValueError(f"no checksum of a table: {row!r:.100}")
        return cls(**row)


@frozen
class Known:
    """The generations of one table that are right where they are.

    @ivar present: What the table's own file may hold, newest first: one generation, and one more
        while a newer is being written.
    @ivar before: The same of its C{.bak}.
    """

    present: tuple[Fingerprint, ...] = ()
    before: tuple[Fingerprint, ...] = ()

    def writing(self, new: Fingerprint) -> Known:
        """A generation is about to be written."""
        return Known((new, *self.present), (*self.present, *self.before)[:MOST])

    def written(self, *, whole: bool = True) -> Known:
        """The generation that was about to be written is there.

        @param whole: Whether what was there before surely is the C{.bak}.
        """
        return Known(self.present[:1], self.present[1:] if whole else self.before)

    @property
    def journal(self) -> int | None:
        """The oldest file of the journal that any generation needs."""
        numbers = [each.journal for each in (*self.present, *self.before) if each.journal]
        return min(numbers, default=None)


def text_of(tables: Mapping[str, Known]) -> Table:
    """The file of checksums, with one of its own."""
    rows: Table = {name: _row(tables[name]) for name in sorted(tables)}
    return {_CRC: zlib.crc32(json_table.render(rows)), _TABLES: rows}


def _row(known: Known) -> Table:
    return {
        _PRESENT: [each.as_table() for each in known.present],
        _BEFORE: [each.as_table() for each in known.before],
    }


def load(path: Path) -> dict[str, Known]:
    """Read the file of checksums; there may be none.

    @raise FileUnreadable: If the system does not let it be read.
    @raise ValueError: If they are not what was written.
    """
    data = json_table.read_file(path)
    if data is None:
        return {}
    whole = json_table.parse(data)
    rows = (whole or {}).get(_TABLES)
    if not isinstance(rows, dict) or (whole or {}).get(_CRC) != zlib.crc32(json_table.render(rows)):
        raise ValueError("their own checksum is wrong")
    found = {}
    for name, row in rows.items():
        if not isinstance(row, dict) or not row.keys() >= {_PRESENT, _BEFORE}:
            raise ValueError(f"no checksums of {name}")
        present, before = (
            tuple(Fingerprint.read(each) for each in row[part]) for part in (_PRESENT, _BEFORE)
        )
        found[str(name)] = Known(present, before)
    return found
