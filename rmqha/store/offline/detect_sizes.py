"""The sizes of derived files, as the files themselves tell them.

An index file does not say how many slots it has, and a queue file not how long it
ought to be.  Offline tools work without a C{broker.conf}, so they ask what is there.

Source: docs/protocol/store.rst, Consume queues and Index files.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.listing import LOG_NAME
from rmqha.store.derived.index_file import (
    ENTRY,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    SLOT_SIZE,
    IndexShape,
)
from rmqha.wire.log.layout import MAX_RECORD_OVERHEAD
from rmqha.wire.store_layout import CONSUMEQUEUE, INDEX, UNIT_SIZE

_SEARCHED = 64 << 20
"""Largest index file whose shape is searched for, not only guessed, in bytes."""

# How many entries a file has for each slot, where nothing else is configured.
_USUAL_RATIO = 4


def offline_settings(root: Path, commitlog: Path, file_size: int) -> StoreSettings:
    """Settings that fit the files of a store; RocketMQ's defaults where there are none.

    @param file_size: Size of the log's files, in bytes.
    """
    shape = index_shape(root / INDEX)
    usual = StoreSettings(root=root)
    return StoreSettings(
        root=root,
        commitlog=commitlog,
        file_size=file_size,
        # Whatever fits a file was once allowed.
        max_message_size=max(1, file_size - MAX_RECORD_OVERHEAD),
        queue_file_size=queue_file_size(root / CONSUMEQUEUE) or usual.queue_file_size,
        index_slots=shape.slots if shape is not None else usual.index_slots,
        index_entries=shape.entries if shape is not None else usual.index_entries,
    )


def log_file_size(folder: Path) -> int | None:
    """The size most log files have, in bytes; C{None} if there are none.

    @param folder: The C{commitlog} folder.
    """
    return _usual_size(folder.glob("*"))


def queue_file_size(folder: Path) -> int | None:
    """The size most queue files have, in bytes; C{None} if there are none.

    @param folder: The C{consumequeue} folder.
    """
    return _usual_size(folder.glob("*/*/*"), of=UNIT_SIZE)


def _usual_size(paths: Iterable[Path], of: int = 1) -> int | None:
    """@param of: What a size is a multiple of."""
    votes: Counter[int] = Counter()
    for path in paths:
        if LOG_NAME.fullmatch(path.name) and path.is_file():
            size = path.stat().st_size
            votes[size] += bool(size) and size % of == 0
    size, count = max(votes.items(), key=lambda vote: vote[::-1], default=(0, 0))
    return size if count else None


def wrong_sizes(settings: StoreSettings) -> Iterator[tuple[str, int, int]]:
    """What settings say of files and the files say otherwise.

    @return: A key, what is set, and what is there.
    """
    shape = index_shape(settings.root / INDEX)
    found: dict[str, tuple[int, int | None]] = {
        "mappedFileSizeCommitLog": (settings.file_size, log_file_size(settings.commitlog)),
        "mappedFileSizeConsumeQueue": (
            settings.queue_file_size,
            queue_file_size(settings.root / CONSUMEQUEUE),
        ),
        "maxHashSlotNum": (settings.index_slots, None if shape is None else shape.slots),
        "maxIndexNum": (settings.index_entries, None if shape is None else shape.entries),
    }
    for key, (configured, there) in found.items():
        if there is not None and there != configured:
            yield key, configured, there


def index_shape(folder: Path) -> IndexShape | None:
    """The number of slots and entries of a store's index files; C{None} if nothing tells.

    @param folder: The C{index} folder.
    """
    names = sorted(path for path in folder.glob("*") if path.name.isdigit() and path.is_file())
    votes = Counter(path.stat().st_size for path in names)
    if not votes:
        return None
    usual = max(votes, key=lambda size: (votes[size], size))
    for path in names:
        if path.stat().st_size == usual:
            shape = _shape_of(path, usual)
            if shape is not None:
                return shape
    return _by_ratio(usual)


def _by_ratio(size: int) -> IndexShape | None:
    slots, rest = divmod(size - HEADER_SIZE, SLOT_SIZE + _USUAL_RATIO * ENTRY_SIZE)
    return IndexShape(slots, _USUAL_RATIO * slots) if slots > 0 and not rest else None


def _shape_of(path: Path, size: int) -> IndexShape | None:
    """The shape that makes sense of one file: its first and last entry stand where the
    header says, and the last one is the head of its chain.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        raw = os.pread(fd, HEADER_SIZE, 0)
        if len(raw) < HEADER_SIZE:
            return None
        _, _, begin, end, _, count = HEADER.unpack(raw)
        if count <= 1:
            return None
        usual = _by_ratio(size)
        if usual is not None and _fits(fd, usual, begin, end, count):
            return usual
        if size > _SEARCHED:
            return None
        for entries in _likely_entries(fd, size, end, count):
            slots = (size - HEADER_SIZE - ENTRY_SIZE * entries) // SLOT_SIZE
            shape = IndexShape(slots, entries)
            if shape.file_size == size and _fits(fd, shape, begin, end, count):
                return shape
    finally:
        os.close(fd)
    return None


def _likely_entries(fd: int, size: int, end: int, count: int) -> list[int]:
    """Each capacity that puts an entry of the last message where the last entry must be."""
    raw = os.pread(fd, size, 0)
    most = (size - HEADER_SIZE - SLOT_SIZE) // ENTRY_SIZE
    entries = np.arange(max(count, 1), most + 1)
    place = size - ENTRY_SIZE * (entries - count + 1)
    data = np.frombuffer(raw, np.uint8)
    wanted = np.frombuffer(end.to_bytes(8, "big", signed=True), np.uint8)
    same = np.ones(len(entries), bool)
    for row, value in enumerate(wanted):
        same &= data[place + 4 + row] == value
    return [int(number) for number in entries[same]]


def _fits(fd: int, shape: IndexShape, begin: int, end: int, count: int) -> bool:
    if count > shape.entries or shape.slots < 1:
        return False

    def entry(number: int) -> tuple[int, ...]:
        return ENTRY.unpack(os.pread(fd, ENTRY_SIZE, shape.entries_at + ENTRY_SIZE * number))

    first, last = entry(1), entry(count - 1)
    if any(entry(0)) or first[1] != begin or first[3] != 0 or last[1] != end or last[0] < 0:
        return False
    place = HEADER_SIZE + SLOT_SIZE * (last[0] % shape.slots)
    return int.from_bytes(os.pread(fd, SLOT_SIZE, place), "big") == count - 1
