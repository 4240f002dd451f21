"""The files of a log as they lie on disk, whatever state they are in.

A node refuses a folder with a missing or cut file; a person who has to find out what
happened needs to read the rest of it.  So nothing is refused here: what is wrong is
told with its path, and what can be read has its place.

The files at the end of an archive that are not finished have names that end in C{.partial}
(docs/guide/archive.rst, What is in an archive).  Readers take them for what they are, files of the
log; a node does not start on them.

Source of names and sizes: docs/protocol/store.rst, Files.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

from attrs import frozen

from rmqha.logfiles.blocks.open_file import OpenLocalFile, OpenLogFile
from rmqha.logfiles.typed_table import Natural
from rmqha.wire.store_layout import (
    COMMITLOG,
    LOG_PLACE,
    OWN_FOLDER,
    PARTIAL_SUFFIX,
    STORE_PLACE_SUFFIX,
)

LOG_NAME = re.compile(r"\d{20}", re.ASCII)
"""A log or queue file's name: its first byte's offset, in 20 ASCII digits."""

LOG_KEY, STORE_KEY = "commitLog", "store"
"""What the files call the place that they tell."""

STRAY = "not a log file"
"""The reason of a L{Finding} about a name that is none of the log's."""


def file_name(offset: int) -> str:
    """The name of the file that starts at C{offset}."""
    return f"{offset:020d}"


def root_of(path: Path) -> Path:
    """A store's root, whether it or its log's folder was named."""
    store = store_told(path)
    if store is not None and log_folder(store) == _log_named(path):
        return store
    return path.parent if path.name == COMMITLOG else path


def log_folder(root: Path) -> Path:
    """The folder of a store's log: elsewhere, if the store says so."""
    place = _told(root / OWN_FOLDER / LOG_PLACE, LOG_KEY)
    return root / COMMITLOG if place is None else place


def store_told(path: Path) -> Path | None:
    """The root of the store that a log belongs to which does not lie in it; C{None} if nothing
    beside the log says so.

    @param path: The log's folder, or the one that has it.
    """
    log = _log_named(path)
    return _told(log.with_name(log.name + STORE_PLACE_SUFFIX), STORE_KEY)


def _log_named(path: Path) -> Path:
    return path if path.name == COMMITLOG else path / COMMITLOG


def _told(file: Path, key: str) -> Path | None:
    try:
        return Path(json.loads(file.read_bytes())[key])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@frozen
class ListedLog:
    """What a log's folder holds, by names and sizes.

    @ivar sizes: Bytes of each log file, by the physical offset it starts at; ascending.
    @ivar unbegun: Start of a last file of no bytes, C{None} without one.  A crash leaves
        it between creating a file and giving it its size, so it is no file of the log.
    @ivar strays: Names of everything else, sorted.
    @ivar partial: Where the files start whose names end in C{.partial}.
    """

    sizes: dict[int, int]
    unbegun: int | None
    strays: tuple[str, ...]
    partial: frozenset[int] = frozenset()

    def name(self, start: int) -> str:
        """The name of a file that is there."""
        return file_name(start) + (PARTIAL_SUFFIX if start in self.partial else "")


def list_log(folder: Path) -> ListedLog:
    """List the files of a log.

    @param folder: The C{commitlog} folder.
    @raise OSError: If it cannot be listed.
    """
    sizes, partial, strays = dict[int, int](), dict[int, int](), []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name.removesuffix(PARTIAL_SUFFIX)
            if not LOG_NAME.fullmatch(name) or not entry.is_file():
                strays.append(entry.name)
                continue
            found = sizes if name == entry.name else partial
            try:
                found[int(name)] = entry.stat().st_size
            except FileNotFoundError:
                continue  # deleted or renamed meanwhile
    strays += [file_name(start) + PARTIAL_SUFFIX for start in partial.keys() & sizes.keys()]
    unfinished = frozenset(partial.keys() - sizes.keys())
    sizes = partial | sizes
    last = max(sizes, default=0)
    unbegun = last if sizes.get(last) == 0 else None
    if unbegun is not None:
        del sizes[unbegun]
    return ListedLog(dict(sorted(sizes.items())), unbegun, tuple(sorted(strays)), unfinished)


@frozen
class Finding:
    """Something that is not as it should be.

    @ivar path: The file, or the folder of a queue.
    @ivar offset: Where: a physical offset in a log, a queue offset in a queue, the
        number of an entry in an index, 0 for a file as a whole.
    @ivar reason: What is wrong, with its numbers.
    """

    path: str
    offset: Natural
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at {self.offset}: {self.reason}"


@frozen
class LogFile:
    """One file of a log.

    @ivar start: Physical offset of its first byte.
    @ivar end: Physical offset just past it, when it is full.
    """

    path: Path
    start: int
    end: int

    @property
    def where(self) -> str:
        """Where it is, for people and for plans."""
        return str(self.path)

    def open(self) -> OpenLogFile:
        """Open it to be read.

        @raise FileNotFoundError: If it was deleted.
        """
        return OpenLocalFile.open(self.path)


@frozen
class FoundFile(LogFile):
    """A run of the log's bytes in one file.

    @ivar end: Physical offset of the end of the log file it is, or was, part of.
    @ivar place: Where the first byte stands in C{path}.
    @ivar size: Bytes that C{path} has of it; the rest up to C{end} reads as zeros.
    """

    place: int
    size: int


@frozen
class FoundFiles:
    """What a folder, or a quarantine file, holds of a log.

    @ivar file_size: Size of each log file, in bytes: given, or the likeliest.
    @ivar pieces: In the order of the log; readable ones only.
    @ivar findings: What is wrong with names and sizes.
    """

    file_size: int
    pieces: tuple[FoundFile, ...]
    findings: tuple[Finding, ...]


def in_folder(folder: Path, file_size: int | None = None) -> FoundFiles:
    """List the files of a C{commitlog} folder; one that does not exist holds none.

    @param file_size: C{mappedFileSizeCommitLog}, if it is known.
    """
    listed = list_log(folder) if folder.exists() else ListedLog({}, None, ())
    findings = [Finding(str(folder / name), 0, STRAY) for name in listed.strays]
    sizes = dict(listed.sizes)
    if listed.unbegun is not None:
        sizes[listed.unbegun] = 0
    wanted = file_size or likely_size(sizes)
    placed, pieces = [], []
    for start, size in sizes.items():
        path = folder / listed.name(start)
        if size != wanted:
            findings.append(Finding(str(path), start, f"{size} bytes, expected {wanted}"))
        if start % wanted:
            reason = f"extra: {start} is not a multiple of the file size {wanted}"
            findings.append(Finding(str(path), start, reason))
            continue
        placed.append(start)
        problem = unreadable(path)
        if problem:
            findings.append(Finding(str(path), start, f"unreadable: {problem}"))
        elif start != listed.unbegun:
            pieces.append(FoundFile(path, start, start + wanted, 0, min(size, wanted)))
    for before, after in pairwise(placed):
        if before + wanted != after:
            count = (after - before) // wanted - 1
            reason = f"missing, {count} files: the log goes on in {file_name(after)}"
            path = folder / file_name(before + wanted)
            findings.append(Finding(str(path), before + wanted, reason))
    return FoundFiles(wanted, tuple(pieces), tuple(findings))


def likely_size(sizes: dict[int, int]) -> int:
    """The file size most of a log's files agree on, by their sizes and by their names.

    @param sizes: Size of each file, by its first offset; ascending.
    @return: In bytes; 1 GiB, RocketMQ's default, if nothing tells.
    """
    votes = Counter(size for size in sizes.values() if size)
    votes.update(after - before for before, after in pairwise(sizes))
    if not votes:
        return 1 << 30
    return max(votes, key=lambda size: (votes[size], size))


def unreadable(path: Path) -> str:
    """Why a file cannot be opened, in the system's words; empty if it can."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""
