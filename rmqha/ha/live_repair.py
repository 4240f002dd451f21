"""A slave repairs its own log while it serves: what its scrubber has found bad, and what came
damaged from the master, is fetched from the master and written in place.

It is what C{rmqha repair} does to a stopped store, with the same comparison and the same checks
(L{rmqha.store.repair}), a range at a time.  Nobody who reads has to wait: a byte of the range is
wrong, or right already, and what reads it checks what it reads.  A range is tried again after a
while, for a master is repaired too.

Source: docs/operations.rst, Repair from a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, ConnectionClosed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.errors import RmqhaError
from rmqha.ha.fetch_range import MasterReplica
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.periodic import Watch
from rmqha.store.files.allocate import InThread
from rmqha.store.log.range_repair import (
    RepairIntent,
    drop_fetched,
    finish_repair,
    intend_repair,
    pending_repair,
    write_repair,
)
from rmqha.store.repair.damaged_ranges import DamagedRange
from rmqha.store.repair.derived_check import missing_from_derived
from rmqha.store.repair.from_replica import RangeFetch, RepairReport
from rmqha.store.scrub.slices import KeptFinding
from rmqha.store.store import Store
from rmqha.wire.store_layout import OWN_FOLDER, REPAIR

LOOK = 5.0
"""Seconds between looks whether there is something to repair."""

AGAIN = 3600.0
"""Seconds after which a range that was not had is tried again."""

MOST = 256 << 20
"""Bytes of a range that is repaired while the node serves; a longer one is for C{rmqha repair}."""

UNREACHED = (ConnectError, ConnectionClosed, CancelledError, RmqhaError, OSError)
"""What may keep a range from being had; it is tried again later."""


@define(eq=False, kw_only=True)
class LiveRepair(Watch):
    """Repairs the log of one open store.

    @ivar master: Who has the bytes; C{None} while the log is not known to be the master's.
    @ivar differs: Told of records that check on both sides and yet differ, and stay as they are.
    @ivar repaired: Ranges replaced since the store was opened.
    @ivar trouble: Why the last range was not had; C{""} if it was.
    """

    store: Store
    master: Callable[[], MasterReplica | None]
    differs: Callable[[KeptFinding], object]
    clock: IReactorTime
    in_thread: InThread
    repaired: int = field(default=0, init=False)
    records: int = field(default=0, init=False)
    trouble: str = field(default="", init=False)
    _tried: dict[int, float] = field(factory=dict, init=False)
    _told: set[str] = field(factory=set, init=False)
    _asked: MasterReplica | None = field(default=None, init=False)

    job = "repairing the log from the master"
    every = LOOK
    _log = Logger()

    def stop(self) -> Deferred[None]:
        """Ask the master for nothing more.

        @return: Fires when nothing is written into the log any more.
        """
        stopped = self.looking.stop()
        if self._asked is not None:
            self._asked.leave()
        return stopped

    def status(self) -> dict[str, Any]:
        """C{repair} of C{/status}."""
        return {"ranges": self.repaired, "records": self.records, "trouble": self.trouble}

    # --- one range ------------------------------------------------------------

    def damaged_ranges(self) -> list[DamagedRange]:
        """All that is known to be bad, where queues and index are and the log is on the disk."""
        store, log = self.store, self.store.log
        least = log.min_offset
        most = min(log.confirmed, log.flushed, store.dispatcher.position)
        found = {
            record.offset: DamagedRange(record.offset, record.offset + record.size, record.reason)
            for record in log.copied
        }
        for fault in store.scrubber.bounded_findings():
            found[fault.offset] = DamagedRange(fault.offset, fault.end, fault.reason)
        return [found[at] for at in sorted(found) if least <= at < found[at].stop <= most]

    def look(self) -> Deferred[None] | None:
        """Repair a range, if one is damaged."""
        known = self.damaged_ranges()
        now = self.clock.seconds()
        for offset in [at for at, tried in self._tried.items() if now - tried >= AGAIN]:
            del self._tried[offset]
        wanted = next((one for one in known if one.start not in self._tried), None)
        master = None if wanted is None else self.master()
        if wanted is None or master is None:
            return None
        self._tried[wanted.start] = now
        if wanted.stop - wanted.start > MOST:
            self._not_had(wanted, f"{wanted.stop - wanted.start} bytes are for `rmqha repair`")
            return None
        return Deferred.fromCoroutine(self._repair(wanted, known, master))

    async def _repair(
        self, wanted: DamagedRange, known: list[DamagedRange], master: MasterReplica
    ) -> None:
        try:
            await self._fetch(wanted, known, master)
        except Exception as error:
            if self.store.log.min_offset > wanted.start:
                self._log.info(
                    "Bytes {start} to {stop} of the log were deleted while they were repaired, "
                    "which ended with {error!r}",
                    start=wanted.start,
                    stop=wanted.stop,
                    error=error,
                )
            elif isinstance(error, UNREACHED):
                self._not_had(wanted, str(error) or type(error).__name__)
            else:
                raise

    async def _fetch(
        self, wanted: DamagedRange, known: list[DamagedRange], master: MasterReplica
    ) -> None:
        settings, log = self.store.settings, self.store.log
        raw = await self.in_thread(self._open)
        fetching = RangeFetch(root=settings.root, raw=raw, replica=master, in_thread=self.in_thread)
        self._asked = master
        try:
            report = await fetching.fetch([wanted], known)
            self._asked = None
            intent = fetching.intent(creates=False)
            if intent is not None and self.looking.running and log.min_offset <= wanted.start:
                kept, lacks = await self.in_thread(self._write, raw, intent)
                self._replaced(report, kept, lacks)
        finally:
            self._asked = None
            await self.in_thread(self._forget, raw)
        for missing in report.not_had:
            self._not_had(DamagedRange(missing.start, missing.stop, wanted.reason), missing.reason)
        for other in report.differs if log.min_offset <= wanted.start else ():
            path = str(log.folder.at(other.start).path)
            reason = f"byte {other.start} differs from the master's; {other.reason}"
            self.differs(KeptFinding(offset=other.start, end=other.stop, path=path, reason=reason))
        if report.ranges:
            await self.store.scrubber.look_again(wanted.start, wanted.stop)

    def _open(self) -> RawLog:
        """The files as they are, once what a full disk has interrupted is done; blocking."""
        settings, step = self.store.settings, self.store.environment.step
        begun = pending_repair(settings.root, settings.commitlog)
        if begun is not None:
            write_repair(settings.root, settings.commitlog, begun, step)
            finish_repair(settings.root, begun, step)
        return RawLog.open(settings.commitlog, settings.file_size)

    def _write(self, raw: RawLog, intent: RepairIntent) -> tuple[tuple[str, ...], str]:
        """Write what was had; blocking.

        @return: What stood there, and what queues or index lack of it.
        """
        settings, step = self.store.settings, self.store.environment.step
        certain = intend_repair(settings.root, raw, intent, step)
        write_repair(settings.root, settings.commitlog, certain, step)
        log = OfflineLog.of(raw, self.store.log.confirmed)
        lacks = next(missing_from_derived(log, settings, certain.ranges), None)
        finish_repair(settings.root, certain, step)
        return certain.kept, "" if lacks is None else str(lacks)

    def _forget(self, raw: RawLog) -> None:
        raw.close()
        root = self.store.settings.root
        if not (root / OWN_FOLDER / REPAIR).exists():
            drop_fetched(root)

    def _replaced(self, report: RepairReport, kept: tuple[str, ...], lacks: str) -> None:
        self.store.log.copied.forget(report.ranges)
        self.repaired += len(report.ranges)
        self.records += report.records
        self.trouble = ""
        for start, stop in report.ranges:
            for offset in [at for at in self._tried if start <= at < stop]:
                del self._tried[offset]
            self._log.warn(
                "Repaired bytes {start} to {stop} of the log with those of the master {master}; "
                "what stood there is kept in {kept}",
                start=start,
                stop=stop,
                master=report.peer,
                kept=", ".join(kept),
            )
        if lacks:
            self._log.error(
                "Consume queues or index lack what was repaired: {lacks}; `rmqha rebuild` makes "
                "them again",
                lacks=lacks,
            )

    def _not_had(self, wanted: DamagedRange, why: str) -> None:
        """Say once why a range is not repaired."""
        self.trouble = f"bytes {wanted.start} to {wanted.stop}: {why}"
        if self.trouble not in self._told:
            self._told.add(self.trouble)
            self._log.warn(
                "Not repaired from the master: {trouble}; trying again every {hours:g} h",
                trouble=self.trouble,
                hours=AGAIN / 3600,
            )
