"""SYNC writes waiting for replicas.

Every report that moves a claim is offered here in the same call, so a write resolves
while its acknowledgement is being read.  Writes are appended in the order of the log
and share one timeout: both the oldest offset and the oldest deadline are at the left
of one deque, and one timer watches the head.

The head does not hold up what is behind it.  A write that lies below what is
acknowledged, and that some claims cannot cover because they start above its begin, is
put aside; the others resolve meanwhile.

Source: docs/protocol/ha.rst, SYNC writes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from rmqha.config.broker_settings import BrokerRole
from rmqha.durations import Durations
from rmqha.ha.master.ledger import Claim, Ledger
from rmqha.periodic import cancelled


class PutStatus(StrEnum):
    """What became of a stored write, by RocketMQ's names; the message is stored in all cases."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"


def replicas_needed(role: BrokerRole, in_sync_replicas: int) -> int:
    """How many distinct replicas a write waits for.

    @param in_sync_replicas: C{inSyncReplicas}, which counts the master itself.  Its
        default of 1 makes a stock 5.x C{SYNC_MASTER} wait for no replica; here it waits for
        one replica, always.
    """
    return max(1, in_sync_replicas - 1) if role is BrokerRole.SYNC_MASTER else 0


Done = Callable[[PutStatus], object]
"""Is told what became of a write."""


@define(eq=False)
class Waiting:
    """One write, or several that lie together and share their fate.

    @ivar count: How many.
    @ivar done: Who is told; C{None} once nobody wants to know.
    """

    begin: int
    end: int
    deadline: float
    count: int
    done: Done | None

    def forget(self, done: Deferred[PutStatus]) -> None:
        """Its owner does not wait any longer."""
        self.done = None


@define(eq=False, kw_only=True)
class GroupTransfer:
    """Resolves writes once enough distinct replicas hold them.

    @ivar needed: How many; 0 resolves at once.
    @ivar timeout: Longest wait, in seconds (C{slaveTimeout}).
    @ivar fallbehind_max: A replica that lacks this many bytes is not waited for.
    @ivar waited: How long those waited that had to.
    """

    ledger: Ledger
    clock: IReactorTime
    needed: int
    timeout: float = 3.0
    fallbehind_max: int = 256 << 20
    waited: Durations = field(factory=Durations, init=False)
    _waiting: deque[Waiting] = field(factory=deque, init=False)
    _aside: list[Waiting] = field(factory=list, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _stopped: PutStatus | None = field(default=None, init=False)

    @property
    def hurries(self) -> bool:
        """Whether writes wait for replicas, so that these get the bytes at once."""
        return self.needed > 0

    @property
    def pending(self) -> int:
        """Writes that wait for replicas now."""
        both = (*self._waiting, *self._aside)
        return sum(write.count for write in both if write.done is not None)

    def wait(self, begin: int, end: int, count: int = 1) -> Deferred[PutStatus]:
        """Wait for replicas to hold a write.

        @param begin: Physical offset of its first byte.
        @param end: Just past its last byte, C{begin < end}.
        @param count: How many messages it has that are counted each.
        @return: Fires with C{PUT_OK}, with C{SLAVE_NOT_AVAILABLE} at once when too few
            replicas are worth waiting for, with C{FLUSH_SLAVE_TIMEOUT} at the deadline,
            with C{SERVICE_NOT_AVAILABLE} at a stop.  Never fails.  Cancelling it forgets
            the write.
        """
        status = self._known(begin, end)
        if status is not None:
            return succeed(status)
        write = self._add(begin, end, count)
        done: Deferred[PutStatus] = Deferred(write.forget)
        write.done = done.callback
        return done

    def tell(self, begin: int, end: int, count: int, done: Done) -> None:
        """The same for several writes that lie together, without a Deferred.  They share their
        fate: all are held by as many replicas when the last one is.

        @param done: Is told what L{wait} fires with, maybe at once.
        """
        status = self._known(begin, end)
        if status is None:
            self._add(begin, end, count).done = done
        else:
            done(status)

    def _known(self, begin: int, end: int) -> PutStatus | None:
        """What becomes of a write for which nothing is waited for."""
        if self._stopped is not None:
            return self._stopped
        needed = self.needed
        if not needed or self.held(begin, end):
            return PutStatus.PUT_OK
        if self.ledger.eligible(end, self.fallbehind_max, needed) < needed:
            return PutStatus.SLAVE_NOT_AVAILABLE
        return None

    def _add(self, begin: int, end: int, count: int) -> Waiting:
        write = Waiting(begin, end, self.clock.seconds() + self.timeout, count, None)
        waiting = self._waiting
        waiting.append(write)
        if len(waiting) > 1 and waiting[-2].end > end:
            # Not in the order of the log: its sender waited for something else first.
            self._waiting = deque(sorted(waiting, key=lambda other: other.end))
        if self._timer is None:
            self._timer = self.clock.callLater(self.timeout, self._expire)
        return write

    def acked(self, claim: Claim) -> None:
        """A claim moved, or began to count: resolve what it completes."""
        if not (self._waiting or self._aside):
            return
        due: list[Waiting] = []
        if self._aside and claim.start <= self._aside[-1].begin:
            self._look_aside(due)
        self._look_below(self._limit(claim), due, claim if self.needed == 1 else None)

    def held(self, begin: int, end: int) -> bool:
        """Whether a write is where it was promised to be."""
        return self.ledger.covers(begin, end) >= self.needed

    def _limit(self, claim: Claim) -> int:
        """No write that ends above this is held because a claim moved."""
        needed = self.needed
        return min(claim.acked, self.ledger.quorum(needed)) if needed > 1 else claim.acked

    def _look_below(self, limit: int, due: list[Waiting], alone: Claim | None = None) -> None:
        """Answer the writes that end at or below C{limit}, and those that are due besides; put
        aside what is not held.

        @param alone: A claim that is enough if it covers a write: no need to ask for the others.
        """
        waiting = self._waiting
        while waiting and waiting[0].end <= limit:
            write = waiting.popleft()
            enough = alone is not None and alone.covers(write.begin, write.end)
            if enough or self.held(write.begin, write.end):
                due.append(write)
            elif write.done is not None:
                self._aside.append(write)
        for write in due:
            self._resolve(write, PutStatus.PUT_OK)

    def stop(self, status: PutStatus = PutStatus.SERVICE_NOT_AVAILABLE) -> None:
        """Answer all writes that wait, and all that come.  Doing it again changes nothing.

        @param status: With what.
        """
        self._stopped = self._stopped or status
        self._timer = cancelled(self._timer)
        left = [*self._aside, *self._waiting]
        self._aside.clear()
        self._waiting.clear()
        for write in left:
            self._resolve(write, self._stopped)

    def _resolve(self, write: Waiting, status: PutStatus) -> None:
        done, write.done = write.done, None
        if done is not None:
            begun = write.deadline - self.timeout
            self.waited.add(self.clock.seconds() - begun, write.count)
            done(status)

    def _look_aside(self, due: list[Waiting]) -> None:
        """Take out what is covered by now, or not wanted any more."""
        still: list[Waiting] = []
        for write in self._aside:
            if self.held(write.begin, write.end):
                due.append(write)
            elif write.done is not None:
                still.append(write)
        self._aside = still

    def _expire(self) -> None:
        """Answer the writes whose time is over, and look again at the next deadline."""
        self._timer = None
        now = self.clock.seconds()
        late = [write for write in self._aside if write.deadline <= now]
        if late:
            self._aside = [write for write in self._aside if write.deadline > now]
        waiting = self._waiting
        while waiting and (waiting[0].deadline <= now or waiting[0].done is None):
            late.append(waiting.popleft())
        left = [*self._aside, *([waiting[0]] if waiting else [])]
        if left:
            delay = min(write.deadline for write in left) - now
            self._timer = self.clock.callLater(delay, self._expire)
        for write in late:
            self._resolve(write, PutStatus.FLUSH_SLAVE_TIMEOUT)
