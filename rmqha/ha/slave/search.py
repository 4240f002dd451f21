"""One slave's search for where to go on: which question comes next, and what an answer,
or none, means for it.

The questions are L{rmqha.ha.slave.probe}'s; here is what is known between two connections.
An rmqha master says "not from there" by closing, and so does one that is just being
stopped.  So a conclusion that rests on closed connections has to be reached twice,
with no failed connection in between; and where every master with a log would answer,
a close is no answer at all.  docs/architecture.rst, The divergence guard.
"""

from __future__ import annotations

from enum import Enum, auto

from attrs import define, field

from rmqha.config.ha_settings import FirstSync, HASettings
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.ha.slave.probe import OverlapSearch, Probe, ProbeKind, StartSearch
from rmqha.ha.slave.reportable import Reportable, accepted
from rmqha.store.log.commit_log import CommitLog


class SearchResult(Enum):
    """What to do after an answer."""

    GO_ON = auto()
    """Take the bytes that come."""
    ASK = auto()
    """There is another question, for a new connection, at once."""
    WAIT = auto()
    """Nothing was learned: the same again after the usual delay."""
    BELOW_MIN = auto()
    """The master begins behind our end."""
    UNPROVEN = auto()
    """There is nothing left to ask, and nothing was compared."""


@define(eq=False)
class Search:
    """Where a slave's search stands.

    @ivar reportable: Up to where our log may be reported as held.
    @ivar trusting: Go on where we end, whatever the master has (C{haAcceptUnproven}).
    @ivar beyond: Whether we end behind the end that the master has told: then there is
        nothing to go on with.
    """

    settings: HASettings
    reportable: Reportable = accepted
    trusting: bool = field(default=False, init=False)
    beyond: bool = field(default=False, init=False)
    _overlap: OverlapSearch | None = field(default=None, init=False)
    _start: StartSearch | None = field(default=None, init=False)
    _proven: bool = field(default=False, init=False)
    _concluded: object = field(default=None, init=False)

    def question(self, log: CommitLog, bounds: MasterBounds | None = None) -> Probe:
        """What the next connection asks.

        @param bounds: The master's log, if it has just told.
        """
        if log.end == log.min_offset:
            self._overlap = None
            if self._start is None:
                self._start = StartSearch(log.file_size)
            if bounds is not None:
                self._start.told(bounds.min_offset)
            return self._start.question()
        self._start = None
        durable = self.reportable(log)
        own = max(durable, log.min_offset, 1)
        self.beyond = bounds is not None and log.end > bounds.max_offset
        if self.trusting and not self.beyond:
            return Probe(ProbeKind.OVERLAP, own)
        self.trusting = False
        if self._overlap is None or not self._overlap.fits(log.end, bounds):
            self._overlap = OverlapSearch.of(
                log.min_offset,
                log.end,
                log.file_size,
                batch=self.settings.batch,
                proven_before=self._proven,
                durable=durable,
                bounds=bounds,
            )
        return self._overlap.question()

    def ruled_out(self, log: CommitLog, bounds: MasterBounds | None) -> SearchResult | None:
        """What the master's word alone says: that it has nothing of what we have."""
        if bounds is None or log.end == log.min_offset or bounds.min_offset < log.end:
            return None
        if bounds.min_offset > log.end:
            return SearchResult.BELOW_MIN
        return None if self.trusting else SearchResult.UNPROVEN

    def begins(self, ask: ProbeKind, offset: int, end: int) -> SearchResult:
        """An answer's bytes begin at C{offset}.

        @param end: Where our log ends.
        """
        start, overlap = self._start, self._overlap
        if ask is ProbeKind.SURVEY:
            if offset < end:
                return SearchResult.GO_ON
            if overlap is not None and overlap.try_last_file():
                return SearchResult.ASK
            if overlap is not None and overlap.doubtful and not self._twice(ask):
                self._overlap = None
                return SearchResult.ASK
            return SearchResult.BELOW_MIN if offset > end else SearchResult.UNPROVEN
        if start is None or ask is ProbeKind.OVERLAP:
            return SearchResult.GO_ON
        if ask is ProbeKind.EMPTY:
            if offset > 0 and self.settings.first_sync is FirstSync.BEGINNING:
                start.begins_at(offset)
                return SearchResult.ASK
            return SearchResult.GO_ON
        start.answered()
        if not start.settled:
            return SearchResult.ASK
        if start.doubtful and not self._twice(offset):
            self._start = None
            return SearchResult.ASK
        return SearchResult.GO_ON

    def silence(self) -> SearchResult:
        """No bytes came for what was asked."""
        if self._start is not None:
            if self._start.settled:
                self._start = None  # it had bytes there just now
                return SearchResult.WAIT
            self._start.silent()
            return SearchResult.ASK
        if self.trusting:
            return SearchResult.GO_ON
        if self._overlap is None or not self._overlap.lower():
            self._overlap = None
            return SearchResult.UNPROVEN
        return SearchResult.ASK

    def closed(self, ask: ProbeKind) -> SearchResult:
        """The master closed before any bytes."""
        search = self._start if ask is ProbeKind.START else self._overlap
        if search is None or ask in (ProbeKind.EMPTY, ProbeKind.SURVEY):
            self.forget()
            return SearchResult.WAIT
        search.doubtful = True
        return self.silence()

    def nothing_common(self) -> bool:
        """Bytes came, and the first of them was not ours.

        @return: Whether to ask further back.
        """
        return self._overlap is not None and self._overlap.lower()

    def found(self) -> None:
        """This log and its master's belong together."""
        self._proven = True
        self.trusting = False
        self._concluded = None
        self.forget()

    def forget(self) -> None:
        """Begin anew with the next question."""
        self._overlap = self._start = None

    def failed(self) -> None:
        """A connection failed: what closed connections seemed to say may have been that."""
        self._concluded = None

    def _twice(self, conclusion: object) -> bool:
        before, self._concluded = self._concluded, conclusion
        return before == conclusion
