"""One broker of a pair as its client port shows it; a stock one as well as one of ours.

Source: docs/protocol/remoting.md, Administration and Runtime information.
"""

from __future__ import annotations

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone, ConnectionLost

from rmqha.config import properties
from rmqha.config.broker_settings import BrokerRole
from rmqha.errors import BodyInvalid, RemotingTimeout, RemotingUnreachable, RequestRefused
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.master_bounds import Client, RuntimeInfoInvalid
from rmqha.switchover.errors import PairUnfit
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets
from rmqha.wire.remoting.bodies.tables import WRITE, GroupTable, TopicTable
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import read

TIMEOUT = 10.0
"""Seconds that a table may take."""

NOT_NOW = (
    RemotingTimeout,
    RequestRefused,
    RuntimeInfoInvalid,
    BodyInvalid,
    ConnectionDone,
    ConnectionLost,
)
"""How a broker answers that is there and still starts, or ends."""

Offsets = dict[str, dict[int, int]]
"""Consumer offsets by queue by C{topic@group}."""


@frozen(kw_only=True)
class BrokerState:
    """What a broker is at one moment.

    @ivar file_size: Its C{mappedFileSizeCommitLog}, in bytes; C{""} if it does not tell.
    @ivar elected: Whether controllers decide its role, or DLedger does.
    @ivar end: Just past the last byte of its log.
    @ivar epoch: Its master epoch.
    @ivar ours: Whether it is no stock broker.
    @ivar name_servers: Its C{namesrvAddr}.
    """

    name: str
    cluster: str
    role: BrokerRole
    permission: int
    file_size: str
    elected: bool
    end: int
    epoch: int
    ours: bool
    name_servers: frozenset[str] = frozenset()

    def __str__(self) -> str:
        writable = "" if self.writable or not self.is_master else ", read-only"
        return f"a {self.role.value} of {self.name}{writable}, its log ends at byte {self.end}"

    @property
    def is_master(self) -> bool:
        """Whether it takes writes, if its permission lets it."""
        return self.role.is_master

    @property
    def writable(self) -> bool:
        """Whether producers may send to it."""
        return self.is_master and bool(self.permission & WRITE)


@frozen(kw_only=True)
class BrokerTables:
    """What consumers of a broker rely on.

    @ivar topics: Their names.
    @ivar groups: Theirs.
    """

    topics: frozenset[str]
    groups: frozenset[str]
    offsets: Offsets = field(factory=dict)

    def lacks(self, other: BrokerTables) -> list[str]:
        """What another broker has and this one does not, in words."""
        rows = [f"topic {name}" for name in sorted(other.topics - self.topics)]
        rows += [f"group {name}" for name in sorted(other.groups - self.groups)]
        return rows + lower_offsets(self.offsets, other.offsets)


def lower_offsets(here: Offsets, there: Offsets) -> list[str]:
    """Offsets that are lower in one table than in the other, or missing there; in words."""
    rows = []
    for key, queues in sorted(there.items()):
        topic, _, group = key.partition("@")
        for queue_id, offset in sorted(queues.items()):
            found = here.get(key, {}).get(queue_id)
            if found is None or found < offset:
                has = "none" if found is None else f"{found}"
                rows.append(f"group {group} in queue {queue_id} of {topic}: {has}, not {offset}")
    return rows


@define(eq=False)
class AskedBroker:
    """Asks one broker.

    @ivar address: C{host:port} of its client port.
    @ivar said: Why it was not seen when it was looked for last, or what it was.
    """

    address: str
    client: Client
    said: str = field(default="", init=False)

    async def look(self) -> BrokerState:
        """What it is.

        @raise RemotingUnreachable: If nothing listens there.
        @raise RequestRefused: If it does not answer that yet, or not to us.
        @raise PairUnfit: If what it says makes no sense.
        """
        bounds = await master_bounds.ask(self.client, self.address)
        answer = await self._ask(RequestCode.GET_BROKER_CONFIG)
        text = properties.decode(bytes(answer.body))
        keys = {entry.key: entry.value.strip() for entry in properties.parse(text)}
        try:
            role, permission = BrokerRole(keys["brokerRole"]), int(keys["brokerPermission"])
        except (KeyError, ValueError) as error:
            raise PairUnfit(f"{self.address} does not say what it is: {error}") from error
        return BrokerState(
            name=keys.get("brokerName", ""),
            cluster=keys.get("brokerClusterName", ""),
            role=role,
            permission=permission,
            file_size=keys.get("mappedFileSizeCommitLog", ""),
            elected="true" in (keys.get("enableControllerMode"), keys.get("enableDLegerCommitLog")),
            end=bounds.max_offset,
            epoch=bounds.identity.epoch,
            ours=bool(bounds.identity.run_id),
            name_servers=frozenset(filter(None, keys.get("namesrvAddr", "").split(";"))),
        )

    async def seen(self) -> BrokerState | None:
        """The same, or C{None} while it does not answer."""
        try:
            look = await self.look()
        except (RemotingUnreachable, *NOT_NOW) as error:
            self.said = str(error) or f"{self.address} closed the connection"
            return None
        self.said = f"{self.address} is {look}"
        return look

    async def gone(self) -> bool:
        """Whether nothing listens there."""
        try:
            self.said = f"{self.address} is {await self.look()}"
        except RemotingUnreachable:
            return True
        except NOT_NOW as error:
            self.said = str(error)
        return False

    async def tables(self) -> BrokerTables:
        """Its topics, groups and consumer offsets.

        @raise RequestRefused: If it does not answer that.
        @raise BodyInvalid: If it answers something else.
        """
        topics = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        groups = await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return BrokerTables(
            topics=frozenset(read(TopicTable, topics.body).topic_config_table),
            groups=frozenset(read(GroupTable, groups.body).subscription_group_table),
            offsets=await self.offsets(),
        )

    async def offsets(self) -> Offsets:
        answer = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        return read(ConsumerOffsets, answer.body).offset_table

    async def permit(self, permission: int) -> None:
        """Change its C{brokerPermission}; it tells its name servers.  A stock broker writes it into
        its file.

        @raise RequestRefused: If it may not be changed by us.
        """
        body = f"brokerPermission={permission}\n".encode()
        await self._ask(RequestCode.UPDATE_BROKER_CONFIG, body)

    async def _ask(self, code: RequestCode, body: bytes = b"") -> Command:
        asked: Deferred[Command] = self.client.request(
            self.address, Command(code=code, body=body), timeout=TIMEOUT
        )
        answer = await asked
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark, code)
        return answer
