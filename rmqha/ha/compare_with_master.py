"""Where a log on the disk and a running master part, without touching either.

One connection after another asks, each further back, as a slave's probe does, until
one brings bytes to compare; only then is anything concluded.  It never counts
as an acknowledgement: what is reported is below the end that the master has just told, or far
below our own where it tells none, and never rises (L{rmqha.ha.observer_protocol}).

Source: docs/operations.rst, Against a running master.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

from attrs import define, evolve, field, frozen
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.task import deferLater

from rmqha.errors import RmqhaError
from rmqha.ha.observer_protocol import ObserverProtocol
from rmqha.ha.slave.master_bounds import AskBounds, MasterBounds, MasterClientPort
from rmqha.ha.slave.probe import OverlapSearch, ProbeKind
from rmqha.ha.slave.reconnect import NEXT_QUESTION, SingleConnection, guarded
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.quarantine_file import quarantine_name
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.compare import (
    Beyond,
    LogComparison,
    Progress,
    beyond,
    valid_end,
    versions,
)
from rmqha.wire.ha_frame import DEFAULT_BATCH


@frozen
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
    @ivar endpoint: The master's HA port.
    @ivar peer: The same, for people.
    @ivar ask: ProbeKind the client port; C{None} to go without.
    @ivar folder: Where the master's own bytes may lie while they are counted.
    @ivar earliest: Compare from here on at the latest; C{None}: from where a slave
        would.
    @ivar port: What the client port said.
    @ivar asked: How many questions there were.
    """

    ours: OfflineLog
    endpoint: IStreamClientEndpoint
    peer: str
    ask: AskBounds | None
    clock: IReactorTime
    folder: Path
    earliest: int | None = None
    progress: Progress | None = None
    port: MasterClientPort = field(init=False)
    asked: int = field(default=0, init=False)
    _first: int = field(init=False)
    _whole: int = field(init=False)
    _search: OverlapSearch | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.port = MasterClientPort(self.ask, self.clock, self.peer)
        self._first = self.ours.raw.run_start(self.ours.end)
        self._whole = valid_end(self.ours)

    async def parting(self) -> LogComparison:
        """Ask until there is an answer.

        @raise NothingCommon: If the master sends nothing that could be compared.
        @raise MasterLeft: If it leaves before it was compared.
        @raise ProtocolViolation: If it is none.
        """
        endpoint = guarded(self.endpoint, self.port)
        with open(self.folder / "kept", "w+b") as kept:
            while True:
                looking: Any = endpoint.connect(SingleConnection(lambda: self._onlooker(kept)))
                onlooker = await looking
                if await onlooker.done:
                    break
                assert self._search is not None, "it gave the question"
                self._search.lower()
                await deferLater(self.clock, NEXT_QUESTION, lambda: None)
        return self._told(onlooker)

    def _onlooker(self, kept: BinaryIO) -> ObserverProtocol:
        bounds = self.port.bounds
        search = self._search
        if search is None or not search.fits(self.ours.end, bounds):
            search = self._search = self._begin(bounds)
        question = search.question()
        if question.ask is ProbeKind.SURVEY:
            raise self._nothing(bounds)
        self.asked += 1
        return ObserverProtocol(
            ours=self.ours,
            whole=self._whole,
            report=question.report,
            deepest=question.report == search.low,
            end=None if bounds is None else bounds.max_offset,
            peer=self.peer,
            kept=kept,
            clock=self.clock,
            progress=self.progress,
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
        return NothingCommon(self.peer, self._first, self.ours.end, said)

    def _told(self, onlooker: ObserverProtocol) -> LogComparison:
        at, cursor, end = onlooker.at, onlooker.cursor, onlooker.end
        assert at is not None and cursor is not None, "it has learned something"
        theirs = self._kept(at, cursor)
        judged = None
        if onlooker.difference is not None and theirs is not None:
            judged = versions(self.ours, theirs, at)
        return LogComparison(
            start=onlooker.report,
            stop=onlooker.compared,
            difference=onlooker.difference,
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
        """What the master has for itself."""
        if log is None:
            return Beyond(end=at, bytes=0, records=0, topics={}, bad=0, tail=0, unread=unread)
        own = beyond(log, at, valid_end(log))
        log.close()
        if unread == 0:
            return own
        # What was fetched may end in the middle of a record.
        return evolve(own, tail=0, unread=None if unread is None else unread + own.tail)
