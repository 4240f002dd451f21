"""
One slave's search for where to go on: which question comes next, and what an answer,
or none, means for it.

The questions are L{rmqha.ha.slave.probe}'s; here is what is known between two connections.
An rmqha master says "not from there" by closing, and so does one that is just being
stopped.  So a conclusion that rests on closed connections has to be reached twice,
with no failed connection in between; and where everybody who has a log would answer,
a close is no answer at all.  docs/architecture.rst, The divergence guard.
"""

from __future__ import annotations

from enum import Enum, auto

from attrs import define, field

from rmqha.config.settings import FirstSync, HASettings
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.ha.slave.probe import Ask, OverlapSearch, Question, StartSearch
from rmqha.store.log.commit_log import CommitLog


class Verdict(Enum):
    """
    What to do after an answer.
    """

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
    """
    Where a slave's search stands.

    @ivar hold_flushed: Whether nothing may be reported that is not on our disk.
    @ivar trusting: Go on where we end, whatever the master has (C{haAcceptUnproven}).
    @ivar beyond: Whether we end behind the end that the master has told: then there is
        nothing to go on with.
    """

    settings: HASettings
    hold_flushed: bool = False
    trusting: bool = field(default=False, init=False)
    beyond: bool = field(default=False, init=False)
    _overlap: OverlapSearch | None = field(default=None, init=False)
    _start: StartSearch | None = field(default=None, init=False)
    _proven: bool = field(default=False, init=False)
    _concluded: object = field(default=None, init=False)

    def question(self, log: CommitLog, bounds: MasterBounds | None = None) -> Question:
        """
        What the next connection asks.

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
        durable = log.flushed if self.hold_flushed else log.end
        own = max(durable, log.min_offset, 1)
        self.beyond = bounds is not None and log.end > bounds.max_offset
        if self.trusting and not self.beyond:
            return Question(Ask.OVERLAP, own)
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

    def ruled_out(self, log: CommitLog, bounds: MasterBounds | None) -> Verdict | None:
        """
        What the master's word alone says: that it has nothing of what we have.
        """
        if bounds is None or log.end == log.min_offset or bounds.min_offset < log.end:
            return None
        if bounds.min_offset > log.end:
            return Verdict.BELOW_MIN
        return None if self.trusting else Verdict.UNPROVEN

    def begins(self, ask: Ask, offset: int, end: int) -> Verdict:
        """
        An answer's bytes begin at C{offset}.

        @param end: Where our log ends.
        """
        start, overlap = self._start, self._overlap
        if ask is Ask.SURVEY:
            if offset < end:
                return Verdict.GO_ON
            if overlap is not None and overlap.try_last_file():
                return Verdict.ASK
            if overlap is not None and overlap.doubtful and not self._twice(ask):
                self._overlap = None
                return Verdict.ASK
            return Verdict.BELOW_MIN if offset > end else Verdict.UNPROVEN
        if start is None or ask is Ask.OVERLAP:
            return Verdict.GO_ON
        if ask is Ask.EMPTY:
            if offset > 0 and self.settings.first_sync is FirstSync.BEGINNING:
                start.begins_at(offset)
                return Verdict.ASK
            return Verdict.GO_ON
        start.answered()
        if not start.settled:
            return Verdict.ASK
        if start.doubtful and not self._twice(offset):
            self._start = None
            return Verdict.ASK
        return Verdict.GO_ON

    def silence(self) -> Verdict:
        """
        No bytes came for what was asked.
        """
        if self._start is not None:
            if self._start.settled:
                self._start = None  # it had bytes there just now
                return Verdict.WAIT
            self._start.silent()
            return Verdict.ASK
        if self.trusting:
            return Verdict.GO_ON
        if self._overlap is None or not self._overlap.lower():
            self._overlap = None
            return Verdict.UNPROVEN
        return Verdict.ASK

    def closed(self, ask: Ask) -> Verdict:
        """
        The master closed before any bytes.
        """
        search = self._start if ask is Ask.START else self._overlap
        if search is None or ask in (Ask.EMPTY, Ask.SURVEY):
            self.forget()
            return Verdict.WAIT
        search.doubtful = True
        return self.silence()

    def nothing_common(self) -> bool:
        """
        Bytes came, and the first of them was not ours.

        @return: Whether to ask further back.
        """
        return self._overlap is not None and self._overlap.lower()

    def found(self) -> None:
        """
        This log and its master's belong together.
        """
        self._proven = True
        self.trusting = False
        self._concluded = None
        self.forget()

    def forget(self) -> None:
        """
        Begin anew with the next question.
        """
        self._overlap = self._start = None

    def failed(self) -> None:
        """
        A connection failed: what closed connections seemed to say may have been that.
        """
        self._concluded = None

    def _twice(self, conclusion: object) -> bool:
        before, self._concluded = self._concluded, conclusion
        return before == conclusion
