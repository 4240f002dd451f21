"""The name server: everything behind its port.

Name servers do not know each other; every broker registers with all of them.  But for the
texts of L{KvConfig} nothing is kept: the brokers come back within half a minute.

The configuration as administrators see and change it while the name server runs.

As with a broker, only what can change is changed, all of a request or nothing, and until the
next start: the file is the operator's.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from attrs import define, evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from rmqha.config.settings import NamesrvSettings
from rmqha.config.vocabulary import NAMESRV_FILE
from rmqha.errors import RequestRefused
from rmqha.namesrv.brokers import Gone
from rmqha.namesrv.kv import KvConfig
from rmqha.namesrv.registration import Registrations
from rmqha.namesrv.requests import Changes, KvRequests, Questions
from rmqha.namesrv.routes import RouteTable
from rmqha.net.allowed_peers import Allowed, Network
from rmqha.net.remoting import config_changes
from rmqha.net.remoting.calls import refused_rows
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits
from rmqha.net.remoting.handlers import Answer, Registry
from rmqha.net.remoting.needs import (
    ADMINISTRATION_BY_TEXT,
    ANY_PEER,
    Need,
    Stated,
    audited_as,
    only_listed,
)
from rmqha.net.remoting.server import RemotingFactory
from rmqha.net.tls.gate import TlsGate
from rmqha.periodic import Job, Periodic
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command

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


class NameServer:
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
            Questions(self.table, kv, lambda: self.configuration.settings.order_messages),
            Changes(self.table),
            KvRequests(kv),
            self.configuration,
        ):
            for code, (need, handler) in part.handlers().items():
                self.needs[code] = need
                guard = only_listed(need, handler, self._allowed, "change anything here")
                registry.register(code, audited_as(need, guard))
        self.factory = RemotingFactory(
            registry,
            clock,
            limits=limits,
            allowed=connecting,
            gate=gate,
            name="name server port",
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
        """Close all connections."""
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
        if self.factory.connections.stopping:
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

    def _tell(self, gone: Gone, why: str) -> None:
        self._log.warn(
            "Removed broker {name} at {address} from the routes: it {why}",
            name=gone.name,
            address=gone.address,
            why=why,
        )

    def jobs(self) -> Iterator[Job]:
        """What is done again and again."""
        yield self._sweeping
        yield from self.factory.connections.jobs()

    def status(self) -> dict[str, Any]:
        """Numbers for a status page."""
        return {
            "brokers": self.table.status(self.clock.seconds()),
            "refusedMasters": self.table.refused_status(self.clock.seconds()),
            "topics": len(self.table.topics()),
            "refusedRequests": refused_rows(self.registry.refused.counts),
            **self.factory.connections.status(),
        }
