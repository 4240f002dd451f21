"""What a master does after a crash, between the opening of its log and its first write.

It asks its replicas for the tail that it may have lost (L{rmqha.ha.tail_fetch}), makes what they
gave its own, and decides whether it may serve: never with a loss that its own marks prove and
nobody made good, unless an operator has said so.

Source: docs/operations.rst, A lost tail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmqha.config.settings import Settings
from rmqha.config.values import Endpoint
from rmqha.errors import LogShortened, TailNotFetched
from rmqha.ha.known_replicas import KnownReplicas
from rmqha.ha.slave.reconnect import ha_endpoint
from rmqha.ha.tail_fetch import TailFetch, TailFetchState
from rmqha.logfiles.log_writer import crashed_from
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls
from rmqha.periodic import Job
from rmqha.store import lost_tail
from rmqha.store.derived.clamp_offsets import clamp_consumers, clamp_delays
from rmqha.store.derived.lookup import Lookup
from rmqha.store.files.allocate import InThread
from rmqha.store.log.commit_log import CommitLog
from rmqha.store.log.two_versions import TwoVersions, judge_place
from rmqha.store.lost_tail import LostTail
from rmqha.store.store import Store
from rmqha.wire.log.delay_levels import DelayLevels


@define(eq=False, kw_only=True)
class TailRecovery:
    """One start's way to a log that may be written.

    @ivar repair: Whether an operator accepts what is missing (C{--repair}).
    @ivar replicas: Those of the runs before.
    @ivar tls: What their HA ports are dialled with.
    @ivar wanted: Whether the node is still to start.
    @ivar ours_from: Where the last run began to write, if it crashed.
    @ivar fetch: The asking, once it has begun.
    @ivar skipped: Why nobody was asked; empty if somebody was, or nothing called for it.
    @ivar asking: Whether it is not over, or has not begun.
    """

    settings: Settings
    reactor: Any
    in_thread: InThread
    repair: bool
    replicas: KnownReplicas
    tls: OutgoingTls = IN_CLEAR_TEXT
    wanted: Callable[[], bool]
    ours_from: int | None = field(init=False)
    fetch: TailFetch | None = field(default=None, init=False)
    skipped: str = field(default="", init=False)
    asking: bool = field(default=True, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.ours_from = crashed_from(self.settings.store.root)

    # --- whom to ask ----------------------------------------------------------

    def addresses(self) -> list[tuple[str, int]]:
        """The HA ports to ask: those that the configuration names, or else those of the replicas
        there were.  One that has not told its port is taken to have ours.
        """
        ha = self.settings.ha
        if ha.tail_sources:
            named = (part.strip() for part in ha.tail_sources.split(";"))
            return [Endpoint().parse(part) for part in named if part]
        return [
            (host, port)
            for host, ports in self.replicas.ports.items()
            for port in ports or [ha.listen_port]
            if port and not self._is_ours(host, port)
        ]

    def _is_ours(self, host: str, port: int) -> bool:
        if port != self.settings.ha.listen_port:
            return False
        return host == self.settings.broker.ip1 or ip_address(host).is_loopback

    def can_ask(self) -> bool:
        """Whether there is anybody to ask, and the operator did not say no."""
        return self.settings.ha.tail_fetch_timeout > 0 and bool(self.addresses())

    # --- the way ----------------------------------------------------------------

    async def run(self, store: Store) -> None:
        """Ask if a crash, or a loss that is proven, calls for it.

        @raise LogShortened: If bytes are missing that were on the disk, no replica gave them,
            and the operator has not accepted that; L{TailNotFetched} if any was asked.
        @raise FlushFailed: If what they gave cannot be made durable.
        """
        try:
            if store.lost is not None or self.ours_from is not None:
                await self._ask(store)
            if store.lost is not None and self.wanted():
                await self._settle(store, store.lost)
        finally:
            self.asking = False

    async def _ask(self, store: Store) -> None:
        timeout, addresses = self.settings.ha.tail_fetch_timeout, self.addresses()
        if not timeout:
            self.skipped = "haTailFetchTimeout=0"
        elif not addresses:
            self.skipped = "no replica is known"
        elif store.log.end == store.log.min_offset:
            self.skipped = "the log is empty, there is nothing to compare"
        if self.skipped:
            self._log.info(
                "Not asking replicas for a lost tail of the log: {why}", why=self.skipped
            )
            return
        self.fetch = TailFetch(
            log=store.log,
            settings=self.settings.ha,
            clock=self.reactor,
            timeout=timeout,
            judge=self._judge,
        )
        over = self.fetch.run(addresses, self._dial)
        store.environment.changed()
        await over
        if store.log.end > self.fetch.start:
            await store.flusher.flush()
            await store.took_over()

    def _judge(self, log: CommitLog, at: int, theirs: bytes) -> Deferred[str]:
        """Hold a replica's version of a place against ours."""
        root = self.settings.store.root

        def told(found: tuple[TwoVersions, bytes, bytes]) -> str:
            versions = found[0]
            text = versions.told(theirs="the replica's")
            if versions.kept == "theirs" or (versions.first_theirs and not versions.first_ours):
                text += f"; stop this node and mend it: rmqha repair {root} --from that address"
            return text

        return self.in_thread(judge_place, root, log, at, theirs).addCallback(told)

    def _dial(self, host: str, port: int) -> Any:
        local = self.settings.ha.local_address
        return ha_endpoint(self.reactor, host, port, local_address=local, tls=self.tls)

    async def _settle(self, store: Store, lost: LostTail) -> None:
        """A loss was proven when the store was opened: is it made good?"""
        root, end = self.settings.store.root, store.log.confirmed
        if end >= lost.to:
            await self.in_thread(lost_tail.forget, root)
            store.lost = None
            self._log.warn(
                "The lost tail of the log is back: bytes {start} to {to} came from replicas",
                start=lost.start,
                to=lost.to,
            )
            return
        store.lost = lost = evolve(lost, start=end)
        if not self.repair:
            kind = LogShortened if self.fetch is None else TailNotFetched
            raise lost.error(self.settings.store.commitlog, kind)
        moved = await self.in_thread(_clamp, store)
        for each in moved:
            self._log.warn("Moved an offset back, as the log was cut: {moved}", moved=each)

    def stop(self) -> Deferred[None]:
        """The node stops: ask no more.

        @return: Fires when nothing touches the log any longer.
        """
        return succeed(None) if self.fetch is None else self.fetch.stop()

    # --- for /status ------------------------------------------------------------

    @property
    def reason(self) -> str:
        """What is under way, in words; empty if nothing is."""
        if not self.asking or self.fetch is None:
            return ""
        if self.fetch.state is not TailFetchState.FETCHING:
            return "making the fetched tail of the log durable"
        rows = (f"{source.address} ({source.reason})" for source in self.fetch.sources)
        return f"asking replicas for a lost tail of the log: {', '.join(rows)}"

    def jobs(self) -> Iterator[Job]:
        """What is done again and again meanwhile."""
        if self.fetch is not None:
            yield from self.fetch.jobs()

    def status(self) -> dict[str, Any] | None:
        """C{tailFetch} of C{/status}; C{None} if nothing called for it."""
        if self.fetch is not None:
            return self.fetch.status()
        return {"state": "skipped", "reason": self.skipped} if self.skipped else None


def _clamp(store: Store) -> list[object]:
    settings = store.settings
    levels = DelayLevels.parse(settings.delay_levels)
    lookup = Lookup(store.log, store.queues, None, levels)
    return [*clamp_consumers(settings.root, lookup), *clamp_delays(settings.root, lookup)]
