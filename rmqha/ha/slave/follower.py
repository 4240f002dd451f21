"""A slave's side of replication: one connection after another until the log is in sync.

Here is the service's life: connecting, stopping, and carrying a policy out when a
connection showed that the log is not its master's.  What connections show is judged by
L{FollowState<rmqha.ha.slave.follow_state.FollowState>}.  Nothing is cut unless common ground was
compared on a connection, and never for an empty master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, field
from twisted.application.internet import ClientService
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    NoProtocol,
)
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.ha_settings import DivergencePolicy, HASettings
from rmqha.errors import MasterUnidentified, Refused, RmqhaError, StoreError
from rmqha.ha.slave.connection import SetListener, SlaveProtocol
from rmqha.ha.slave.follow_state import FollowState, Judge
from rmqha.ha.slave.followed import MastersBelieved
from rmqha.ha.slave.master_bounds import AskBounds
from rmqha.ha.slave.reconnect import (
    NEXT_QUESTION,
    QuietClientService,
    ReportingEndpoint,
    SingleConnection,
    guarded,
)
from rmqha.ha.slave.repair import Repair, remedy
from rmqha.ha.slave.reportable import Reportable, accepted
from rmqha.ha.states import SyncState
from rmqha.periodic import Job
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_dialect import ClassicSlaveDialect, SlaveDialect

UNREACHED = (
    ConnectError,
    ConnectingCancelledError,
    ConnectionClosed,
    OSError,
    CancelledError,
    NoProtocol,
    MasterUnidentified,
)
"""What may go wrong before a connection has its protocol."""


@define(eq=False, kw_only=True)
class Follower(Service):
    """Keep one slave's log equal to its master's.

    @ivar endpoint: Where the master's HA port is; C{None} without an address.
    @ivar address: The same in words.
    @ivar current_log: The log to follow with; a repair replaces it.
    @ivar repair: How to carry out a policy.
    @ivar bootstrapping: Told when a copy from nothing begins and when it is complete;
        the owner keeps a marker on the disk.
    @ivar reportable: Up to where the log may be reported as held.
    @ivar bounds: Asks the master's client port; C{None} to go without.
    @ivar client: Where that is; C{""} if it is not known.
    @ivar followed: Which masters this log has followed; C{None} to believe every master.
    @ivar dialect: How each connection speaks.
    @ivar listener: Hears what an elected master says beside bytes.
    @ivar nowhere: Why there is no address, while there is none.
    @ivar connected: Called when the master let us in, each time.
    @ivar copied: Called when a record was copied that is damaged on the master.
    @ivar ends: Asked in each named stop state, before a policy: whether following ends there, for
        good.
    @ivar judge: Says on which side records are right where the logs differ.
    @ivar sync: What is known of the log and its master.
    """

    endpoint: IStreamClientEndpoint | None
    address: str
    current_log: Callable[[], CommitLog]
    settings: HASettings
    clock: IReactorTime
    repair: Repair
    bootstrapping: Callable[[bool], None]
    _unfinished: bool = field(default=False, alias="is_bootstrapping")
    reportable: Reportable = accepted
    bounds: AskBounds | None = None
    client: str = ""
    followed: MastersBelieved | None = None
    dialect: Callable[[], SlaveDialect] = ClassicSlaveDialect
    listener: SetListener | None = None
    nowhere: str = "haMasterAddress is not set, and no name server has told one"
    connected: Callable[[], None] = lambda: None
    copied: Callable[[CommitLog], None] = lambda log: None
    ends: Callable[[FollowState], bool] = lambda sync: False
    judge: Judge | None = None
    sync: FollowState = field(init=False)
    _client: ClientService | None = field(default=None, init=False)
    _repairing: Deferred[None] | None = field(default=None, init=False)
    _later: IDelayedCall | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.sync = FollowState(
            address=self.address,
            current_log=self.current_log,
            settings=self.settings,
            clock=self.clock,
            bootstrapping=self.bootstrapping,
            stopped=self._stopped,
            copied=self.copied,
            is_bootstrapping=self._unfinished,
            reportable=self.reportable,
            bounds=self.bounds,
            client=self.client,
            followed=self.followed,
            dialect=self.dialect,
            listener=self.listener,
            judge=self.judge,
        )

    # --- the service ----------------------------------------------------------

    def startService(self) -> None:
        """Connect, or wait for a master's address."""
        super().startService()
        if self.endpoint is None:
            self.sync.become(SyncState.CONNECTING, f"no master address: {self.nowhere}")
            return
        self._connect()

    def stopService(self) -> Deferred[None]:
        """Disconnect, and wait for a repair that is under way."""
        super().stopService()
        self.sync.end()
        if self._later is not None and self._later.active():
            self._later.cancel()
        gone = self._disconnect()
        if self._repairing is not None:
            over: Deferred[None] = Deferred()
            self._repairing.addCallback(over.callback)
            gone.addCallback(lambda _: over)
        return gone

    def bad_record(self, error: StoreError) -> None:
        """Dispatch found a bad record (with C{haVerifyBeforeAck=false})."""
        if self.sync.connection is not None:
            self.sync.connection.violation(error)

    def dial(
        self,
        endpoint: IStreamClientEndpoint,
        address: str,
        bounds: AskBounds | None,
        client: str = "",
    ) -> None:
        """Follow a master that is somewhere else, or the first one there is.

        @param endpoint: Its HA port.
        @param address: The same in words.
        @param bounds: Asks its client port.
        @param client: Where that is; C{""} if it is not known.
        """
        if address == self.address and self.endpoint is not None:
            return
        self.endpoint, self.address, self.bounds = endpoint, address, bounds
        self.sync.moved_to(address, bounds, client)
        if not self.running or self.sync.state is SyncState.FAILED:
            return
        self.sync.become(SyncState.CONNECTING, f"the master is at {address}")
        if self._repairing is None:
            if self._later is not None and self._later.active():
                self._later.cancel()
            self._leave().addCallback(lambda _: self._connect())

    def jobs(self) -> Iterator[Job]:
        """What is done again and again, while a master lets us in."""
        if self.sync.connection is not None:
            yield self.sync.connection.reporting

    # --- connecting -----------------------------------------------------------

    def _connect(self) -> None:
        if not self.running or self._client is not None:
            return
        endpoint = self.endpoint
        assert endpoint is not None, "checked when the service started"
        if self.bounds is not None:
            endpoint = guarded(endpoint, self.sync.port)
        self._client = QuietClientService(
            ReportingEndpoint(endpoint, self._not_connected),
            SingleConnection(self._protocol),
            retryPolicy=self._delay,
            clock=self.clock,
        )
        self._client.startService()

    def _delay(self, attempt: int) -> float:
        """Seconds before the next connection."""
        delay = self.sync.delay()
        if delay > NEXT_QUESTION:
            self._log.info(
                "Connecting to the master {master} again in {delay:.1f} s",
                master=self.address,
                delay=delay,
            )
        return delay

    def _protocol(self) -> SlaveProtocol | None:
        protocol = self.sync.protocol()
        if protocol is not None:
            self.connected()
        return protocol

    def _not_connected(self, failure: Failure) -> Failure:
        refused = self.sync.refused_by_tls(failure)
        if not (refused or failure.check(*UNREACHED)):
            self._log.failure("Connecting to master {master} failed", failure, master=self.address)
        if not self.sync.state.is_stop:
            self.sync.become(SyncState.CONNECTING, failure.getErrorMessage(), wrong=refused)
        return failure

    def _disconnect(self) -> Deferred[None]:
        """End the connection, and make no other.

        @return: Fires when nothing will touch the log any more.
        """
        client, self._client = self._client, None
        self.sync.drop()
        return succeed(None) if client is None else client.stopService()

    def _leave(self) -> Deferred[None]:
        """L{_disconnect} in the reactor's next turn: C{ClientService} cannot be stopped from
        within what it calls.
        """
        return deferLater(self.clock, 0.0, lambda: None).addCallback(lambda _: self._disconnect())

    # --- policies -------------------------------------------------------------

    def _stopped(self) -> None:
        """The log entered a named stop state: do what the policy says about it."""
        sync = self.sync
        if self.ends(sync) or sync.state is SyncState.FAILED:
            self._leave()
            return
        policy = remedy(
            self.settings.policy,
            sync.state,
            sync.divergence,
            bootstrapping=sync.is_bootstrapping,
        )
        if policy is not None and self._repairing is None:
            self._repairing = Deferred()
            # The log is closed under a repair: no connection may be made before it is over.
            self._leave().addCallback(self._carry_out, policy).addCallbacks(
                self._repaired, self._unrepaired
            ).addBoth(self._repair_over)

    def _carry_out(self, _: object, policy: DivergencePolicy) -> Deferred[str]:
        if not self.running:
            raise Refused(policy.value, "the node is stopping")
        return self.repair(policy, self.sync.divergence)

    def _repaired(self, text: str) -> float:
        self.sync.repaired(text)
        return 0.0

    def _unrepaired(self, failure: Failure) -> float:
        if not failure.check(RmqhaError, OSError):
            self._log.failure("Repair of the log failed", failure)
        self.sync.not_repaired(failure.getErrorMessage())
        return self.settings.backoff_max

    def _repair_over(self, wait: float | Failure) -> None:
        over, self._repairing = self._repairing, None
        if isinstance(wait, Failure):
            self._log.failure("Repair of the log failed, reconnecting", wait)
            wait = self.settings.backoff_max
        if self.running and self.sync.state is not SyncState.FAILED:
            self._later = self.clock.callLater(wait, self._connect)
        assert over is not None, "a repair ends once"
        over.callback(None)
