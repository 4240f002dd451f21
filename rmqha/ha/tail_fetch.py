"""A master gets back from its replicas what it lost, before it takes writes.

A SYNC write that was acknowledged is on a replica; after a crash the master itself may have less:
with C{ASYNC_FLUSH} a power cut takes what was not flushed yet, and a disk may lose more.  A master
that goes on from there writes other bytes at offsets that its replicas have, and an acknowledged
write is served no more.  So it first asks each replica it had how far its log goes, and takes over
what continues its own.

It waits a bounded time: for all of them, since what was acknowledged may be on any one.  One that
sends is waited for as long as bytes come.

Source: docs/operations.rst, A lost tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList, DeferredLock, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.logger import Logger

from rmqha.config.ha_settings import HASettings
from rmqha.ha.slave.follow_state import Judge
from rmqha.ha.tail_source import SourceState, TailSource
from rmqha.periodic import Job
from rmqha.store.log.commit_log import CommitLog


class TailFetchState(StrEnum):
    """C{tailFetch.state} of C{/status}."""

    FETCHING = "fetching"
    DONE = "done"
    """Every replica has answered."""
    INCOMPLETE = "incomplete"
    """Some did not in time, or differ."""


@define(eq=False, kw_only=True)
class TailFetch:
    """Asks all replicas that a master has had.

    @ivar log: What is to grow.
    @ivar judge: Says which side is right where a replica differs, and what to do.
    @ivar timeout: Seconds without a byte or an answer after which the rest is not waited for.
    @ivar start: Where the log ended.
    @ivar state: How far it is.
    """

    log: CommitLog
    settings: HASettings
    clock: IReactorTime
    timeout: float
    judge: Judge
    start: int = field(init=False)
    sources: list[TailSource] = field(factory=list, init=False)
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
        turn = DeferredLock()
        self.sources = [
            TailSource(
                address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                endpoint=dial(host, port),
                log=self.log,
                settings=self.settings,
                clock=self.clock,
                turn=turn,
                judge=self.judge,
                answered=self._look,
            )
            for host, port in addresses
        ]
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

    def _look(self) -> None:
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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

    def jobs(self) -> Iterator[Job]:
        """What is done again and again, while a replica is asked."""
        for source in self.sources:
            if source.connection is not None:
                yield source.connection.reporting

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
