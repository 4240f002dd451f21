"""An archive of a log, open to be received: what is on the disk, and where it goes on.

It is laid out like a store that has nothing but its log, so that what reads a store's log reads
an archive's.  A file of the log has a name that ends in C{.partial} until it is full, checked and
on the disk, and another follows it: what has no such ending never changes again, and may be taken
away or copied.  Source: docs/guide/archive.rst, What is in an archive.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from attrs import define, evolve, field
from twisted.logger import Logger

from rmqha.archive.manifest import ArchiveManifest, manifest_path
from rmqha.errors import Refused
from rmqha.ha.master_epoch import MasterEpochs
from rmqha.ha.slave.followed import FollowedMasters
from rmqha.logfiles.json_table import fsync_folder
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.published import first_record_sum, read_copied_damage
from rmqha.store.files.allocate import Allocator, InThread
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.mapped import LogFolder, MappedFile
from rmqha.store.log import copied_damage_file
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.recovery import Recovery, cut, first_stored_at, last_record_of, recover
from rmqha.store.log.truncate import quarantine
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.log.record import stored_at
from rmqha.wire.store_layout import (
    ABORT,
    CHECKPOINT,
    COMMITLOG,
    CONFIG,
    CONSUMEQUEUE,
    LOCK,
    PARTIAL_SUFFIX,
)

OF_A_NODE = (ABORT, CHECKPOINT, CONFIG, CONSUMEQUEUE)
"""What shows that a folder is a node's store, and no archive."""


@define(eq=False, kw_only=True)
class Archive:
    """One archive, locked and open.

    @ivar root: Its folder.
    @ivar log: Its log, to follow a master with.
    @ivar manifest: What it says of itself.
    @ivar followed: Whose log it was when it was last compared: decides which master is believed.
    @ivar last_stored: Store time of the last record that was found, in milliseconds since 1970,
        0 if there is none.
    """

    root: Path
    log: CommitLog
    manifest: ArchiveManifest
    followed: FollowedMasters
    last_stored: int
    _lock: StoreLock = field(repr=False)

    _log = Logger()

    @classmethod
    def open(
        cls, root: Path, manifest: ArchiveManifest, in_thread: InThread, trusted: str = ""
    ) -> Self:
        """Open an archive, or begin one; blocking.

        Only what is not finished is checked, from its first byte.  A torn tail is cut, as the
        master has it; if valid records follow, they go to quarantine first.

        @param manifest: What it shall say of itself; what an older one says of its begin stays.
        @param in_thread: Allocates blocks ahead, and writes small files.
        @param trusted: C{host:port} of a master that is followed whatever its master epoch is.
        @raise StoreLocked: If another process has it.
        @raise Refused: If the folder is none of an archive, or has another file size.
        @raise StoreError: If its files do not follow each other, or cannot be read.
        """
        with ExitStack() as undo:
            root.mkdir(parents=True, exist_ok=True)
            lock = StoreLock(root / LOCK)
            lock.take()
            undo.callback(lock.release)
            manifest = _continued(root, manifest)
            folder = LogFolder.load(root / COMMITLOG, manifest.file_size, partial=True)
            undo.callback(folder.close)
            copied = read_copied_damage(root)
            found = cls._recover(root, folder, copied)
            log = CommitLog(folder=folder, end=found.end, allocator=Allocator(in_thread))
            log.last_record = _last_record(folder, found)
            log.copied = copied
            if copied.keep_within(log.min_offset, log.end):
                copied_damage_file.save(root, copied)
            epochs = MasterEpochs(root, in_thread)
            epochs.load(found.end)
            followed = FollowedMasters(epochs=epochs, trusted=trusted)
            followed.load()
            made = cls(
                root=root,
                log=log,
                manifest=manifest,
                followed=followed,
                last_stored=_stored(folder, log.last_record),
                lock=lock,
            )
            made.note(manifest.updated)
            cls._say_begin(made, found, manifest)
            undo.pop_all()
        return made

    @classmethod
    def _say_begin(cls, made: Self, found: Recovery, manifest: ArchiveManifest) -> None:
        cls._log.info(
            "Archive {root}: bytes {start} to {end}; checked {records} records from byte {checked}",
            root=made.root,
            start=made.log.min_offset,
            end=found.end,
            records=found.records,
            checked=found.start,
        )
        # A blank is log only once a file follows it.
        if found.end + found.blank < manifest.end:
            cls._log.critical(
                "Archive {root} ends at byte {end}, its manifest says {known}: its end is lost, "
                "receiving it again",
                root=made.root,
                end=found.end,
                known=manifest.end,
            )

    @classmethod
    def _recover(cls, root: Path, folder: LogFolder, copied: CopiedDamage) -> Recovery:
        """Find the end of what is there, and leave nothing behind it.

        @param copied: Records that were damaged on the master already.
        """
        if folder.files and not is_partial(folder.files[-1]):
            # Whoever copied only what is finished goes on from there.
            _rename(folder.files[-1], folder.files[-1].path.name + PARTIAL_SUFFIX)
        row = next((n for n, file in enumerate(folder.files) if is_partial(file)), 0)
        found = recover(folder, row, copied=copied)
        if found.corrupt is not None:
            kept = quarantine(root, folder, found.end, found.tail)
            cls._log.critical(
                "{damage}; cutting the archive there, to receive it again; what followed is kept "
                "in {path}",
                damage=found.corrupt,
                path=kept,
            )
        cut(folder, found.end, changed_from=found.start)
        return found

    def settled(self, delay: float) -> int:
        """Up to where all was written so long before the last record, by the master's clock.

        It is the begin of a file: only the first record of each is looked at.

        @param delay: In seconds.
        @return: A physical offset.
        """
        latest = self.last_stored - int(delay * 1000)
        for file in reversed(self.log.folder.files):
            if file.start < self.log.end and 0 < first_stored_at(file) <= latest:
                return file.start
        return self.log.min_offset

    # --- finishing files --------------------------------------------------------

    def full(self) -> list[MappedFile]:
        """The files that can be finished: full, checked, on the disk, and followed by another."""
        log, files = self.log, self.log.folder.files
        held = min(log.confirmed, log.flushed)
        found: list[MappedFile] = []
        for file in reversed(files[:-1]):
            if not is_partial(file):
                break
            if file.end <= held:
                found.insert(0, file)
        return found

    def finish(self, files: list[MappedFile]) -> None:
        """Give full files their names; blocking.

        @raise OSError: If the disk does not take it.  What has its name then stays so.
        """
        for file in files:
            _rename(file, file_name(file.start))

    def note(self, now_ms: int) -> None:
        """Write down how far the archive goes; blocking.

        @param now_ms: Milliseconds since 1970.
        @raise DiskFull: If there is no room.
        """
        log, identity = self.log, self.manifest.log
        if identity.first < log.min_offset < log.confirmed:
            identity = evolve(identity, first=log.min_offset, sum=first_record_sum(log))
        self.manifest = evolve(
            self.manifest,
            log=identity,
            start=log.min_offset,
            end=min(log.confirmed, log.flushed),
            updated=now_ms,
        )
        self.manifest.write(self.root)

    def close(self) -> None:
        """Close the files and give the lock back."""
        self.log.folder.close()
        self._lock.release()


def is_partial(file: MappedFile) -> bool:
    """Whether a file is not finished."""
    return file.path.name.endswith(PARTIAL_SUFFIX)


def _rename(file: MappedFile, name: str) -> None:
    path = file.path.with_name(name)
    os.rename(file.path, path)
    file.path = path
    fsync_folder(path.parent)


def _continued(root: Path, manifest: ArchiveManifest) -> ArchiveManifest:
    """A manifest that goes on from the one that is there.

    @raise Refused: If the folder is not an archive, or its files have another size, or are of
        another log.
    """
    known = ArchiveManifest.read(root)
    if known is None:
        found = [name for name in (COMMITLOG, *OF_A_NODE) if (root / name).exists()]
        if found:
            raise Refused(
                "receive",
                f"{root} is not an archive: it has {', '.join(found)}, and no "
                f"{manifest_path(root).relative_to(root)}",
            )
        return manifest
    if known.file_size != manifest.file_size:
        raise Refused(
            "receive",
            f"{root} has log files of {known.file_size} bytes, not of {manifest.file_size}",
        )
    if (root / COMMITLOG).is_dir():
        # Before the first byte, which an earlier process may not have lived to see, there is none.
        known.require_log(root, "receive")
    return evolve(
        manifest,
        log=evolve(known.log, broker=manifest.log.broker or known.log.broker),
        begun=known.begun,
        start=known.start,
        end=known.end,
    )


def _last_record(folder: LogFolder, found: Recovery) -> int:
    if found.last_record >= 0:
        return found.last_record
    for file in reversed(folder.files):
        place = last_record_of(file) if file.end <= found.end else None
        if place is not None:
            return place
    return -1


def _stored(folder: LogFolder, offset: int) -> int:
    """Store time of the record at C{offset}, in milliseconds since 1970; 0 for none."""
    if offset < 0:
        return 0
    file = folder.at(offset)
    return stored_at(file.view[offset - file.start :], 0)
