"""What a node publishes beside its log for readers: how far it may be read, where it was cut
back, and where records begin.

The point is one small JSON object that is always replaced whole.  The split index is a row
of spans of equal form that is only ever appended to, or cut; each proves itself by a CRC.

Source: docs/protocol/store.rst, The published point and The split index.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from struct import Struct
from typing import Any, TypeVar

from attrs import asdict, evolve, frozen
from isal.isal_zlib import crc32

from rmqha.errors import PointInvalid
from rmqha.wire.log.log_identity import LogIdentity

T = TypeVar("T")

VERSION = 1
"""The version of the layout, which a reader must know."""

TAIL = 4096
"""Bytes before the end of a closed log that L{Point.tail} is of; all of it if it has fewer."""

MOST_CUTS = 1000
"""Cuts that are remembered; the oldest go."""

SPAN = 16 << 20
"""Bytes of log after which a span ends, at the next record; it ends at a file's end too."""


class CutReason(StrEnum):
    """Why bytes that readers may have seen are gone."""

    CUT = "cut"
    COPY = "copy"
    """The whole log was put aside, and a new copy of the master's begun: its bytes may be
    the same."""


@frozen
class Cut:
    """The log was cut back below what had been published.

    @ivar at: To which physical offset.
    @ivar time: When, in milliseconds since 1970.
    @ivar why: For which reason.
    """

    at: int
    time: int
    why: CutReason = CutReason.CUT


@frozen(kw_only=True)
class Point:
    """What is published.

    @ivar confirm: Physical offset below which the log is final, as far as this node can
        know: on its disk, and acknowledged where writes wait for replicas.  A record's end.
    @ivar durable: The same without the replicas.  A record's end, at least L{confirm}.
    @ivar min_offset: Physical offset of the first byte that is kept.
    @ivar cluster: C{brokerClusterName}, C{""} if unknown.
    @ivar first: Where a record began that was the log's first, a physical offset; -1 if unknown.
    @ivar sum: That record's fingerprint.
    @ivar generation: Changes when the log is copied anew.
    @ivar closed: Whether the node stopped cleanly afterwards, with its log ending at
        L{durable}.
    @ivar tail: CRC-32 of the last 4 KiB before L{durable}, when closed.
    @ivar cuts: Oldest first.
    @ivar time: When it was written, in milliseconds since 1970.
    """

    confirm: int
    durable: int
    min_offset: int
    broker_name: str
    generation: str
    cluster: str = ""
    first: int = -1
    sum: str = ""
    closed: bool = False
    tail: int | None = None
    cuts: tuple[Cut, ...] = ()
    time: int = 0

    @property
    def identity(self) -> LogIdentity:
        return LogIdentity(
            cluster=self.cluster, broker=self.broker_name, first=self.first, sum=self.sum
        )

    def reaches_above(self, at: int) -> bool:
        """Whether something published is gone when the log is cut back so far."""
        return at < max(self.confirm, self.durable)

    def cut_at(self, at: int, time: int, why: CutReason = CutReason.CUT) -> Point:
        """The point after the log was cut back."""
        known = self if at > self.first else evolve(self, first=-1, sum="")
        return evolve(
            known,
            confirm=min(self.confirm, at),
            durable=min(self.durable, at),
            min_offset=min(self.min_offset, at),
            closed=False,
            tail=None,
            cuts=(*self.cuts, Cut(at, time, why))[-MOST_CUTS:],
            time=time,
        )


def render_point(point: Point) -> bytes:
    """The file of a point."""
    return json.dumps({"version": VERSION, **asdict(point)}, indent=1).encode() + b"\n"


_KINDS: dict[str, type] = {
    **dict.fromkeys(("confirm", "durable", "min_offset", "time"), int),
    **dict.fromkeys(("broker_name", "generation", "cluster", "sum"), str),
    "closed": bool,
}
"""What stands in each point."""


def parse_point(raw: bytes) -> Point:
    """Read the file of a point.

    @raise PointInvalid: If it is none.
    """
    try:
        table = {"cluster": "", "sum": "", **json.loads(raw)}
        if table["version"] != VERSION:
            raise PointInvalid(f"version {table['version']}, expected {VERSION}")
        point = Point(
            **{name: _value(table, name, kind) for name, kind in _KINDS.items()},
            first=_value(table, "first", int) if table["sum"] else -1,
            tail=None if table["tail"] is None else _value(table, "tail", int),
            cuts=tuple(
                Cut(_value(cut, "at", int), _value(cut, "time", int), CutReason(cut["why"]))
                for cut in table["cuts"]
            ),
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise PointInvalid(f"{type(error).__name__}: {error}") from error
    if point.confirm > point.durable:
        raise PointInvalid(f"confirm {point.confirm} is above durable {point.durable}")
    return point


def _value(table: dict[str, Any], key: str, kind: type[T]) -> T:
    value = table[key]
    if type(value) is not kind or (kind is int and value not in range(1 << 63)):
        raise ValueError(f"{key} is {value!r}, not {'an offset' if kind is int else kind.__name__}")
    return value


# --- the split index ------------------------------------------------------------


@frozen
class Span:
    """A run of whole records in one log file.

    @ivar start: Physical offset of its first record.
    @ivar end: Just past its last, or past the blank that ends the file.
    @ivar ordinal: How many records lie in the spans before it.
    @ivar count: How many it has.
    @ivar earliest: The least of their store times, in milliseconds since 1970.
    @ivar latest: The greatest; below L{earliest} if it has no record.
    """

    start: int
    end: int
    ordinal: int
    count: int
    earliest: int
    latest: int


_SPAN = Struct(">qqqqqq")
_CRC = Struct(">I")

SPAN_SIZE = _SPAN.size + _CRC.size


def render_span(span: Span) -> bytes:
    """A span as it stands in the file."""
    raw = _SPAN.pack(span.start, span.end, span.ordinal, span.count, span.earliest, span.latest)
    return raw + _CRC.pack(crc32(raw))


def render_spans(spans: Iterable[Span]) -> bytes:
    """Render a whole split index, ready to be written."""
    return b"".join(map(render_span, spans))


def parse_spans(raw: bytes | memoryview) -> list[Span]:
    """Read a split index as far as it is whole and its spans follow each other."""
    spans: list[Span] = []
    for place in range(0, len(raw) - SPAN_SIZE + 1, SPAN_SIZE):
        part = raw[place : place + _SPAN.size]
        span = Span(*_SPAN.unpack(part))
        (crc,) = _CRC.unpack_from(raw, place + _SPAN.size)
        if crc != crc32(part) or not 0 <= span.start < span.end:
            break
        if spans and (span.start, span.ordinal) != (
            spans[-1].end,
            spans[-1].ordinal + spans[-1].count,
        ):
            break
        spans.append(span)
    return spans
