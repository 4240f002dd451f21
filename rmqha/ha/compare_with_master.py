"""Where a log on the disk and a running master part, without touching either.

One connection after another asks, each further back, as a slave's probe does, until one brings
bytes to compare; only then is anything concluded.  It never counts as an acknowledgement: what is
reported is below the end that the master has just told, or far below our own where it tells none,
and never rises.

Such a connection only looks: it asks as a slave does, compares what comes with a log on the disk,
and keeps what lies behind the parting.  The first report is a question, as a slave's
(L{rmqha.ha.slave.probe}), and it is the only one: it is repeated, so that the connection lives, and
never raised.  So whatever the master makes of it, it learns of no byte that it did not have to send
from there.

Source: docs/architecture.rst, The divergence guard; docs/operations.rst, Against a running master.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from attrs import define, evolve, field
from twisted.internet.task import deferLater

from rmqha.errors import RmqhaError
from rmqha.ha.observer import Observer
from rmqha.ha.slave.compare_bytes import first_difference
from rmqha.ha.slave.master_bounds import MasterBounds, MasterClientPort
from rmqha.ha.slave.probe import OverlapSearch, ProbeKind
from rmqha.ha.slave.reconnect import NEXT_QUESTION, SingleConnection, guarded_endpoint
from rmqha.logfiles.offline_log import OfflineLog, Progress
from rmqha.logfiles.quarantine_file import quarantine_name
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.compare import (
    Beyond,
    FirstDifference,
    LogComparison,
    beyond,
    record_start,
    valid_end,
    versions,
)
from rmqha.wire.ha_frame import DEFAULT_BATCH, BodyPart

MOST_KEPT = 256 << 20
"""Most bytes of the master's own that are fetched: the connection is to be short."""


@define(eq=False, kw_only=True)
class ComparisonProtocol(Observer):
    """Compare one log with a master's, from one place on.

    @ivar ours: The log; compared up to its C{end}.
    @ivar whole: Just past its last whole, valid record.
    @ivar report: What to ask for: an offset the master is known, or likely, to have.
    @ivar deepest: Whether this is the last question: then a difference in the very first
        record is an answer too.
    @ivar end: Where the master's log ends, if it has told; else found out.
    @ivar kept: Where the bytes from C{at} on go, as the master has them.
    @ivar compared: Just past the last byte compared.
    @ivar at: The first record not shared; C{None} while there is none.
    @ivar difference: The first byte not shared.
    """

    ours: OfflineLog
    whole: int
    deepest: bool
    end: int | None
    kept: BinaryIO
    progress: Progress | None = None
    compared: int = field(init=False)
    at: int | None = field(default=None, init=False)
    difference: FirstDifference | None = field(default=None, init=False)
    _largest: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.compared = self.report

    # --- what comes -----------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Compare what our log has too, keep what only the master's has."""
        super().dataReceived(data)
        shown = self.answered and not self._over
        if shown and self.progress is not None and self.end is not None:
            self.progress(self.cursor - self.report, self.end - self.report)

    def _ended(self) -> None:
        self._ends(self.cursor)

    def _body(self, part: BodyPart) -> None:
        data = part.data if self.end is None else part.data[: self.end - part.offset]
        self.answered = True
        self.cursor += len(data)
        if self.at is None:
            data = self._compare(part.offset, data)
        if self._over:
            return
        if self.at is not None:
            self._keep(data)
        if self.cursor == self.end:
            self._ends(self.cursor)
        elif not part.left:
            self._frame_ended(part.frame, self.cursor)

    def _frame_ended(self, size: int, offset: int) -> None:
        """A frame shorter than others that closes no file ends where the master does."""
        self._largest = max(self._largest, size)
        if size < self._largest and offset % self.ours.file_size and self.end is None:
            self._ends(offset)

    def _compare(self, offset: int, data: memoryview) -> memoryview:
        """Hold bytes against ours.

        @return: Those of them behind the place where nothing compares any more.
        """
        ours = data[: self.ours.end - offset]
        differs = first_difference(self.ours, offset, ours)
        if differs is None:
            self.compared = offset + len(ours)
            if self.compared == self.ours.end:
                self._part(self.compared)
            return data[len(ours) :]
        self.compared = differs
        self.difference = FirstDifference(
            differs,
            str(self.ours.raw.at(differs).path),
            self.port.peer,
            self.ours.read(differs, 1)[0],
            data[differs - offset],
        )
        self._part(differs)
        return data[differs - offset :]

    def _part(self, offset: int) -> None:
        """What comes from C{offset} on is the master's own."""
        at = record_start(self.ours, offset)
        if self.difference is None:
            at = min(at, self.whole)
        elif at <= self.report and not self.deepest:
            self._finish(False)
            return
        self.at = at
        while at < offset:
            shared = self.ours.read(at, offset - at)
            self.kept.write(shared)
            at += len(shared)

    def _keep(self, data: memoryview) -> None:
        assert self.at is not None, "they have parted"
        self.kept.write(data)
        if self.cursor - self.at >= MOST_KEPT:
            self._finish(True)

    def _ends(self, offset: int) -> None:
        self.end = offset
        if self.at is None:
            self._part(offset)
        self._finish(True)


class NothingCommon(RmqhaError):
    """A log and a master's have no byte that could be compared.

    @ivar reason: What the master said or did.
    """

    address: str
    first: int
    end: int
    reason: str

    def __str__(self) -> str:
        ours = f"our log holds [{self.first}, {self.end})"
        return f"no bytes to compare: {ours}, master {self.address} {self.reason}"


@define(eq=False, kw_only=True)
class MasterComparison:
    """Compare one log with a master's.

    @ivar ours: The log; compared up to its C{end}.
    @ivar folder: Where the master's own bytes may lie while they are counted.
    @ivar earliest: Compare from here on at the latest; C{None}: from where a slave
        would.
    @ivar asked: How many questions there were.
    """

    ours: OfflineLog
    port: MasterClientPort
    folder: Path
    earliest: int | None = None
    asked: int = field(default=0, init=False)
    _first: int = field(init=False)
    _whole: int = field(init=False)
    _search: OverlapSearch | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._first = self.ours.raw.run_start(self.ours.end)
        self._whole = valid_end(self.ours)

    async def parting(self, progress: Progress | None = None) -> LogComparison:
        """Ask until there is an answer.

        @param progress: Told how far it is.
        @raise NothingCommon: If the master sends nothing that could be compared.
        @raise MasterLeft: If it leaves before it was compared.
        @raise ProtocolViolation: If it is none.
        """
        endpoint = guarded_endpoint(self.port)

        def question() -> ComparisonProtocol:
            return self._observer(kept, progress)

        with open(self.folder / "kept", "w+b") as kept:
            while True:
                looking: Any = endpoint.connect(SingleConnection(question))
                observer = await looking
                if await observer.done:
                    break
                assert self._search is not None, "it gave the question"
                self._search.lower()
                await deferLater(self.port.clock, NEXT_QUESTION, lambda: None)
        return self._told(observer)

    def _observer(self, kept: BinaryIO, progress: Progress | None) -> ComparisonProtocol:
        bounds = self.port.bounds
        search = self._search
        if search is None or not search.fits(self.ours.end, bounds):
            search = self._search = self._begin(bounds)
        question = search.question()
        if question.ask is ProbeKind.SURVEY:
            raise self._nothing(bounds)
        self.asked += 1
        return ComparisonProtocol(
            ours=self.ours,
            whole=self._whole,
            report=question.report,
            deepest=question.report == search.low,
            end=None if bounds is None else bounds.max_offset,
            port=self.port,
            kept=kept,
            progress=progress,
        )

    def _begin(self, bounds: MasterBounds | None) -> OverlapSearch:
        search = OverlapSearch.of(
            self._first,
            self.ours.end,
            self.ours.file_size,
            batch=DEFAULT_BATCH,
            proven_before=False,
            bounds=bounds,
        )
        if self.earliest is not None and search.start >= search.low:
            search = evolve(search, start=min(search.start, max(self.earliest, search.low)))
        return search

    def _nothing(self, bounds: MasterBounds | None) -> NothingCommon:
        if bounds is None:
            said = "sent nothing from there"
        else:
            said = f"says it holds [{bounds.min_offset}, {bounds.max_offset})"
            if self._search is not None and self._search.low < self._search.high:
                said += ", and sent nothing from there"
        return NothingCommon(self.port.peer, self._first, self.ours.end, said)

    def _told(self, observer: ComparisonProtocol) -> LogComparison:
        at, cursor, end = observer.at, observer.cursor, observer.end
        assert at is not None and cursor is not None, "it has learned something"
        theirs = self._kept(at, cursor)
        judged = None
        if observer.difference is not None and theirs is not None:
            judged = versions(self.ours, theirs, at)
        return LogComparison(
            start=observer.report,
            stop=observer.compared,
            difference=observer.difference,
            at=at,
            first=beyond(self.ours, at, self._whole),
            second=self._own(theirs, at, None if end is None else end - cursor),
            versions=judged,
        )

    def _kept(self, at: int, end: int) -> OfflineLog | None:
        """The master's bytes that were kept, read like what a cut puts aside."""
        if end <= at:
            return None
        path = (self.folder / "kept").rename(self.folder / quarantine_name(at, end))
        return OfflineLog.of(RawLog.open(path, self.ours.file_size), end)

    def _own(self, log: OfflineLog | None, at: int, unread: int | None) -> Beyond:
        if log is None:
            return Beyond(end=at, bytes=0, records=0, topics={}, bad=0, tail=0, unread=unread)
        own = beyond(log, at, valid_end(log))
        log.close()
        if unread == 0:
            return own
        # What was fetched may end in the middle of a record.
        return evolve(own, tail=0, unread=None if unread is None else unread + own.tail)
