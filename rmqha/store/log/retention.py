"""Deleting old log files: by age at a set hour, sooner when the disk fills up.

A file's age is that of its last record, on a slave as on its master, or counts from when the
log came here, if that is later (L{rmqha.store.log.arrival}).  The oldest file goes first, the
last one never; nothing goes that is not flushed, checked and dispatched.  A replica that is
behind holds files back, but only until the disk is as full as
C{diskSpaceCleanForciblyRatio}: else a peer that reports our first byte and stops reading
could fill it.  Queues and index follow.

Source: docs/protocol/store.rst, Deleting files.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha import reserve
from rmqha.config.store_settings import StoreSettings
from rmqha.health import HealthReason
from rmqha.periodic import NodePart, Periodic, SingleRun, cancelled
from rmqha.store.environment import StoreEnvironment, disk_use
from rmqha.store.files.mapped import MappedFile, OutOfDescriptors
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.recovery import FolderReader, first_stored_at, last_record_of


def fullest(settings: StoreSettings, disk_use: Callable[[Path], float] = disk_use) -> float:
    """How full the fuller of a store's disks is.

    @return: As L{disk_use}.
    """
    folders = (settings.commitlog, settings.root)
    return max((disk_use(folder) for folder in folders if folder.is_dir()), default=0.0)


def last_stored(file: MappedFile, now: float) -> float:
    """When the last record of a full file was stored.

    @param now: Seconds since 1970; what was stored later was so by a clock that was wrong.
    @return: Seconds since 1970; the file's own time if no record tells, and at most now.
    """
    last = last_record_of(file)
    stored = 0 if last is None else FolderReader.of_file(file).stored_at(last)
    # One record and a blank of more megabytes than were searched?  A clock that was set back?
    first = first_stored_at(file)
    told = max((time / 1000 for time in (first, stored) if time / 1000 <= now), default=0.0)
    return told or min(now, file.path.stat().st_mtime)


@define(eq=False, kw_only=True)
class Retention(NodePart):
    """Looks after the disk of one store.

    @ivar dispatched: Up to where queues and index go.
    @ivar follow: Told the log's new first byte after files went; queues and index drop
        what speaks only of deleted records.
    @ivar arrived: Since when the log is here, in seconds since 1970.
    @ivar full: Told why writes have to be refused, and C{""} when they need not be.
    @ivar use: How full the fuller of the disks was at the last look, 0 to 1.
    @ivar deleted_files: Log files deleted since the start.
    @ivar deleted_bytes: Their size.
    @ivar lost_bytes: Bytes deleted although a replica needed them.
    @ivar held_back: The offset for whose sake the oldest file is kept now, or C{None}.
    """

    log: CommitLog
    settings: StoreSettings
    environment: StoreEnvironment
    dispatched: Callable[[], int]
    follow: Callable[[int], None]
    full: Callable[[str], None]
    arrived: float
    use: float = field(default=0.0, init=False)
    deleted_files: int = field(default=0, init=False)
    deleted_bytes: int = field(default=0, init=False)
    lost_bytes: int = field(default=0, init=False)
    held_back: int | None = field(default=None, init=False)
    _timed: Periodic = field(init=False)
    _pause: IDelayedCall | None = field(default=None, init=False)
    _working: SingleRun = field(factory=SingleRun, init=False)
    _left: int = field(default=0, init=False)
    _demanded: bool = field(default=False, init=False)
    _stuck: MappedFile | None = field(default=None, init=False)
    # The oldest file, and when its last record was stored: it is full, so that stays.
    _oldest: tuple[MappedFile, float] | None = field(default=None, init=False)
    _mapped: list[tuple[weakref.ref[mmap.mmap], int]] = field(factory=list, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._timed = Periodic(
            "deleting old log files", self.environment.clock, self.run, vital=True
        )

    def start(self) -> None:
        """Look at the disk now, and at everything each C{cleanResourceInterval}."""
        self.look()
        self._timed.start(self.settings.clean_interval)

    def stop(self) -> Deferred[None]:
        """Delete no more.

        @return: Fires when no thread looks at a file or removes one.
        """
        self._timed.stop()
        self._left = 0
        self._pause = cancelled(self._pause)
        return self._working.over()

    # --- the disk -----------------------------------------------------------

    def look(self) -> None:
        """See how full the disks are, and refuse or allow writes."""
        reserve.keep(self.settings.root)
        self.use = fullest(self.settings, self.environment.disk_use)
        warning = self.settings.disk_warning
        if self.use > warning:
            self.full(f"the disk is {self.use:.0%} full; above {warning:.0%} no writes are taken")
        else:
            self.full("")

    def health(self) -> Iterator[HealthReason]:
        """Whether a disk is nearly full: above the warning level the store's state says so."""
        settings = self.settings
        if settings.disk_clean_forcibly < self.use <= settings.disk_warning:
            age = "whatever their age" if settings.clean_forcibly else "when they are old enough"
            yield HealthReason(
                "disk-filling",
                f"the disk is {self.use:.0%} full: old log files go {age}; above "
                f"{settings.disk_warning:.0%} no writes are taken",
            )

    @property
    def _forced(self) -> bool:
        return self.settings.clean_forcibly and self.use > min(
            self.settings.disk_clean_forcibly, self.settings.disk_warning
        )

    @property
    def _due(self) -> bool:
        """Whether files that are old enough may go now."""
        hour = self.environment.local_hour(self.environment.now_ms() / 1000)
        return (
            self._demanded
            or hour in self.settings.delete_when
            or self.use < 0
            or self.use > self.settings.disk_max_used
        )

    # --- deleting -----------------------------------------------------------

    def run(self) -> None:
        """Look at the disk and begin to delete, if it is time."""
        try:
            self.look()
            if self._left or self._working.under_way:
                return
            self.held_back = self.held_back if self._due else None
            self._left = self.settings.delete_batch
            self._next()
        except OutOfDescriptors:
            self._left = 0  # the oldest file cannot be looked at; it is the same at the next run
        except Exception:
            self._left = 0
            raise

    def demand(self) -> None:
        """Delete what is old enough now, whatever the hour."""
        self._demanded = True
        try:
            self.run()
        finally:
            # Without anything to delete, or with a run under way, the next one is as usual.
            self._demanded = bool(self._left)

    def _next(self) -> None:
        """Delete the oldest file, and come back for the next."""
        self._pause = None
        if self._stuck is not None:
            self._remove(self._stuck)
            return
        files = self.log.folder.files
        time_for_it = self._left > 0 and (self._due or self._forced)
        if time_for_it and len(files) > 1 and self._is_done_with(files[0]):
            if not self._forced and self._stored(files[0]) is None:
                self._look_at(files[0])
                return
            if self._may_go(files[0]):
                self._delete_first()
                return
        self._left = 0
        self._demanded = False

    def _is_done_with(self, file: MappedFile) -> bool:
        """Whether nothing of a file is still to be flushed, checked or dispatched."""
        return file.end <= min(self.log.flushed, self.log.confirmed, self.dispatched())

    def _stored(self, file: MappedFile) -> float | None:
        """When a file's last record was stored; C{None} as long as nobody has looked."""
        return self._oldest[1] if self._oldest is not None and self._oldest[0] is file else None

    def _look_at(self, file: MappedFile) -> None:
        """Find out how old a file is, and go on.

        Not here: that may read megabytes of a file that nobody has read for days.
        """

        def found(stored: float) -> None:
            self._oldest = file, stored

        def not_found(failure: Failure) -> None:
            self._left = 0
            self._demanded = False
            if not failure.check(OutOfDescriptors):
                self._log.failure(
                    "Cannot look at log file {path}, retrying", failure, path=file.path
                )

        def over(_: object) -> None:
            if self._left > 0:
                self._again()

        now, in_thread = self.environment.now_ms() / 1000, self.environment.in_thread
        looking = self._working.begin(lambda: in_thread(last_stored, file, now))
        looking.addCallbacks(found, not_found).addCallback(over)

    def _delete_first(self) -> None:
        self._left -= 1
        file = self.log.drop_first()
        reference = file.map_ref()
        if reference is not None:
            self._mapped.append((reference, file.size))
        self.deleted_files += 1
        self.deleted_bytes += file.size
        self._log.info(
            "Deleting old log file {path}; the log begins at byte {offset} now",
            path=file.path,
            offset=self.log.min_offset,
        )
        try:
            self.follow(self.log.min_offset)
        except Exception:
            self._log.failure(
                "Cannot delete the consume queue and index files of a deleted log file"
            )
        self._remove(file)

    def _remove(self, file: MappedFile) -> None:
        """Delete a file that is log no more.

        Not here: to free a cached file of 1 GiB takes a tenth of a second.
        """
        self._stuck = file
        removing = self._working.begin(lambda: self.environment.in_thread(file.remove))
        removing.addCallbacks(self._removed, self._not_removed, errbackArgs=(file.path,))

    def _not_removed(self, failure: Failure, path: Path) -> None:
        """No other file goes before this one has: a gap would keep the store from opening."""
        self._log.failure("Cannot delete log file {path}, retrying", failure, path=path)
        self._left = 0

    def _removed(self, _: object) -> None:
        self._stuck = None
        if self._left > 0:
            self._pause = self.environment.clock.callLater(
                self.settings.delete_files_interval, self._again
            )

    def _again(self) -> None:
        """The next file, if there is not enough room by now."""
        try:
            self.look()
            self._next()
        except OutOfDescriptors:
            self._left = 0
        except Exception:
            self._left = 0
            self._log.failure("Retention failed to delete old log files, retrying")

    def _may_go(self, file: MappedFile) -> bool:
        """Whether the oldest file can be done without."""
        stored = self._stored(file)
        if not self._forced and (
            stored is None
            or self.environment.now_ms() / 1000 - max(stored, self.arrived)
            < self.settings.file_reserved
        ):
            return False
        held = self.environment.held_from()
        if held is None or held >= file.end:
            self.held_back = None
            return True
        if self.use > self.settings.disk_clean_forcibly:
            self._lose(file, held)
            return True
        if self.held_back != held:
            self.held_back = held
            self._log.warn(
                "Keeping expired log file {path}: a replica still needs bytes from {held} on",
                path=file.path,
                held=held,
            )
        return False

    def _lose(self, file: MappedFile, held: int) -> None:
        lost = file.end - max(held, file.start)
        self.lost_bytes += lost
        self.held_back = None
        self._log.critical(
            "The disk is {use} full: deleting log file {path}, of which a replica at byte {held} "
            "still needs {lost} bytes; it has to copy the whole log anew",
            use=f"{self.use:.0%}",
            path=file.path,
            held=held,
            lost=lost,
        )

    # --- the status ---------------------------------------------------------

    @property
    def deleted_and_held(self) -> int:
        """Bytes of deleted files that some reader still maps: the disk gets them back when
        it lets go.
        """
        self._mapped = [row for row in self._mapped if row[0]() is not None]
        return sum(size for _, size in self._mapped)

    def status(self) -> dict[str, Any]:
        """C{retention} of the status; docs/status.rst, Status, lists the fields."""
        return {
            "diskUse": self.use,
            "deletedFiles": self.deleted_files,
            "deletedBytes": self.deleted_bytes,
            "deletedButHeldBytes": self.deleted_and_held,
            "heldBackFrom": self.held_back,
            "lostBytes": self.lost_bytes,
        }
