"""A slave's side of replication: one connection after another until the log is in sync.

Here is the service's life: connecting, stopping, and carrying a policy out when a
connection showed that the log is not its master's.  What connections show is judged by
L{FollowState<rmqha.ha.slave.follow_state.FollowState>}.  Nothing is cut unless common ground was
compared on a connection, and never for an empty master.
"""

from __future__ import annotations

from collections.abc import Callable

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
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import MasterUnidentified, Refused, RmqhaError, StoreError
from rmqha.ha.slave.connection import SlaveProtocol
from rmqha.ha.slave.follow_state import FollowState
from rmqha.ha.slave.master_bounds import AskBounds, MasterClientPort
from rmqha.ha.slave.reconnect import (
    NEXT_QUESTION,
    QuietClientService,
    SingleConnection,
    guarded_endpoint,
    reporting,
)
from rmqha.ha.slave.repair import Divergence, Repair, remedy
from rmqha.ha.states import SyncState
from rmqha.periodic import NodePart, cancelled

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
class Follower(Service, NodePart):
    """Keep one slave's log equal to its master's.

    @ivar sync: What is known of the log and its master, and where that is.
    @ivar repair: How to carry out a policy.
    @ivar nowhere: Why there is no address, while there is none.
    @ivar connected: Called when the master let us in, each time.
    @ivar ends: Asked in each named stop state, before a policy: whether following ends there, for
        good.
    """

    sync: FollowState
    repair: Repair
    nowhere: str = "haMasterAddress is not set, and no name server has told one"
    connected: Callable[[], None] = lambda: None
    ends: Callable[[FollowState], bool] = lambda sync: False
    _client: ClientService | None = field(default=None, init=False)
    _repairing: Deferred[None] | None = field(default=None, init=False)
    _later: IDelayedCall | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.sync.stopped = self._stopped

    # --- the service ----------------------------------------------------------

    def startService(self) -> None:
        """Connect, or wait for a master's address."""
        super().startService()
        if self.sync.port.endpoint is None:
            self.sync.become(SyncState.CONNECTING, f"no master address: {self.nowhere}")
            return
        self._connect()

    def stopService(self) -> Deferred[None]:
        """Disconnect, and wait for a repair that is under way."""
        super().stopService()
        self.sync.end()
        self._later = cancelled(self._later)
        gone = self._disconnect()
        if self._repairing is not None:
            over: Deferred[None] = Deferred()
            self._repairing.addCallback(over.callback)
            gone.addCallback(lambda _: over)
        return gone

    def bad_record(self, error: StoreError) -> None:
        """Dispatch found a bad record: it was whole when it came."""
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
        if address == self.sync.port.peer and self.sync.port.endpoint is not None:
            return
        self.sync.moved_to(
            MasterClientPort(bounds, self.sync.port.clock, address, endpoint, client)
        )
        if not self.running or self.sync.state is SyncState.FAILED:
            return
        self.sync.become(SyncState.CONNECTING, f"the master is at {address}")
        if self._repairing is None:
            self._later = cancelled(self._later)
            self._leave().addCallback(lambda _: self._connect())

    # --- connecting -----------------------------------------------------------

    def _connect(self) -> None:
        if not self.running or self._client is not None or self.sync.state is SyncState.FAILED:
            return
        port = self.sync.port
        assert port.endpoint is not None, "checked when the service started"
        endpoint = port.endpoint if port.ask is None else guarded_endpoint(port)
        self._client = QuietClientService(
            reporting(endpoint, self._not_connected),
            SingleConnection(self._protocol),
            retryPolicy=self._delay,
            clock=port.clock,
        )
        self._client.startService()

    def _delay(self, attempt: int) -> float:
        """Seconds before the next connection."""
        delay = self.sync.delay()
        if delay > NEXT_QUESTION:
            self._log.info(
                "Connecting to the master {master} again in {delay:.1f} s",
                master=self.sync.port.peer,
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
            self._log.failure(
                "Connecting to master {master} failed", failure, master=self.sync.port.peer
            )
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
        return deferLater(self.sync.port.clock, 0.0, lambda: None).addCallback(
            lambda _: self._disconnect()
        )

    # --- policies -------------------------------------------------------------

    def _stopped(self) -> None:
        """The log entered a named stop state: do what the policy says about it."""
        sync = self.sync
        if self.ends(sync) or sync.state is SyncState.FAILED:
            self._leave()
            return
        policy = remedy(
            self.sync.settings.policy,
            sync.state,
            sync.divergence,
            bootstrapping=sync.is_bootstrapping,
        )
        if policy is not None and self._repairing is None:
            self._repairing = Deferred()
            # The log is closed under a repair: no connection may be made before it is over.
            self._leave().addCallback(
                self._carry_out, policy, sync.state, sync.divergence
            ).addCallbacks(self._repaired, self._unrepaired).addBoth(self._repair_over)

    def _carry_out(
        self, _: object, policy: DivergencePolicy, state: SyncState, divergence: Divergence | None
    ) -> Deferred[str] | None:
        if not self.running:
            raise Refused(policy.value, "the node is stopping")
        if self.sync.state is not state or self.sync.divergence is not divergence:
            # The master has moved, and its log is not known; or ours takes nothing more.
            return None
        return self.repair(policy, divergence)

    def _repaired(self, text: str | None) -> float:
        if text is not None:
            self.sync.on_repair(text)
        return 0.0

    def _unrepaired(self, failure: Failure) -> float:
        if not failure.check(RmqhaError, OSError):
            self._log.failure("Repair of the log failed", failure)
        self.sync.on_repair_failure(failure.getErrorMessage())
        return self.sync.settings.backoff_max

    def _repair_over(self, wait: float | Failure) -> None:
        over, self._repairing = self._repairing, None
        if isinstance(wait, Failure):
            self._log.failure("Repair of the log failed, reconnecting", wait)
            wait = self.sync.settings.backoff_max
        if self.running:
            self._later = self.sync.port.clock.callLater(wait, self._connect)
        assert over is not None, "a repair ends once"
        over.callback(None)
