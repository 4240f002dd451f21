"""A slave's way to its master: where that is, by the configuration or by name servers, and which
one it is of those that are named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.config.values import ENDPOINT
from rmqha.ha.master_epoch import NEVER_ELECTED
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.choice import MasterChoice, NamedMaster, PresentMaster
from rmqha.ha.slave.followed import FollowedMasters, MastersBelieved
from rmqha.ha.slave.follower import Follower
from rmqha.ha.slave.master_bounds import AskBounds, MasterBounds
from rmqha.ha.slave.reportable import Reportable
from rmqha.ha.states import SyncState
from rmqha.net.remoting.client import RemotingClient, split_address
from rmqha.periodic import NodePart
from rmqha.roles.node import Node
from rmqha.wire.ha_dialect import ClassicSlaveDialect, SlaveDialect
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer


@define(eq=False, kw_only=True)
class Upstream(NodePart):
    """What a node knows of where its master is; nothing, until somebody says it.

    @ivar node: Whose log follows.
    @ivar client: Asks client ports.
    @ivar follower: Follows the master; C{None} before the store is open, and while we lead.
    @ivar moved: Called when the master's clients connect somewhere else.
    @ivar client_port: Where they connect; C{""} if that is not known.
    @ivar followed: Which masters the log has followed.
    @ivar address: The configured HA port; C{""} for none.
    """

    node: Node
    client: RemotingClient = field(init=False)
    follower: Follower | None = field(default=None, init=False)
    moved: Callable[[], None] = field(init=False)
    client_port: str = field(default="", init=False)
    followed: MastersBelieved = field(init=False)
    address: str = field(default="", init=False)
    nowhere: ClassVar[str]

    def __attrs_post_init__(self) -> None:
        self.client = self.node.connect(close_on_timeout=True)

    # --- for the follower -------------------------------------------------------------

    def endpoint(self) -> IStreamClientEndpoint | None:
        """The configured HA port."""
        return None

    def bounds(self) -> AskBounds | None:
        """Asks the configured client port, if it is to be asked."""
        return None

    def dialect(self) -> SlaveDialect:
        """How the next connection speaks."""
        return ClassicSlaveDialect()

    def reportable(self, below: Reportable) -> Reportable:
        """What may be reported as held.

        @param below: What else bounds it.
        """
        return below

    async def epoch(self) -> int | None:
        """In which master epoch the master leads that is followed; C{None} if that is not known."""
        return NEVER_ELECTED

    # --- for the node -----------------------------------------------------------------

    def told(self, answer: RegisterBrokerAnswer) -> None:
        """A name server said where the master is."""

    @property
    def policy(self) -> DivergencePolicy:
        """What is done about a log that is not the master's."""
        return self.node.settings.ha.policy

    async def permit(self, policy: DivergencePolicy, *, at: int, end: int) -> None:
        """Whether the log may be cut as the present master wants it.

        @param at: The first byte that would go.
        @param end: Where the log ends.
        @raise RmqhaError: If it may not.
        """
        raise NotImplementedError

    def unseen(self) -> bool:
        """Whether no reader has seen any of the log: those of a classic node see all of it."""
        return False

    def recall(self) -> None:
        """The store is open: which masters has its log followed?"""

    def begin(self) -> None:
        """The follower is there."""

    def stop(self) -> object:
        """Choose no other master any more.

        @return: Fires when no question is under way, if it is a C{Deferred}.
        """

    def close(self) -> Deferred[None]:
        """Ask client ports nothing more.

        @return: Fires when the connections to them are gone.
        """
        return self.client.close()

    def status(self, last_stored: int) -> dict[str, Any] | None:
        """C{upstream} of C{/status}.

        @param last_stored: Store time of the last record held, in milliseconds, 0 if none.
        """
        if self.follower is None:
            return None
        return self.follower.sync.status(last_stored) | self.more()

    def more(self) -> dict[str, Any]:
        """What it says there of who is master."""
        raise NotImplementedError


@define(eq=False, kw_only=True)
class NamedUpstream(Upstream):
    """That of a slave whose master the configuration names, or name servers do.

    @ivar choice: Decides when name servers name another.
    """

    followed: FollowedMasters = field(init=False)
    choice: MasterChoice = field(init=False)
    nowhere = "haMasterAddress is not set, and no name server has told one"

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        node = self.node
        ha = node.settings.ha
        self.address = ENDPOINT.show(ha.master)
        self.client_port = ENDPOINT.show(ha.master_client)
        self.followed = FollowedMasters(
            epochs=node.epochs,
            trusted=ENDPOINT.show(ha.trust_master),
        )
        self.choice = MasterChoice(
            present=self._present,
            number=lambda: node.epochs.number,
            trusted=self.followed.trusted,
            patience=ha.housekeeping,
            ask=self.who,
            follow=self._follow,
            refuse=self._refuse,
            clock=node.reactor,
        )

    # --- what is configured -----------------------------------------------------------

    def endpoint(self) -> IStreamClientEndpoint | None:
        """The same as an endpoint."""
        master = self.node.settings.ha.master
        return None if master is None else self.node.dialled(*master)

    def bounds(self) -> AskBounds | None:
        """Asks the configured client port, if it is to be asked."""
        port = self.node.settings.ha.master_client
        if port is None:
            return None
        address = ENDPOINT.show(port)
        return lambda: self.who(address)

    # --- what name servers say --------------------------------------------------------

    def told(self, answer: RegisterBrokerAnswer) -> None:
        """A name server said where the master is.  The configuration knows better, if it knows, but
        for where clients of the master connect.
        """
        address, client, epoch = answer.ha_server_addr, answer.master_addr, answer.master_epoch
        if self.node.settings.ha.master is not None:
            if client and (epoch is None or epoch >= self.node.epochs.number):
                self._clients_at(client)
        elif self.follower is not None and address:
            try:
                split_address(address)
            except ValueError as error:
                self._log.warn(
                    "Ignoring an invalid master address from the name server: {error}", error=error
                )
                return
            self.choice.hear(NamedMaster(address=address, client=client or "", epoch=epoch))

    def _follow(self, named: NamedMaster) -> None:
        """Follow a master that a name server named."""
        if named.client:
            self._clients_at(named.client)
        if self.follower is None:
            return
        ask = (lambda: self.who(named.client)) if named.client else None
        endpoint = self.node.dialled(*split_address(named.address))
        self.follower.dial(endpoint, named.address, ask, named.client)

    def _refuse(self, why: str) -> None:
        """Nobody is followed while the only master there is is an older one."""
        sync = None if self.follower is None else self.follower.sync
        if sync is not None and sync.connection is None and not sync.state.is_stop:
            sync.become(SyncState.LOWER_EPOCH, why)

    def _clients_at(self, address: str) -> None:
        if address != self.client_port:
            self.client_port = address
            self.moved()

    def _present(self) -> PresentMaster:
        return PresentMaster() if self.follower is None else self.follower.sync.present()

    def who(self, address: str) -> Deferred[MasterBounds]:
        """Ask who is at a client port, and tell of the master that we know."""
        claim = self.followed.claim(self.node.settings.broker.name)
        return master_bounds.ask(self.client, address, claim)

    # --- for the node -------------------------------------------------------------------

    async def permit(self, policy: DivergencePolicy, *, at: int, end: int) -> None:
        """Whether the log may be cut as the present master wants it.

        @param at: The first byte that would go.
        @param end: Where the log ends.
        @raise HeldForAnotherMaster: If another one was told that it is here.
        """
        if self.follower is None:
            return
        sync = self.follower.sync
        held = self.followed.objection(
            policy.value, at=at, end=end, address=sync.port.peer, bounds=sync.port.bounds
        )
        if held is not None:
            raise held

    def recall(self) -> None:
        """The store is open: which masters has its log followed?"""
        self.followed.load()

    def stop(self) -> None:
        """Choose no other master any more."""
        self.choice.stop()

    def more(self) -> dict[str, Any]:
        """Whom name servers name beside."""
        return {"named": self.choice.other}
