"""Where a slave asks its master to start: the search for common ground, as pure values.

A stock master answers a first report with its bytes from there on, or, when it has
none there, with heartbeats that echo the report.  So a report is a question, each
connection asks one, and an answer is bytes (then compare them with ours) or silence.
A report above a stock master's end would make it acknowledge falsely, so no question
is above the end that the master has just told (L{rmqha.ha.slave.master_bounds}).  Where it tells
none, questions start well below our own end.  Either way they only move down
(docs/architecture.rst, The divergence guard).
"""

from __future__ import annotations

from enum import Enum, auto

from attrs import define, field, frozen

from rmqha.ha.slave.master_bounds import MasterBounds

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

    def told(self, min_offset: int) -> None:
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

    def answered(self) -> None:
        """Bytes came from the offset asked."""
        self._have = self._asked
        self._narrow()

    def silent(self) -> None:
        """No bytes came from the offset asked."""
        self._lack = self._asked
        self._narrow()

    @property
    def settled(self) -> bool:
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
