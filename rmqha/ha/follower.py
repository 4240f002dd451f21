"""
A slave's side of replication: one connection after another until the log is in sync,
and a name for every reason why it is not.

The guard lives here: what each connection's answer means, what to ask next, and what
the policy allows to be done about a log that is not its master's.  Nothing is cut
unless common ground was compared on a connection, and never for an empty master.
docs/operations.rst tells what each state means and what to do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.application.internet import ClientService
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.settings import DivergencePolicy, FirstSync, HASettings
from rmqha.errors import (
    DiskFull,
    FlushFailed,
    FrameOffsetMismatch,
    RecordCrossesFile,
    RecordFault,
    StartNotAligned,
    StoreError,
)
from rmqha.ha.probe import Ask, OverlapSearch, Question, StartSearch
from rmqha.ha.slave import SlaveProtocol
from rmqha.ha.states import SyncState
from rmqha.net.quiet import RateLimitedLog
from rmqha.net.rate import TokenBucket
from rmqha.store.log import CommitLog

GAPS_BEFORE_STOP = 3
"""Broken streams in a row after which the state is C{gap}."""

DISK_RETRY = 5.0
"""Seconds between looks at a full disk."""

FIRST_BACKOFF = 1.0
"""Seconds before the first reconnect; doubled up to C{haReconnectBackoffMax}."""


@define(eq=False)
class Divergence:
    """
    Where a slave's log stops being its master's.

    @ivar at: The first byte that differs, or the master's end.
    @ivar common_from: Everything in C{[common_from, at)} was compared equal.
    @ivar master_empty: Whether the master has nothing at all.
    """

    at: int
    common_from: int
    master_empty: bool = False


Repair = Callable[[DivergencePolicy, Divergence | None], Deferred[str]]
"""Carries a policy out on the store; the Deferred's text says what was done, its
failure why nothing was."""


@define(eq=False)
class Follower(Service):
    """
    Keep one slave's log equal to its master's.

    @ivar endpoint: Where the master's HA port is; C{None} without an address.
    @ivar current_log: The log to follow with; a repair replaces it.
    @ivar repair: How to carry out a policy.
    @ivar bootstrapping: Told when a copy from nothing begins and when it is complete;
        the owner keeps a marker on the disk.
    @ivar is_bootstrapping: Whether such a copy is under way.
    @ivar hold_flushed: Whether only flushed bytes are reported (SYNC_FLUSH).
    @ivar state: The slave's state; L{reason} explains it with numbers.
    """

    endpoint: IStreamClientEndpoint | None
    address: str
    current_log: Callable[[], CommitLog]
    settings: HASettings
    clock: IReactorTime
    repair: Repair
    bootstrapping: Callable[[bool], None]
    is_bootstrapping: bool = False
    hold_flushed: bool = False
    state: SyncState = SyncState.CONNECTING
    reason: str = ""
    divergence: Divergence | None = None
    received: int = 0
    probes: int = 0
    reconnects: int = 0
    _client: ClientService | None = field(default=None, init=False)
    _connection: SlaveProtocol | None = field(default=None, init=False)
    _overlap: OverlapSearch | None = field(default=None, init=False)
    _start: StartSearch | None = field(default=None, init=False)
    _proven: bool = field(default=False, init=False)
    _gaps: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)
    _at_once: bool = field(default=False, init=False)
    _refetching: bool = field(default=False, init=False)
    _trusting: bool = field(default=False, init=False)
    _repairing: bool = field(default=False, init=False)
    _bucket: TokenBucket | None = field(default=None, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.clock)
        if self.settings.max_receive_rate:
            self._bucket = TokenBucket(self.settings.max_receive_rate, self.clock)

    # --- the service --------------------------------------------------------

    def startService(self) -> None:
        """
        Begin to connect.
        """
        super().startService()
        if self.endpoint is None:
            self.reason = "no master address"
            return
        self._connect()

    def stopService(self) -> Deferred[None]:
        """
        Disconnect.
        """
        super().stopService()
        self._become(SyncState.STOPPED, "stopping")
        return self._disconnect()

    def _connect(self) -> None:
        assert self.endpoint is not None, "checked when the service started"
        factory = Factory.forProtocol(self._protocol)
        factory.noisy = False
        self._client = ClientService(
            self.endpoint,
            factory,
            retryPolicy=self._delay,
            clock=self.clock,
        )
        self._client.startService()

    def _reconnect(self, _: object) -> None:
        if self.running:
            self._connect()

    def _disconnect(self) -> Deferred[None]:
        client, self._client = self._client, None
        if self._connection is not None:
            self._connection.drop()
        if client is None:
            return succeed(None)
        return succeed(client.stopService()).addCallback(lambda _: None)

    def _delay(self, attempt: int) -> float:
        """
        Seconds before the next connection.

        Success is verified bytes, not a connection: a master that accepts and closes
        is asked ever more slowly.
        """
        if self._at_once:
            self._at_once = False
            return 0.05
        if self.state is SyncState.DISK_FULL:
            return DISK_RETRY
        longest = self.settings.backoff_max
        if self.state.is_stop and not self._refetching:
            return longest
        delay = min(FIRST_BACKOFF * 2.0 ** min(self._failures, 10), longest)
        self._failures += 1
        return delay * random.uniform(0.8, 1.2)

    def _protocol(self) -> SlaveProtocol:
        log = self.current_log()
        question = self._question(log)
        if question.ask is Ask.EMPTY and not self.is_bootstrapping:
            self._bootstrap(True)
        if question.ask in (Ask.OVERLAP, Ask.SURVEY):
            self.probes += 1
            if not self.state.is_stop:
                self._progress(SyncState.PROBING, f"asked for byte {question.report}")
        self._connection = SlaveProtocol(
            log,
            question,
            self.settings,
            self.clock,
            self,
            hold_flushed=self.hold_flushed,
            bucket=self._bucket,
        )
        return self._connection

    def _question(self, log: CommitLog) -> Question:
        """
        What the next connection asks.
        """
        if log.end == log.min_offset:
            self._overlap = None
            if self._start is None:
                self._start = StartSearch(log.file_size)
            return self._start.question()
        self._start = None
        if self._trusting:
            return Question(Ask.OVERLAP, log.end)
        if self._overlap is None or self._overlap.end != log.end:
            self._overlap = OverlapSearch.of(
                log.min_offset,
                log.end,
                (log.end - 1) - (log.end - 1) % log.file_size,
                batch=self.settings.batch,
                proven_before=self._proven,
            )
        return self._overlap.question()

    # --- what connections tell ----------------------------------------------

    def first_bytes(self, connection: SlaveProtocol, offset: int) -> bool:
        """
        An answer begins: is it the one we can go on with?
        """
        log = connection.log
        if connection.question.ask is Ask.SURVEY:
            if offset > log.end:
                self._stop(
                    SyncState.BELOW_MIN,
                    f"the master's log starts at {offset}, ours ends at {log.end}",
                )
                return False
            return True
        if self._start is None:
            return True
        if connection.question.ask is Ask.EMPTY:
            if offset > 0 and self.settings.first_sync is FirstSync.BEGINNING:
                self._start.begins_at(offset)
                return self._again()
            return True
        self._start.answered()
        return True if self._start.settled else self._again()

    def silence(self, connection: SlaveProtocol) -> None:
        """
        No common ground here: ask elsewhere.
        """
        if self._start is not None:
            self._start.silent()
            self._again()
        elif self._overlap is None or not self._overlap.lower():
            log = connection.log
            self._unproven(f"the master sent nothing to compare with [{log.min_offset}, {log.end})")
        else:
            self._again()

    def _unproven(self, reason: str) -> None:
        """
        Nothing overlaps: stop, or go on where we end if the operator said so.
        """
        self._overlap = None
        if self._trusting:
            return
        if self.settings.accept_unproven:
            self._log.critical("Following unproven, as told: {reason}", reason=reason)
            self._trusting = True
            self._again()
        else:
            self._stop(SyncState.UNPROVEN, reason)

    def differs(self, connection: SlaveProtocol, offset: int) -> None:
        """
        A byte is not the master's; find out since where.
        """
        self._no_longer_common(
            connection,
            SyncState.DIVERGED,
            offset,
            f"byte {offset} of {connection.log.folder.at(offset).path} is not the master's; "
            f"ours ends at {connection.log.end}",
        )

    def master_ends(self, connection: SlaveProtocol, offset: int) -> None:
        """
        The master's end is known.
        """
        log = connection.log
        if offset >= log.end:
            self._caught_up(connection)
            return
        self._no_longer_common(
            connection,
            SyncState.AHEAD,
            offset,
            f"the master ends at {offset}, ours at {log.end}: {log.end - offset} bytes more",
        )

    def moved(self, connection: SlaveProtocol) -> None:
        """
        Bytes are held and more are coming.
        """
        self._good(connection)
        if self.is_bootstrapping:
            self._progress(SyncState.BOOTSTRAPPING, "")
        else:
            self._progress(SyncState.CATCHING_UP, "")

    def broken(self, connection: SlaveProtocol, error: Exception) -> None:
        """
        A connection ended on an error; some are states of their own.
        """
        log = connection.log
        if isinstance(error, DiskFull):
            self._stop(SyncState.DISK_FULL, str(error))
        elif isinstance(error, FlushFailed):
            self._stop(SyncState.FAILED, str(error))
        elif isinstance(error, (RecordCrossesFile, StartNotAligned)):
            self._stop(SyncState.FILE_SIZE, str(error))
        elif isinstance(error, RecordFault):
            # What is not confirmed was never reported: drop it and fetch it again.
            log.rewind()
            self._refetching = True
            self._stop(SyncState.DIVERGED, f"the master sent a bad record: {error}")
        else:
            self._gaps += isinstance(error, FrameOffsetMismatch)
            self._quiet.warn(
                type(error).__name__, self.address, "Leaving {peer}: {error}", error=str(error)
            )
            if self._gaps >= GAPS_BEFORE_STOP:
                self._stop(SyncState.GAP, str(error))

    def bad_record(self, error: StoreError) -> None:
        """
        Dispatch found a bad record (with C{haVerifyBeforeAck=false}).
        """
        if self._connection is not None:
            self._connection.violation(error)

    def lost(self, connection: SlaveProtocol, reason: Failure) -> None:
        """
        A connection is over; the client service makes the next one.
        """
        self.received += connection.received
        if connection is not self._connection:
            return
        self._connection = None
        self.reconnects += 1
        if connection.by_peer and connection.cursor is None:
            # Closed before any bytes: an rmqha master's way to say "not from there".
            if connection.question.ask is not Ask.EMPTY:
                self.silence(connection)
        if not self.state.is_stop and self.state is not SyncState.PROBING:
            self._become(SyncState.CONNECTING, reason.getErrorMessage())

    # --- what they mean -----------------------------------------------------

    def _good(self, connection: SlaveProtocol) -> None:
        """
        Verified bytes: this master and this log belong together.
        """
        self._proven = True
        self._refetching = False
        self._gaps = self._failures = 0
        self._trusting = False
        self._overlap = self._start = self.divergence = None

    def _caught_up(self, connection: SlaveProtocol) -> None:
        self._good(connection)
        if self.is_bootstrapping and connection.log.end > 0:
            self._bootstrap(False)
        self._progress(SyncState.IN_SYNC, "")

    def _no_longer_common(
        self, connection: SlaveProtocol, state: SyncState, at: int, reason: str
    ) -> None:
        """
        Our log and the master's part at C{at}.
        """
        common_from = max(connection.question.report, connection.log.min_offset)
        self.divergence = Divergence(at, common_from, master_empty=at == 0)
        nothing_compared = at <= common_from
        if nothing_compared and self._overlap is not None and self._overlap.lower():
            self._again()
            return
        self._stop(state, reason)

    def _again(self) -> bool:
        """
        Ask the next question on a new connection, at once.
        """
        self._at_once = True
        if self._connection is not None:
            self._connection.drop()
        return False

    def _stop(self, state: SyncState, reason: str) -> None:
        """
        Enter a named stop state, and do what the policy says about it.
        """
        self._become(state, reason)
        self._overlap = self._start = None
        if self._connection is not None:
            self._connection.drop()
        policy = self._remedy(state)
        if policy is not None and not self._repairing:
            self._repairing = True
            self.repair(policy, self.divergence).addCallbacks(self._repaired, self._unrepaired)

    def _remedy(self, state: SyncState) -> DivergencePolicy | None:
        policy = self.settings.policy
        parted = state in (SyncState.AHEAD, SyncState.DIVERGED) and self.divergence is not None
        if parted and self.divergence is not None and self.divergence.master_empty:
            return None
        if policy is DivergencePolicy.TRUNCATE and parted:
            return policy
        rebootstrap = policy is DivergencePolicy.REBOOTSTRAP
        if state is SyncState.BELOW_MIN and (rebootstrap or self.is_bootstrapping):
            return DivergencePolicy.REBOOTSTRAP
        return policy if rebootstrap and parted else None

    def _repaired(self, text: str) -> None:
        self._repairing = False
        self.divergence = None
        self._log.warn("{text}", text=text)
        self._become(SyncState.CONNECTING, text)
        if self.running and self._client is not None:
            client, self._client = self._client, None
            succeed(client.stopService()).addCallback(self._reconnect)

    def _unrepaired(self, failure: Failure) -> None:
        self._repairing = False
        self.reason = f"{self.reason}; {failure.getErrorMessage()}"
        self._log.error("Not repaired: {reason}", reason=self.reason)

    def _bootstrap(self, on: bool) -> None:
        self.is_bootstrapping = on
        self.bootstrapping(on)

    def _progress(self, state: SyncState, reason: str) -> None:
        if self.state is not state:
            self._become(state, reason)

    def _become(self, state: SyncState, reason: str) -> None:
        if (state, reason) != (self.state, self.reason):
            level = self._log.warn if state.is_stop else self._log.info
            level(
                "Replication from {master}: {old} -> {new} {reason}",
                master=self.address,
                old=self.state.value,
                new=state.value,
                reason=reason,
            )
        self.state, self.reason = state, reason

    # --- for /status ---------------------------------------------------------

    def status(self, last_stored: int) -> dict[str, Any]:
        """
        C{upstream} of C{/status}.

        @param last_stored: Store time of the last record held, in milliseconds, 0 if none.
        """
        in_sync = self.state is SyncState.IN_SYNC
        now = 0 if self._connection is None else self._connection.received
        lag = None
        if in_sync:
            lag = 0.0
        elif last_stored:
            lag = max(0.0, time.time() - last_stored / 1000.0)
        return {
            "address": self.address,
            "state": self.state.value,
            "reason": self.reason,
            "received": self.received + now,
            "lagBytes": 0 if in_sync else None,
            "lagSeconds": lag,
            "probes": self.probes,
            "reconnects": self.reconnects,
            "bootstrapping": self.is_bootstrapping,
        }
