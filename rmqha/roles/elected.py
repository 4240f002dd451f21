"""
A slave's way to its master where a controller elects it.

The controller is asked who is master, again and again, and at once when the connection to the
master is lost.  Where that one has its HA port only it knows, so it is asked; a name server would
tell where the master was before.

Source: docs/architecture.rst, Behind an elected master.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.logger import Logger

from rmqha.config.controller_settings import CutPolicy
from rmqha.config.ha_settings import DivergencePolicy
from rmqha.config.settings import Settings
from rmqha.controller.coordinator import SetState
from rmqha.controller.followed_set import FollowedSet
from rmqha.controller.group import TIMEOUT, ControllerGroup
from rmqha.errors import CutBelowConfirm, Refused, RequestRefused, RmqhaError
from rmqha.ha.master_epoch import MasterEpochs
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.connection import SetListener
from rmqha.ha.slave.follower import Follower
from rmqha.ha.slave.master_bounds import AskBounds
from rmqha.health import HealthReason
from rmqha.net.remoting.client import RemotingClient, split_address
from rmqha.periodic import Job, Periodic
from rmqha.store.store import Store
from rmqha.wire.ha_dialect import LearnerDialect, SlaveDialect
from rmqha.wire.remoting.bodies.controller import EpochCache
from rmqha.wire.remoting.codes import ControllerRequestCode, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.namesrv import RegisterBrokerAnswer
from rmqha.wire.remoting.headers.slave import HaInfo
from rmqha.wire.remoting.json_body import read

LOOK = 5.0
"""Seconds between questions to the controller while the master is heard; stock members' value."""

TICK = 0.2
"""Seconds between two while it is not: a set has another master within a second of a kill."""

HURRIED = 10.0
"""Seconds for which that goes on; then it is L{RELAXED}."""

RELAXED = 1.0

ALARM = 10.0
"""Seconds without an answer of a controller after which a node says that something is wrong."""


@define(eq=False, kw_only=True)
class ElectedUpstream:
    """
    Has a slave follow whoever is master.

    @ivar store: The store that is open.
    @ivar dialled: Makes the endpoint of an HA port.
    @ivar moved: Called when the master's clients connect somewhere else.
    @ivar now_ms: Milliseconds since 1970.
    @ivar follower: Follows the master; C{None} before the store is open.
    @ivar client_port: Where the master's clients connect; C{""} if that is not known.
    @ivar followed: What the master tells.
    @ivar trouble: Why it is not known who is master; empty while it is.
    """

    settings: Settings
    reactor: Any
    epochs: MasterEpochs
    store: Callable[[], Store]
    dialled: Callable[[str, int], IStreamClientEndpoint]
    moved: Callable[[], None]
    now_ms: Callable[[], int]
    follower: Follower | None = field(default=None, init=False)
    client_port: str = field(default="", init=False)
    followed: FollowedSet = field(init=False)
    trouble: str = field(default="not asked yet", init=False)
    nowhere: str = field(default="no controller has told one yet", init=False)
    _client: RemotingClient = field(init=False)
    _group: ControllerGroup = field(init=False)
    _looking: Periodic = field(init=False)
    _asked: float = field(default=-LOOK, init=False)
    _answered: float = field(init=False)
    # Since when the master is not heard; C{None} while it is.
    _lost: float | None = field(default=None, init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._client = RemotingClient(self.reactor, close_on_timeout=True)
        broker = self.settings.broker
        self._group = ControllerGroup(
            addresses=[each.strip() for each in self.settings.controller.addresses.split(";")],
            client=self._client,
            cluster=broker.cluster,
            name=broker.name,
            now_ms=self.now_ms,
        )
        self.followed = FollowedSet(
            epochs=self.epochs, confirm=lambda offset: self.store().confirm(offset)
        )
        self._looking = Periodic("asking the controller who is master", self.reactor, self._look)
        self._answered = self.reactor.seconds()

    # --- for the follower -------------------------------------------------------------

    @property
    def address(self) -> str:
        """
        No HA port is configured.
        """
        return ""

    def endpoint(self) -> IStreamClientEndpoint | None:
        """
        The same.
        """
        return None

    def bounds(self) -> AskBounds | None:
        """
        The same.
        """
        return None

    @property
    def listener(self) -> SetListener:
        """
        Hears what the master says beside its log.
        """
        return self.followed

    def dialect(self) -> SlaveDialect:
        """
        How each connection speaks.
        """
        return LearnerDialect()

    def begin(self) -> None:
        """
        The store is open: look for a master.
        """
        self._looking.start(TICK, now=True)

    # --- who is master ------------------------------------------------------------------

    def _look(self) -> Deferred[None] | None:
        now = self.reactor.seconds()
        heard = self.follower is not None and self.follower.sync.connection is not None
        self._lost = None if heard else (now if self._lost is None else self._lost)
        if self._lost is None:
            pause = LOOK
        else:
            pause = TICK if now - self._lost < HURRIED else RELAXED
        if now - self._asked < pause - TICK / 2:
            return None
        self._asked = now
        return Deferred.fromCoroutine(self._ask())

    async def _ask(self) -> None:
        try:
            state = await self._group.current()
            self._answered = self.reactor.seconds()
            self._tell(await self._decided(state))
        except (RmqhaError, OSError) as error:
            self._tell(str(error))

    async def _decided(self, state: SetState) -> str:
        """
        @return: What keeps us from following; empty if nothing does.
        """
        known, number = self.followed.state, self.epochs.number
        if state.master_epoch < number:
            return (
                f"the controller says master epoch {state.master_epoch}, and this log follows "
                f"{number}: the controllers lost what they knew, or this is another set"
            )
        if state.master is None:
            return f"set {self.settings.broker.name} has no master in epoch {state.master_epoch}"
        self.followed.state = state
        changed = known is None or (known.master, known.master_epoch) != (
            state.master,
            state.master_epoch,
        )
        if changed or self._lost is not None or self.client_port != state.master.address:
            return await self._follow(state, changed=changed)
        return ""

    async def _follow(self, state: SetState, *, changed: bool) -> str:
        assert state.master is not None, "looked at before"
        client = state.master.address
        info = (await self._request(client, RequestCode.EXCHANGE_BROKER_HA_INFO)).custom(HaInfo)
        if not info.master_ha_address:
            return f"{client} is elected, and not master yet"
        if client != self.client_port:
            self.client_port = client
            self.moved()
        follower = self.follower
        if follower is None:
            return ""
        same = follower.address == info.master_ha_address
        follower.dial(
            self.dialled(*split_address(info.master_ha_address)),
            info.master_ha_address,
            lambda: master_bounds.ask(self._client, client),
            client,
        )
        if same and changed:
            # Its labels begin anew with its epoch.
            follower.sync.drop(f"the master has epoch {state.master_epoch} now")
        return ""

    def _request(
        self, address: str, code: RequestCode | ControllerRequestCode
    ) -> Deferred[Command]:
        """
        @return: Fails with L{RequestRefused<rmqha.errors.RequestRefused>} too.
        """

        def answered(answer: Command) -> Command:
            if answer.code != ResponseCode.SUCCESS:
                raise RequestRefused(answer.code, answer.remark, code)
            return answer

        request = Command.request(code)
        return self._client.request(address, request, TIMEOUT).addCallback(answered)

    def _tell(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            self._log.warn("Not following an elected master: {trouble}", trouble=trouble)
        elif self.trouble and not trouble:
            state = self.followed.state
            self._log.info(
                "Master of set {name} is {master} with epoch {epoch}",
                name=self.settings.broker.name,
                master=self.client_port,
                epoch=None if state is None else state.master_epoch,
            )
        self.trouble = trouble

    # --- for the node -------------------------------------------------------------------

    def told(self, answer: RegisterBrokerAnswer) -> None:
        """
        What a name server says does not count here.
        """

    @property
    def policy(self) -> DivergencePolicy:
        """
        What is done about a log that is not the master's.
        """
        if self.settings.controller.cut_policy is CutPolicy.NEVER:
            return DivergencePolicy.STOP
        if self.settings.ha.policy is DivergencePolicy.STOP:
            return DivergencePolicy.TRUNCATE
        return self.settings.ha.policy

    async def permit(self, policy: DivergencePolicy, *, at: int, end: int) -> None:
        """
        Whether the log may be cut as the present master wants it.

        @param at: The first byte that would go.
        @param end: Where the log ends.
        @raise CutBelowConfirm: If readers may have seen what would go.
        @raise Refused: If the controller does not name this master any more, or that does not take
            itself for it.
        """
        seen = self.store().readable
        if self.settings.controller.cut_policy is not CutPolicy.ALL and at < seen:
            raise CutBelowConfirm(policy.value, at, seen, end)
        followed, state = self.followed.state, await self._group.current()
        if followed is None or state.master is None or state.master_epoch != followed.master_epoch:
            raise Refused(policy.value, f"master epoch {state.master_epoch} has begun meanwhile")
        answer = await self._request(
            state.master.address, ControllerRequestCode.GET_BROKER_EPOCH_CACHE
        )
        said = read(EpochCache, answer.body)
        if said.broker_id != 0:
            raise Refused(policy.value, f"{state.master.address} does not take itself for master")

    def stop(self) -> Deferred[None]:
        """
        Ask nobody any more.

        @return: Fires when no question is under way.
        """
        return self._looking.stop()

    def close(self) -> Deferred[None]:
        """
        End the connections.

        @return: Fires when they are gone.
        """
        return self._client.close()

    def jobs(self) -> Iterator[Job]:
        """
        What is done again and again.
        """
        yield self._looking
        yield from self._client.connections.jobs()
        if self.follower is not None:
            yield from self.follower.jobs()

    def health(self) -> Iterator[HealthReason]:
        """
        No controller answers, or what it says cannot be followed.
        """
        now, lost = self.reactor.seconds(), self._lost
        silent = now - self._answered >= ALARM
        alone = lost is not None and now - lost >= ALARM
        if self.trouble and (silent or alone):
            yield HealthReason("no-controller", self.trouble, told=True)

    def status(self, last_stored: int) -> dict[str, Any] | None:
        """
        C{upstream} of C{/status}.

        @param last_stored: Store time of the last record held, in milliseconds, 0 if none.
        """
        if self.follower is None:
            return None
        state = self.followed.state
        controller = {
            "leader": self._group.leader,
            "trouble": self.trouble,
            "master": None if state is None or state.master is None else state.master.id,
            "masterAddress": self.client_port,
            "masterEpoch": None if state is None else state.master_epoch,
            "syncStateSet": [] if state is None else sorted(state.in_sync),
            "syncStateSetEpoch": None if state is None else state.set_epoch,
            "confirmOffset": self.store().readable,
        }
        return self.follower.sync.status(last_stored) | {"controller": controller}
