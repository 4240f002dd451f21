"""The scrubber: reads the whole log of a node again, slowly, and names what the disk has lost.

What a start checks, and what a slave compares when it connects, is the end of a log.  A block that
goes bad in an old file is found by nobody, until a consumer gets it or a slave copies it: so each
byte is looked at once in a while, in a thread, a slice at a time and at a bounded rate, past the
page cache.  Only what is confirmed and on the disk is looked at.  Old files may be deleted
meanwhile; what they held is no fault any more.

Source: docs/states.rst, Cold damage; docs/architecture.rst, Cold damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import DiskFull
from rmqha.health import HealthReason
from rmqha.periodic import Watch
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.mapped import not_now
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.record_checksums import KeptChecksums, RecordChecksums
from rmqha.store.scrub import scrub_mark
from rmqha.store.scrub.cold_log import ColdLog
from rmqha.store.scrub.scrub_mark import ScrubMark, ScrubPass
from rmqha.store.scrub.slices import (
    SLICE,
    KeptFinding,
    SliceResult,
    check_slice,
    search_slice,
    still_bad,
)
from rmqha.wire.store_layout import OWN_FOLDER, SCRUB

IDLE = 1.0
"""Seconds between looks whether a pass is due."""

SHORTEST = 0.005
"""Least seconds between two slices, whatever the rate."""

SAVE_EVERY = 60.0
"""Seconds after which the mark is written during a pass."""

SHOWN = 100
"""Most faults that are kept and told; the others are counted."""


@define(eq=False, kw_only=True)
class Scrubber(Watch):
    """Scrubs one open log.

    @ivar checksums: Of whole records; those that are missing are made.
    @ivar faults: What is bad, by physical offset.
    @ivar uncounted: How many more corruptions the pass has found than are kept.
    @ivar read: Bytes read since the start.
    """

    log: CommitLog
    settings: StoreSettings
    environment: StoreEnvironment
    checksums: RecordChecksums
    faults: dict[int, KeptFinding] = field(factory=dict, init=False)
    uncounted: int = field(default=0, init=False)
    read: int = field(default=0, init=False)
    _mark: ScrubMark = field(factory=ScrubMark, init=False)
    _lost: KeptFinding | None = field(default=None, init=False)
    _cold: ColdLog = field(init=False)
    _kept: KeptChecksums = field(init=False)
    clock: IReactorTime = field(init=False)
    _debt: float = field(default=0.0, init=False)
    _loaded: bool = field(default=False, init=False)
    _dirty: bool = field(default=False, init=False)
    _saved: float = field(default=0.0, init=False)

    job = "scrubbing the log"
    every = IDLE
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._cold = ColdLog(folder=self.log.folder.path, file_size=self.log.file_size)
        self._kept = KeptChecksums(self.settings.root, self.log.file_size)
        self.clock = self.environment.clock
        super().__attrs_post_init__()

    # --- its life -------------------------------------------------------------

    def start(self) -> None:
        """Begin, unless it is switched off."""
        self._saved = self.clock.seconds()
        if self.settings.scrub_rate:
            super().start()

    def stop(self) -> Deferred[None]:
        """Read nothing more, and write down how far it came.

        @return: Fires when nothing of the log is read any more.
        """
        return self.looking.stop().addCallback(lambda _: self._save())

    # --- slices ---------------------------------------------------------------

    def look(self) -> Deferred[None] | None:
        """Do a slice, if one is due; without a descriptor for its file, the next time."""
        done = self._slice()
        return None if done is None else done.addErrback(not_now)

    def _slice(self) -> Deferred[None] | None:
        if not self._bounds():
            return None
        if not self._loaded:
            return self.environment.in_thread(self._load).addCallback(self._known)
        self._debt = max(0.0, self._debt - SLICE)
        if self._debt >= SLICE:
            return None
        running = self._mark.running
        if running is None:
            self._begin()
            return None
        if self._mark.position >= min(running.stop, self._cold.end):
            return self._end(running)
        before = self._cold.taken
        if self._lost is None:
            work = self.environment.in_thread(
                check_slice, self._cold, self._mark.position, self._kept
            )
        else:
            work = self.environment.in_thread(
                search_slice, self._cold, self._lost, self._mark.position
            )
        return work.addCallbacks(
            lambda progress: self._checked(progress, before),
            lambda failure: self._gone() if failure.check(FileNotFoundError) else failure,
        )

    def _bounds(self) -> bool:
        """Tell the thread how far the log goes now.

        @return: Whether it holds anything to read.
        """
        log, cold = self.log, self._cold
        cold.min_offset = log.min_offset
        cold.end = min(log.confirmed, log.flushed)
        cold.whole = cold.end == log.confirmed
        mark = self._mark
        if self._loaded and not cold.min_offset <= mark.position <= cold.end:
            # Retention has gone past it, or the log was cut.
            self._lost = None
            behind = mark.position > cold.end
            self._mark = evolve(
                mark, position=cold.min_offset, running=None if behind else mark.running
            )
        for offset in [offset for offset in self.faults if offset < cold.min_offset]:
            self._forget(self.faults[offset], "its file was deleted")
        return cold.end > cold.min_offset

    def _load(self) -> tuple[ScrubMark, list[KeptFinding]]:
        """Read the mark, and look at the places again that were bad; blocking."""
        mark = scrub_mark.load(self.settings.root / OWN_FOLDER / SCRUB, self._cold)
        inside = range(self._cold.min_offset, self._cold.end)
        known = [fault for fault in mark.faults if fault.offset in inside]
        return mark, [fault for fault in known if still_bad(self._cold, fault, self._kept)]

    def _known(self, found: tuple[ScrubMark, list[KeptFinding]]) -> None:
        self._mark, faults = found
        self._loaded = True
        self._dirty = len(faults) < len(self._mark.faults)
        for fault in faults:
            self._tell(fault)
        if self._mark.running is not None:
            self._pace()
        else:
            self._begin()

    def _begin(self) -> None:
        last, now = self._mark.last, self.environment.now_ms()
        since = now - last.began if last is not None else 0
        if last is not None and 0 <= since < self.settings.scrub_interval * 1000:
            return
        cold = self._cold
        running = ScrubPass(began=now, start=cold.min_offset, stop=cold.end)
        self._mark = evolve(self._mark, position=cold.min_offset, running=running)
        self._lost, self.uncounted = None, 0
        self._pace()

    def _pace(self) -> None:
        self.looking.start(max(SLICE / self.settings.scrub_rate, SHORTEST))

    def _end(self, running: ScrubPass) -> Deferred[None]:
        last = evolve(running, ended=self.environment.now_ms())
        self._mark = evolve(self._mark, running=None, last=last)
        self._lost, self._dirty, self._debt = None, True, 0.0
        self._cold.close()
        self._log.info(
            "Scrubbed the log from byte {start} to {stop} in {seconds:.0f} s: {faults} bad places",
            start=last.start,
            stop=last.stop,
            seconds=(last.ended - last.began) / 1000,
            faults=len(self.faults) + self.uncounted,
        )
        self.looking.start(IDLE)
        return self._save()

    def _checked(self, progress: SliceResult, before: int) -> Deferred[None] | None:
        taken = self._cold.taken - before
        self.read += taken
        self._debt += taken
        start, self._dirty = self._mark.position, True
        self.checksums.complete(progress.fresh, start)
        lost, bad = self._lost, {fault.offset for fault in progress.faults}
        for offset, fault in list(self.faults.items()):
            if lost is None and start <= offset < progress.position and offset not in bad:
                self._forget(fault, "what is there is valid now")
            elif lost is not None and lost.offset < offset < progress.position:
                del self.faults[offset]  # part of this one
        new = [self._found(fault) for fault in progress.faults]
        self._lost = progress.lost
        self._mark = evolve(self._mark, position=progress.position)
        due = self.clock.seconds() - self._saved >= SAVE_EVERY
        return self._save() if due or any(new) else None

    def _gone(self) -> None:
        """A file is not there: retention has deleted it, or somebody else."""
        cold, position = self._cold, self._mark.position
        cold.close()
        if cold.file_start(position) < self.log.min_offset:
            return
        start, end = cold.file_start(position), cold.file_end(position)
        path = str(cold.path_of(position))
        self._found(KeptFinding(offset=start, end=end, path=path, reason="the file is missing"))
        self._lost, self._dirty = None, True
        self._mark = evolve(self._mark, position=min(end, cold.end))

    # --- faults -----------------------------------------------------------------

    def _found(self, fault: KeptFinding) -> bool:
        """A place is bad.

        @return: Whether that is news.
        """
        known = self.faults.get(fault.offset)
        if known is not None:
            self.faults[fault.offset] = evolve(fault, found=known.found)
            return False
        if len(self.faults) >= SHOWN:
            self.uncounted += self._lost is None
            return False
        self._tell(evolve(fault, found=self.environment.now_ms()))
        return True

    def _tell(self, fault: KeptFinding) -> None:
        self.faults[fault.offset] = fault
        self._log.error(
            "Damage at rest: {fault}; `rmqha verify` shows all of it, docs/states.rst "
            '("Cold damage") what to do',
            fault=str(fault),
        )

    def _forget(self, fault: KeptFinding, why: str) -> None:
        del self.faults[fault.offset]
        self._dirty = True
        self._log.info("No longer damaged: {fault}; {why}", fault=str(fault), why=why)

    def bounded_findings(self) -> Iterator[KeptFinding]:
        """The corruptions of which it is known where the log goes on."""
        for fault in self.faults.values():
            if self._lost is None or fault.offset != self._lost.offset:
                yield fault

    def look_again(self, start: int, stop: int) -> Deferred[None]:
        """Bytes C{[start, stop)} were written anew: forget the faults there that are none any
        more.
        """
        self._bounds()
        self._kept.forget()
        known = [fault for fault in self.faults.values() if start <= fault.offset < stop]

        def told(bad: list[KeptFinding]) -> None:
            for fault in known:
                if fault not in bad and self.faults.get(fault.offset) is fault:
                    self._forget(fault, "it was repaired")

        return self.environment.in_thread(self._still_bad, known).addCallback(told)

    def _still_bad(self, known: list[KeptFinding]) -> list[KeptFinding]:
        # A log of its own: a slice may be under way in another thread.
        cold, kept = evolve(self._cold), KeptChecksums(self.settings.root, self.log.file_size)
        try:
            return [fault for fault in known if still_bad(cold, fault, kept)]
        finally:
            cold.close()

    def doubt(self, start: int, end: int) -> str:
        """Why bytes C{[start, end)} of the log are not to be trusted; empty if nothing is known
        against them.
        """
        for fault in self.faults.values():
            if fault.offset < end and start < fault.end:
                return f"damage at rest: {fault}"
        return ""

    def health(self) -> Iterator[HealthReason]:
        if self.faults:
            first = self.faults[min(self.faults)]
            more = len(self.faults) + self.uncounted - 1
            text = f"{first}" + (f", and {more} more places" if more else "")
            yield HealthReason("cold-damage", text, told=True)

    # --- the mark and the status --------------------------------------------------

    def _save(self) -> Deferred[None]:
        """Write the mark, if it is another.  Without room on the disk it is written later."""
        self._saved = self.clock.seconds()
        if not self._dirty:
            self._cold.close()
            return succeed(None)
        self._dirty = False
        position = self._mark.position
        if self._lost is not None:
            # There is no record's start between the last one and here.
            position = self._cold.file_start(min(position, self._lost.offset))
        mark = evolve(self._mark, position=position, faults=tuple(self.faults.values()))
        return self.environment.in_thread(self._write, mark)

    def _write(self, mark: ScrubMark) -> None:
        try:
            scrub_mark.save(self.settings.root / OWN_FOLDER / SCRUB, self._cold, mark)
        except (DiskFull, OSError) as error:
            self._log.warn("The mark of the scrub is not written: {error}", error=error)
        finally:
            self._cold.close()

    def status(self) -> dict[str, Any]:
        """C{scrub} of C{/status}."""
        running, last = self._mark.running, self._mark.last
        age = None if last is None else max(0, self.environment.now_ms() - last.ended) / 1000
        return {
            "bytesPerSecond": self.settings.scrub_rate,
            "position": None if running is None else self._mark.position,
            "passFrom": None if running is None else running.start,
            "passTo": None if running is None else running.stop,
            "readBytes": self.read,
            "lastPassSeconds": None if last is None else (last.ended - last.began) / 1000,
            "lastPassAge": age,
            "faultCount": len(self.faults) + self.uncounted,
            "faults": [
                {
                    "offset": fault.offset,
                    "end": fault.end,
                    "file": fault.path,
                    "reason": fault.reason,
                    "found": fault.found,
                }
                for _, fault in sorted(self.faults.items())
            ],
        }
