"""A node that is named by any of its ports.

B{A port that may be a stock broker's HA port is asked nothing}: it takes any eight bytes for what a
slave holds, and acknowledges writes by that.  So the port below is asked first whether it is a
broker's client port, and whose HA port this one is; then L{keeps_slaves} tries it.

Source: docs/status.rst, Addresses.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import define, field, frozen
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.threads import deferToThread

from rmqha.config.broker_settings import DEFAULT_LISTEN_PORT
from rmqha.config.load import NAMESRV
from rmqha.config.properties import decode, parse
from rmqha.config.settings import ADMIN_PORT_STEP
from rmqha.config.values import ENDPOINT
from rmqha.errors import BodyInvalid, RmqhaError
from rmqha.net.remoting.client import RemotingClient, split_address
from rmqha.net.remoting.ha_port import Address, keeps_slaves
from rmqha.nodes.find import admin_of
from rmqha.nodes.poll import UNREACHED, NodeClient, PollResult, unreached
from rmqha.nodes.summary import STOCK
from rmqha.wire.ports import HA_PORT_STEP
from rmqha.wire.remoting.bodies.route import KvTable
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import read

PATIENCE = 2.0
"""Seconds that a port has to say that it is a client port."""


@frozen(kw_only=True)
class AskedNode:
    """A broker that answered at its client port.

    @ivar host: Where it is.
    @ivar port: Its client port.
    @ivar table: Its runtime information.
    @ivar keys: Its configuration; empty if that is not told to us.
    """

    host: str
    port: int
    table: Mapping[str, str]
    keys: Mapping[str, str]

    @property
    def client(self) -> str:
        """C{host:port} of its client port."""
        return ENDPOINT.show((self.host, self.port))

    @property
    def ha_port(self) -> int:
        return self._port("haListenPort", HA_PORT_STEP)

    @property
    def ours(self) -> bool:
        """Whether it is a node of rmqha."""
        return "masterEpoch" in self.table or "adminListenPort" in self.keys

    @property
    def admin(self) -> str:
        """C{host:port} of its admin port."""
        return ENDPOINT.show((self.host, self._port("adminListenPort", ADMIN_PORT_STEP)))

    def row(self, now: float) -> dict[str, Any]:
        """What there is to tell of it without an admin port, as a status.

        @param now: Seconds since 1970.
        """
        booted, end = (self.table.get(key, "") for key in ("bootTimestamp", "commitLogMaxOffset"))
        row = {
            "product": STOCK,
            "brokerName": self.keys.get("brokerName"),
            "brokerId": self.keys.get("brokerId"),
            "clusterName": self.keys.get("brokerClusterName"),
            "role": self.keys.get("brokerRole", "broker"),
            "version": self.table.get("brokerVersionDesc"),
            "uptimeSeconds": now - int(booted) / 1000 if booted.isdecimal() else None,
            "maxOffset": int(end) if end.isdecimal() else None,
            "state": "answers",
            "reason": "stock, no admin port",
        }
        return {key: value for key, value in row.items() if value is not None}

    def _port(self, key: str, step: int) -> int:
        told = self.keys.get(key, "")
        return int(told) if told.isdecimal() and int(told) else self.port + step


async def broker_at(
    client: RemotingClient, host: str, port: int, patience: float = PATIENCE
) -> AskedNode | None:
    """Ask whether a port is the client port of a broker, or of a name server; C{None} if not."""
    table = _told(await _ask(client, host, port, RequestCode.GET_BROKER_RUNTIME_INFO, patience))
    if table is None:
        return None
    told = await _ask(client, host, port, RequestCode.GET_BROKER_CONFIG, patience)
    entries = () if told is None or told.code else parse(decode(bytes(told.body)))
    keys = {entry.key: entry.value.strip() for entry in entries}
    return AskedNode(host=host, port=port, table=table, keys=keys)


async def broker_of(client: RemotingClient, address: str, patience: float) -> AskedNode | None:
    """Find a broker by its client port or its HA port; C{None} if it does not answer.

    @param patience: Seconds that an answer may take.

    @raise ValueError: If it is no address.
    """
    host, port = split_address(address)
    if port != DEFAULT_LISTEN_PORT:
        below = await broker_at(client, host, port - HA_PORT_STEP, patience)
        if below is not None and below.ha_port == port:
            return below
        if await _is_ha_port((host, port)):
            return None
    return await broker_at(client, host, port, patience)


async def _is_ha_port(address: Address) -> bool:
    try:
        return await deferToThread(keeps_slaves, address)
    except OSError:
        return False


async def _ask(
    client: RemotingClient, host: str, port: int, code: RequestCode, patience: float = PATIENCE
) -> Command | None:
    try:
        return await client.request(ENDPOINT.show((host, port)), Command.request(code), patience)
    except (RmqhaError, ConnectionLost, ConnectionDone):
        return None


def _told(answer: Command | None) -> Mapping[str, str] | None:
    if answer is None or answer.code != ResponseCode.SUCCESS:
        return None
    try:
        return read(KvTable, answer.body).table
    except BodyInvalid:
        return None


@define
class AnyPortClient(NodeClient):
    """Asks a node that is named by its client, HA or admin port, or by its host alone.

    @ivar remoting: Asks client ports.
    @ivar is_client: Whether it is known to be the client port.
    @ivar is_ha_port: Tells whether slaves are served at an address.
    """

    remoting: RemotingClient = field(kw_only=True)
    is_client: bool = field(default=False, kw_only=True)
    is_ha_port: Callable[[Address], Awaitable[bool]] = field(default=_is_ha_port, kw_only=True)
    # Whether the address is that of its admin port; else why that is not known, or what it told.
    _found: bool = field(default=False, init=False)
    _why: str = field(default="", init=False)
    _row: dict[str, Any] | None = field(default=None, init=False)
    # Its client port, where that has answered.
    _client: str = field(default="", init=False)

    async def once(self) -> PollResult:
        """Ask for its health and its status; where there is no admin port, as RocketMQ's nodes have
        none, what it tells its clients is the status.
        """
        await self.find()
        if self._row is not None:
            return PollResult("", self._row)
        if self._why:
            return PollResult(self._why, None)
        seen = await super().once()
        if seen.status is not None or not self._client:
            return seen
        told = f"it serves clients at {self._client}; adminListenAddress says who may ask for more"
        return PollResult(f"{seen.problem}; {told}", None)

    async def admin(self) -> str:
        """Where its admin port is.

        @raise ValueError: If it has none.
        """
        await self.find()
        if self._row is not None:
            raise ValueError(str(self._row["reason"]))
        return self.address

    async def find(self) -> None:
        """Make the address that of its admin port, if it has one."""
        self._why, self._row = "", None
        if self._found:
            return
        host, port = split_address(self.address)
        if not (self.is_client or port == DEFAULT_LISTEN_PORT):
            broker = await broker_at(self.remoting, host, port - HA_PORT_STEP)
            if broker is not None and broker.ha_port == port:
                self._take(broker)
                return
            if await self.is_ha_port((host, port)):
                self._why = f"{self.address} is an HA port: name the client port"
                return
            if await self._is_admin():
                self._found = True
                return
        broker = await broker_at(self.remoting, host, port)
        if broker is not None:
            self._take(broker)
        elif await _ask(self.remoting, host, port, RequestCode.GET_BROKER_CLUSTER_INFO) is not None:
            await self._take_server()
        elif not self._why:
            self._why = f"{self.address} gives no answer"

    def _take(self, broker: AskedNode) -> None:
        if broker.ours:
            self.address, self._found, self._why = broker.admin, True, ""
            self._client = broker.client
        else:
            self._row, self._why = broker.row(time.time()), ""

    async def _take_server(self) -> None:
        """A name server: that it answers is all that one of RocketMQ's tells."""
        self._why, server = "", self.address
        self.address = admin_of(server)
        if await self._is_admin():
            self._found = True
        else:
            reason = f"no admin port: {self._why}"
            self._why, self.address = "", server
            self._row = {"product": STOCK, "role": NAMESRV, "state": "answers", "reason": reason}

    async def _is_admin(self) -> bool:
        try:
            await self.get("livez")
        except (*UNREACHED, ValueError) as failed:
            self._why = unreached(self.address, failed)
            return False
        return True
