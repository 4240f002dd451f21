"""A log's file that lies in a tier: read by ranges, each block of which is checked.

What is in an object store can be replaced by anybody who may write there.  So the object's size
and every byte that is read is compared with what its manifest says, and what differs is damage
with its name and place, never a row.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from attrs import define, field, frozen

from rmqha.logfiles.blocks.open_file import OpenLogFile
from rmqha.logfiles.listing import FoundFile
from rmqha.tier.errors import TierBytesChanged, TierObjectSize, TierOfAnotherLog
from rmqha.tier.identity import identities
from rmqha.tier.manifest import (
    MANIFESTS,
    FileManifest,
    manifest_name,
    object_name,
    range_of,
    sums_of,
)
from rmqha.tier.objects import ObjectFolder, shown_url

AT_ONCE = 8 << 20
"""Most bytes of one request: as many as readers of a log ask for at once."""


@frozen
class TieredFile(FoundFile):
    """A file of a log in a tier.  Nothing is at C{path} on this machine.

    @ivar tier: The tier's URL.
    """

    tier: str

    @classmethod
    def of(cls, tier: str, start: int, end: int) -> Self:
        where = ObjectFolder.at(tier).shown(object_name(start))
        return cls(Path(where), start, end, 0, end - start, tier)

    @property
    def where(self) -> str:
        return ObjectFolder.at(self.tier).shown(object_name(self.start))

    @property
    def manifest(self) -> FileManifest:
        """What the file must be.

        @raise FileNotFoundError: If it was removed from the tier.
        @raise TierOfAnotherLog: If it is of another broker than the tier, or does not follow on
            the one before it.
        @raise TierError: If it cannot be read.
        """
        return _manifest(self.tier, self.start, self.end, os.getpid())

    def open(self) -> OpenLogFile:
        """Open it to be read.

        @raise FileNotFoundError: If it was removed from the tier, and its manifest first.
        @raise TierObjectSize: If it was cut, replaced or removed.
        @raise TierError: If it cannot be had.
        """
        folder, name = ObjectFolder.at(self.tier), object_name(self.start)
        manifest = self.manifest
        try:
            file = folder.open(name)
        except FileNotFoundError as error:
            if folder.size(manifest_name(self.start, self.end)) < 0:
                raise
            raise TierObjectSize(folder.shown(name), -1, manifest.size) from error
        size = file.size()
        if size != manifest.size:
            file.close()
            raise TierObjectSize(folder.shown(name), size, manifest.size)
        return OpenTieredFile(folder, manifest, file)


@lru_cache(maxsize=4096)
def _manifest(tier: str, start: int, end: int, process: int) -> FileManifest:
    """One that fits in with the others."""
    made = _read(tier, start, end, process)
    where = ObjectFolder.at(tier).shown(manifest_name(start, end))
    whose = _broker(tier, process)
    if made.broker and whose and made.broker != whose:
        raise TierOfAnotherLog(
            where, shown_url(tier), start, f"it is of broker {made.broker}", f"the tier of {whose}"
        )
    if made.before is not None:
        name = manifest_name(made.before.start, start)
        try:
            before = _read(tier, made.before.start, start, process)
        except FileNotFoundError:
            return made  # taken off the tier since
        if before.crc != made.before.crc:
            raise TierOfAnotherLog(
                where,
                ObjectFolder.at(tier).shown(name),
                start,
                f"it follows a file with checksum {made.before.crc:08x}",
                f"the one before it has {before.crc:08x}",
            )
    return made


@lru_cache(maxsize=4096)
def _read(tier: str, start: int, end: int, process: int) -> FileManifest:
    folder, name = ObjectFolder.at(tier), manifest_name(start, end)
    return FileManifest.parse(folder.read(name), folder.shown(name))


@lru_cache(maxsize=256)
def _broker(tier: str, process: int) -> str:
    """Of which broker a tier is, as it says; if it does not, as the manifest of its last file."""
    folder = ObjectFolder.at(tier)
    names = [each.log.broker for each in identities(folder)]
    ranges = [found for name in folder.names(MANIFESTS) if (found := range_of(name)) is not None]
    if not any(names) and ranges:
        names = [_read(tier, *ranges[-1], process).broker]
    return next(filter(None, names), "")


def forget_manifests() -> None:
    """Read again what manifests say."""
    for each in (_manifest, _read, _broker):
        each.cache_clear()


@define(eq=False)
class OpenTieredFile:
    """One that is open."""

    _folder: ObjectFolder
    _manifest: FileManifest
    _file: Any
    _start: int = field(default=0, init=False)
    _held: memoryview = field(default=memoryview(b""), init=False)

    @property
    def size(self) -> int:
        return self._manifest.size

    def read_into(self, buffer: memoryview, place: int) -> int:
        """Read bytes that were checked; fewer than there is room for where others must be fetched.

        @raise TierBytesChanged: If a block of them is not as it was uploaded.
        @raise TierObjectSize: If the object ends before its end.
        @raise TierUnreachable: If they cannot be had.
        """
        if place >= self.size or not len(buffer):
            return 0
        if not self._start <= place < self._start + len(self._held):
            self._fetch(place, place + min(len(buffer), AT_ONCE))
        found = self._held[place - self._start :][: len(buffer)]
        buffer[: len(found)] = found
        return len(found)

    def _fetch(self, place: int, stop: int) -> None:
        """Hold the blocks that have bytes of C{[place, stop)}."""
        block = self._manifest.block
        start = place - place % block
        end = min(self.size, -(-stop // block) * block)
        name = object_name(self._manifest.start)
        data = self._folder.read_at(name, self._file, start, end - start)
        if len(data) < end - start:
            raise TierObjectSize(self._folder.shown(name), start + len(data), self._manifest.size)
        check(self._manifest, start, data, self._folder.shown(name))
        self._start, self._held = start, data

    def extents(self, start: int, end: int) -> list[tuple[int, int]]:
        """All of it: an object has no holes."""
        return [(start, min(end, self.size))] if start < min(end, self.size) else []

    def close(self) -> None:
        self._file.close()


def check(manifest: FileManifest, start: int, data: memoryview, shown: str) -> None:
    """Compare bytes of a file with its manifest.

    @param start: Where in the file they begin, at a block's begin.
    @param shown: The object, for people.
    @raise TierBytesChanged: If they are others.
    """
    block, first = manifest.block, start // manifest.block
    for row, found in enumerate(sums_of(data, block), first):
        expected = manifest.sums[row]
        if found != expected:
            low = manifest.start + row * block
            high = min(low + block, manifest.end)
            raise TierBytesChanged(shown, low, high, found, expected)
