"""Records of a log that were damaged on the master already when they were copied from it.

A replica's log has the master's bytes, so such a record is right where it stands, though its body
is not what its CRC says.  Who checks the log has to know: recovery would cut it there, and with
it everything behind.  Each record is kept with a CRC-32 of all its bytes, so that only just those
are passed (C{rmqha/copied-damage.json}).

Source: docs/states.rst, Damaged records from the master.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any, Protocol, Self

from attrs import asdict, define, field, frozen
from isal.isal_zlib import crc32

from rmqha.wire.log.record import Fault

MOST = 1000
"""Records that are passed in one log; a master with more has a broken disk."""

SHOWN = 10
"""Most records that C{/status} tells one by one."""


@frozen(kw_only=True)
class CopiedRecord:
    """A corruption that is let pass, as the master has it: all its bytes are known by their CRC.

    @ivar offset: Physical offset.
    @ivar size: Its size, in bytes.
    @ivar reason: Which check it does not pass.
    @ivar master: Where it came from.
    """

    offset: Annotated[int, range(1 << 63)]
    size: Annotated[int, range(1 << 31)]
    crc: Annotated[int, range(1 << 32)]
    reason: str
    master: str


class Readable(Protocol):
    """A log whose records are looked at."""

    @property
    def end(self) -> int:
        """Physical offset just past its last byte."""

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of one file."""


@define(eq=False)
class CopiedDamage:
    """Those of one log."""

    _records: dict[int, CopiedRecord] = field(factory=dict)

    @classmethod
    def of(cls, records: Iterable[CopiedRecord]) -> Self:
        """All that are known."""
        return cls({record.offset: record for record in records})

    def as_table(self) -> dict[str | int, Any]:
        return {"records": [asdict(record) for record in self]}

    def __iter__(self) -> Iterator[CopiedRecord]:
        # A copy first: a thread may write the table down while another record comes.
        records = [*self._records.values()]
        return iter(sorted(records, key=lambda record: record.offset))

    def __len__(self) -> int:
        return len(self._records)

    def add(self, record: CopiedRecord) -> None:
        """Let a record pass from now on."""
        self._records[record.offset] = record

    def forget(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Some bytes were written anew: records that have any of them are others now.

        @return: Whether there was one.
        """
        gone = [
            record.offset
            for record in self
            if any(
                record.offset < stop and start < record.offset + record.size
                for start, stop in ranges
            )
        ]
        for offset in gone:
            del self._records[offset]
        return bool(gone)

    def keep_within(self, start: int, stop: int) -> bool:
        """The log holds C{[start, stop)} now.

        @return: Whether a record has gone.
        """
        gone = [record.offset for record in self if not start <= record.offset < stop]
        for offset in gone:
            del self._records[offset]
        return bool(gone)

    def size_at(self, log: Readable, offset: int, fault: Fault | None) -> int:
        """How long the damaged record at a place is, if it is one of these; 0 if it is not.

        @param fault: Which check failed there: with another one the chain would be broken.
        """
        record = self._records.get(offset) if fault is Fault.CRC else None
        if record is None or offset + record.size > log.end:
            return 0
        data = log.read(offset, record.size)
        return record.size if len(data) == record.size and crc32(data) == record.crc else 0

    def status(self) -> dict[str, Any]:
        """C{faultsFromMaster} of C{/status}."""
        rows = [asdict(record) for record in list(self)[:SHOWN]]
        for row in rows:
            del row["crc"]
        return {"count": len(self), "records": rows}


def crc_of(data: memoryview) -> int:
    """What tells one damaged record from another: CRC-32 of all its bytes."""
    return crc32(data)
