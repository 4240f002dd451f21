"""Who holds what: the only place where an acknowledgement is believed.

A stock master remembers the highest number any slave ever sent it.  Here every
connection has a L{Claim}, its reports are checked against what that connection was
sent, and the claim dies with the connection.  A write counts for a replica only if
one live claim covers the whole of it.

B{Claims are intervals.}  A report C{r} says "my log ends at C{r}", not "I hold all
below C{r}": an empty stock slave that was started at the last file, say byte X,
reports X after a mere heartbeat and holds nothing.  So a claim has a C{start}, and
it covers a write C{[begin, end)} only if C{start <= begin} and C{acked >= end}.

B{Where a claim starts.}  At the first byte sent on the connection.  There is one
exception, for the slave that reconnects while writes wait for it.  It was sent
C{[low, high)} by its last connection, read some of it, lost the connection before it
could say so, and its first report C{r} is above the begin of those writes.  If
C{low <= r <= high}, its log is what it had before that connection, then our bytes
from C{low} up to C{r}, then nothing: a log only grows at its end, we sent it those
bytes in this run, and it says where the growing stopped.  So its claim starts at
C{low}, and covers the waiting writes.  The claim's own bytes then continue that
interval, so it can be handed on again.  The interval is forgotten

  - when the first report lies outside it (the log was cut below it, or grew
    elsewhere) or is 0 (the slave is empty now): the claim starts where we start;
  - when two connections of the same address are or ever were fed at one time: two slaves
    behind one address would inherit each other's bytes.  A ghost of a dead connection
    costs the writes that wait at that moment a timeout, never a false acknowledgement;
  - when the connection ended with a report that no honest slave sends;
  - with the run: writes do not wait across a restart.

B{Who is fed at all.}  A slave that was ahead of us holds bytes that are not ours.  It
must not become right by waiting until our log is longer, so a first report must be
proven: at most the offset where this epoch of the log began (what was written
before is history both have), or at most the I{mark} of that address, the highest
offset it was sent in this epoch.  Marks are by address even where replicas are
counted by connection, and they only rise.

B{Who is waited for.}  A write waits for a replica only where that may help.  A peer that
takes what it is sent and never acknowledges any of it, as somebody does who has mistaken
the port, would make every write wait in vain: after L{PATIENCE} seconds of that its
address is I{mute}.  Nobody is then waited for there, until the first acknowledgement from
there.  This decides how long a write waits, never whether it counts.

What no ledger can see: an allowed peer that speaks the protocol and lies; a slave whose
foreign bytes end below the epoch's start, or below the mark of another slave
behind the same address (our own slaves compare before they follow; stock ones do not).

Offsets are physical, in bytes.  Nothing here knows sockets or clocks.

Source: docs/protocol/ha.rst, Offset reports; docs/architecture.rst, The ledger.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import define, field

from rmqha.config.ha_settings import FirstSync
from rmqha.errors import ProtocolViolation
from rmqha.logfiles.reader import LogReader

MOST_REPEATS = 1000
"""
Reports that repeat the one before, between two calls of L{Ledger.breathe} (a second): a
stock slave sends one each 5 s, so more is a flood of eight-byte garbage, such as zeros.
"""

COVERS_NOTHING = 1 << 62
"""
Where the claim of an observer starts, and one that is doubted: behind every write.
"""

MOST_MARKS = 10_000
"""
Most addresses remembered, so that a peer with many of them cannot fill the memory.
"""

PATIENCE = 3.0
"""
Seconds that an address may be sent bytes, and acknowledge none, before no write waits for it.
"""

_REJECTED = {
    "negative": "an offset cannot be negative",
    "ahead": "it is beyond our end {bound}",
    "above-max": "it is beyond our end {bound}",
    "below-min": "it is below {bound}, from where on we send",
    "unproven": "it is above {bound}, up to where its log is known to be ours",
    "above-sent": "it is beyond {bound}, up to where it was sent",
    "decreasing": "it acknowledged {bound} before",
    "flood": "it has repeated itself more than {bound} times",
}
"""Why a report is rejected, in words, by reason."""


class ReportRejected(ProtocolViolation):
    """An offset report is not one an honest slave could send."""

    reason: str
    report: int
    bound: int

    def __str__(self) -> str:
        why = _REJECTED[self.reason].format(bound=self.bound)
        return f"offset report {self.report} rejected ({self.reason}): {why}"


@define(eq=False, kw_only=True)
class Claim:
    """What one connection may say about one replica.

    @ivar identity: Which replica it is, for counting.
    @ivar host: Its network address, for marks.
    @ivar start: It covers nothing that begins below this offset; -1 before the first
        report.
    @ivar origin: The first byte this connection is sent.
    @ivar sent: Just past the last byte given to the transport.  Its owner moves it, up
        only, and before the bytes are given.
    @ivar acked: The newest report; -1 before the first.
    @ivar live: Whether it counts: from an accepted first report to the end.
    @ivar observer: Whether it counts never: its peer only compares.
    """

    _ledger: Ledger
    identity: str
    host: str
    start: int = -1
    origin: int = -1
    sent: int = -1
    acked: int = -1
    live: bool = False
    observer: bool = False
    _floor: int = -1
    _repeats: int = 0

    def first(self, offset: int) -> int:
        """Take the first report of the connection: where the peer's log ends, and so what
        it asks for.

        @param offset: The report; 0 asks for the beginning, see C{haFirstSync}.
        @return: The offset to send from.
        @raise ReportRejected: C{negative}, C{ahead}, C{below-min} or C{unproven}.  Such
            a peer is neither fed nor counted.
        """
        ledger = self._ledger
        self._refuse_outside(offset)
        if offset == 0:
            origin = ledger.beginning()
        else:
            proven = max(ledger.start, ledger.mark(self.host))
            if offset > proven and not ledger.accept_unproven:
                raise ReportRejected("unproven", offset, proven)
            origin = offset
        self.start = ledger.adopt(self, offset, origin)
        return self._begin(offset, origin)

    def look(self, offset: int) -> int:
        """Take the first report of an observer: where its bytes are to start.  It needs no proof,
        as it compares, and covers nothing.

        @return: The offset to send from.
        @raise ReportRejected: C{negative}, C{ahead} or C{below-min}.
        """
        self._refuse_outside(offset)
        origin = offset or self._ledger.log.min_offset
        self.observer = True
        self.start = COVERS_NOTHING
        return self._begin(offset, origin)

    def _begin(self, offset: int, origin: int) -> int:
        self.origin = self.sent = origin
        self.acked = offset
        self._floor = max(offset, origin - 1)
        self.live = True
        return origin

    def doubt(self) -> None:
        """It covers nothing, until there is reason to L{trust} it."""
        self.start = COVERS_NOTHING

    def trust(self) -> None:
        """All that lies below its reports is ours."""
        self.start = 0

    @property
    def trusted(self) -> bool:
        """Whether it counts for writes at all."""
        return self.live and self.start < COVERS_NOTHING

    def _refuse_outside(self, offset: int) -> None:
        log = self._ledger.log
        if offset < 0:
            raise ReportRejected("negative", offset, 0)
        if offset > log.confirmed:
            raise ReportRejected("ahead", offset, log.confirmed)
        if 0 < offset < log.min_offset:
            raise ReportRejected("below-min", offset, log.min_offset)

    def report(self, offset: int) -> None:
        """Take any later report.  It may lie in the middle of a record: stock slaves
        report the end of every frame.

        @raise ReportRejected: C{negative}, C{above-max}, C{above-sent}, C{decreasing},
            C{below-min} or C{flood}; the claim counts no longer.
        """
        if self._floor < offset <= self.sent:
            self._floor = self.acked = offset
            if self.proven:
                self._ledger.hear(self.host)
        elif offset == self.acked and self._repeats < MOST_REPEATS:
            self._repeats += 1
        else:
            self._ledger.drop(self, keep_span=False)
            raise self._rejection(offset)

    def breathe(self) -> None:
        """Up to a second has passed: repeated reports are counted anew."""
        self._repeats = 0

    def close(self) -> None:
        """The connection ended; nothing it said counts any longer."""
        if self.live:
            self._ledger.drop(self, keep_span=True)

    @property
    def proven(self) -> bool:
        """Whether it acknowledged anything that it was sent: who only takes up room does not."""
        return self.acked > self.origin

    def covers(self, begin: int, end: int) -> bool:
        """Say whether this replica holds all of a write."""
        return self.live and self.start <= begin and self.acked >= end

    @property
    def held(self) -> int:
        """Where the replica stands: its report, or where we started an empty one."""
        return max(self.acked, self.origin)

    def _rejection(self, offset: int) -> ReportRejected:
        if offset < 0:
            return ReportRejected("negative", offset, 0)
        if offset > self._ledger.log.end:
            return ReportRejected("above-max", offset, self._ledger.log.end)
        if offset > self.sent:
            return ReportRejected("above-sent", offset, self.sent)
        if offset < self.acked:
            return ReportRejected("decreasing", offset, self.acked)
        if offset == self.acked:
            return ReportRejected("flood", offset, MOST_REPEATS)
        return ReportRejected("below-min", offset, self.origin)


@define(eq=False, kw_only=True)
class Ledger:
    """All live claims of one log.

    @ivar log: Whose bytes are claimed.
    @ivar start: Where the log's epoch began.
    @ivar marks: The highest offset each address was sent in it; without what the live
        claims were sent since they began, see L{all_marks}.
    @ivar first_sync: What a first report of 0 asks for.
    @ivar accept_unproven: Feed and count any slave in range (C{haAcceptUnproven}).
    """

    log: LogReader
    start: int
    marks: dict[str, int] = field(factory=dict)
    first_sync: FirstSync = FirstSync.BEGINNING
    accept_unproven: bool = False
    _claims: dict[str, list[Claim]] = field(factory=dict, init=False)
    _spans: dict[str, tuple[int, int]] = field(factory=dict, init=False)
    # For how many seconds an address has acknowledged nothing of what it was sent.
    _mute: dict[str, float] = field(factory=dict, init=False)
    _shared: set[str] = field(factory=set, init=False)

    def open(self, identity: str, host: str) -> Claim:
        """Begin a connection; its claim counts from its first report on.

        @param identity: Claims of one identity count as one replica.
        @param host: The address its marks are kept under.
        """
        return Claim(ledger=self, identity=identity, host=host)

    def covers(self, begin: int, end: int) -> int:
        """Count the distinct replicas that hold all of a write."""
        count = 0
        for claims in self._claims.values():
            for claim in claims:
                if claim.start <= begin and claim.acked >= end:
                    count += 1
                    break
        return count

    def quorum(self, replicas: int) -> int:
        """The highest offset that so many distinct replicas have reported; -1 if there are
        fewer.  A write that ends above it cannot be covered.
        """
        best = sorted(self.best())
        return best[-replicas] if len(best) >= replicas else -1

    def best(self) -> Iterator[int]:
        """How far each distinct replica has reported."""
        return (max(claim.acked for claim in claims) for claims in self._claims.values())

    def eligible(self, end: int, fallbehind_max: int, enough: int) -> int:
        """Count the distinct replicas worth waiting for: they have reported, lack less than
        C{fallbehind_max} bytes of a log that ends at C{end}, and are not mute.

        @param enough: Stop counting here.
        """
        count = 0
        for claims in self._claims.values():
            for claim in claims:
                mute = self._mute.get(claim.host, 0.0) >= PATIENCE
                if end - claim.acked < fallbehind_max and not mute:
                    count += 1
                    break
            if count >= enough:
                break
        return count

    def breathe(self, seconds: float) -> None:
        """Some time has passed, up to a second: repeated reports are counted anew, and who let
        it pass without acknowledging anything is so much closer to being mute.
        """
        silent: set[str] = set()
        heard: set[str] = set()
        for claim in self:
            claim.breathe()
            if claim.proven:
                heard.add(claim.host)
            elif claim.sent > claim.origin:
                silent.add(claim.host)
        for host in silent - heard:
            self._mute[host] = self._mute.pop(host, 0.0) + seconds
        while len(self._mute) > MOST_MARKS:
            del self._mute[next(iter(self._mute))]

    def held_from(self) -> int | None:
        """The lowest offset a fed replica still needs; C{None} if there is none."""
        return min((claim.held for claim in self), default=None)

    def mark(self, host: str) -> int:
        """The highest offset an address was sent in this epoch; -1 for none."""
        sent = (claim.sent for claim in self if claim.host == host)
        return max(self.marks.get(host, -1), max(sent, default=-1))

    def all_marks(self) -> dict[str, int]:
        """The marks of all addresses, as they are now."""
        marks = dict(self.marks)
        for claim in self:
            marks[claim.host] = max(marks.get(claim.host, -1), claim.sent)
        return marks

    def beginning(self) -> int:
        """Where an empty slave starts."""
        log = self.log
        if self.first_sync is FirstSync.LAST_FILE:
            return max(log.min_offset, log.confirmed - log.confirmed % log.file_size)
        return log.min_offset

    def __iter__(self) -> Iterator[Claim]:
        for claims in self._claims.values():
            yield from claims

    def adopt(self, claim: Claim, offset: int, origin: int) -> int:
        """Count a claim from now on (for L{Claim.first} alone).

        @return: Where it starts: see the module's text.
        """
        host = claim.host
        low, high = self._spans.pop(host, (origin, origin))
        if any(other.host == host for other in self):
            self._shared.add(host)
        self._claims.setdefault(claim.identity, []).append(claim)
        continues = offset and low <= offset <= high and host not in self._shared
        return low if continues else origin

    def hear(self, host: str) -> None:
        """An address has acknowledged something it was sent (for L{Claim.report} alone)."""
        self._mute.pop(host, None)

    def drop(self, claim: Claim, *, keep_span: bool) -> None:
        """Count a claim no longer (for L{Claim} alone).

        @param keep_span: Whether the replica may come back and continue.
        """
        claim.live = False
        if claim.observer:
            return
        claims = self._claims[claim.identity]
        claims.remove(claim)
        if not claims:
            del self._claims[claim.identity]
        host = claim.host
        # Taken out and put in again, so that the longest unseen is the first to go.
        self.marks[host] = max(self.marks.pop(host, -1), claim.sent)
        if keep_span:
            self._spans[host] = (claim.start, claim.sent)
        if len(self.marks) > MOST_MARKS:
            oldest = next(iter(self.marks))
            del self.marks[oldest]
            self._spans.pop(oldest, None)
            self._shared.discard(oldest)
