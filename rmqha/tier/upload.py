"""Put a store's full files into a tier.

A file goes there when it never changes again: it is full, and below the published point, or in a
log without a point another file with records follows it.  The object first, then it is read back
and compared, and then its manifest says that it is there.  A run that was interrupted at any
moment is gone on from by the next; what is there already is not sent again.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from attrs import frozen

from rmqha.errors import Refused
from rmqha.logfiles.blocks.open_file import read_at
from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.log_files import LogFiles, opened_log
from rmqha.logfiles.published import identity_of, read_point, read_splits, stale_end
from rmqha.store.files.uncached import UncachedFile
from rmqha.tier.errors import (
    LogCutMeanwhile,
    LogFileShort,
    TierBytesChanged,
    TierObjectSize,
    TierOfAnotherLog,
)
from rmqha.tier.identity import claim, identities, require_all
from rmqha.tier.joined_log import list_tier, require_same_file, require_same_log
from rmqha.tier.manifest import BLOCK, Before, FileManifest, manifest_name, object_name, sums_of
from rmqha.tier.objects import ObjectFolder
from rmqha.tier.tiered_file import TieredFile, check
from rmqha.wire.log.layout import MIN_BLANK
from rmqha.wire.store_layout import PARTIAL_SUFFIX

STEP = 8 << 20
"""Bytes read and sent at once."""

READERS = 4
"""Requests at a time when an object is read back: one alone waits most of the time."""

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@frozen(kw_only=True)
class TierUpload:
    """What one run did.

    @ivar files: How many files were uploaded.
    @ivar bytes: How many bytes they have.
    @ivar held: How many files the tier had already.
    @ivar start: The first byte that the tier has now, a physical offset; 0 if it has none.
    @ivar end: Just past its last.
    @ivar missing: The ranges between that neither the tier nor the store has.
    """

    files: int
    bytes: int
    held: int
    start: int
    end: int
    missing: tuple[tuple[int, int], ...]


def full_files(root: Path) -> list[LogFile]:
    """The files of a store that never change again.

    @raise NotAStore: If there is no log.
    @raise Refused: If the published point is not of this log any more.
    """
    files = LogFiles.find(root)
    final = final_end(files)
    return [
        file
        for file in files.files
        if file.end <= final and not file.path.name.endswith(PARTIAL_SUFFIX)
    ]


def final_end(files: LogFiles) -> int:
    """Up to where no byte of a log changes any more, as far as anybody can say.

    @raise Refused: If the published point is not of this log any more.
    """
    point = read_point(files.root)
    if point is None:
        for file in reversed(files.files):
            with opened_log(file) as read:
                if any(read_at(read, 0, MIN_BLANK)):
                    return file.start
        return 0
    end = stale_end(files, point)
    if end is not None:
        raise Refused(
            "tier",
            f"{files.root} was left by its node at byte {point.durable}, and its log is another "
            f"one, up to byte {end}: start the node, or remove its published point",
        )
    return point.confirm


def is_in(tiered: tuple[TieredFile, ...], file: LogFile) -> bool:
    """Whether a tier has a file by now.

    @raise TierOfAnotherLog: If what it has there is not this file: a manifest vouches for it.
    """
    for each in tiered:
        if (each.start, each.end) == (file.start, file.end):
            require_same_file(each.manifest, file, each.where)
            return True
        if each.start < file.end and file.start < each.end:
            raise TierOfAnotherLog(
                each.where,
                file.where,
                file.start,
                f"the tier's file has bytes {each.start} to {each.end}",
                f"the store's {file.start} to {file.end}",
            )
    return False


@frozen(kw_only=True)
class Uploader:
    """Puts the files of one store into one tier.

    @ivar root: The store's root.
    @ivar folder: The tier.
    @ivar rate: Most bytes a second, 0 for no limit.
    """

    root: Path
    folder: ObjectFolder
    rate: int = 0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def run(self, progress: Progress | None = None) -> TierUpload:
        """Upload what is full and not there yet.  Blocking.

        @raise NotAStore: If the store has no log.
        @raise Refused: If its published point is not of this log any more.
        @raise TierError: If a file cannot be uploaded, or the tier has another log's.
        """
        full = full_files(self.root)
        tiered = list_tier(self.folder.url)
        here = LogFiles.find(self.root)
        log = identity_of(here, read_point(self.root))
        said = identities(self.folder)
        require_all(said, log, here, str(self.root))
        require_same_log(log, LogFiles(self.root, tuple(full)), tiered)
        if not said:
            said = claim(self.folder, log, tiered[0].start if tiered else here.first)
            require_all(said, log, here, str(self.root))
        there = {(file.start, file.end) for file in tiered}
        wanted = [file for file in full if (file.start, file.end) not in there]
        total, done, sent = sum(file.end - file.start for file in wanted), 0, 0
        for file in wanted:
            # Another replica may upload the same.
            tiered = list_tier(self.folder.url)
            if is_in(tiered, file):
                total -= file.end - file.start
                continue

            def told(count: int, before: int = done, total: int = total) -> None:
                if progress is not None:
                    progress(before + count, total)

            self._upload(file, tiered, told)
            done, sent = done + file.end - file.start, sent + 1
        return self._result(sent, done, len(full) - sent)

    def _result(self, files: int, size: int, held: int) -> TierUpload:
        tiered = LogFiles(self.root, list_tier(self.folder.url))
        here = LogFiles.find(self.root)
        end = max(tiered.limit, here.first)
        return TierUpload(
            files=files,
            bytes=size,
            held=held,
            start=tiered.first,
            end=tiered.limit,
            missing=tuple(tiered.missing(tiered.first, end)) if tiered.files else (),
        )

    def _upload(
        self, file: LogFile, tiered: tuple[TieredFile, ...], told: Callable[[int], None]
    ) -> None:
        """Put one file there that no manifest speaks of, and its manifest when all is.

        @param tiered: The files that the tier has.
        """
        name, size = object_name(file.start), file.end - file.start
        sums: list[int] = []
        if self.folder.size(name) == size:
            # A run before may have ended between the object and its manifest.
            for data in self._pieces(file, told):
                sums += sums_of(data, BLOCK)
            manifest = self._manifest(file, sums, tiered)
            try:
                self._read_back(manifest)
            except TierBytesChanged:
                sums = []
        if not sums:
            self.folder.write(name, self._summed(file, sums, told))
            manifest = self._manifest(file, sums, tiered)
            self._read_back(manifest)
        self._require_uncut(file, manifest)
        self.folder.write(manifest_name(file.start, file.end), [manifest.render()])

    def _summed(
        self, file: LogFile, sums: list[int], told: Callable[[int], None]
    ) -> Iterator[memoryview]:
        for data in self._pieces(file, told):
            sums += sums_of(data, BLOCK)
            yield data

    def _pieces(self, file: LogFile, told: Callable[[int], None]) -> Iterator[memoryview]:
        """The bytes of a file, without a trace in the page cache: its broker needs that.

        @raise LogFileShort: If there are fewer than there should be.
        """
        size, place, begun = file.end - file.start, 0, self.clock()
        room = memoryview(mmap.mmap(-1, STEP))
        read = UncachedFile(file.path)
        try:
            while place < size:
                count = min(read.read(room, place), size - place)
                if count < min(STEP, size - place):
                    raise LogFileShort(str(file.path), place + count, size)
                yield room[:count]
                place += count
                told(place)
                if self.rate:
                    self.sleep(max(0.0, begun + place / self.rate - self.clock()))
        finally:
            read.close()

    def _manifest(
        self, file: LogFile, sums: list[int], tiered: tuple[TieredFile, ...]
    ) -> FileManifest:
        point = read_point(self.root)
        before = next((each for each in tiered if each.end == file.start), None)
        return FileManifest(
            start=file.start,
            end=file.end,
            block=BLOCK,
            sums=tuple(sums),
            splits=() if point is None else read_splits(self.root, file.start, file.end),
            broker="" if point is None else point.broker_name,
            uploaded=int(time.time() * 1000),
            before=None if before is None else Before(before.start, before.manifest.crc),
        )

    def _read_back(self, manifest: FileManifest) -> None:
        """Read an object as it is there now.

        @raise TierObjectSize: If it has another size.
        @raise TierBytesChanged: If it has other bytes.
        """
        name = object_name(manifest.start)
        shown = self.folder.shown(name)
        files: SimpleQueue[Any] = SimpleQueue()

        def same(place: int) -> None:
            size, file = min(STEP, manifest.size - place), files.get()
            try:
                data = self.folder.read_at(name, file, place, size)
            finally:
                files.put(file)
            if len(data) < size:
                raise TierObjectSize(shown, place + len(data), manifest.size)
            check(manifest, place, data, shown)

        with ExitStack() as opened, ThreadPoolExecutor(READERS) as readers:
            for _ in range(READERS):  # one of HDFS may be read by one thread at a time
                file = opened.enter_context(self.folder.open(name))
                if file.size() != manifest.size:
                    raise TierObjectSize(shown, file.size(), manifest.size)
                files.put(file)
            # What is wrong first is raised, and what was not begun then never is.
            deque(readers.map(same, range(0, manifest.size, STEP)), 0)

    def _require_uncut(self, file: LogFile, manifest: FileManifest) -> None:
        """@raise LogCutMeanwhile: If the log was cut below a file's end since it was found full.
        @raise TierOfAnotherLog: If it was cut, and has grown again.
        """
        final = final_end(LogFiles.find(self.root))
        if final < file.end:
            raise LogCutMeanwhile(str(file.path), file.end, final)
        require_same_file(manifest, file, self.folder.shown(object_name(file.start)))
