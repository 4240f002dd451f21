"""Which brokers there are and which topics they have: a name server's whole memory.

Nothing here knows a connection, a clock or a byte.  Time comes in as seconds, and a
caller that must tell others of a change reads it from what a method returns.

A broker's address is I{live} from its registration to its end: it is silent for too long,
its connection closes, or it says so.  A topic's queues stay as long as any address of
their broker's name is live, so a master that dies leaves its topics to its slaves.

Of two live masters of one name the one with the higher master epoch is in the routes.  Where
neither has a higher one, as with stock brokers, the last one to register is.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from attrs import define, evolve, field, frozen

from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from rmqha.wire.remoting.bodies.tables import READ, WRITE, TopicConfig

EXPIRY = 120.0
"""Seconds without a registration after which a broker is taken for dead."""

MASTER = 0
"""The id of a master."""


@frozen(kw_only=True)
class BrokerRegistration:
    """What a broker says of itself.

    @ivar address: C{host:port} for clients.
    @ivar ha_address: C{host:port} for slaves.
    @ivar topics: All its topics, or those that changed: what is missing stays.
    @ivar version: Of its topics.
    @ivar expiry: Seconds it may be silent.
    @ivar channel: What it came over; see L{RouteTable.closed}.
    @ivar epoch: Its master epoch; a stock broker, which tells none, has 0.
    """

    cluster: str
    name: str
    id: int
    address: str
    ha_address: str
    topics: Iterable[TopicConfig] = ()
    version: DataVersion = field(factory=DataVersion)
    filter_servers: tuple[str, ...] = ()
    acting_master: bool | None = None
    expiry: float = EXPIRY
    channel: object = None
    epoch: int = 0


@frozen(kw_only=True)
class RegistrationResult:
    """What a registration is answered, and what it changed.

    @ivar master: For a slave whose master is live, and for a master that is refused: the live
        master's address.
    @ivar ha: For such a broker: where that master's log comes from.
    @ivar epoch: That master's epoch.
    @ivar new: Whether this address was not live before, or not refused before.
    @ivar replaced: Another live address that had the same name and id.
    @ivar replaced_epoch: Its master epoch.
    @ivar refused: Whether it is a master and was not taken into the routes, because the live one
        has a higher epoch.
    """

    master: str | None = None
    ha: str | None = None
    epoch: int | None = None
    new: bool = False
    replaced: str | None = None
    replaced_epoch: int = 0
    refused: bool = False


@frozen
class LostBroker:
    """A broker that is no longer live.

    @ivar channel: What it had registered over.
    """

    name: str
    address: str
    channel: object


@define
class _Known:
    """A broker as it registered, but for its topics, and when it was last heard."""

    broker: BrokerRegistration
    seen: float


@define(eq=False)
class RouteTable:
    """The brokers and their topics."""

    _queues: dict[str, dict[str, QueueData]] = field(factory=dict, init=False)
    _brokers: dict[str, BrokerData] = field(factory=dict, init=False)
    _live: dict[str, _Known] = field(factory=dict, init=False)
    _refused: dict[str, _Known] = field(factory=dict, init=False)

    # --- brokers come and go --------------------------------------------------

    def register(self, broker: BrokerRegistration, now: float) -> RegistrationResult:
        """A broker is there, with these topics.

        A name's topics are those of its least id.  That is its master; while there is none, a
        slave's are taken, so that it can be read though the name server began without the master.

        @param now: Seconds of a clock that does not jump.
        """
        before = self._live.get(broker.address)
        if before is not None and before.broker.name != broker.name:
            self._remove(broker.address)
            before = None
        data = self._brokers.get(broker.name)
        higher = self._higher_master(broker)
        if higher is not None:
            return self._refuse(broker, higher, now)
        self._refused.pop(broker.address, None)
        if data is None:
            data = BrokerData(broker_name=broker.name, cluster=broker.cluster)
        others = {
            number: address
            for number, address in data.broker_addrs.items()
            if address != broker.address and number != broker.id
        }
        previous = data.broker_addrs.get(broker.id)
        data = evolve(
            data,
            broker_addrs={**others, broker.id: broker.address},
            enable_acting_master=broker.acting_master,
        )
        self._brokers[broker.name] = data
        if broker.id == min(data.broker_addrs) and (
            previous is None or before is None or before.broker.version != broker.version
        ):
            self._adopt(broker.name, broker.topics)
        self._live[broker.address] = _Known(evolve(broker, topics=()), now)
        replaced = previous if previous != broker.address else None
        gone = self._live.pop(replaced, None) if replaced is not None else None
        master = data.broker_addrs.get(MASTER)
        source = self._live.get(master) if master is not None and broker.id != MASTER else None
        return RegistrationResult(
            master=None if source is None else master,
            ha=None if source is None else source.broker.ha_address,
            epoch=None if source is None else source.broker.epoch,
            new=before is None,
            replaced=replaced,
            replaced_epoch=0 if gone is None else gone.broker.epoch,
        )

    def _higher_master(self, broker: BrokerRegistration) -> str | None:
        """The address of a live master that a registering one must not replace."""
        data = self._brokers.get(broker.name)
        if broker.id != MASTER or data is None:
            return None
        address = data.broker_addrs.get(MASTER)
        if address is None or address == broker.address:
            return None
        return address if self._live[address].broker.epoch > broker.epoch else None

    def _refuse(self, broker: BrokerRegistration, higher: str, now: float) -> RegistrationResult:
        """Keep a master out of the routes, and note that it is there."""
        self._remove(broker.address)
        new = broker.address not in self._refused
        self._refused[broker.address] = _Known(evolve(broker, topics=()), now)
        live = self._live[higher].broker
        return RegistrationResult(
            master=higher, ha=live.ha_address, epoch=live.epoch, new=new, refused=True
        )

    def seen(self, address: str, version: DataVersion, now: float) -> DataVersion | None:
        """A broker asks whether its topics are still those known here; it lives if they are.

        @return: The version known; C{None} if it is not live.
        """
        live = self._live.get(address)
        if live is None:
            return None
        if live.broker.version == version:
            live.seen = now
        return live.broker.version

    def beat(self, address: str, now: float) -> bool:
        """A broker lives.

        @return: Whether it is known.
        """
        live = self._live.get(address)
        if live is not None:
            live.seen = now
        return live is not None

    def unregister(self, name: str, number: int, address: str) -> bool:
        """A broker leaves.

        @return: Whether there was one of this name, id and address.
        """
        self._refused.pop(address, None)
        data = self._brokers.get(name)
        if data is None or data.broker_addrs.get(number) != address:
            return False
        self._remove(address)
        return True

    def closed(self, channel: object) -> list[LostBroker]:
        """A connection is gone, and the brokers that registered over it with it."""
        self._forget_refused(lambda row: row.broker.channel is channel)
        return self._remove_if(lambda live: live.broker.channel is channel)

    def expire(self, now: float) -> list[LostBroker]:
        """Remove the brokers that were silent for too long."""
        self._forget_refused(lambda row: now - row.seen > row.broker.expiry)
        return self._remove_if(lambda live: now - live.seen > live.broker.expiry)

    def _forget_refused(self, condition: Callable[[_Known], bool]) -> None:
        for address, row in list(self._refused.items()):
            if condition(row):
                del self._refused[address]

    def _remove_if(self, condition: Callable[[_Known], bool]) -> list[LostBroker]:
        found = [
            LostBroker(live.broker.name, address, live.broker.channel)
            for address, live in self._live.items()
            if condition(live)
        ]
        for gone in found:
            self._remove(gone.address)
        return found

    def _remove(self, address: str) -> None:
        live = self._live.pop(address, None)
        if live is None:
            return
        data = self._brokers[live.broker.name]
        left = {number: at for number, at in data.broker_addrs.items() if at != address}
        if left:
            self._brokers[live.broker.name] = evolve(data, broker_addrs=left)
            return
        del self._brokers[live.broker.name]
        self._forget_queues(list(self._queues), {live.broker.name})

    # --- topics ---------------------------------------------------------------

    def _adopt(self, name: str, topics: Iterable[TopicConfig]) -> None:
        for topic in topics:
            self._queues.setdefault(topic.topic_name, {})[name] = QueueData(
                broker_name=name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=topic.perm,
                topic_sys_flag=topic.topic_sys_flag,
            )

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """A topic has queues on brokers; those that are not live are left out."""
        for data in queues:
            if data.broker_name in self._brokers:
                self._queues.setdefault(topic, {})[data.broker_name] = data

    def delete_topic(self, topic: str, cluster: str | None = None) -> bool:
        """Forget a topic until a broker registers it again.

        @param cluster: Only on its brokers.
        @return: Whether there was any.
        """
        if topic not in self._queues:
            return False
        names = set(self._queues[topic])
        if cluster is not None:
            names &= {data.broker_name for data in self._of(cluster)}
        self._forget_queues([topic], names)
        return bool(names)

    def _forget_queues(self, topics: Iterable[str], names: set[str]) -> None:
        for topic in topics:
            queues = self._queues[topic]
            for name in names & queues.keys():
                del queues[name]
            if not queues:
                del self._queues[topic]

    def wipe_write_perm(self, name: str) -> int:
        """Stop clients from sending to a broker, until it registers topics that changed.

        @return: How many topics it has.
        """
        return self._change_perm(name, lambda perm: perm & ~WRITE)

    def add_write_perm(self, name: str) -> int:
        """Undo L{wipe_write_perm}.

        @return: How many topics it has.
        """
        return self._change_perm(name, lambda perm: READ | WRITE)

    def _change_perm(self, name: str, change: Callable[[int], int]) -> int:
        count = 0
        for queues in self._queues.values():
            data = queues.get(name)
            if data is not None:
                queues[name] = evolve(data, perm=change(data.perm))
                count += 1
        return count

    # --- questions ------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute | None:
        """Who has a topic.

        @return: C{None} if no live broker has.
        """
        queues = self._queues.get(topic, {})
        brokers = tuple(self._brokers[name] for name in queues if name in self._brokers)
        if not brokers:
            return None
        filters = {
            address: self._live[address].broker.filter_servers
            for data in brokers
            for address in data.broker_addrs.values()
            if address in self._live and self._live[address].broker.filter_servers
        }
        return TopicRoute(
            broker_datas=brokers, queue_datas=tuple(queues.values()), filter_server_table=filters
        )

    def cluster_info(self) -> ClusterInfo:
        """All brokers, by name and by cluster."""
        clusters: dict[str, tuple[str, ...]] = {}
        for name, data in self._brokers.items():
            cluster = data.cluster or ""
            clusters[cluster] = (*clusters.get(cluster, ()), name)
        return ClusterInfo(broker_addr_table=dict(self._brokers), cluster_addr_table=clusters)

    def members(self, name: str) -> BrokerData | None:
        """The live addresses of a broker's name."""
        return self._brokers.get(name)

    def topics(self, flags: Callable[[int], bool] = lambda flags: True) -> tuple[str, ...]:
        """All topics.

        @param flags: Which C{topicSysFlag}s are wanted.
        """
        return tuple(
            topic
            for topic, queues in self._queues.items()
            if any(flags(data.topic_sys_flag) for data in queues.values())
        )

    def topics_of(self, cluster: str) -> tuple[str, ...]:
        names = {data.broker_name for data in self._of(cluster)}
        return tuple(topic for topic, queues in self._queues.items() if names & queues.keys())

    def system_topics(self) -> tuple[tuple[str, ...], str | None]:
        """The names that are topics too: of clusters and brokers.

        @return: They, and some master's address.
        """
        names = dict.fromkeys(data.cluster or "" for data in self._brokers.values())
        names.update(dict.fromkeys(self._brokers))
        masters = (data.broker_addrs.get(MASTER) for data in self._brokers.values())
        return tuple(names), next(filter(None, masters), None)

    def _of(self, cluster: str) -> list[BrokerData]:
        return [data for data in self._brokers.values() if data.cluster == cluster]

    def status(self, now: float) -> list[dict[str, Any]]:
        """One row for each live address, for a status page."""
        return [
            {
                "address": address,
                "brokerName": live.broker.name,
                "brokerId": live.broker.id,
                "cluster": self._brokers[live.broker.name].cluster,
                "haAddress": live.broker.ha_address,
                "masterEpoch": live.broker.epoch,
                "secondsSilent": round(now - live.seen, 1),
            }
            for address, live in sorted(self._live.items())
        ]

    def refused_status(self, now: float) -> list[dict[str, Any]]:
        """One row for each master that is not in the routes, for a status page."""
        return [
            {
                "address": address,
                "brokerName": row.broker.name,
                "masterEpoch": row.broker.epoch,
                "secondsSilent": round(now - row.seen, 1),
            }
            for address, row in sorted(self._refused.items())
        ]
