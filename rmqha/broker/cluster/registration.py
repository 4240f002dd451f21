"""Telling the name servers of this broker and its topics, and hearing from them of its master.

All name servers are told at once, each on its own: at the start, when topics change, when a name
has other addresses, again and again, and at the end.  A name counts as all its addresses.  Of their
answers the one with the highest master epoch is believed, and of several with the same, or with
none, the first in the order of the configuration.

A slave that is told of no master and has none in its configuration, and a broker that no name
server answers, does not wait that long: it tries again after one, two, four, eight seconds, and
every L{SHORTEST} from then on.

A master that was fenced tells them nothing more, not even that it goes: a stock name server would
take the other master out of the routes, because it looks at name and id alone.

Source: docs/protocol/remoting.md, Registration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.state import BrokerState
from rmqha.broker.tables.topics import READ_WRITE
from rmqha.config.values import NamedAddress
from rmqha.errors import RequestRefused, RmqhaError
from rmqha.health import HealthReason
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.net.remoting.client import UNREACHED, RemotingClient
from rmqha.net.remoting.server_names import ServerNames
from rmqha.periodic import NodePart, Periodic
from rmqha.wire.ports import HA_PORT_STEP
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.register import RegisterBody, checksum, write
from rmqha.wire.remoting.bodies.route import ClusterInfo, KvTable
from rmqha.wire.remoting.bodies.tables import TopicConfig, TopicTable
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.namesrv import (
    BrokerRequest,
    DataVersionAnswer,
    RegisterBrokerAnswer,
    RegisterBrokerRequest,
)

SHORTEST, LONGEST = 10.0, 60.0
"""Bounds of C{registerNameServerPeriod}, in seconds; stock brokers' too."""

FAREWELL = 3.0
"""Seconds a name server has to take note that this broker goes."""

BRIEF = 0.3
"""The same for one that has not answered before: a member of a set that changes its role waits."""

PATIENCE = 2.0
"""Seconds who changed a topic waits for the name servers to know; mqadmin waits 5 in all."""

UNLISTED = 60.0
"""Seconds after which it is told that no name server lists this broker."""

REGISTERED = "registered"
"""What L{Registration.status} says of a name server that knows this broker."""

REFUSED = "refused"
"""What it begins with where another broker is listed as the master."""


@define(eq=False)
class Registration(NodePart):
    """Keeps the name servers informed.

    @ivar told: Called with what a name server says of this broker's master.
    @ivar names_of: Makes what knows the addresses of name servers, of which some are given by name.
    @ivar names: Who the name servers are.
    @ivar suspended: Why name servers are told nothing, in words; C{""} while they are.
    @ivar disagreement: What name servers say differently of it, in words; C{""} if nothing.
    """

    state: BrokerState
    client: RemotingClient
    told: Callable[[RegisterBrokerAnswer], None]
    names_of: Callable[..., ServerNames]
    suspended: str = field(default="", init=False)
    disagreement: str = field(default="", init=False)
    names: ServerNames = field(init=False)
    _own: ServerNames = field(init=False)
    _timed: Periodic = field(init=False)
    _running: bool = field(default=False, init=False)
    _permission: int = field(default=READ_WRITE, init=False)
    _busy: bool = field(default=False, init=False)
    _stale: bool = field(default=False, init=False)
    # While a master or all name servers are looked for: how often that was, and the next time.
    _tries: int = field(default=0, init=False)
    _sooner: IDelayedCall | None = field(default=None, init=False)
    _has_master: bool = field(default=False, init=False)
    # Name servers that could not be told the last time.
    _silent: set[str] = field(factory=set, init=False)
    _waiting: list[Deferred[None]] = field(factory=list, init=False)
    _rounds: list[Deferred[None]] = field(factory=list, init=False)
    _known: dict[str, str] = field(factory=dict, init=False)
    # Since when no name server lists this broker; C{None} while one does.
    _unlisted: float | None = field(default=None, init=False)
    # Name servers that are being told, and those of them that are to be told once more then.
    _telling: set[str] = field(factory=set, init=False)
    _again: set[str] = field(factory=set, init=False)
    # What each that answered the last time said of our master.
    _said: dict[str, RegisterBrokerAnswer] = field(factory=dict, init=False)
    # What they are told.
    _news: tuple[DataVersion, bytes] = field(init=False)
    # The body of a registration, and what it was made of.
    _made: tuple[object, bytes] | None = field(default=None, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.state.clock)
        self.names = self.names_of(
            lambda: tuple(filter(None, self.state.current.settings.broker.namesrv.split(";"))),
            self._on_addresses,
        )
        self._own = self.names_of(self._own_names, self._own_moved, "looking up brokerIP1")
        self._timed = Periodic(
            "registration at the name servers", self.state.clock, self._due, vital=True
        )

    @property
    def servers(self) -> tuple[str, ...]:
        """The name servers, C{host:port} each."""
        return self.names.servers

    @property
    def address(self) -> str:
        """Where clients find this broker."""
        broker, names = self.state.current.settings.broker, self._own_names()
        found = [each for each in self._own.servers if each not in names]
        return broker.address if broker.address in found or not found else found[0]

    def _own_names(self) -> list[str]:
        """C{brokerIP1} with the port, if it is a name."""
        broker = self.state.current.settings.broker
        if isinstance(broker.ip1, NamedAddress):
            return [f"{broker.ip1.name}:{broker.listen_port}"]
        return []

    @property
    def ha_address(self) -> str:
        """Where its slaves do."""
        settings = self.state.current.settings
        port = settings.ha.listen_port or settings.broker.listen_port + HA_PORT_STEP
        return f"{settings.broker.ip2}:{port}"

    def start(self) -> None:
        """Register, and go on doing so."""
        if not self.servers:
            return
        self._running = True
        self._unlisted = self.state.clock.seconds()
        self._permission = self.state.current.settings.broker.permission
        self.state.topics.changed.append(self._changed)
        self.state.current.changed.append(self._retime)
        self.names.start()
        self._own.start()
        self._begin(now=True)

    def stop(self) -> Deferred[None]:
        """Take leave of all name servers.

        @return: Fires when they know it, or had their time.
        """
        if not self._running:
            return succeed(None)
        self._running = False
        self._timed.stop()
        self.names.stop()
        self._own.stop()
        self._plan()
        self.state.topics.changed.remove(self._changed)
        self._release()
        if self.suspended:
            return succeed(None)
        leaving = [
            self.client.request(
                server,
                Command.request(RequestCode.UNREGISTER_BROKER, self._who()),
                FAREWELL if server in self._said else BRIEF,
            )
            for server in self.servers
        ]
        return DeferredList(leaving, consumeErrors=True).addCallback(lambda _: None)

    def suspend(self, reason: str) -> None:
        """Tell them nothing more, for the rest of this broker's life.

        @param reason: Why, for the status.
        """
        self.suspended = reason

    def publication(self) -> Deferred[None]:
        """Wait until what was changed up to now is known to the name servers.

        @return: Fires then, or after L{PATIENCE}.
        """
        if not self._running or not self._busy:
            return succeed(None)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting.addTimeout(PATIENCE, self.state.clock, lambda result, _: None)

    def status(self) -> dict[str, str]:
        """Each name server, and how the last registration there went."""
        if self.suspended:
            return dict.fromkeys(self.servers, f"not registered: {self.suspended}")
        return {server: self._known.get(server, "not yet") for server in self.servers}

    def health(self) -> Iterator[HealthReason]:
        """Name servers that do not agree, or none of which lists this broker."""
        if self.disagreement:
            yield HealthReason("name-servers-disagree", self.disagreement)
        if not self._running or self.suspended or self._unlisted is None:
            return
        seconds = self.state.clock.seconds() - self._unlisted
        if seconds >= UNLISTED:
            said = "; ".join(f"{server}: {text}" for server, text in self.status().items())
            yield HealthReason(
                "not-registered",
                f"for {seconds:.0f} s no name server has listed this broker, so clients that come "
                f"do not find it: {said}",
            )

    # --- when -----------------------------------------------------------------------------

    def _begin(self, *, now: bool) -> None:
        period = self.state.current.settings.registration.period
        self._timed.start(min(max(period, SHORTEST), LONGEST), now=now)

    def _retime(self) -> None:
        if self._running:
            self._begin(now=False)
            permission = self.state.current.settings.broker.permission
            if permission != self._permission:
                self._permission = permission
                # A name server looks at topics again when their version is another.
                self.state.topics.touch()

    def _on_addresses(self) -> None:
        """Some of them have other addresses: who is none of them any more is told nothing, and is
        forgotten.
        """
        servers = set(self.servers)
        for gone in (self._known.keys() | self._said.keys()) - servers:
            self._known.pop(gone, None)
            self._said.pop(gone, None)
        self._silent &= servers
        if self._running:
            self._changed(None)

    def _own_moved(self) -> None:
        """C{brokerIP1} has another address, or has the first one by which it is looked up."""
        broker, address = self.state.current.settings.broker, self.address
        if address != broker.address:
            self._log.warn(
                "Telling name servers {address}, which brokerIP1 is now; messages and controllers "
                "have {before} until the next start",
                address=address,
                before=broker.ip1,
            )
        self._changed(None)

    def _due(self) -> Deferred[None]:
        """Fires when what they are told is made; fails if it cannot be.  A name server that cannot
        be reached is no failure of ours.
        """
        self._quiet.sweep()
        made: Deferred[None] = Deferred()
        self._rounds.append(made)
        self._changed(None)
        return made

    def _changed(self, _: TopicConfig | None) -> None:
        """Tell them soon: many changes in one turn are one registration."""
        if self._busy:
            self._stale = True
            return
        self._busy = True
        self.state.clock.callLater(0, self._go)

    def _go(self) -> None:
        self._stale = False
        Deferred.fromCoroutine(self._register()).addBoth(self._handed_out)

    def _handed_out(self, result: Failure | None) -> None:
        rounds, self._rounds = self._rounds, []
        if isinstance(result, Failure) and not rounds:
            self._log.failure("Registering changed topics failed", result)
        for made in rounds:
            if isinstance(result, Failure):
                made.errback(result)
            else:
                made.callback(None)
        if self._stale and self._running:
            self.state.clock.callLater(0, self._go)
        else:
            self._busy = False
            self._settle()

    def _settle(self) -> None:
        """Look whether all know it that can be expected to: one that did not answer the last time
        is not waited for.
        """
        if not self._busy and self._telling <= self._silent:
            self._plan()
            self._release()

    def _plan(self) -> None:
        """Try again soon, if what a broker cannot do without is not known."""
        planned = self._sooner is not None and self._sooner.active()
        if not self._running or self.suspended or not self._lacks():
            self._tries = 0
            if planned and self._sooner is not None:
                self._sooner.cancel()
            return
        if planned:
            return
        pause = min(2.0**self._tries, SHORTEST)
        if pause < SHORTEST:
            self._tries += 1
        self._sooner = self.state.clock.callLater(pause, self._changed, None)

    def _lacks(self) -> bool:
        if self._silent.issuperset(self.servers):
            return True
        settings = self.state.current.settings
        return not (self._has_master or settings.broker.role.is_master or settings.ha.master)

    def _release(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.called:
                one.callback(None)

    # --- what -----------------------------------------------------------------------------

    async def _register(self) -> None:
        """Tell all of them once, each on its own."""
        if not self._running or self.suspended:
            return
        table = self.state.topics.table()
        self._news = table.data_version, await self._body(table)
        for server in self.servers:
            self._tell_one(server)

    def _tell_one(self, server: str) -> None:
        """Tell one, or once more when it has answered: one that is slow delays no other."""
        if server in self._telling:
            self._again.add(server)
            return
        self._telling.add(server)
        told = Deferred.fromCoroutine(self._tell(server, *self._news))
        told.addCallback(self._on_answer, server).addErrback(
            lambda failure: self._log.failure(
                "Cannot use what name server {peer} says", failure, peer=server
            )
        ).addCallback(self._told_one, server)

    def _told_one(self, _: None, server: str) -> None:
        self._telling.discard(server)
        if server in self._again:
            self._again.discard(server)
            if self._running and not self.suspended and server in self.servers:
                self._tell_one(server)
        self._settle()

    async def _body(self, table: TopicTable) -> bytes:
        """What name servers are told of the topics, made when they are others than before; in a
        thread, as there may be very many.
        """
        settings = self.state.current.settings
        permission, compressed = settings.broker.permission, settings.registration.compressed
        key = table.data_version, len(table.topic_config_table), permission, compressed
        if self._made is not None and self._made[0] == key:
            return self._made[1]
        body: bytes = await self.state.in_thread(_written, table, permission, compressed=compressed)
        self._made = key, body
        return body

    def _on_answer(self, answer: Command | None, server: str) -> None:
        """Take note of what one says, beside what the others said last."""
        self._said.pop(server, None)
        if answer is None or not self._running or server not in self.servers:
            return
        self._said[server] = from_ext(RegisterBrokerAnswer, answer.ext)
        said = {server: self._said[server] for server in self.servers if server in self._said}
        self._compare(said)
        self._has_master = any(one.ha_server_addr for one in said.values())
        epochs = {
            one: -1 if one.master_epoch is None else one.master_epoch for one in said.values()
        }
        self.told(max(epochs, key=epochs.__getitem__))
        if answer.body and server == next(iter(said)):
            self._order(json_body.read(KvTable, answer.body).table)

    def _compare(self, masters: dict[str, RegisterBrokerAnswer]) -> None:
        """Name servers do not talk to each other: see whether they know the same master."""
        said = [
            f"{server} says {master.master_addr or 'none'} (HA {master.ha_server_addr or '-'})"
            for server, master in masters.items()
        ]
        # Stock name servers tell no epoch, which is no disagreement.
        agree = len({one.but(master_epoch=None) for one in masters.values()}) < 2
        self.disagreement = "" if agree else f"they know different masters: {'; '.join(said)}"
        if not agree:
            self._quiet.warn(
                "disagreement",
                self.servers[0],
                "Name servers disagree, believing the first: {what}",
                what=self.disagreement,
            )

    async def _tell(self, server: str, version: DataVersion, body: bytes) -> Command | None:
        """@return: What the name server said; C{None} if nothing, or if it knew everything."""
        settings = self.state.current.settings
        try:
            # A slave asks for more than to be known: where its master is.
            ask_first = settings.broker.role.is_master and not settings.registration.force
            if ask_first and not await self._is_news(server, version):
                known = self._known.get(server, "")
                self._note(server, known if known.startswith(REFUSED) else REGISTERED)
                return None
            if not self._running:
                return None  # it has taken leave in the meantime
            header = self._header(body)
            if not settings.broker.role.is_master:
                header = header.but(enable_acting_master=await self._acting(server))
            request = Command.request(RequestCode.REGISTER_BROKER, header, body)
            answer = await self._ask(server, request)
            self._note(server, self._outcome(answer))
            return answer
        except Exception:
            failure = Failure()
            self._note(server, failure.getErrorMessage(), answered=False)
            ours = {} if failure.check(*UNREACHED) else {"log_failure": failure}
            self._quiet.warn(
                type(failure.value).__name__,
                server,
                "Registration with name server {peer} failed, retrying: {error}",
                error=failure.getErrorMessage(),
                **ours,
            )
            return None

    def _note(self, server: str, said: str, *, answered: bool = True) -> None:
        self._known[server] = said
        (self._silent.discard if answered else self._silent.add)(server)
        if REGISTERED in self.status().values():
            self._unlisted = None
        elif self._unlisted is None:
            self._unlisted = self.state.clock.seconds()

    def _outcome(self, answer: Command) -> str:
        """What became of a registration: a master of ours is told when another is in the routes."""
        if not self.state.current.settings.broker.role.is_master:
            return REGISTERED
        said = from_ext(RegisterBrokerAnswer, answer.ext)
        if said.master_epoch is None or said.master_epoch <= self.state.epochs.number:
            return REGISTERED
        return f"{REFUSED}: {said.master_addr} is master with master epoch {said.master_epoch}"

    async def _is_news(self, server: str, version: DataVersion) -> bool:
        body = json_body.write(version)
        request = Command.request(RequestCode.QUERY_DATA_VERSION, self._who(), body)
        try:
            answer = await self._ask(server, request)
            return from_ext(DataVersionAnswer, answer.ext).changed
        except RmqhaError:
            # Whatever it is, the whole registration will tell.
            return True

    async def _acting(self, server: str) -> bool | None:
        """Whether the slaves of this name let the first of them act for a master that is away:
        stock brokers of 5.x do.  A stock name server takes whatever the last of them says for all,
        and no word for no; so what it knows is said again.
        """
        try:
            answer = await self._ask(server, Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))
            brokers = json_body.read(ClusterInfo, answer.body).broker_addr_table
        except RmqhaError:
            return None  # the registration will tell
        found = brokers.get(self.state.current.settings.broker.name)
        return True if found is not None and found.enable_acting_master else None

    async def _ask(self, server: str, request: Command) -> Command:
        timeout = self.state.current.settings.registration.timeout
        answer = await self.client.request(server, request, timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark, request.code)
        return answer

    def _who(self) -> BrokerRequest:
        broker = self.state.current.settings.broker
        return BrokerRequest(
            broker_name=broker.name,
            broker_addr=self.address,
            cluster_name=broker.cluster,
            broker_id=broker.id,
        )

    def _header(self, body: bytes) -> RegisterBrokerRequest:
        settings = self.state.current.settings
        return RegisterBrokerRequest(
            broker_name=settings.broker.name,
            broker_addr=self.address,
            cluster_name=settings.broker.cluster,
            ha_server_addr=self.ha_address,
            broker_id=settings.broker.id,
            compressed=settings.registration.compressed,
            body_crc32=checksum(body),
            master_epoch=self.state.epochs.number,
        )

    def _order(self, table: dict[str, str]) -> None:
        """Name servers say which topics are ordered."""
        for name in self.state.topics.names():
            topic = self.state.topics.get(name)
            if topic is not None and topic.order != (name in table):
                self.state.topics.put(evolve(topic, order=name in table))


def _written(table: TopicTable, permission: int, *, compressed: bool) -> bytes:
    """The topics as the name servers are to know them: what the broker does not permit, none of its
    topics does.  Blocking.
    """
    if permission != READ_WRITE:
        topics = table.topic_config_table
        permitted = {name: evolve(topic, perm=permission) for name, topic in topics.items()}
        table = evolve(table, topic_config_table=permitted)
    return write(RegisterBody(topic_config_serialize_wrapper=table), compressed=compressed)
