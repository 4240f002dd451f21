"""The name server: everything behind its port.

Name servers do not know each other; every broker registers with all of them.  But for the
texts of L{KvConfig} nothing is kept: the brokers come back within half a minute.

The configuration as administrators see and change it while the name server runs.

As with a broker, only what can change is changed, all of a request or nothing, and until the
next start: the file is the operator's.

Brokers come, say that they live, and go.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmqha.config.settings import NamesrvSettings
from rmqha.config.vocabulary import NAMESRV_FILE
from rmqha.errors import RequestRefused
from rmqha.namesrv.kv import ORDER_TOPICS, KvConfig
from rmqha.namesrv.requests import AdminRequests, KvRequests, RouteRequests
from rmqha.namesrv.routes import (
    EXPIRY,
    BrokerRegistration,
    LostBroker,
    RegistrationResult,
    RouteTable,
)
from rmqha.net.allowed_peers import Allowed, Network
from rmqha.net.remoting import config_changes
from rmqha.net.remoting.calls import refused_rows
from rmqha.net.remoting.client import split_address
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits
from rmqha.net.remoting.handlers import Registry
from rmqha.net.remoting.needs import (
    ADMINISTRATION_BY_TEXT,
    ANY_PEER,
    BROKERS,
    Need,
    Stated,
    audited_as,
    only_listed,
)
from rmqha.net.remoting.server import RemotingFactory
from rmqha.net.tls.gate import TlsGate
from rmqha.periodic import NodePart, Periodic
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies import register
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.route import MemberGroup, MemberGroupAnswer
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.namesrv import (
    BrokerRequest,
    DataVersionAnswer,
    RegisterBrokerAnswer,
    RegisterBrokerRequest,
)
from rmqha.wire.remoting.headers.slave import BrokerHeartbeatRequest, MemberGroupRequest


@define(eq=False)
class Registrations:
    """Answers what brokers say of themselves."""

    table: RouteTable
    kv: KvConfig
    clock: IReactorTime

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.REGISTER_BROKER: (BROKERS, self.register),
            RequestCode.UNREGISTER_BROKER: (BROKERS, self.unregister),
            RequestCode.QUERY_DATA_VERSION: (BROKERS, self.data_version),
            RequestCode.BROKER_HEARTBEAT: (BROKERS, self.beat),
            RequestCode.GET_BROKER_MEMBER_GROUP: (ANY_PEER, self.members),
        }

    def register(self, connection: RemotingProtocol, command: Command) -> Answer:
        """103: a broker is there."""
        header = from_ext(RegisterBrokerRequest, command.ext)
        if header.body_crc32 and header.body_crc32 != register.checksum(command.body):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        _check(header)
        body = register.read(command.body, version=command.version, compressed=header.compressed)
        topics = body.topic_config_serialize_wrapper
        silence = header.heartbeat_timeout_millis or 0
        found = self.table.register(
            BrokerRegistration(
                cluster=header.cluster_name,
                name=header.broker_name,
                id=header.broker_id,
                address=header.broker_addr,
                ha_address=header.ha_server_addr,
                topics=topics.topic_config_table.values(),
                version=topics.data_version,
                filter_servers=body.filter_server_list,
                acting_master=header.enable_acting_master,
                expiry=silence / 1000 if silence > 0 else EXPIRY,
                channel=connection,
                epoch=header.master_epoch or 0,
            ),
            self.clock.seconds(),
        )
        self._tell(header, found, connection)
        if found.refused and header.master_epoch is None:
            # A stock master reads nothing of masters in an answer, but logs an error.
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the master of {header.broker_name} is {found.master}, by its master epoch "
                f"{found.epoch}; {header.broker_addr} is not in the routes",
            )
        order = self.kv.table(ORDER_TOPICS)
        return command.answer(
            header=RegisterBrokerAnswer(
                ha_server_addr=found.ha,
                master_addr=found.master,
                master_epoch=None if header.master_epoch is None else found.epoch,
            ),
            body=b"" if order is None else json_body.write(order),
        )

    def _tell(
        self, header: RegisterBrokerRequest, found: RegistrationResult, connection: RemotingProtocol
    ) -> None:
        who = {"name": header.broker_name, "id": header.broker_id, "address": header.broker_addr}
        epoch = header.master_epoch or 0
        if found.refused:
            if found.new:
                self._log.error(
                    "Two live masters of {name}: {address} (master epoch {epoch}, from {peer}) is "
                    "not in the routes, {master} has the higher master epoch {higher}; stop "
                    "{address}, or start it as a slave",
                    epoch=epoch,
                    master=found.master,
                    higher=found.epoch,
                    peer=connection.address,
                    **who,
                )
        elif found.replaced is not None and found.replaced_epoch < epoch:
            self._log.error(
                "Two live masters of {name}: {address} (master epoch {epoch}, from {peer}) "
                "replaces {before}, which has the lower master epoch {lower}; stop {before}, or "
                "start it as a slave",
                epoch=epoch,
                before=found.replaced,
                lower=found.replaced_epoch,
                peer=connection.address,
                **who,
            )
        elif found.replaced is not None:
            self._log.error(
                "Two live brokers register as {name} (id {id}): {address} (from {peer}) replaces "
                "{before}; one of them has a wrong brokerName or brokerId",
                before=found.replaced,
                peer=connection.address,
                **who,
            )
        elif found.new:
            self._log.info("Broker {name} (id {id}) registered, it is at {address}", **who)

    def unregister(self, connection: RemotingProtocol, command: Command) -> Answer:
        """104: a broker leaves.  It is believed for its own address alone."""
        header = from_ext(BrokerRequest, command.ext)
        gone = self.table.unregister(header.broker_name, header.broker_id, header.broker_addr)
        self._log.info(
            "Broker {name} (id {id}) unregistered, it was at {address}"
            if gone
            else "{peer} unregisters broker {name} (id {id}) at {address}, not registered: ignored",
            name=header.broker_name,
            id=header.broker_id,
            address=header.broker_addr,
            peer=connection.address,
        )
        return None

    def data_version(self, connection: RemotingProtocol, command: Command) -> Answer:
        """322: a broker asks whether it has to register again."""
        header = from_ext(BrokerRequest, command.ext)
        version = json_body.read(DataVersion, command.body)
        known = self.table.seen(header.broker_addr, version, self.clock.seconds())
        return command.answer(
            header=DataVersionAnswer(changed=known != version),
            body=b"" if known is None else json_body.write(known),
        )

    def beat(self, connection: RemotingProtocol, command: Command) -> Answer:
        """904: a broker of 5.x lives."""
        header = from_ext(BrokerHeartbeatRequest, command.ext)
        self.table.beat(header.broker_addr, self.clock.seconds())
        return None

    def members(self, connection: RemotingProtocol, command: Command) -> Answer:
        """901: a broker of 5.x asks for those of its name."""
        header = from_ext(MemberGroupRequest, command.ext)
        data = self.table.members(header.broker_name)
        group = MemberGroup(
            broker_name=header.broker_name,
            cluster=header.cluster_name,
            broker_addrs={} if data is None else data.broker_addrs,
        )
        return command.answer(body=json_body.write(MemberGroupAnswer(broker_member_group=group)))


def _check(header: RegisterBrokerRequest) -> None:
    """What goes into every client's routes has to be something."""
    for name, value in (("brokerName", header.broker_name), ("clusterName", header.cluster_name)):
        if not value.strip():
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name} is empty")
    if header.broker_id < 0:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"brokerId is {header.broker_id}")
    if (header.master_epoch or 0) < 0:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"masterEpoch is {header.master_epoch}")
    try:
        split_address(header.broker_addr)
    except ValueError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"brokerAddr: {error}"[:256]) from None


CHANGEABLE = frozenset({"orderMessageEnable"})
"""Keys that may change while the name server runs."""

LOCKED = frozenset({"configBlackList", "configStorePath", "rocketmqHome"})
"""Keys without meaning here that stock name servers refuse to change."""


@define(eq=False)
class NamesrvConfiguration:
    """Answers requests 318 and 319.

    @ivar settings: Those in force: replaced by a change, never changed itself.
    """

    settings: NamesrvSettings

    _log = Logger()

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {
            RequestCode.UPDATE_NAMESRV_CONFIG: (ADMINISTRATION_BY_TEXT, self.update),
            RequestCode.GET_NAMESRV_CONFIG: (ANY_PEER, self.get),
        }

    def update(self, connection: RemotingProtocol, command: Command) -> Answer:
        """318: change some keys until the next start."""
        texts = config_changes.asked(command)
        values: dict[str, Any] = {}
        for key, text in texts.items():
            values |= _change(key, text.strip())
        self.settings = evolve(self.settings, **values)
        changes = [f"{key} to {text.strip()}" for key, text in texts.items()]
        config_changes.tell(self._log, connection.address, changes)
        return None

    def get(self, connection: RemotingProtocol, command: Command) -> Answer:
        """319: all keys as they are."""
        lines = [
            f"{key.name}={key.kind.show(getattr(self.settings, key.field))}\n"
            for key in NAMESRV_FILE.keys
            if key.section == "namesrv"
        ]
        return command.answer(body="".join(lines).encode())


def _change(name: str, text: str) -> dict[str, Any]:
    """A key's change; nothing for one of RocketMQ's that means nothing here."""
    key = NAMESRV_FILE.by_name.get(name)
    if (key is not None and key.name not in CHANGEABLE) or name in LOCKED:
        raise RequestRefused(
            ResponseCode.NO_PERMISSION,
            f"Can not update config in black list. {name} does not change while the name server "
            "runs",
        )
    if key is None:
        if name not in NAMESRV_FILE.harmless:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"unknown key {name[:64]!r}")
        return {}
    try:
        return {key.field: key.kind.parse(text)}
    except ValueError:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"{name}={text[:64]} is not allowed: {key.kind.allowed}"
        ) from None


class NameServer(NodePart):
    """A name server without its port.

    @ivar table: Who has what.
    @ivar kv: What it keeps for others.
    @ivar factory: For the port.
    @ivar registry: All handlers.
    @ivar needs: What each request needs of who sends it, by code.
    """

    _log = Logger()

    def __init__(
        self,
        settings: NamesrvSettings,
        clock: IReactorTime,
        kv: KvConfig,
        *,
        gate: TlsGate | None = None,
        limits: ConnectionLimits | None = None,
        connecting: Iterable[Network] = (),
    ) -> None:
        """@param connecting: Who may connect at all; empty is everybody.
        @param clock: Its C{seconds} must not jump.
        """
        self.settings = settings
        self.clock = clock
        self.table = RouteTable()
        self.kv = kv
        self.configuration = NamesrvConfiguration(settings)
        self._allowed = Allowed(settings.allowed_peers)
        registry = self.registry = Registry(seconds=clock.seconds)
        self.needs: dict[int, Need] = {}
        for part in (
            Registrations(self.table, kv, clock),
            RouteRequests(self.table, kv, lambda: self.configuration.settings.order_messages),
            AdminRequests(self.table),
            KvRequests(kv),
            self.configuration,
        ):
            for code, (need, handler) in part.handlers().items():
                self.needs[code] = need
                guard = only_listed(need, handler, self._allowed, "change anything here")
                registry.register(code, audited_as(need, guard))
        self.factory = RemotingFactory(
            registry, clock, limits=limits, allowed=connecting, gate=gate, name="name server port"
        )
        self.factory.connections.lost.append(self._lost)
        self._graces: set[IDelayedCall] = set()
        self._sweeping = Periodic("removing silent brokers", clock, self._sweep, vital=True)

    def allow(self, connecting: Iterable[Network], changing: Iterable[Network]) -> None:
        """Let only these connect from now on, and only these change something; empty is
        everybody.
        """
        self.factory.connections.door.allow(connecting)
        self._allowed.change(changing)

    def start(self) -> None:
        """Begin to look for brokers that are silent."""
        self._sweeping.start(self.settings.scan_interval)

    def stop(self) -> Deferred[None]:
        self._sweeping.stop()
        for grace in self._graces:
            grace.cancel()
        self._graces.clear()
        return self.factory.connections.stop()

    # --- brokers that are gone --------------------------------------------------

    def _sweep(self) -> None:
        for gone in self.table.expire(self.clock.seconds()):
            self._tell(gone, "sent no registration or heartbeat in time")
            if isinstance(gone.channel, RemotingProtocol):
                gone.channel.close("broker-silent", gently=True)

    def _lost(self, connection: RemotingProtocol) -> None:
        """Remove the brokers of a connection that has ended, at once or after C{channel_grace}."""
        if self.factory.connections.door.stopping:
            return
        grace = self.settings.channel_grace
        if not grace:
            self._forget(connection)
            return

        def over() -> None:
            self._graces.discard(call)
            self._forget(connection)

        call = self.clock.callLater(grace, over)
        self._graces.add(call)

    def _forget(self, connection: RemotingProtocol) -> None:
        for gone in self.table.closed(connection):
            self._tell(gone, "closed its connection")

    def _tell(self, gone: LostBroker, why: str) -> None:
        self._log.warn(
            "Removed broker {name} at {address} from the routes: it {why}",
            name=gone.name,
            address=gone.address,
            why=why,
        )

    def fields(self) -> dict[str, Any]:
        """Numbers for a status page."""
        return {
            "state": "serving",
            "reason": "",
            "brokers": self.table.status(self.clock.seconds()),
            "refusedMasters": self.table.refused_status(self.clock.seconds()),
            "topics": len(self.table.topics()),
            "refusedRequests": refused_rows(self.registry.refused.counts),
            **self.factory.connections.status(),
        }
