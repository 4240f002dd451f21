"""Commands that ask brokers of any make: which, how, and what they print."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, TypeVar

import click
from attrs import frozen
from twisted.internet.error import ConnectionClosed

from rmqha.cli.common import JSON, Unreachable, in_reactor
from rmqha.cli.reach import Access, access_options
from rmqha.config.values import ENDPOINT
from rmqha.errors import BodyInvalid, RemotingTimeout, RemotingUnreachable, RmqhaError
from rmqha.net.remoting.client import RemotingClient, split_address, with_port
from rmqha.nodes.broker_admin import BrokerAdmin, BrokerFacts, NotMaster
from rmqha.nodes.find import KnownBroker, brokers_in, cluster_of

CLIENT_PORT, NAMES_PORT = 10911, 9876
DEFAULT_BROKER = f"127.0.0.1:{CLIENT_PORT}"

UNANSWERED = (RemotingUnreachable, RemotingTimeout, ConnectionClosed)

T = TypeVar("T")


@frozen(kw_only=True)
class Way:
    """How a person says which brokers are meant.

    @ivar brokers: Their addresses; empty for those that the name servers know, or, without
        these, for L{DEFAULT_BROKER}.
    @ivar cluster: Those of this one only; C{None} for any.
    """

    brokers: tuple[str, ...]
    name_servers: tuple[str, ...]
    cluster: str | None
    access: Access


def _addresses(port: int) -> Callable[..., tuple[str, ...]]:
    """Reads addresses, with a default for their ports."""

    def parsed(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Any:
        found = []
        for text in filter(None, (part.strip() for each in texts for part in each.split(";"))):
            try:
                found.append(ENDPOINT.show(split_address(with_port(text, port))))
            except ValueError as error:
                raise click.BadParameter(f"{text} is not HOST or HOST:PORT") from error
        return tuple(dict.fromkeys(found))

    return parsed


BROKERS = click.option(
    "--broker",
    "-b",
    "brokers",
    multiple=True,
    callback=_addresses(CLIENT_PORT),
    metavar="HOST[:PORT]",
    help=f"The client port of a broker; may be repeated. Default: {DEFAULT_BROKER}.",
)
NAME_SERVERS = click.option(
    "--namesrv",
    "-n",
    "name_servers",
    multiple=True,
    callback=_addresses(NAMES_PORT),
    metavar="HOST[:PORT]",
    help="Instead: the masters that this name server knows; several with ; between.",
)
CLUSTER = click.option(
    "--cluster", "-c", metavar="NAME", help="With -n: only the brokers of this cluster."
)


def asks_brokers(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which brokers it asks, as its C{way}, and C{--json}."""

    @wraps(command)
    def told(**given: Any) -> Any:
        brokers, servers = given.pop("brokers"), given.pop("name_servers")
        cluster = given.pop("cluster")
        if brokers and servers:
            raise click.UsageError("-b and -n exclude each other: the name server knows brokers")
        if cluster and not servers:
            raise click.UsageError("--cluster needs -n: a name server knows the clusters")
        way = Way(
            brokers=brokers, name_servers=servers, cluster=cluster, access=given.pop("access")
        )
        return command(way=way, **given)

    return BROKERS(NAME_SERVERS(CLUSTER(access_options(JSON(told)))))


@frozen
class BrokerSite:
    """The brokers that are meant, once there is a connection to ask by."""

    way: Way
    client: RemotingClient

    def at(self, address: str) -> BrokerAdmin:
        """Asks the broker there."""
        return BrokerAdmin(address, self.client)

    async def readable(self) -> list[BrokerAdmin]:
        """Those to read from: of each name the master, or who stands in for it."""
        if self.way.name_servers:
            return [self.at(each.address) for each in await self._known(self.way.cluster)]
        return [self.at(address) for address in self.way.brokers or (DEFAULT_BROKER,)]

    async def masters(self) -> dict[BrokerAdmin, BrokerFacts]:
        """Those to write to, each asked whether it is a master.

        @raise NotMaster: If one is none.
        """
        return await self._checked([each.address for each in await self._writable()])

    async def whole_cluster(self) -> dict[BrokerAdmin, BrokerFacts]:
        """All masters of the cluster that a broker is in, for what is deleted everywhere."""
        found = await self.masters()
        servers = self.name_servers(found)
        if self.way.name_servers or not servers:
            return found
        clusters = {facts.cluster for facts in found.values()}
        known = [each for name in clusters for each in await self._known(name, servers)]
        return await self._checked(
            list(dict.fromkeys([*(each.address for each in found), *(e.address for e in known)]))
        )

    def name_servers(self, masters: dict[BrokerAdmin, BrokerFacts]) -> tuple[str, ...]:
        """The name servers that were given, and those of brokers."""
        of_brokers = [name for facts in masters.values() for name in facts.name_servers]
        return tuple(dict.fromkeys([*self.way.name_servers, *of_brokers]))

    async def _writable(self) -> list[BrokerAdmin]:
        if not self.way.name_servers:
            return await self.readable()
        known = await self._known(self.way.cluster)
        clusters = sorted({each.cluster for each in known})
        if len(clusters) > 1:
            raise click.ClickException(
                f"{self.way.name_servers[0]} knows {len(clusters)} clusters: say with --cluster "
                f"which is meant, {' or '.join(clusters)}"
            )
        for each in known:
            if each.id:
                raise click.ClickException(
                    f"{each.name} has no master: {self.way.name_servers[0]} knows the broker "
                    f"with id {each.id} at {each.address}; `rmqha status` says how it is"
                )
        return [self.at(each.address) for each in known]

    async def _checked(self, addresses: Sequence[str]) -> dict[BrokerAdmin, BrokerFacts]:
        found = {}
        for broker in map(self.at, addresses):
            found[broker] = facts = await broker.facts()
            if not facts.is_master:
                raise NotMaster(broker.address, facts.name, await self._master_of(facts))
        return found

    async def _master_of(self, facts: BrokerFacts) -> str:
        try:
            known = await self._known(None, facts.name_servers)
        except (RmqhaError, ConnectionClosed, click.ClickException):
            return ""
        return next((e.address for e in known if (e.name, e.id) == (facts.name, 0)), "")

    async def _known(
        self, cluster: str | None, servers: Sequence[str] | None = None
    ) -> list[KnownBroker]:
        """Of each broker name the one with the lowest id, as the first name server that answers
        knows them.
        """
        names = self.way.name_servers if servers is None else servers
        for server in names:
            try:
                all_known = brokers_in(await cluster_of(server, self.client))
                break
            except UNANSWERED:
                if server == names[-1]:
                    raise
            except (ValueError, BodyInvalid) as error:
                raise click.ClickException(str(error)) from error
        else:
            return []
        lowest = {each.name: each for each in reversed(all_known)}
        found = [each for _, each in sorted(lowest.items()) if cluster in (None, each.cluster)]
        if not found:
            clusters = ", ".join(sorted({each.cluster for each in all_known})) or "none"
            raise click.ClickException(
                f"{server} knows no broker{f' of cluster {cluster}' if cluster else ''}; "
                f"the clusters it knows: {clusters}"
            )
        return found


def ask(way: Way, run: Callable[[BrokerSite], Coroutine[Any, Any, T]]) -> T:
    """Ask while a reactor runs; once in a process.

    @raise Unreachable: If one of them gives no answer.
    """

    async def asked(reactor: Any) -> T:
        async with way.access.client(reactor) as client:
            return await run(BrokerSite(way, client))

    try:
        return in_reactor(asked)
    except UNANSWERED as error:
        raise Unreachable(str(error)) from error


async def at_each(
    brokers: Sequence[BrokerAdmin], act: Callable[[BrokerAdmin], Awaitable[None]], done: str
) -> None:
    """Do something at one broker after the other.

    @param done: What is so then, for the error that tells of a work half done.
    """
    for number, broker in enumerate(brokers):
        try:
            await act(broker)
        except (RmqhaError, ConnectionClosed) as error:
            if not number:
                raise
            well = ", ".join(each.address for each in brokers[:number])
            rest = ", ".join(each.address for each in brokers[number:])
            raise click.ClickException(
                f"{error}; {done} at {well} and not at {rest}: give the command again"
            ) from error


def addresses(brokers: Iterable[BrokerAdmin]) -> str:
    """Where brokers are, in words."""
    return ", ".join(each.address for each in brokers)
