"""A node's way to its master where a controller elects it.

The controller says who is master (L{rmqha.controller.set_watch}).  Where that one has its HA port
only it knows, so it is asked; a name server would tell where the master was before.

Source: docs/architecture.rst, Behind an elected master.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NoReturn

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.controller_settings import CutPolicy
from rmqha.config.ha_settings import DivergencePolicy
from rmqha.config.settings import Settings
from rmqha.controller.coordinator import SetMembership, SetState, SignOfLife
from rmqha.controller.etcd.client import EtcdClient
from rmqha.controller.etcd.etcd_membership import EtcdMembership
from rmqha.controller.etcd.etcd_set import EtcdSet
from rmqha.controller.followed_set import FollowedSet
from rmqha.controller.group import TIMEOUT, ControllerGroup
from rmqha.controller.identity import IdentityFiles
from rmqha.controller.membership import Membership
from rmqha.controller.set_watch import SetWatch
from rmqha.errors import (
    NotWritable,
    Refused,
    RemotingUnreachable,
    RequestRefused,
    RmqhaError,
    StoreError,
)
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.reportable import Reportable
from rmqha.health import HealthReason
from rmqha.net.remoting.client import RemotingClient, split_address
from rmqha.net.tls.outgoing import OutgoingTls
from rmqha.roles.upstream import Upstream
from rmqha.wire.ha_dialect import LEARNER, SetSlaveDialect, SlaveDialect
from rmqha.wire.ha_v2 import SlaveHandshake
from rmqha.wire.remoting.bodies.controller import EpochCache
from rmqha.wire.remoting.codes import ControllerRequestCode, RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.slave import HaInfo
from rmqha.wire.remoting.json_body import read

ALARM = 10.0
"""Seconds without an answer of a controller after which a node says that something is wrong."""


def controllers(
    settings: Settings, client: RemotingClient, now_ms: Callable[[], int]
) -> ControllerGroup:
    """RocketMQ's, as the settings name them.

    @param client: Asks them.
    """
    return ControllerGroup(
        addresses=[each.strip() for each in settings.controller.addresses.split(";")],
        client=client,
        cluster=settings.broker.cluster,
        name=settings.broker.name,
        now_ms=now_ms,
    )


def set_in_etcd(settings: Settings, reactor: Any, tls: OutgoingTls) -> EtcdSet:
    """The set in etcd, as the settings name it."""
    etcd, broker = settings.etcd, settings.broker
    path, account = etcd.password, None
    if path is not None:
        secret = path

        def account() -> tuple[str, str]:
            return etcd.user, secret.read_text(encoding="utf-8").strip()

    client = EtcdClient.over_tcp(
        reactor, etcd.addresses, tls, patience=max(1.0, etcd.lease / 5), account=account
    )
    return EtcdSet.named(client, etcd.prefix, broker.cluster, broker.name)


@define(eq=False, kw_only=True)
class ElectedUpstream(Upstream):
    """Has a node follow whoever is master.

    @ivar decide: What to do with each decision; by default, L{follow}.
    @ivar speak: As whom each connection speaks; by default, as a learner.
    @ivar leads: Whether this node is the master.
    @ivar takes_tokens: Whether that master said that it takes tokens.
    @ivar followed: What the master tells.
    @ivar stock: Where the clients of stock brokers connect that follow us, and are no members, by
        id.
    @ivar watch: Asks them who is master.
    """

    decide: Callable[[SetState], Awaitable[str]] | None = None
    speak: Callable[[], SlaveHandshake] = lambda: LEARNER
    leads: Callable[[], bool] = lambda: False
    group: ControllerGroup | EtcdSet = field(init=False)
    takes_tokens: bool = field(default=False, init=False)
    followed: FollowedSet = field(init=False)
    watch: SetWatch = field(init=False)
    stock: dict[int, str] = field(factory=dict, init=False)
    _asked_master: Deferred[Command] | None = field(default=None, init=False)
    nowhere = "no controller has told one yet"

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        node = self.node
        environment = node.environment
        if node.settings.controller.etcd:
            self.group = set_in_etcd(node.settings, environment.clock, node.tls.etcd)
        else:
            self.group = controllers(node.settings, self.client, environment.now_ms)
        self.followed = FollowedSet(
            epochs=node.epochs,
            # A repair opens another store.
            confirm=lambda offset: node.store.confirm(offset),  # noqa: PLW0108
            begun=lambda: node.store.clamp_confirm(),  # noqa: PLW0108
            kept=self._report,
        )
        self.watch = SetWatch(
            coordinator=self.group,
            clock=node.reactor,
            heard=self._heard,
            decided=self.decide or self.follow,
        )

    # --- for the follower -------------------------------------------------------------

    def dialect(self) -> SlaveDialect:
        """How the next connection speaks."""
        return SetSlaveDialect(self.speak(), self.followed)

    def reportable(self, below: Reportable) -> Reportable:
        """What may be reported as held: nothing whose label a crash could take.

        @param below: What else bounds it.
        """
        return lambda log: self.followed.filed(below(log))

    def _report(self) -> None:
        connection = None if self.follower is None else self.follower.sync.connection
        if connection is not None:
            connection.report_progress()

    def tell_token(self, token: int) -> bool:
        """Prove to the master that the connection to its HA port is ours.

        @return: Whether there is one, to a master that takes tokens: to any other it would be a
            report.
        """
        connection = None if self.follower is None else self.follower.sync.connection
        return self.takes_tokens and connection is not None and connection.tell_token(token)

    def begin(self) -> None:
        """Look for a master."""
        self.watch.start()
        self.group.follow(self._may_be_decided)

    def membership(self, sign: Callable[[], SignOfLife | None]) -> SetMembership:
        """This node's part in the set, where it is a member.

        @param sign: What it tells of itself.
        """
        node, settings, group = self.node, self.node.settings, self.group
        broker = settings.broker
        common: dict[str, Any] = {
            "files": IdentityFiles.of(settings.store.root, broker.cluster, broker.name),
            "address": broker.address,
            "sign": sign,
            "generation": lambda: node.store.publisher.point.generation,
            "clock": node.environment.clock,
            "in_thread": node.environment.in_thread,
        }
        if isinstance(group, EtcdSet):
            return EtcdMembership(
                set=group, settings=settings, client=self.client, changed=self.watch.hurry, **common
            )
        beats = controllers(settings, node.connect(), node.environment.now_ms)
        return Membership(group=group, beats=beats, settings=settings.controller, **common)

    # --- who is master ------------------------------------------------------------------

    def _may_be_decided(self) -> None:
        """Do not wait for the answer of a master that may be none any more."""
        if self._asked_master is not None:
            self._asked_master.cancel()
        self.watch.hurry()

    def _heard(self) -> bool:
        follower = self.follower
        return self.leads() or (follower is not None and follower.sync.connection is not None)

    async def follow(self, state: SetState) -> str:
        """Follow who is decided to be master.

        @return: What keeps us from it; empty if nothing does.
        """
        known, number = self.followed.state, self.node.epochs.number
        if state.master_epoch < number:
            return (
                f"the controller says master epoch {state.master_epoch}, and this log follows "
                f"{number}: the controllers lost what they knew, or this is another set"
            )
        if state.master is None:
            name = self.node.settings.broker.name
            return f"set {name} has no master in epoch {state.master_epoch}"
        self.node.epochs.try_again()
        self.followed.state = state
        before = None if known is None else (known.master, known.master_epoch)
        changed = before != (state.master, state.master_epoch)
        if changed or self.watch.lost is not None or self.client_port != state.master.address:
            return await self._dial(state.master.address, state.master_epoch, changed=changed)
        return ""

    async def epoch(self) -> int | None:
        """In which master epoch the master leads that is followed, as the controllers have it now;
        C{None} if they have another one, or do not answer.
        """
        try:
            state = await self.group.current()
        except (RmqhaError, OSError):
            return None
        leads = state.master is not None and state.master.address == self.client_port
        return state.master_epoch if leads else None

    async def _dial(self, client: str, epoch: int, *, changed: bool) -> str:
        """@param client: The master's client port."""
        self._asked_master = self._request(client, RequestCode.EXCHANGE_BROKER_HA_INFO)
        try:
            info = (await self._asked_master).custom(HaInfo)
        finally:
            self._asked_master = None
        if not info.master_ha_address:
            return f"{client} is elected, and not master yet"
        if client != self.client_port:
            self.client_port = client
            self.moved()
        self.takes_tokens = bool(info.takes_tokens)
        follower = self.follower
        if follower is None:
            return ""
        if changed:
            self._log.info(
                "Master of set {name} is {client} in epoch {epoch}",
                name=self.node.settings.broker.name,
                client=client,
                epoch=epoch,
            )
        same = follower.sync.port.peer == info.master_ha_address
        follower.dial(
            self.node.dialled(*split_address(info.master_ha_address)),
            info.master_ha_address,
            lambda: master_bounds.ask(self.client, client),
            client,
        )
        if same and changed:
            # Its labels begin anew with its epoch.
            follower.sync.drop(f"the master has epoch {epoch} now")
        return ""

    def leave(self) -> None:
        """There is no follower any more: whoever is followed next is a new one."""
        self.follower, self.followed.state, self.client_port = None, None, ""
        self.takes_tokens = False

    def _request(
        self, address: str, code: RequestCode | ControllerRequestCode
    ) -> Deferred[Command]:
        """Fails with L{RequestRefused<rmqha.errors.RequestRefused>} too, and with
        L{RemotingUnreachable<rmqha.errors.RemotingUnreachable>} also when the connection ends
        before the answer.
        """

        def answered(answer: Command) -> Command:
            if answer.code != ResponseCode.SUCCESS:
                raise RequestRefused(answer.code, answer.remark, code)
            return answer

        def gone(failure: Failure) -> NoReturn:
            if failure.check(CancelledError):
                raise RemotingUnreachable(address, "something was decided meanwhile")
            failure.trap(ConnectionLost, ConnectionDone)
            raise RemotingUnreachable(address, failure.getErrorMessage())

        asked = self.client.request(address, Command.request(code), TIMEOUT)
        return asked.addCallbacks(answered, gone)

    # --- for the node -------------------------------------------------------------------

    @property
    def policy(self) -> DivergencePolicy:
        """What is done about a log that is not the master's."""
        if self.node.settings.controller.cut_policy is CutPolicy.NEVER:
            return DivergencePolicy.STOP
        if self.node.settings.ha.policy is DivergencePolicy.STOP:
            return DivergencePolicy.TRUNCATE
        return self.node.settings.ha.policy

    async def permit(self, policy: DivergencePolicy, *, at: int, end: int) -> None:
        """Whether the log may be cut as the present master wants it.

        @param at: The first byte that would go.
        @param end: Where the log ends.
        @raise StoreError: If readers may have seen what would go.
        @raise Refused: If the controller does not name this master any more, or that does not take
            itself for it.
        """
        # What a stock member acknowledges, and so the confirm offset, may end within a record; if
        # it is elected it cuts off what it has of that.
        seen = self.node.store.seen()
        if self.node.settings.controller.cut_policy is not CutPolicy.ALL and at < seen:
            raise StoreError(
                f"{policy.value} is refused: bytes {at} to {end} would go, and readers may have "
                f"seen them up to the confirm offset {seen}; controllerCutPolicy=all allows it"
            )
        followed, state = self.followed.state, await self.group.current()
        if followed is None or state.master is None or state.master_epoch != followed.master_epoch:
            raise Refused(policy.value, f"master epoch {state.master_epoch} has begun meanwhile")
        answer = await self._request(
            state.master.address, ControllerRequestCode.GET_BROKER_EPOCH_CACHE
        )
        said = read(EpochCache, answer.body)
        if said.broker_id != 0:
            raise Refused(policy.value, f"{state.master.address} does not take itself for master")

    def unseen(self) -> bool:
        """Whether nothing of the log was ever confirmed: the set may go on without any of it."""
        return self.node.store.seen() == 0

    def stop(self) -> Deferred[None]:
        """Ask nobody any more.

        @return: Fires when no question is under way.
        """
        return self.watch.stop()

    def close(self) -> Deferred[None]:
        """End the connections."""
        return self.group.close().addCallback(lambda _: self.client.close())

    def health(self) -> Iterator[HealthReason]:
        """No controller answers, or what it says cannot be followed."""
        watch = self.watch
        if watch.trouble and max(watch.silent(), watch.alone()) >= ALARM:
            yield HealthReason("no-controller", watch.trouble, told=True)

    def more(self) -> dict[str, Any]:
        """What controllers say."""
        state = self.followed.state
        return {
            "controller": {
                "leader": self.group.leader,
                "trouble": self.watch.trouble,
                "master": None if state is None or state.master is None else state.master.id,
                "masterAddress": self.client_port,
                "masterEpoch": None if state is None else state.master_epoch,
                "syncStateSet": [] if state is None else sorted(state.in_sync),
                "syncStateSetEpoch": None if state is None else state.set_epoch,
                "confirmOffset": self._readable(),
            }
        }

    def _readable(self) -> int | None:
        """Up to where readers see the log; C{None} while a repair has it closed."""
        try:
            return self.node.store.readable
        except NotWritable:
            return None
