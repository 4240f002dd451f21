"""Where a slave asks its master to start: the search for common ground, its questions as pure
values, and what an answer, or none, means for the next one.

A stock master answers a first report with its bytes from there on, or, when it has
none there, with heartbeats that echo the report.  So a report is a question, each
connection asks one, and an answer is bytes (then compare them with ours) or silence.
A report above a stock master's end would make it acknowledge falsely, so no question
is above the end that the master has just told (L{rmqha.ha.slave.master_bounds}).  Where it tells
none, questions start well below our own end.  Either way they only move down.

An rmqha master says "not from there" by closing, and so does one that is just being
stopped.  So a conclusion that rests on closed connections has to be reached twice,
with no failed connection in between; and where every master with a log would answer,
a close is no answer at all.  docs/architecture.rst, The divergence guard.
"""

from __future__ import annotations

from enum import Enum, auto

from attrs import define, field, frozen

from rmqha.config.ha_settings import FirstSync, HASettings
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.store.log.commit_log import CommitLog

PROBE_WINDOW = 64 << 20
"""Bytes of our own log compared on a reconnect, at least."""


class ProbeKind(Enum):
    """What a connection wants to know."""

    EMPTY = auto()
    """We have nothing: send from wherever you begin."""
    START = auto()
    """We have nothing: is this where your log starts, or does it reach further back?"""
    OVERLAP = auto()
    """We have bytes here: are they yours?"""
    SURVEY = auto()
    """Nothing of ours was answered: what do you have at all?"""


@frozen
class Probe:
    """One connection's first report.

    @ivar report: The offset to report first.
    """

    ask: ProbeKind
    report: int


@define(kw_only=True)
class OverlapSearch:
    """Questions of a slave that has a log.

    @ivar low: The lowest offset that can be asked, above 0: a report of 0 means
        something else to every master.
    @ivar high: Where what both may have ends: our own end, or the master's below it.
    @ivar last_file: Where the file starts that holds our last byte.
    @ivar start: What to ask first; below C{low} if nothing can be in common.
    @ivar end: Our own end.
    @ivar doubtful: Whether a closed connection was taken for an answer: a master that
        was just being stopped says nothing by that.
    """

    low: int
    high: int
    last_file: int
    start: int
    end: int
    _tried_last: bool
    doubtful: bool = field(default=False, init=False)
    _next: int = field(init=False)
    _back: int = field(init=False)
    _last_resort: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._next = self.start
        self._back = self.high - self.start

    @classmethod
    def of(
        cls,
        min_offset: int,
        end: int,
        file_size: int,
        *,
        batch: int,
        proven_before: bool,
        durable: int | None = None,
        bounds: MasterBounds | None = None,
    ) -> OverlapSearch:
        """Begin a search.

        @param min_offset: Our oldest byte.
        @param end: Our end, above C{min_offset}.
        @param file_size: Our file size.
        @param batch: The usual frame size: a window within a file that is no multiple
            of it ends in a shorter frame, which tells the master's end at once.
        @param proven_before: Whether this process has compared with this master
            already; then the window alone is enough.
        @param durable: Where what is surely on our disk ends, if nothing above may be
            reported.
        @param bounds: The master's log, if it has told.
        """
        low, high = max(min_offset, 1), end
        if bounds is not None:
            low, high = max(low, bounds.min_offset), min(end, bounds.max_offset)
        last_file = max(low, (high - 1) - (high - 1) % file_size)
        start = high - PROBE_WINDOW
        if not proven_before:
            start = min(start, last_file)
        if durable is not None:
            start = min(start, durable)
        start = max(start, low)
        if start > last_file and (high - start) % batch == 0:
            start -= 1
        if low >= high:
            start = low - 1
        # Who tells where its log begins is not asked again whether it begins there.
        tried = bounds is not None or start == last_file
        return cls(low=low, high=high, last_file=last_file, start=start, end=end, tried_last=tried)

    def fits(self, end: int, bounds: MasterBounds | None) -> bool:
        """Whether the search is still the right one for our end and what the master tells."""
        if bounds is None:
            return end == self.end
        told = bounds.min_offset <= self.low and self.high <= bounds.max_offset
        return told and end == self.end

    def question(self) -> Probe:
        """The next probe, which depends on what the last ones found."""
        if self._next < self.low:
            return Probe(ProbeKind.SURVEY, 0)
        return Probe(ProbeKind.OVERLAP, self._next)

    def lower(self) -> bool:
        """The last question found no common ground: ask further back.

        @return: Whether there is anything left to ask.
        """
        if self._next < self.low:
            return False
        if self._next == self.low or self._last_resort:
            self._next = self.low - 1
            return True
        self._back *= 4
        self._next = max(self.high - self._back, self.low)
        return True

    def try_last_file(self) -> bool:
        """The master's log goes on behind our end, and it was silent where we asked: it may
        have deleted those files and still have our last one.  Asking so high is safe
        now that its end is known to be higher.

        @return: Whether that is asked next; it is asked once.
        """
        if self._tried_last:
            return False
        self._tried_last = self._last_resort = True
        self._next = self.last_file
        return True


@define
class StartSearch:
    """Questions of an empty slave: where does the master's log begin?

    A master that answers a report of 0 from above 0 may have only that (rmqha, from
    its oldest byte) or more (stock, from its last file).  Asking tells: bytes come
    from every offset a master has.  The first question below is 1, as 0 cannot be
    asked; it settles the common case of a log that is still whole.  A master that
    tells where its log begins is asked there.

    @ivar unit: Our file size, the granularity of the search.
    @ivar doubtful: As in L{OverlapSearch}.
    """

    unit: int
    doubtful: bool = field(default=False, init=False)
    _have: int = field(init=False, default=0)
    _lack: int = field(init=False, default=0)
    _asked: int = field(init=False, default=0)
    _searching: bool = field(init=False, default=False)

    def question(self) -> Probe:
        """The next probe, which depends on what the last ones found."""
        if not self._searching:
            return Probe(ProbeKind.EMPTY, 0)
        return Probe(ProbeKind.START, self._asked)

    def on_bounds(self, min_offset: int) -> None:
        """The master says that its log begins at C{min_offset}; believed unless it was
        silent there.
        """
        first = max(min_offset, 1)
        if self._searching and self._lack < first <= self._have:
            self._asked, self._lack = first, first - 1

    def begins_at(self, offset: int) -> None:
        """A report of 0 was answered from C{offset}, above 0."""
        self._searching = True
        self._have, self._lack, self._asked = offset, 0, 1

    def on_bytes(self) -> None:
        """Bytes came from the offset asked."""
        self._have = self._asked
        self._narrow()

    def on_silence(self) -> None:
        """No bytes came from the offset asked."""
        self._lack = self._asked
        self._narrow()

    @property
    def is_settled(self) -> bool:
        """Whether the offset just asked is where the master's log begins."""
        return self._searching and self._asked == self._have

    def _narrow(self) -> None:
        """Halve what is left between a file the master lacks and one it has."""
        low = self._lack // self.unit
        high = -(-self._have // self.unit)
        if self._have <= 1 or high - low <= 1:
            self._asked = self._have
        else:
            self._asked = (low + high) // 2 * self.unit


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

    @ivar trusting: Go on where we end, whatever the master has (C{haAcceptUnproven}).
    @ivar beyond: Whether we end behind the end that the master has told: then there is
        nothing to go on with.
    """

    settings: HASettings
    trusting: bool = field(default=False, init=False)
    beyond: bool = field(default=False, init=False)
    _overlap: OverlapSearch | None = field(default=None, init=False)
    _start: StartSearch | None = field(default=None, init=False)
    _proven: bool = field(default=False, init=False)
    _concluded: object = field(default=None, init=False)

    def question(self, log: CommitLog, durable: int, bounds: MasterBounds | None = None) -> Probe:
        """What the next connection asks.

        @param durable: Up to where our log may be reported as held.
        @param bounds: The master's log, if it has just told.
        """
        if log.end == log.min_offset:
            self._overlap = None
            if self._start is None:
                self._start = StartSearch(log.file_size)
            if bounds is not None:
                self._start.on_bounds(bounds.min_offset)
            return self._start.question()
        self._start = None
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
        start.on_bytes()
        if not start.is_settled:
            return SearchResult.ASK
        if start.doubtful and not self._twice(offset):
            self._start = None
            return SearchResult.ASK
        return SearchResult.GO_ON

    def silence(self) -> SearchResult:
        """No bytes came for what was asked."""
        if self._start is not None:
            if self._start.is_settled:
                self._start = None  # it had bytes there just now
                return SearchResult.WAIT
            self._start.on_silence()
            return SearchResult.ASK
        if self.trusting:
            return SearchResult.GO_ON
        if self._overlap is None or not self._overlap.lower():
            self._overlap = None
            return SearchResult.UNPROVEN
        return SearchResult.ASK

    def on_close(self, ask: ProbeKind) -> SearchResult:
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

    def on_common_log(self) -> None:
        """This log and its master's belong together."""
        self._proven = True
        self.trusting = False
        self._concluded = None
        self.forget()

    def forget(self) -> None:
        """Begin anew with the next question."""
        self._overlap = self._start = None

    def on_failure(self) -> None:
        """A connection failed: what closed connections seemed to say may have been that."""
        self._concluded = None

    def _twice(self, conclusion: object) -> bool:
        before, self._concluded = self._concluded, conclusion
        return before == conclusion
