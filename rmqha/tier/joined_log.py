"""A store's files and those of its tier as one log.

This is the one place where the two meet: what reads a log asks here which files there are, and
each file knows how it is opened.  What the store still has is read there; the tier has what
retention deleted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from logging import getLogger
from pathlib import Path
from typing import TypeVar

from attrs import evolve, frozen
from isal.isal_zlib import crc32

from rmqha.logfiles.blocks.open_file import read_at
from rmqha.logfiles.listing import LogFile, likely_size
from rmqha.logfiles.log_files import LogFiles, opened_log
from rmqha.logfiles.log_writer import LogWriter
from rmqha.logfiles.published import Split, identity_of, read_point
from rmqha.logfiles.raw_log import RawLog
from rmqha.tier.errors import TierMissing, TierOfAnotherLog
from rmqha.tier.identity import TierIdentity, identities, require_all
from rmqha.tier.manifest import MANIFESTS, FileManifest, range_of
from rmqha.tier.objects import ObjectFolder, shown_url
from rmqha.tier.tiered_file import TieredFile
from rmqha.wire.log.log_identity import LogIdentity

_log = getLogger(__name__)

LISTED_FOR = 10.0
"""Seconds for which a listing of a tier is good: a stream may look many times a second, and a
file stays in its store for hours after it was uploaded."""


def list_tier(url: str) -> tuple[TieredFile, ...]:
    """The files of a tier, by their manifests, in the order of the log.

    @raise TierError: If the tier cannot be read.
    """
    names = ObjectFolder.at(url).names(MANIFESTS)
    ranges = [found for name in names if (found := range_of(name)) is not None]
    return tuple(TieredFile.of(url, start, end) for start, end in ranges if start < end)


_Local = TypeVar("_Local", bound=LogFile)
"""A file as one of two listings of a store has it."""


@frozen
class _Listing:
    """What a tier had some time ago.

    @ivar time: When, by the monotonic clock.
    @ivar identities: Whose log it has.
    """

    time: float
    files: tuple[TieredFile, ...]
    identities: tuple[TierIdentity, ...]


_listings: dict[tuple[str, int], _Listing] = {}
_same: set[tuple[str, Path | None, int]] = set()
"""Tiers and stores that were found to be of one log, with the last file that only the tier has:
looked at again as soon as the store loses another one."""


def _listed(url: str, *, anew: bool = False) -> _Listing:
    """@raise TierMissing: If there is no tier.
    @raise TierOfAnotherLog: If it is of two logs.
    """
    key, now = (url, os.getpid()), time.monotonic()
    found = before = _listings.get(key)
    if found is None or anew or now - found.time > LISTED_FOR:
        found = _Listing(now, list_tier(url), identities(ObjectFolder.at(url)))
        if not (found.files or found.identities):
            raise TierMissing(shown_url(url))
        _tell_lost_begin(url, found, before)
        _listings[key] = found
    return found


def _tell_lost_begin(url: str, found: _Listing, before: _Listing | None) -> None:
    """Say once that the first files of a tier went, since nothing else would: what is read from the
    earliest place begins where the tier does.
    """
    begin = min((each.begin for each in found.identities), default=0)
    first = found.files[0].start if found.files else begin
    told = before is not None and before.files[:1] == found.files[:1]
    if found.identities and first > begin and not told:
        _log.warning(
            "the tier %s began at byte %d of its log, and what is before byte %d is not in it any "
            "more: reads begin there",
            shown_url(url),
            begin,
            first,
        )


def only_tier(url: str) -> Path:
    """What stands for the root of a store that is not there: all there is is its tier."""
    return Path(url)


def find_log(path: Path, tier: str = "") -> LogFiles:
    """List the files of a log.

    @param path: The store's root or its C{commitlog} folder, or what L{only_tier} gives.
    @param tier: The tier's URL, C{""} for none.
    @raise NotAStore: If there is no log.
    @raise TierOfAnotherLog: If the tier's is another.
    @raise TierError: If the tier cannot be read.
    """
    if not tier:
        return LogFiles.find(path)
    if path == only_tier(tier):
        return LogFiles(path, _listed(tier).files)
    local = LogFiles.find(path)
    return LogFiles(local.root, join(local.root, local.files, tier))


def find_raw_log(path: Path, tier: str = "") -> RawLog:
    """The same for who reads all bytes, whatever they are.

    @raise NotAStore: As L{RawLog.open}.
    @raise TierError: As L{find_log}.
    """
    if not tier:
        return RawLog.open(path)
    if path == only_tier(tier):
        pieces = _listed(tier).files
        sizes = {file.start: file.end - file.start for file in pieces}
        return RawLog(
            path=path,
            root=None,
            file_size=likely_size(sizes),
            pieces=pieces,
            findings=[],
            writer=LogWriter.of(None),
        )
    raw = RawLog.open(path)
    return evolve(raw, pieces=join(raw.root, raw.pieces, tier))


def join(
    root: Path | None, local: tuple[_Local, ...], tier: str
) -> tuple[_Local | TieredFile, ...]:
    """The files of a store, and of its tier those that the store has no more.

    @param root: The store's root, C{None} if it is not known.
    @param local: The store's files, in the order of the log.
    @raise TierOfAnotherLog: If the two are of different logs.
    @raise TierError: If the tier cannot be read.
    """
    files = _older(_listed(tier).files, local)
    if local and (not files or files[-1].end < local[0].start):
        # What retention has deleted just now may have been uploaded just before.
        files = _older(_listed(tier, anew=True).files, local)
    key = (tier, root, files[-1].start if files else -1)
    if key not in _same:
        listed = _listed(tier)
        here = LogFiles(root or Path(), local)
        log = identity_of(here, None if root is None else read_point(root))
        require_all(listed.identities, log, here, str(root))
        require_same_log(log, here, listed.files)
        _same.add(key)
    starts = {file.start for file in local}
    gaps = [file for file in files if file.start not in starts]
    return tuple(sorted((*gaps, *local), key=lambda file: file.start))


def _older(tiered: tuple[TieredFile, ...], local: tuple[LogFile, ...]) -> list[TieredFile]:
    """The files of a tier that a store does not have, and that lie below its last one."""
    if not local:
        return list(tiered)
    here = LogFiles(Path(), local)
    missing = here.missing(0, here.limit)
    return [
        file
        for file in tiered
        if any(low <= file.start and file.end <= high for low, high in missing)
    ]


def require_same_log(log: LogIdentity, local: LogFiles, tiered: tuple[TieredFile, ...]) -> None:
    """Compare the last file that a store and a tier both have; without one, the broker's name.

    @param log: Whose log the store has.
    @param local: Its files.
    @raise TierOfAnotherLog: If the two are of different logs.
    @raise TierError: If the tier cannot be read.
    """
    ours = {(file.start, file.end): file for file in local.files}
    both = [file for file in tiered if (file.start, file.end) in ours]
    if both:
        require_same_file(both[-1].manifest, ours[both[-1].start, both[-1].end], both[-1].where)
        return
    last = tiered[-1:]
    theirs = last[0].manifest.broker if last and log.broker else ""
    if theirs and theirs != log.broker:
        raise TierOfAnotherLog(
            last[0].where,
            str(local.root),
            last[0].start,
            f"the tier is of broker {theirs}",
            f"the store of {log.broker}",
        )


def require_same_file(manifest: FileManifest, file: LogFile, where: str) -> None:
    """Compare a store's file with the one in a tier, by the last block that has more than the zeros
    of a blank: logs that part in a file differ in all that follows.

    @param where: Where the tier's is, for people.
    @raise TierOfAnotherLog: If it is another.
    """
    zeros = crc32(bytes(manifest.block))
    row = len(manifest.sums) - 1
    while row and manifest.sums[row] == zeros:
        row -= 1
    start = row * manifest.block
    with opened_log(file) as read:
        found = crc32(read_at(read, start, min(manifest.block, manifest.size - start)))
    if found != manifest.sums[row]:
        low = manifest.start + start
        high = min(low + manifest.block, manifest.end)
        raise TierOfAnotherLog(
            where,
            file.where,
            file.start,
            f"the tier's bytes {low} to {high} have CRC-32 {manifest.sums[row]:08x}",
            f"the store's {found:08x}",
        )


def tiered_splits(files: LogFiles, start: int, end: int) -> Iterator[Split]:
    """The split index of those files of C{[start, end)} that are in a tier, ascending.

    @raise TierError: If a manifest cannot be read.
    """
    for file, low, high in files.pieces(start, end):
        if isinstance(file, TieredFile):
            yield from (split for split in file.manifest.splits if low <= split.start < high)
