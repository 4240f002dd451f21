"""A master gets back from its replicas what it lost, before it takes writes.

A SYNC write that was acknowledged is on a replica; after a crash the master itself may have less:
with C{ASYNC_FLUSH} a power cut takes what was not flushed yet, and a disk may lose more.  A master
that goes on from there writes other bytes at offsets that its replicas have, and an acknowledged
write is served no more.  So it first asks each replica it had how far its log goes, and takes over
what continues its own.

It waits a bounded time: for all of them, since what was acknowledged may be on any one.  One that
sends is waited for as long as bytes come.

The master follows each replica for a moment, as a slave follows a master
(L{SlaveProtocol<rmqha.ha.slave.connection.SlaveProtocol>}): it compares the last 64 MiB that it
has, and appends what comes behind them, record by record with its CRC.  It says first that it is
an observer, so that a slave of ours sends everything to its last byte, asks for no proof, and
counts it for nothing; to a stock slave it looks like any slave that connects.

Source: docs/states.rst, A lost tail; docs/protocol/ha.rst, Observers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from attrs import define, field
from twisted.application.internet import ClientService
from twisted.internet.defer import Deferred, DeferredList, DeferredLock, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.ha_settings import HASettings
from rmqha.errors import RecordCorrupt
from rmqha.ha.slave.connection import SlaveProtocol
from rmqha.ha.slave.follow_state import Judge
from rmqha.ha.slave.probe import OverlapSearch, Probe, ProbeKind
from rmqha.ha.slave.reconnect import (
    QuietClientService,
    SingleConnection,
    bounds_first,
    reporting,
)
from rmqha.periodic import NodePart, cancelled
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_dialect import ClassicSlaveDialect

RETRY = 0.5
"""Seconds between two tries to reach a replica: it may be starting too."""


class SourceState(StrEnum):
    """How a replica was asked; the last three are answers."""

    WAITING = "waiting"
    FETCHING = "fetching"
    COMPLETE = "complete"
    DIFFERS = "differs"
    FAILED = "failed"

    @property
    def is_answer(self) -> bool:
        """Whether there is nothing more to ask."""
        return self in (SourceState.COMPLETE, SourceState.DIFFERS, SourceState.FAILED)


@define(eq=False, kw_only=True)
class TailSource(NodePart):
    """Asks one replica, again and again until it answers.

    @ivar address: Its HA port, in words.
    @ivar endpoint: The same, to connect to.
    @ivar fetch: Whose log is to grow; it is not empty.
    @ivar state: How far it is.
    @ivar reason: Why, in words.
    @ivar end: Where the replica's log ends, C{None} while that is not known.
    @ivar moved_at: When bytes last came, in the clock's seconds.
    """

    address: str
    endpoint: IStreamClientEndpoint
    fetch: TailFetch
    state: SourceState = field(default=SourceState.WAITING, init=False)
    reason: str = field(default="not reached yet", init=False)
    end: int | None = field(default=None, init=False)
    _fetched: int = field(default=0, init=False)
    moved_at: float = field(default=0.0, init=False)
    connection: SlaveProtocol | None = field(default=None, init=False)
    _client: ClientService | None = field(default=None, init=False)
    _stopping: Deferred[None] | None = field(default=None, init=False)
    _before: int = field(default=0, init=False)
    _differs: int = field(default=-1, init=False)
    _judging: Deferred[None] | None = field(default=None, init=False)

    _log = Logger()

    # --- life -----------------------------------------------------------------

    def start(self) -> None:
        """Begin to ask."""
        in_turn = bounds_first(
            self.endpoint, lambda: self.fetch.turn.acquire().addCallback(lambda _: None)
        )
        self._client = QuietClientService(
            reporting(in_turn, self._not_reached),
            SingleConnection(self._protocol),
            retryPolicy=lambda attempt: RETRY,
            clock=self.fetch.clock,
        )
        self._client.startService()

    def stop(self) -> Deferred[None]:
        """Ask no more.

        @return: Fires when nothing touches the log any longer.
        """
        client, self._client = self._client, None
        if self.connection is not None:
            self.connection.drop("the fetch is over")
        if client is not None:
            # A ClientService cannot be stopped from within what it calls.
            self._stopping = deferLater(self.fetch.clock, 0.0).addCallback(
                lambda _: client.stopService()
            )
            judging = self._judging
            if judging is not None:
                self._stopping.addCallback(lambda _: judging)
        if self._stopping is None:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._stopping.addCallback(lambda _: gone.callback(None))
        return gone

    def _not_reached(self, failure: Failure) -> Failure:
        if not self.state.is_answer:
            self.reason = failure.getErrorMessage()
        return failure

    def _protocol(self) -> SlaveProtocol:
        """Ask from a window below where the log ends now: another source may have let it grow."""
        log, clock = self.fetch.log, self.fetch.clock
        search = OverlapSearch.of(
            log.min_offset,
            log.end,
            log.file_size,
            batch=self.fetch.settings.batch,
            proven_before=True,
        )
        self._before, self.moved_at = log.end, clock.seconds()
        self.connection = SlaveProtocol(
            log=log,
            question=Probe(ProbeKind.OVERLAP, search.start),
            settings=self.fetch.settings,
            clock=clock,
            follower=self,
            dialect=ClassicSlaveDialect(observer=True),
        )
        return self.connection

    def _answer(self, state: SourceState, reason: str) -> None:
        if self.state.is_answer:
            return
        self.state, self.reason = state, reason
        self.stop()
        self.fetch.look()

    @property
    def fetched(self) -> int:
        """Bytes that the log has grown by."""
        now = 0 if self.connection is None else self.fetch.log.confirmed - self._before
        return self._fetched + now

    # --- what its connection tells ---------------------------------------------

    def first_bytes(self, connection: SlaveProtocol, offset: int) -> bool:
        """It has bytes where we asked."""
        self.state, self.reason = SourceState.FETCHING, f"comparing from byte {offset}"
        return True

    def silence(self, connection: SlaveProtocol) -> None:
        """It has none there: its log may end before, and it may be just catching up."""
        self.reason = f"sent nothing from byte {connection.question.report}"
        connection.drop(self.reason)

    def differs(self, connection: SlaveProtocol, offset: int) -> bool:
        """It has other bytes than we: look at them."""
        self._differs = offset
        self.reason = f"byte {offset} differs, our log ends at {connection.own_end}"
        return True

    def on_difference(self, connection: SlaveProtocol, theirs: bytes) -> None:
        """They are here."""
        reason = self.reason
        judging: Deferred[None] = Deferred()
        self._judging = judging

        def judged(found: str | Failure) -> None:
            self._judging = None
            if isinstance(found, Failure):
                found = f"which version is right is not known: {found.getErrorMessage()}"
            self._answer(SourceState.DIFFERS, f"{reason}; {found}")
            judging.callback(None)

        self.fetch.judge(self.fetch.log, self._differs, theirs).addBoth(judged)

    def bad_record(self, connection: SlaveProtocol, error: RecordCorrupt) -> bool:
        """It has a record that does not check: what a master takes back is whole.

        @return: Never that it may pass.
        """
        return False

    def master_ends(self, connection: SlaveProtocol, offset: int) -> None:
        """It has no more."""
        self.end = offset
        self._answer(SourceState.COMPLETE, f"its log ends at byte {offset}")

    def on_progress(self, connection: SlaveProtocol) -> None:
        """More came."""
        self.moved_at = self.fetch.clock.seconds()

    def on_error(self, connection: SlaveProtocol, error: Exception) -> None:
        """What it sends cannot be taken."""
        self._answer(SourceState.FAILED, str(error))

    def on_connection_end(self, connection: SlaveProtocol, reason: Failure) -> None:
        """The connection is over; what is no whole record is dropped."""
        log = self.fetch.log
        if log.end > log.confirmed:
            log.rewind()
        self._fetched += log.confirmed - self._before
        self.connection = None
        if not self.state.is_answer:
            self.state = SourceState.WAITING
            if connection.cursor is not None or not connection.why:
                self.reason = connection.why or "closed the connection"
        self.fetch.turn.release()

    def status(self) -> dict[str, Any]:
        """Its row in C{tailFetch} of C{/status}."""
        return {
            "address": self.address,
            "state": self.state.value,
            "reason": self.reason,
            "bytes": self.fetched,
        }


class TailFetchState(StrEnum):
    """C{tailFetch.state} of C{/status}."""

    FETCHING = "fetching"
    DONE = "done"
    """Every replica has answered."""
    INCOMPLETE = "incomplete"
    """Some did not in time, or differ."""


@define(eq=False, kw_only=True)
class TailFetch(NodePart):
    """Asks all replicas that a master has had.

    @ivar log: What is to grow.
    @ivar judge: Says which side is right where a replica differs, and what to do.
    @ivar timeout: Seconds without a byte or an answer after which the rest is not waited for.
    @ivar turn: Held by the one source that may let the log grow.
    @ivar start: Where the log ended.
    @ivar state: How far it is.
    """

    log: CommitLog
    settings: HASettings
    clock: IReactorTime
    timeout: float
    judge: Judge
    turn: DeferredLock = field(factory=DeferredLock, init=False)
    start: int = field(init=False)
    sources: tuple[TailSource, ...] = field(default=(), init=False)
    state: TailFetchState = field(default=TailFetchState.FETCHING, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _over: Deferred[None] | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.start = self.log.end

    def run(
        self,
        addresses: Iterable[tuple[str, int]],
        dial: Callable[[str, int], IStreamClientEndpoint],
    ) -> Deferred[None]:
        """Ask them all.

        @param addresses: Hosts and HA ports.
        @param dial: Makes what connects to one.
        @return: Fires when each has answered, or the time is over; nothing touches the log then.
        """
        self.sources = tuple(
            TailSource(
                address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                endpoint=dial(host, port),
                fetch=self,
            )
            for host, port in addresses
        )
        self._log.info(
            "Asking replicas whether they have more than this log, which ends at byte {end}: "
            "{addresses}; waiting {timeout:g} s for answers (haTailFetchTimeout)",
            end=self.start,
            addresses=", ".join(source.address for source in self.sources),
            timeout=self.timeout,
        )
        over: Deferred[None] = Deferred()
        self._over = over
        self._timer = self.clock.callLater(self.timeout, self._late)
        for source in self.sources:
            source.start()
        return over

    def stop(self) -> Deferred[None]:
        """Ask no more, whatever was answered.

        @return: Fires when nothing touches the log any longer.
        """
        over = self._over
        if over is None or over.called:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        over.addCallback(gone.callback)
        self._end()
        return gone

    def look(self) -> None:
        """A replica has answered: it may have been the last one."""
        if all(source.state.is_answer for source in self.sources):
            self._end()

    def _late(self) -> None:
        """Wait on for who sends; else that was all."""
        self._timer = None
        moved = [source.moved_at for source in self.sources if source.state is SourceState.FETCHING]
        left = max(moved, default=0.0) + self.timeout - self.clock.seconds()
        if moved and left > 0:
            self._timer = self.clock.callLater(left, self._late)
        else:
            self._end()

    def _end(self) -> None:
        if self.state is not TailFetchState.FETCHING:
            return
        whole = all(source.state is SourceState.COMPLETE for source in self.sources)
        self.state = TailFetchState.DONE if whole else TailFetchState.INCOMPLETE
        self._timer = cancelled(self._timer)
        DeferredList([source.stop() for source in self.sources]).addCallback(self._ended)

    def _ended(self, _: object) -> None:
        self._tell()
        assert self._over is not None, "it has begun"
        self._over.callback(None)

    def _tell(self) -> None:
        for source in self.sources:
            if source.state is SourceState.DIFFERS:
                self._log.error(
                    "Replica {address} has another log than this master: {reason}; it is not "
                    "followed, and will say diverged or ahead",
                    address=source.address,
                    reason=source.reason,
                )
            elif source.state is not SourceState.COMPLETE:
                self._log.warn(
                    "Replica {address} did not say whether it has more than this log: {reason}",
                    address=source.address,
                    reason=source.reason,
                )
            elif source.fetched:
                self._log.warn(
                    "Fetched {bytes} bytes of the log's lost tail from replica {address}",
                    bytes=source.fetched,
                    address=source.address,
                )
        self._log.info(
            "The log ended at byte {start} and ends at byte {end} now; replicas: {rows}",
            start=self.start,
            end=self.log.end,
            rows="; ".join(f"{each.address} {each.state}: {each.reason}" for each in self.sources),
        )

    def status(self) -> dict[str, Any]:
        """C{tailFetch} of C{/status}."""
        gave = [source for source in self.sources if source.fetched]
        return {
            "state": self.state.value,
            "from": self.start,
            "bytes": sum(source.fetched for source in self.sources),
            "source": gave[-1].address if gave else None,
            "sources": [source.status() for source in self.sources],
        }
