"""What a master's answers mean for a slave's log: a state machine, and a name for every
reason why the log does not follow.

Each connection tells what it saw; here is decided what that makes of the slave, and
what is asked next (L{rmqha.ha.slave.probe}).  Nothing here connects, waits or repairs: that
is L{Follower<rmqha.ha.slave.follower.Follower>}'s.  docs/states.rst tells what each
state means and what to do.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.ha_settings import HASettings
from rmqha.errors import DiskFull, FlushFailed, FrameOffsetMismatch, RecordCorrupt
from rmqha.ha.slave.choice import PresentMaster
from rmqha.ha.slave.connection import SlaveProtocol
from rmqha.ha.slave.followed import MastersBelieved
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.master_damage import MasterDamage
from rmqha.ha.slave.probe import ProbeKind, Search, SearchResult
from rmqha.ha.slave.reconnect import Backoff
from rmqha.ha.slave.repair import Divergence
from rmqha.ha.slave.reportable import Reportable, accepted_end
from rmqha.ha.states import Standing, SyncState
from rmqha.health import HealthProbe, HealthReason
from rmqha.net.rate_limit import TokenBucket
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.net.tls.errors import TlsRefused
from rmqha.periodic import NodePart
from rmqha.store.log.commit_log import CommitLog, RecordCrossesFile, StartNotAligned
from rmqha.wire.ha_dialect import ClassicSlaveDialect, SlaveDialect

GAPS_BEFORE_STOP = 3
"""Broken streams in a row after which the state is C{gap}."""

LASTING = 1.0
"""Seconds for which a slave that was in sync is behind before the log says so."""

DISK_RETRY = 5.0
"""Seconds between looks at a full disk."""

Judge = Callable[[CommitLog, int, bytes], "Deferred[str]"]
"""Holds the master's bytes of a place against ours; given our log, the offset and the bytes, it
fires with what came of it, in words."""


@define(eq=False, kw_only=True)
class FollowState(NodePart):
    """How one slave's log stands to its master's.

    @ivar port: What the master's client port says, and where the master is, in words.
    @ivar current_log: The log to follow with; a repair replaces it.
    @ivar bootstrapping: Told when a copy from nothing begins and when it is complete;
        the owner keeps a marker on the disk.
    @ivar copied: Called when a record was copied that is damaged on the master: the log knows it,
        its owner is to write that down.
    @ivar is_bootstrapping: Whether a copy from nothing is under way.
    @ivar reportable: Up to where the log may be reported as held.
    @ivar followed: Which masters this log has followed; C{None} to believe every master.
    @ivar dialect: How the next connection speaks.
    @ivar judge: Says, in words, on which side the records are right behind the first byte that
        differs, and keeps both versions.  It is told our log, that byte, and the master's bytes
        from there on.
    @ivar state: The slave's state; L{reason} explains it with numbers.
    @ivar tls_refusals: How many connections TLS ended, by reason.
    @ivar stopped: Called when a named stop state was entered.
    @ivar divergence: Where the logs part, while that is known.
    @ivar damage: What is known of damaged records of the master's.
    """

    port: MasterClientPort
    current_log: Callable[[], CommitLog]
    settings: HASettings
    bootstrapping: Callable[[bool], None]
    copied: Callable[[CommitLog], None] = lambda log: None
    is_bootstrapping: bool = False
    reportable: Reportable = accepted_end
    followed: MastersBelieved | None = None
    dialect: Callable[[], SlaveDialect] = ClassicSlaveDialect
    judge: Judge | None = None
    stopped: Callable[[], None] = field(default=lambda: None, init=False)
    state: SyncState = field(default=SyncState.CONNECTING, init=False)
    reason: str = field(default="", init=False)
    divergence: Divergence | None = field(default=None, init=False)
    received: int = field(default=0, init=False)
    probes: int = field(default=0, init=False)
    reconnects: int = field(default=0, init=False)
    tls_refusals: Counter[str] = field(factory=Counter, init=False)
    connection: SlaveProtocol | None = field(default=None, init=False)
    damage: MasterDamage = field(init=False)
    _backoff: Backoff = field(init=False)
    _search: Search = field(init=False)
    _gaps: int = field(default=0, init=False)
    _refetching: bool = field(default=False, init=False)
    # Where the difference is whose versions were judged.
    _judged: int = field(default=-1, init=False)
    _bucket: TokenBucket | None = field(default=None, init=False)
    _quiet: RateLimitedLog = field(init=False)
    # Since when it is behind without having said so.
    _behind: float | None = field(default=None, init=False)
    # When a master was last heard, on a connection that is over; at first, when we began.
    _heard: float = field(init=False)
    # The connection by which the master at this address was proven to have our log.
    _proven: SlaveProtocol | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.port.clock)
        self._heard = self.port.clock.seconds()
        self._search = Search(self.settings)
        self._backoff = Backoff(self.settings.backoff_max)
        if self.settings.max_receive_rate:
            self._bucket = TokenBucket(self.settings.max_receive_rate, self.port.clock)
        self.damage = MasterDamage(self.settings, self.port)

    def moved_to(self, port: MasterClientPort) -> None:
        """The master is somewhere else: what was learned of it is worth nothing there."""
        self._proven = None
        self.port = port
        self.damage = MasterDamage(self.settings, self.port)
        self._search = Search(self.settings)
        self._backoff.reset()
        self._gaps, self._refetching, self.divergence = 0, False, None
        self._judged = -1

    # --- connections ----------------------------------------------------------

    def delay(self) -> float:
        """Seconds before the next connection.

        Success is verified bytes, not a connection: a master that accepts and closes
        is asked ever more slowly.
        """
        if not self._backoff.at_once:
            self._search.on_failure()
            self._quiet.sweep()
            if self.state is SyncState.DISK_FULL:
                return DISK_RETRY
            if self.state.is_stop and not self._refetching:
                return self.settings.backoff_max
        return self._backoff.delay()

    def protocol(self) -> SlaveProtocol | None:
        """The next connection and its question; C{None} if there is nothing to ask."""
        log = self.current_log()
        if log.end > log.confirmed:
            # Part of a record: never reported, so cheaper fetched again than compared.
            log.rewind()
        bounds = self.port.bounds
        low = self._too_low()
        if low:
            self.stop(SyncState.LOWER_EPOCH, low)
            return None
        if bounds is not None:
            self.damage.on_end(bounds.max_offset)
        verdict = self._search.ruled_out(log, bounds)
        if verdict is not None and bounds is not None:
            self._follow(
                verdict,
                f"the master's log begins at {bounds.min_offset}, ours ends at {log.end}: "
                f"the {bounds.min_offset - log.end} bytes between were deleted there",
            )
            return None
        question = self._search.question(log, self.reportable(log), bounds)
        if question.ask in (ProbeKind.EMPTY, ProbeKind.START):
            if not self._marked():
                return None
            asking = SyncState.BOOTSTRAPPING
        else:
            self.probes += 1
            asking = SyncState.PROBING
        if not self.state.is_stop:
            self.become(asking, f"asking from byte {question.report}")
        self.connection = SlaveProtocol(
            log=log,
            question=question,
            settings=self.settings,
            clock=self.port.clock,
            follower=self,
            reportable=self.reportable,
            bucket=self._bucket,
            dialect=self.dialect(),
        )
        return self.connection

    def _too_low(self) -> str:
        """Why the master is an older one than one that we have followed; C{""} if it is not."""
        bounds = self.port.bounds
        if self.followed is None or bounds is None:
            return ""
        return self.followed.too_low(self.port.peer, bounds.identity.epoch)

    def _marked(self) -> bool:
        """Make sure that the disk says that a copy is under way."""
        try:
            if not self.is_bootstrapping:
                self._bootstrap(True)
        except DiskFull as error:
            self.become(SyncState.DISK_FULL, str(error))
        return self.is_bootstrapping

    # --- what connections tell ----------------------------------------------

    def first_bytes(self, connection: SlaveProtocol, offset: int) -> bool:
        """An answer begins: is it the one we can go on with?"""
        log = connection.log
        verdict = self._search.begins(connection.question.ask, offset, log.end)
        self._follow(
            verdict, f"the master has nothing below our end {log.end}, its bytes begin at {offset}"
        )
        return verdict is SearchResult.GO_ON

    def silence(self, connection: SlaveProtocol) -> None:
        """No common ground here: ask elsewhere."""
        verdict = self._search.silence()
        if verdict is SearchResult.GO_ON:
            # Nothing came from where we end, and nothing has to.
            bounds, end = self.port.bounds, connection.question.report
            told = bounds is not None and bounds.max_offset == end
            self.become(
                SyncState.IN_SYNC if told else SyncState.CATCHING_UP,
                f"following unproven (haAcceptUnproven): waiting for the master's byte {end}",
            )
        self._follow(verdict, "the master fell silent")

    def _follow(self, verdict: SearchResult, reason: str) -> None:
        """Do what an answer calls for."""
        if verdict is SearchResult.ASK:
            self._again()
        elif verdict is SearchResult.WAIT:
            self.drop(reason)
        elif verdict is SearchResult.BELOW_MIN:
            self.stop(SyncState.BELOW_MIN, reason)
        elif verdict is SearchResult.UNPROVEN:
            log = self.current_log()
            reason = f"the master sent nothing to compare with [{log.min_offset}, {log.end})"
            if self.settings.accept_unproven and not self._search.beyond:
                self._log.critical(
                    "Following unproven, as haAcceptUnproven allows: {reason}", reason=reason
                )
                self._search.trusting = True
                self._again()
            else:
                self.stop(SyncState.UNPROVEN, reason)

    def differs(self, connection: SlaveProtocol, offset: int) -> bool:
        """A byte is not the master's; find out since where, and whose version is right."""
        divergence = self._divergence(connection, offset)
        if divergence is None:
            return False
        path = connection.log.folder.at(offset).path
        reason = (
            f"byte {offset} of {path} differs from the master's; our log ends at "
            f"{connection.log.end}"
        )
        known = self.state is SyncState.DIVERGED and self.reason.startswith(reason)
        self.divergence = divergence
        if self.judge is None or (known and self._judged == offset):
            self.stop(SyncState.DIVERGED, reason)
            return False
        if not known:
            self.become(SyncState.DIVERGED, reason)
        return True

    def on_difference(self, connection: SlaveProtocol, theirs: bytes) -> None:
        """The master's version is here: let both be judged, and only then be cut."""
        divergence, reason = self.divergence, self.reason
        self.drop("the logs differ")
        assert self.judge is not None and divergence is not None, "it was asked for"

        def judged(found: str | Failure) -> None:
            if isinstance(found, Failure):
                self._log.failure("Cannot judge where the log and the master's differ", found)
                found = f"which version is right is not known: {found.getErrorMessage()}"
            if self.state is SyncState.DIVERGED and self.divergence is divergence:
                self._judged = divergence.at
                self.stop(SyncState.DIVERGED, f"{reason}; {found}")

        self.judge(connection.log, divergence.at, theirs).addBoth(judged)

    def master_ends(self, connection: SlaveProtocol, offset: int) -> None:
        """The master's end is known."""
        log = connection.log
        if offset >= log.end or log.end == log.min_offset:
            self._caught_up(connection)
            return
        divergence = self._divergence(connection, offset)
        if divergence is not None:
            self.divergence = divergence
            self.stop(
                SyncState.AHEAD,
                f"the master ends at {offset}, ours at {log.end}: {log.end - offset} bytes more",
            )

    def on_progress(self, connection: SlaveProtocol) -> None:
        """Bytes are held and more are coming."""
        if connection.log.confirmed > connection.own_end:
            self._succeeded(connection)
        elif self.state.is_stop:
            # What is compared equal has not mended what stopped us.
            return
        self._good(connection)
        near = self.state is SyncState.IN_SYNC and not connection.behind
        if self.is_bootstrapping and (near or self._has_what_there_was(connection)):
            self._bootstrap(False)
        if near:
            self._progress(SyncState.IN_SYNC)
        elif self.is_bootstrapping:
            self._progress(SyncState.BOOTSTRAPPING)
        else:
            self._progress(SyncState.CATCHING_UP)

    def _has_what_there_was(self, connection: SlaveProtocol) -> bool:
        """Whether a copy has reached where the master ended when it was last asked: under a load
        that never pauses no frame says so.
        """
        bounds, log = self.port.bounds, connection.log
        return bounds is not None and log.min_offset < log.confirmed >= bounds.max_offset

    def on_error(self, connection: SlaveProtocol, error: Exception) -> None:
        """A connection ended on an error; some are states of their own."""
        log = connection.log
        if isinstance(error, DiskFull):
            self.stop(SyncState.DISK_FULL, str(error))
        elif isinstance(error, FlushFailed):
            self.fail(str(error))
        elif isinstance(error, (RecordCrossesFile, StartNotAligned)):
            self.stop(SyncState.FILE_SIZE, str(error))
        elif isinstance(error, RecordCorrupt):
            # What is not confirmed was never reported: drop it and fetch it again.
            passes = self.bad_record(connection, error)
            log.rewind()
            self._refetching = True
            self.divergence = None
            if passes:
                self._again()
            else:
                why = f"{error}; {self.damage.advice(log, error)}"
                self.stop(SyncState.DIVERGED, f"the master sent a bad record: {why}")
        else:
            self._gaps += isinstance(error, FrameOffsetMismatch)
            self._quiet.warn(
                type(error).__name__,
                self.port.peer,
                "Disconnecting from master {peer}: {error}",
                error=str(error),
            )
            if isinstance(error, FrameOffsetMismatch) and self._gaps >= GAPS_BEFORE_STOP:
                self.stop(SyncState.GAP, str(error))

    def bad_record(self, connection: SlaveProtocol, error: RecordCorrupt) -> bool:
        """A whole record does not check: let it pass if it is the master's own damage, and old."""
        passes = self.damage.copies(connection.log, error, connection)
        if passes:
            self.copied(connection.log)
        return passes

    def on_connection_end(self, connection: SlaveProtocol, reason: Failure) -> None:
        """A connection is over; the client service makes the next one."""
        self.received += connection.received
        self._heard = max(self._heard, connection.heard or 0.0)
        if connection is not self.connection:
            return
        self.connection = None
        self.reconnects += 1
        refused = self.refused_by_tls(reason)
        if not refused and connection.by_peer and connection.cursor is None:
            # An rmqha master's way to say "not from there".
            self._follow(self._search.on_close(connection.question.ask), "")
        if not self.state.is_stop and not self._backoff.at_once:
            why = connection.why or reason.getErrorMessage()
            self.become(SyncState.CONNECTING, why, wrong=refused)

    def refused_by_tls(self, reason: Failure) -> bool:
        """Count a connection that TLS ended, on either side.

        @return: Whether it was one.
        """
        if not isinstance(reason.value, TlsRefused):
            return False
        self.tls_refusals[reason.value.reason] += 1
        self._search.on_failure()
        return True

    # --- what they mean -----------------------------------------------------

    def _good(self, connection: SlaveProtocol) -> None:
        """This master and this log belong together.  Nothing but the end of the connection takes
        that back, so it is noted once.
        """
        if connection is not self._proven:
            self._search.on_common_log()
            self.divergence, self._judged = None, -1
            self._proven = connection
            if self.followed is not None:
                self.followed.proven(
                    self.port.peer, self.port.client, self.port.bounds, connection.log.confirmed
                )

    def _succeeded(self, connection: SlaveProtocol) -> None:
        if connection.log.confirmed > connection.own_end:
            self._gaps = 0
        self._backoff.reset()
        self._refetching = False

    def _caught_up(self, connection: SlaveProtocol) -> None:
        if connection.cursor is not None:
            self._good(connection)
            self._succeeded(connection)
            if self.is_bootstrapping:
                self._bootstrap(False)
        self._progress(SyncState.IN_SYNC)

    def _divergence(self, connection: SlaveProtocol, at: int) -> Divergence | None:
        """Where our log and the master's part; C{None} if that is asked further back first."""
        started = at if connection.started is None else connection.started
        common_from = max(started, connection.log.min_offset)
        if at <= common_from and self._search.nothing_common():
            self._again()
            return None
        return Divergence(at, common_from, master_empty=at == 0)

    def _again(self) -> None:
        """Ask the next question on a new connection, at once."""
        self._backoff.at_once = True
        self.drop()

    def stop(self, state: SyncState, reason: str) -> None:
        """Enter a named stop state."""
        if not (self.state is state and self.reason.startswith(reason)):
            self.become(state, reason)
        self._search.forget()
        if state is not SyncState.DISK_FULL and not self._refetching:
            self._proven = None
        self.drop(reason)
        self.stopped()

    def fail(self, reason: str) -> None:
        """Our store takes nothing more until the node is started again."""
        if self.state not in (SyncState.FAILED, SyncState.STOPPED):
            self.stop(SyncState.FAILED, reason)

    def on_repair(self, text: str) -> None:
        """The policy was carried out: the log is another one now."""
        self.divergence = None
        self._log.warn("Repaired the log: {text}", text=text)
        if self.state not in (SyncState.FAILED, SyncState.STOPPED):
            self.become(SyncState.CONNECTING, text)

    def on_repair_failure(self, why: str) -> None:
        """The policy was not carried out; the state stays."""
        if self.state is not SyncState.STOPPED and not self.reason.endswith(why):
            self.reason = f"{self.reason}; {why}"
            self._log.error("Repair of the log failed: {reason}", reason=self.reason)

    def drop(self, why: str = "") -> None:
        """End the connection, if there is one."""
        if self.connection is not None:
            self.connection.drop(why)

    def _bootstrap(self, on: bool) -> None:
        self.bootstrapping(on)
        self.is_bootstrapping = on

    def _progress(self, state: SyncState) -> None:
        if self.state is state and self._behind is None:
            self.reason = ""  # as after every write
            return
        now = self.port.clock.seconds()
        if (self.state, state) == (SyncState.IN_SYNC, SyncState.CATCHING_UP):
            # Under load that is so many times a second; only what lasts is told.
            self.state, self._behind = state, now
        elif self._behind is not None and state is SyncState.IN_SYNC:
            self.state, self._behind = state, None
        elif self._behind is not None and now - self._behind >= LASTING:
            self.state = SyncState.IN_SYNC
            self.become(state, "")
        elif self.state is not state:
            self.become(state, "")
        self.reason = ""

    def become(self, state: SyncState, reason: str, *, wrong: bool = False) -> None:
        """Enter a state, and say so.

        @param wrong: Whether somebody has to do something about it, though it may pass.
        """
        if (state, reason) != (self.state, self.reason):
            level = self._log.warn if state.is_stop or wrong else self._log.info
            level(
                "Replication{origin}: {change}{why}",
                origin=f" from {self.port.peer}" if self.port.peer else "",
                change=state if state is self.state else f"{self.state} -> {state}",
                why=f": {reason}" if reason else "",
            )
        self.state, self.reason = state, reason
        self._behind = None

    def end(self) -> None:
        """The slave stops: enter the last state, and log what was held back."""
        self.become(SyncState.STOPPED, "the node is stopping")
        self._quiet.flush()

    def doubt(self, end: int) -> str:
        """Why the log's bytes below C{end} are not all known to be the master's; empty if no
        difference is known.
        """
        if self.state is not SyncState.DIVERGED or (self.divergence is None and self._refetching):
            # A bad record of the master's was not taken: what is held is not in doubt.
            return ""
        if self.divergence is not None and end <= self.divergence.at:
            return ""
        return f"{self.state.value}: {self.reason}"

    # --- for /status and the probes -------------------------------------------

    def health(self) -> Iterator[HealthReason]:
        """Replication that stands still, a copy that is not whole, or no master for too long."""
        state, alarm = self.state, self.settings.no_master_alarm
        if state is SyncState.STOPPED:
            return  # the node says so
        if state.is_stop:
            doubtful = state.standing is Standing.DOUBTFUL
            yield HealthReason(
                f"replication-{state.value}",
                self.reason,
                fails=HealthProbe.HEALTH | (HealthProbe.READY if doubtful else HealthProbe(0)),
                told=True,
            )
        elif alarm and self.silent() >= alarm:
            yield HealthReason(
                "no-master",
                f"nothing was heard from a master for {self.silent():.0f} s: {self.reason}",
            )
        if self.is_bootstrapping:
            yield HealthReason(
                "first-copy",
                "the copy of the master's log is not complete",
                fails=HealthProbe.READY,
            )

    def silent(self) -> float:
        """Seconds since a master was last heard; before the first time, since we began."""
        heard = None if self.connection is None else self.connection.heard
        return self.port.clock.seconds() - max(self._heard, heard or 0.0)

    def present(self) -> PresentMaster:
        """The master that we have, for the choice of another."""
        silent = None if self._proven is None else self.silent()
        return PresentMaster(address=self.port.peer, silent=silent)

    def status(self, last_stored: int) -> dict[str, Any]:
        """C{upstream} of C{/status}.

        @param last_stored: Store time of the last record held, in milliseconds, 0 if none.
        """
        in_sync = self.state is SyncState.IN_SYNC
        now = 0 if self.connection is None else self.connection.received
        lag = None
        if in_sync:
            lag = 0.0
        elif last_stored:
            lag = max(0.0, time.time() - last_stored / 1000.0)
        return {
            "address": self.port.peer,
            "state": self.state.value,
            "reason": self.reason,
            "received": self.received + now,
            "lagBytes": 0 if in_sync else None,
            "lagSeconds": lag,
            "secondsSilent": self.silent(),
            "secondsDisconnected": 0.0 if self.connection is not None else self.silent(),
            "probes": self.probes,
            "reconnects": self.reconnects,
            "tlsRefusals": dict(self.tls_refusals),
            "bootstrapping": self.is_bootstrapping,
            **self.port.status(),
        }
