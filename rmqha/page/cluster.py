"""The page of a cluster: a node asks the others how they are, while somebody looks at its page.

Where they are it asks name servers.  A node's own page is asked on its admin port, which is three
above its client port and often open on its own machine alone; then its client port says what it
says to any client, and so does one of a stock broker, which has no other.

Source: docs/guide/page.rst.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, ensureDeferred, gatherResults
from twisted.internet.error import ConnectionClosed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.config.load import NAMESRV
from rmqha.errors import BodyInvalid, RequestRefused, RmqhaError
from rmqha.net.remoting.client import RemotingClient
from rmqha.nodes.facts import Fact
from rmqha.nodes.find import KnownBroker, admin_of, brokers_in, cluster_of
from rmqha.nodes.poll import UNREACHED, NodeClient, unreached
from rmqha.nodes.runtime_facts import runtime_facts
from rmqha.nodes.summary import duration
from rmqha.page.own import OwnPage, of_status
from rmqha.page.told import ClusterPage, NodePage
from rmqha.wire.remoting.bodies.route import ClusterInfo, KvTable
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import from_json, read

FRESH = 4.0
"""Seconds for which what others said is not asked again."""

PATIENCE = 1.0
"""Seconds that a page waits for others; then it gets what they said before."""

CLIENT_PORT_TIMEOUT = 3.0
"""Seconds a client port has for its answer."""

MOST_BROKERS = 100
"""Brokers that are asked."""

MOST_BYTES = 2 << 20
"""The largest page of another node; one with the longest events has half a megabyte."""

KEPT = 3600.0
"""Seconds for which a broker keeps its place that no name server lists any more."""

ALONE = "no name server is configured here, so this is one node"


@define(eq=False, kw_only=True)
class ClusterPages:
    """Asks all nodes, once for all who look.

    @ivar ask: Makes a client for an admin port.
    @ivar connect: Makes a client for name servers and client ports.
    @ivar servers: The name servers that are known.
    @ivar table: What this node knows if it is a name server itself; else C{None}.
    """

    own: OwnPage
    clock: IReactorTime
    ask: Callable[[str], NodeClient]
    connect: Callable[[], RemotingClient]
    servers: Callable[[], Sequence[str]]
    table: Callable[[], ClusterInfo | None]
    _others: tuple[NodePage, ...] = field(default=(), init=False)
    _note: str = field(default="", init=False)
    # The brokers, and when a name server listed them last.
    _listed: dict[str, tuple[KnownBroker, float]] = field(factory=dict, init=False)
    _heard: float = field(default=0.0, init=False)
    _looked: float = field(default=float("-inf"), init=False)
    _looking: bool = field(default=False, init=False)
    _waiting: list[Deferred[None]] = field(factory=list, init=False)

    _log = Logger()

    async def told(self) -> ClusterPage:
        """How all are: this node now, the others a moment ago."""
        own = await self.own.told()
        if self.clock.seconds() - self._looked >= FRESH:
            done: Deferred[None] = Deferred()
            self._waiting.append(done)
            if not self._looking:
                self._looking = True
                Deferred.fromCoroutine(self._look(own)).addErrback(
                    lambda failure: self._log.failure("Cannot ask the other nodes", failure)
                ).addBoth(self._over)
            await done.addTimeout(PATIENCE, self.clock, lambda _, __: None)
        return ClusterPage(own=own.name, note=self._note, nodes=(own, *self._others))

    def _over(self, _: object) -> None:
        self._looking, self._looked = False, self.clock.seconds()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done.callback(None)

    async def _look(self, own: NodePage) -> None:
        servers, info = self.servers(), self.table()
        if not servers and info is None:
            self._note = ALONE
            return
        client = self.connect()
        try:
            asked = await gatherResults(
                [ensureDeferred(self._server(client, server)) for server in servers]
            )
            found = [known for _, known in asked if known is not None]
            if info or found:
                self._remember(brokers_in(info or found[0]))
            others = [name for name in self._listed if name != own.name]
            self._note = _note(servers, found, len(others)) if info is None else ""
            pages = await gatherResults(
                [ensureDeferred(self._broker(client, name)) for name in others[:MOST_BROKERS]]
            )
        finally:
            await client.close()
        self._others = (*(page for page, _ in asked), *pages)

    def _remember(self, listed: list[KnownBroker]) -> None:
        """Keep those that are not listed any more, unless they have another name now."""
        self._heard = now = self.clock.seconds()
        taken = {one.address for one in listed}
        found = {_name(one): (one, now) for one in listed}
        for name, (one, when) in self._listed.items():
            if now - when < KEPT and one.address not in taken:
                found.setdefault(name, (one, when))
        self._listed = dict(sorted(found.items()))

    async def _broker(self, client: RemotingClient, name: str) -> NodePage:
        broker, listed = self._listed[name]
        gone = self._heard - listed
        page = await self._told_by(client, broker)
        if not gone:
            return page
        since = f"gone: no name server has listed it for {duration(gone)}"
        return evolve(page, problem="; ".join(filter(None, (since, page.problem))))

    async def _server(
        self, client: RemotingClient, server: str
    ) -> tuple[NodePage, ClusterInfo | None]:
        name = f"name server {server}"
        try:
            info = await cluster_of(server, client)
        except (RmqhaError, ConnectionClosed, ValueError) as error:
            return NodePage(name=name, role=NAMESRV, problem=str(error)), None
        try:
            page = evolve(await self._page(admin_of(server)), name=name)
        except (*UNREACHED, ValueError):
            page = NodePage(name=name, role=NAMESRV, facts=(Fact("state", "answers"),))
        return page, info

    async def _told_by(self, client: RemotingClient, broker: KnownBroker) -> NodePage:
        name, address = _name(broker), broker.address
        try:
            address = admin_of(broker.address)
            page = await self._page(address)
            if page.name == name:
                return page
            why = f"{address} is the admin port of {page.name}"
        except (*UNREACHED, ValueError) as failed:
            why = unreached(address, failed)
        known = NodePage(
            name=name,
            role="slave" if broker.id else "master",
            cluster=broker.cluster,
            broker_name=broker.name,
            broker_id=broker.id,
        )
        try:
            answer = await client.request(
                broker.address,
                Command.request(RequestCode.GET_BROKER_RUNTIME_INFO),
                CLIENT_PORT_TIMEOUT,
            )
            if answer.code != ResponseCode.SUCCESS:
                raise RequestRefused(answer.code, answer.remark or "no reason was given")
            table = read(KvTable, answer.body).table
        except (RmqhaError, ConnectionClosed) as failed:
            return evolve(known, problem=f"{why}; its client port: {failed}")
        return evolve(known, facts=(*runtime_facts(table), Fact("admin port", why)))

    async def _page(self, address: str) -> NodePage:
        """A node's own page; of an older node its status.

        @param address: Of its admin port.
        @raise ValueError: If what answers there has neither.
        """
        look = self.ask(address)
        code, content = await look.get("page/node")
        if code == 200:
            try:
                return from_json(NodePage, content)
            except BodyInvalid as error:
                raise ValueError(str(error)) from error
        seen = await look.once()
        if seen.status is None:
            raise ValueError(seen.problem)
        return of_status(seen.status, seen.problem)


def _name(broker: KnownBroker) -> str:
    return f"{broker.name}/{broker.id}"


def _note(servers: Sequence[str], found: Sequence[ClusterInfo], others: int) -> str:
    if not found:
        alone = "" if others else ", so this is one node"
        return f"no name server answers ({', '.join(servers)}){alone}"
    if others > MOST_BROKERS:
        return f"{MOST_BROKERS} of {others} other brokers are shown"
    return ""
