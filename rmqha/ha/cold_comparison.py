"""A slave that has nothing to do compares its whole log with its master's, a window at a time.

A connection compares the last files and 64 MiB, and the scrubber checks what a record's checks
cover: the body, and where the record stands.  Bytes that differ in an old record's properties or
times are seen by neither.  So while the slave is in sync and next to nothing comes, old windows are
fetched over a second, short connection, on which it says that it only looks on, and compared with
what the disk has.  The connection that replicates is not touched.

Source: docs/states.rst, Cold damage; docs/protocol/ha.rst, Observers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from attrs import define, evolve, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.errors import RmqhaError, StoreError
from rmqha.ha.fetch_range import MasterReplica
from rmqha.ha.slave.compare_bytes import first_difference
from rmqha.health import HealthReason
from rmqha.periodic import Watch
from rmqha.store.files.allocate import InThread
from rmqha.store.files.mapped import not_now
from rmqha.store.log.two_versions import keep_versions
from rmqha.store.scrub import scrub_mark
from rmqha.store.scrub.cold_log import ColdLog
from rmqha.store.scrub.scrub_mark import ScrubMark, ScrubPass
from rmqha.store.scrub.slices import KeptFinding
from rmqha.store.store import Store
from rmqha.wire.store_layout import COMPARED, OWN_FOLDER

WINDOW = 4 << 20
"""Bytes of one connection."""

BUSY = 64 << 10
"""Bytes that came since the last look from which on the slave is not idle."""

IDLE = 5.0
"""Seconds between looks while there is nothing to compare."""

AGAIN = 60.0
"""Seconds after which a window that could not be compared is asked for again."""

SAVE_EVERY = 60.0
"""Seconds after which the mark is written during a pass."""

SHOWN = 100
"""Most differences that are kept and told."""

UNREACHED = (ConnectError, ConnectionClosed, CancelledError, RmqhaError, OSError)
"""What may keep a window from being compared now; it is asked for again."""


@frozen
class ComparedWindow:
    """What was found in a window.

    @ivar stop: Physical offset up to which it was compared.
    @ivar difference: The first byte that differs, C{None} if none does.
    """

    stop: int
    difference: KeptFinding | None


@define(eq=False, kw_only=True)
class ColdComparison(Watch):
    """Compares one open log with the master's.

    @ivar master: Who is followed; C{None} while the slave is not in sync.
    @ivar rate: Most bytes a second; 0 is never.
    @ivar differences: What differs, by physical offset.
    @ivar compared: Bytes compared since the store was opened.
    @ivar trouble: Why the last window was not compared; C{""} if it was.
    """

    store: Store
    master: Callable[[], MasterReplica | None]
    rate: int
    clock: IReactorTime
    in_thread: InThread
    differences: dict[int, KeptFinding] = field(factory=dict, init=False)
    compared: int = field(default=0, init=False)
    trouble: str = field(default="", init=False)
    _mark: ScrubMark | None = field(default=None, init=False)
    _cold: ColdLog = field(init=False)
    _end: int = field(default=-1, init=False)
    _asked: MasterReplica | None = field(default=None, init=False)
    _saved: float = field(default=0.0, init=False)
    _again: float = field(default=0.0, init=False)

    job = "comparing the log with the master's"
    every = IDLE
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        log = self.store.log
        self._cold = ColdLog(folder=log.folder.path, file_size=log.file_size)
        super().__attrs_post_init__()

    # --- its life -------------------------------------------------------------

    def start(self) -> None:
        """Look from now on, unless it is switched off."""
        if self.rate:
            super().start()

    def stop(self) -> Deferred[None]:
        """Ask the master for nothing more.

        @return: Fires when nothing of the log is read any more.
        """
        stopped = self.looking.stop()
        if self._asked is not None:
            self._asked.leave()
        return stopped.addCallback(lambda _: self._save())

    # --- a window at a time ---------------------------------------------------

    def look(self) -> Deferred[None] | None:
        """Compare a window, if one is due."""
        log, cold = self.store.log, self._cold
        grown, self._end = log.end - self._end, log.end
        cold.min_offset, cold.end = log.min_offset, min(log.confirmed, log.flushed)
        if cold.end <= cold.min_offset:
            return None
        if self._mark is None:
            return self.in_thread(self._load).addCallbacks(self._loaded, not_now)
        self._keep_to_the_log(self._mark)
        master = self.master()
        waits = self.clock.seconds() < self._again
        if master is None or waits or not 0 <= grown < BUSY:
            return None
        running = self._mark.running or self._begin(self._mark)
        if running is None:
            return None
        if self._mark.position >= min(running.stop, cold.end):
            return self._finish(running)
        return Deferred.fromCoroutine(self._window(self._mark.position, master))

    def _load(self) -> ScrubMark:
        return scrub_mark.load(self.store.settings.root / OWN_FOLDER / COMPARED, self._cold)

    def _loaded(self, mark: ScrubMark) -> Deferred[None]:
        if mark.last is None:
            # The first pass is due when one would be after one that began now: a new slave has
            # just had everything from its master.
            mark = evolve(mark, last=ScrubPass(began=self.store.now_ms(), start=0, stop=0))
        self._mark = mark
        for difference in mark.faults:
            if self._cold.min_offset <= difference.offset < self._cold.end:
                self._tell(difference)
        if mark.running is not None:
            self._pace()
        return self._save()

    def _keep_to_the_log(self, mark: ScrubMark) -> None:
        """Files were deleted, or the log was cut: then it is begun anew."""
        cold = self._cold
        if mark.position > cold.end:
            mark = evolve(mark, running=None)
        self._mark = evolve(mark, position=max(mark.position, cold.min_offset))
        for offset in [at for at in self.differences if not cold.min_offset <= at < cold.end]:
            self._forget(offset, "it is not in the log any more")

    def _begin(self, mark: ScrubMark) -> ScrubPass | None:
        now = self.store.now_ms()
        since = now - mark.last.began if mark.last is not None else 0
        if 0 <= since < self.store.settings.scrub_interval * 1000:
            return None
        cold = self._cold
        running = ScrubPass(began=now, start=cold.min_offset, stop=cold.end)
        self._mark = evolve(mark, position=cold.min_offset, running=running)
        self._pace()
        return running

    def _pace(self) -> None:
        self.looking.start(WINDOW / self.rate)

    async def _window(self, start: int, master: MasterReplica) -> None:
        out, cold = BytesIO(), self._cold
        stop = min(start + WINDOW, cold.file_end(start), cold.end)
        self._asked = master
        try:
            first = await master.begins()
            if first > start:
                self._advance(start, ComparedWindow(min(first, cold.end), None))
                return
            await master.fetch(start, stop, out, lambda size: None)
            if not self.looking.running:
                return
            found = await self.in_thread(self._compare, start, out.getvalue())
        except UNREACHED as error:
            self.trouble = f"bytes {start} to {stop}: {str(error) or type(error).__name__}"
            self._again = self.clock.seconds() + AGAIN
            return
        finally:
            self._asked = None
        self.trouble = ""
        self.compared += found.stop - start
        self._advance(start, found)
        if self.clock.seconds() - self._saved >= SAVE_EVERY:
            await self._save()

    def _compare(self, start: int, theirs: bytes) -> ComparedWindow:
        """Hold the master's bytes against those on our disk, and judge and keep both versions of
        the first record that differs; blocking.
        """
        cold = self._cold
        theirs = theirs[: cold.end - start]
        stop = start + len(theirs)
        at = first_difference(cold, start, memoryview(theirs))
        if at is None:
            return ComparedWindow(stop, None)
        root = self.store.settings.root
        verdict, kept = keep_versions(root, cold, at, theirs[at - start :])
        reason = f"byte {at} differs from the master's; {verdict.sentence()}; {kept}"
        path = str(cold.path_of(at))
        return ComparedWindow(stop, KeptFinding(offset=at, end=stop, path=path, reason=reason))

    def _advance(self, start: int, found: ComparedWindow) -> None:
        assert self._mark is not None, "it was read before"
        at = None if found.difference is None else found.difference.offset
        for offset in [offset for offset in self.differences if start <= offset < found.stop]:
            if offset != at:
                self._forget(offset, "both logs have the same there now")
        room = len(self.differences) < SHOWN
        if found.difference is not None and at not in self.differences and room:
            self._tell(evolve(found.difference, found=self.store.now_ms()))
        self._mark = evolve(self._mark, position=found.stop)

    def _finish(self, running: ScrubPass) -> Deferred[None]:
        assert self._mark is not None, "it was read before"
        last = evolve(running, ended=self.store.now_ms())
        self._mark = evolve(self._mark, running=None, last=last)
        self._log.info(
            "Compared the log with the master's from byte {start} to {stop} in {seconds:.0f} s: "
            "{count} windows differ",
            start=last.start,
            stop=last.stop,
            seconds=(last.ended - last.began) / 1000,
            count=len(self.differences),
        )
        self.looking.start(IDLE)
        return self._save()

    # --- what differs -----------------------------------------------------------

    def differ(self, difference: KeptFinding) -> Deferred[None]:
        """A repair has met records that differ: they are named until both logs have the same."""
        if difference.offset not in self.differences:
            self._tell(evolve(difference, found=self.store.now_ms()))
        return self._save()

    def _tell(self, difference: KeptFinding) -> None:
        self.differences[difference.offset] = difference
        self._log.error("Cold difference: {difference}", difference=str(difference))

    def _forget(self, offset: int, why: str) -> None:
        gone = self.differences.pop(offset)
        self._log.info("No cold difference any more: {gone}; {why}", gone=str(gone), why=why)

    def health(self) -> Iterator[HealthReason]:
        """That the logs are known to differ."""
        if self.differences:
            first = self.differences[min(self.differences)]
            more = len(self.differences) - 1
            text = f"{first}" + (f", and in {more} more windows" if more else "")
            yield HealthReason("cold-difference", text, told=True)

    def _save(self) -> Deferred[None]:
        """Write the mark.  Without room on the disk it is written later."""
        self._saved = self.clock.seconds()

        def write(mark: ScrubMark | None) -> None:
            try:
                if mark is not None:
                    path = self.store.settings.root / OWN_FOLDER / COMPARED
                    scrub_mark.save(path, self._cold, mark)
            except (StoreError, OSError) as error:
                self._log.warn("The mark of the comparison is not written: {error}", error=error)
            finally:
                self._cold.close()

        mark = self._mark
        if mark is not None:
            mark = evolve(mark, faults=tuple(self.differences.values()))
        return self.in_thread(write, mark)

    def status(self) -> dict[str, Any]:
        """C{comparison} of C{/status}."""
        running = None if self._mark is None else self._mark.running
        last = None if self._mark is None else self._mark.last
        age = None
        if last is not None and last.ended:
            age = max(0, self.store.now_ms() - last.ended) / 1000
        return {
            "bytesPerSecond": self.rate,
            "position": None if running is None or self._mark is None else self._mark.position,
            "passTo": None if running is None else running.stop,
            "comparedBytes": self.compared,
            "lastPassAge": age,
            "trouble": self.trouble,
            "differences": [
                {
                    "offset": each.offset,
                    "file": each.path,
                    "reason": each.reason,
                    "found": each.found,
                }
                for _, each in sorted(self.differences.items())
            ],
        }
