"""What a file of a log in a tier must be, as it was when it was put there.

It is written last: what has none is not in the tier.  Its name has the file's range, so that one
listing tells what there is.

Source: docs/guide/tier.rst, What is in a tier.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Self

from attrs import frozen
from isal.isal_zlib import crc32

from rmqha.logfiles.listing import file_name
from rmqha.logfiles.published import Split
from rmqha.logfiles.typed_table import Long, Natural, require_version, value_of
from rmqha.tier.errors import TierManifestInvalid
from rmqha.wire.store_layout import COMMITLOG

VERSION = 1

BLOCK = 256 << 10
"""Bytes that a checksum is of, and the fewest that are read: a plan looks at a record's head every
64 MiB, so that this is 0.4 % of the log."""

MANIFESTS = "manifests"
"""The folder of manifests in a tier; the files are in C{commitlog}."""

_NAME = re.compile(r"(\d{20})-(\d{20})\.json", re.ASCII)


def object_name(start: int) -> str:
    """The name of the file that begins at a physical offset."""
    return f"{COMMITLOG}/{file_name(start)}"


def manifest_name(start: int, end: int) -> str:
    """The name of its manifest."""
    return f"{MANIFESTS}/{file_name(start)}-{file_name(end)}.json"


def range_of(name: str) -> tuple[int, int] | None:
    """The range that a manifest's name tells, C{None} if it is none."""
    found = _NAME.fullmatch(Path(name).name)
    return None if found is None else (int(found[1]), int(found[2]))


def sums_of(data: memoryview, block: int) -> list[int]:
    """The CRC-32 of each block of some bytes; the last one may be shorter."""
    return [crc32(data[place : place + block]) for place in range(0, len(data), block)]


@frozen
class Before:
    """The file before one, as its manifest was when the other one was written: so manifests are a
    chain, and one of another log does not fit in.

    @ivar start: Where it begins, a physical offset.
    @ivar crc: CRC-32 of its checksums.
    """

    start: int
    crc: int


@frozen(kw_only=True)
class FileManifest:
    """One of them.

    @ivar start: Physical offset of the file's first byte.
    @ivar end: Just past its last.
    @ivar block: Bytes that a checksum is of.
    @ivar sums: CRC-32 of each block.
    @ivar splits: Places where a record begins, as the store's split index had them.
    @ivar broker: C{brokerName} of the store's node, C{""} if it does not say.
    @ivar uploaded: When, in milliseconds since 1970.
    @ivar before: The file before it, C{None} if that was not in the tier.
    """

    start: int
    end: int
    block: int
    sums: tuple[int, ...]
    splits: tuple[Split, ...]
    broker: str
    uploaded: int
    before: Before | None = None

    @property
    def crc(self) -> int:
        """CRC-32 of its checksums."""
        return crc32(self._sums)

    @property
    def _sums(self) -> bytes:
        return b"".join(each.to_bytes(4, "big") for each in self.sums)

    @property
    def size(self) -> int:
        return self.end - self.start

    def render(self) -> bytes:
        table = {
            "version": VERSION,
            "firstOffset": self.start,
            "lastOffset": self.end,
            "brokerName": self.broker,
            "uploaded": self.uploaded,
            "blockSize": self.block,
            "crc32": self._sums.hex(),
            "before": None if self.before is None else [self.before.start, self.before.crc],
            "splits": [[split.start, split.end, split.latest] for split in self.splits],
        }
        return json.dumps(table).encode() + b"\n"

    @classmethod
    def parse(cls, raw: bytes, shown: str) -> Self:
        """Read one.

        @param shown: Where it is, for people.
        @raise TierManifestInvalid: If it is none, or of another file than its name says.
        """
        try:
            made = cls._of(json.loads(raw))
        except (ValueError, RecursionError) as error:
            raise TierManifestInvalid(shown, str(error)) from error
        if range_of(shown) != (made.start, made.end):
            raise TierManifestInvalid(shown, f"it is of bytes {made.start} to {made.end}")
        return made

    @classmethod
    def _of(cls, table: dict[str, Any]) -> Self:
        require_version(table, VERSION)
        raw = bytes.fromhex(value_of(table, "crc32", str))
        splits = value_of(table, "splits", tuple[tuple[Natural, Natural, Long], ...])
        known = {"before": None, **table}
        before = value_of(known, "before", tuple[Natural, Natural] | None)
        made = cls(
            start=value_of(table, "firstOffset", Natural),
            end=value_of(table, "lastOffset", Natural),
            block=value_of(table, "blockSize", Natural),
            uploaded=value_of(table, "uploaded", Natural),
            sums=tuple(int.from_bytes(raw[row : row + 4], "big") for row in range(0, len(raw), 4)),
            splits=tuple(Split(*each) for each in splits),
            broker=value_of(table, "brokerName", str),
            before=Before(*before) if before else None,
        )
        if made.block < 1 or len(made.sums) != -(-made.size // made.block):
            raise ValueError(
                f"{len(made.sums)} checksums of {made.block} bytes for {made.size} bytes"
            )
        return made
