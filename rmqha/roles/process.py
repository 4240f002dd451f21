"""What every role's process is made of: ports, the admin port, and how it starts and ends; what it
says first, and what can be done when it cannot start.

What can go wrong at once (a port in use) does so in C{startService}, so that twistd,
daemonized or not, ends with an exit code and the reason.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from treq.client import HTTPClient
from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.web.client import Agent

from rmqha.admin.events import Events, Facts
from rmqha.admin.health_log import HealthLog
from rmqha.admin.http import AdminPort, OwnNames, Promotable
from rmqha.admin.reactor_delay import ReactorDelay
from rmqha.config.load import MEMBER, NAMESRV
from rmqha.config.settings import LogLevelName, Settings
from rmqha.config.values import ENDPOINT
from rmqha.config.vocabulary import KEYS
from rmqha.errors import ConfigError, RmqhaError, StoreLocked
from rmqha.health import HealthProbe, HealthReason, failing
from rmqha.metrics import node_families
from rmqha.metrics.catalog import of_status
from rmqha.metrics.family import Sample
from rmqha.metrics.scrape import Scrape
from rmqha.net.accepting import PatientPort
from rmqha.net.allowed_peers import Allowed
from rmqha.net.connection_shares import ConnectionShares
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.net.tls.node_tls import NodeTls
from rmqha.nodes.poll import NodeClient
from rmqha.page.cluster import MOST_BYTES, ClusterPages
from rmqha.page.history import History
from rmqha.page.own import OwnPage
from rmqha.page.site import PageSite
from rmqha.page.told import GroupRow
from rmqha.periodic import Job, jobs_of, rows_of, tree
from rmqha.roles.advice import masterless, open_warning
from rmqha.roles.host.exit_codes import exit_code, exit_with
from rmqha.roles.host.service_manager import STOPPING, notify
from rmqha.shutdown import Shutdown
from rmqha.store.files.one_thread import OneThread
from rmqha.wire.ports import VIP_STEP
from rmqha.wire.remoting.bodies.route import ClusterInfo

NAMED = (RmqhaError, OSError, CannotListenError)
"""What can keep a process from starting and says all there is to say; else it is a bug."""


try:
    VERSION = version("rmqha")
except PackageNotFoundError:
    VERSION = "unknown"  # a checkout that nobody has installed

ADMIN_BACKLOG = 50
"""Connections to the admin port that may wait to be accepted."""


def raise_file_limit() -> int:
    """Let this process open as many files as it may: a queue is a file or more.

    @return: The limit now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def without_traceback(error: BaseException) -> None:
    """Let the process end by an error that was told already, with its exit code and not by its
    traceback.

    It has to be raised all the same: that is how twistd learns that its start failed,
    removes its pid file and ends the waiting parent of a daemon with exit code 1.
    """
    before = sys.excepthook

    def hook(kind: Any, value: BaseException, trace: Any) -> None:
        if value is error:
            exit_with(exit_code(error))
        else:
            before(kind, value, trace)

    sys.excepthook = hook


def opening_line(settings: Settings, role: str, version: str) -> str:
    """The first line of a node's log: what runs, on which files and ports, and of a slave its
    master.
    """
    remoting, admin = settings.remoting, settings.admin
    if role == NAMESRV:
        parts = [
            f"rmqha {version} name server",
            f"key-value configuration {settings.namesrv.kv_path}",
            f"clients on {_port(remoting.bind_address, settings.namesrv.listen_port)}",
        ]
    else:
        broker, ha = settings.broker, settings.ha
        parts = [
            f"rmqha {version} {_who(settings, role)}",
            f"broker {broker.name}/{broker.id}",
            f"store {settings.store.root}",
            f"clients on {_port(remoting.bind_address, broker.listen_port)}",
            f"replicas on {_port(ha.listen_address, ha.listen_port)}",
        ]
    return ", ".join([*parts, f"admin on {_port(admin.listen_address, admin.listen_port)}"])


def _who(settings: Settings, role: str) -> str:
    broker, ha, controllers = settings.broker, settings.ha, settings.controller
    if role == MEMBER:
        return f"member of the set at {_deciders(settings)}"
    if broker.role.is_master:
        return f"{role} ({broker.role})"
    if controllers.enabled:
        return f"learner of the set at {_deciders(settings)}"
    if ha.master is not None:
        return f"{role} of {ENDPOINT.show(ha.master)}"
    if broker.namesrv:
        return f"{role} of the master that name servers {broker.namesrv} tell"
    return f"{role} without a master"


def _port(address: str, port: int) -> str:
    """Where a port is; one that listens on all addresses is its number."""
    if not port:
        return "no port"
    return ENDPOINT.show((address, port)) if address else str(port)


def next_step(error: BaseException, settings: Settings, role: str) -> str:
    """What to do about a node that cannot start, as a further sentence; empty if the error says
    that itself.
    """
    if isinstance(error, (KeyFileInvalid, TlsFilesInvalid)):
        files = ((key.name, key.value_in(settings)) for key in KEYS)
        named = (name for name, at in files if at and str(error).startswith(f"{at}: "))
        return next((f" ({name})" for name in named), "")
    broker = settings.broker.listen_port
    clients = (settings.namesrv.listen_port,) if role == NAMESRV else (broker, broker - VIP_STEP)
    if isinstance(error, StoreLocked):
        return ". Stop that node, or give this one another folder: --store DIR"
    if isinstance(error, CannotListenError) and error.socketError.errno == errno.EADDRINUSE:
        return (
            f" Stop what listens on port {error.port}, or give this node other ports: "
            "--set listenPort=PORT, from which its HA and admin ports are counted"
        )
    if isinstance(error, CannotListenError):
        if error.port in clients:
            address, port = "bindAddress", "listenPort"
        elif error.port == settings.admin.listen_port:
            address, port = "adminListenAddress", "adminListenPort"
        else:
            address, port = "haListenAddress", "haListenPort"
        if error.socketError.errno == errno.EADDRNOTAVAIL:
            return f" {address}={error.interface} is no address of this machine"
        return f" The keys of this port are {port} and {address}"
    return ""


def _deciders(settings: Settings) -> str:
    if settings.controller.etcd:
        return f"etcd {';'.join(settings.etcd.addresses)}"
    return f"controllers {settings.controller.addresses}"


class Process(Service):
    """The parts all roles share.

    @ivar health_log: Logs the edges of L{health}, from when the role is at work to its stop.
    @ivar reactor_delay: Measures how late the reactor is, as long.
    @ivar events: What happened to the node.
    @ivar history: The last quarter of an hour of its lag and rates.
    @ivar reread: Reads the configuration once more.
    @ivar tls: Its certificates, and which connections speak TLS.
    @ivar log_from: Told the C{logLevel}, where it is ours to say.
    @ivar set_aside: Called before clients are let in: what there is now is there to stay.
    @ivar promotion: Makes a slave the master; C{None} where it cannot.
    @ivar shares: How many files this process may open, and how many connections each port
        may have of them.
    """

    _log = Logger()
    role = ""
    exit_with = staticmethod(exit_with)
    without_traceback = staticmethod(without_traceback)
    notify = staticmethod(notify)
    set_aside: Callable[..., None] = staticmethod(lambda **_: None)
    promotion: Promotable | None = None
    _admin: AdminPort | None = None

    def __init__(self, settings: Settings, reactor: Any) -> None:
        self.settings = settings
        self.reactor = reactor
        self.health_log = HealthLog(self.health, reactor)
        self.reactor_delay = ReactorDelay(reactor)
        self.events = Events(self.facts, reactor, self._in_thread)
        self.history = History(self.status, reactor)
        self._scrape = Scrape(self, self._in_thread)
        self._begun = reactor.seconds()
        self.shares = self.connection_shares(settings)
        self.tls = NodeTls(
            settings.remoting, settings.tls, reactor, self._in_own_thread("certificates")
        )
        self.reread: Callable[[], Settings] = lambda: settings
        self.log_from: Callable[[LogLevelName], None] = lambda level: None
        self._admin_peers = Allowed(settings.admin.port_allowed_peers)
        self._unmet: list[str] = []
        self._ports: list[IListeningPort] = []

    # --- for a role to say ----------------------------------------------------

    def connection_shares(self, settings: Settings) -> ConnectionShares:
        """What each port may have, once the limit of open files is known."""
        return ConnectionShares(files=0, clients_wanted=settings.remoting.max_connections)

    def listen(self) -> list[IListeningPort]:
        """Open this role's ports, or raise."""
        return []

    def begin(self) -> None:
        """All ports are open: begin, or raise why that is impossible."""

    def abandon(self) -> None:
        """The start failed: undo what L{begin} did."""

    async def end(self) -> None:
        """End this role's work; the ports are closed already.

        @raise ShutdownFailed: If a step of that failed; the others were taken.
        """

    def health(self) -> Iterator[HealthReason]:
        """What is wrong now: C{/livez}, C{/readyz} and C{/healthz} say 503 because of it."""
        for part in sorted(tree(self), key=lambda part: isinstance(part, Job)):
            yield from part.health()

    def status(self) -> dict[str, Any]:
        """What C{/status} says; docs/status.rst, Status, lists the fields."""
        status = {
            **self.identity(),
            "fileLimit": self.shares.files,
            "connectionLimits": self.shares.status(),
            "tls": self.tls.identities.status(),
            "clearText": [each.status() for each in self.tls.clear_text],
            "pid": os.getpid(),
            "periodicJobs": rows_of(jobs_of(self)),
        }
        for part in tree(self):
            status |= part.fields()
        return status

    def identity(self) -> dict[str, Any]:
        """The first fields of the status: what runs, and how long it has."""
        return {
            "role": self.role,
            "version": VERSION,
            "uptimeSeconds": self.reactor.seconds() - self._begun,
        }

    def facts(self) -> Facts:
        """What is so now, and an event when it changes: of this role and of its parts."""
        wrong = failing(self.health(), HealthProbe.HEALTH)
        names = ", ".join(sorted({reason.name for reason in wrong}))
        found = {"health": (names or "well", "; ".join(reason.text for reason in wrong))}
        for part in tree(self):
            found |= part.facts()
        return found

    def happened(self) -> list[dict[str, Any]]:
        """What C{/events} says."""
        return self.events.rows()

    def groups_behind(self) -> Iterator[GroupRow | None]:
        """The consumer groups that are behind; C{None} where a turn of the reactor may end."""
        return iter(())

    def name_servers(self) -> Sequence[str]:
        """Whom to ask for other nodes."""
        return ()

    def known_brokers(self) -> ClusterInfo | None:
        """The other nodes, if they register here."""
        return None

    def connect(self) -> RemotingClient:
        """A client for asking other nodes."""
        return RemotingClient(self.reactor, tls=self.tls.requests)

    def metric_labels(self) -> dict[str, str]:
        """What tells this node's metrics from others'."""
        return {"node_type": self.role}

    def samples(self) -> Iterator[Sample | None]:
        """What C{/metrics} says; C{None} where a turn of the reactor may end."""
        yield from self.own_samples()
        for part in tree(self):
            yield from part.samples()

    def own_samples(self) -> Iterator[Sample | None]:
        """What no part says of itself; a role adds what those count that know no metrics."""
        yield from of_status(self.status())
        yield from node_families.of_health(self.health())
        late = self.reactor_delay.late
        yield node_families.of_durations(node_families.REACTOR_DELAY, late)

    def metrics(self) -> Deferred[bytes]:
        """The same as Prometheus' text.

        @return: Fails while the node's parts cannot be read.
        """
        return self._scrape.text()

    def drop_slot(self, address: str) -> bool:
        """Keep no log files any more for a replica that is away.

        @return: Whether any were kept.
        """
        return False

    def looked(self) -> Deferred[None]:
        """Look at what L{status} tells and may take a moment."""
        return succeed(None)

    def adopt(self, settings: Settings) -> None:
        """Take over what can change while this process runs, and log that, and what cannot.

        @param settings: What the configuration says now.
        """

    def reload(self) -> None:
        """Read the configuration again, and take over what can change."""
        try:
            settings = self.reread()
        except ConfigError as error:
            self._log.error("All settings stay as they are: {error}", error=error)
        else:
            self.adopt(settings)

    # --- the service --------------------------------------------------------------

    def startService(self) -> None:
        """Listen and begin.

        @raise CannotListenError: If a port is in use.
        """
        self._log.info("{line}", line=opening_line(self.settings, self.role, VERSION))
        self.shares.files = raise_file_limit()
        if self.settings.ignored:
            self._log.info("Ignored RocketMQ keys: {keys}", keys=", ".join(self.settings.ignored))
        for note in self.settings.notes:
            self._log.warn("{note}", note=note)
        namesrv = self.role == NAMESRV
        warnings = [open_warning(self.settings, namesrv=namesrv)]
        if not namesrv:
            warnings.append(masterless(self.settings))
        for warning in filter(None, warnings):
            self._log.warn("{text}", text=warning)
        try:
            self.tls.identities.load()
            self._ports += self._listen_admin()
            self._ports += self.listen()
            self.begin()
        except Exception as error:
            step = next_step(error, self.settings, self.role)
            self._log.critical("Cannot start: {error}{step}", error=error, step=step)
            self.abandon()
            for port in self._ports:
                port.stopListening()
            if isinstance(error, NAMED):
                self.without_traceback(error)
            raise
        self.reactor_delay.start()
        self.tls.identities.start()
        self.events.note("start", f"{self.role} started, rmqha {VERSION}, process {os.getpid()}")
        self.events.start()
        self.history.start()
        super().startService()

    def tell_shares(self) -> None:
        """Say what the limit of open files cannot give."""
        unmet, before = self.shares.unmet(), self._unmet
        self._unmet = unmet
        if unmet and unmet != before:
            self._log.warn(
                "The limit of open files is {files} (RLIMIT_NOFILE, LimitNOFILE of systemd, "
                "ulimit -n), which is too low: {unmet}",
                files=self.shares.files,
                unmet="; ".join(unmet),
            )

    def stopService(self) -> Deferred[None]:
        """Listen no more, and end."""
        if not self.running:
            return succeed(None)
        super().stopService()
        self.notify(STOPPING)
        for each in (self.health_log, self.reactor_delay, self.events, self.history):
            each.stop()
        self.events.note("stop", f"{self.role} is stopping")
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        shutdown = Shutdown("the process")
        if self._admin is not None:
            self._admin.end()
        closing = [shutdown.step("a port", port.stopListening) for port in self._ports]
        await shutdown.step("reading certificates", self.tls.identities.stop)
        await shutdown.step(f"the {self.role}", self.end)
        for port in closing:
            await port
        if shutdown.failed:
            self._log.critical("The {role} has stopped, but not cleanly", role=self.role)

    def _listen_admin(self) -> list[IListeningPort]:
        admin = self.settings.admin
        if not admin.listen_port:
            return []
        self._admin = site = AdminPort(
            self._page_site(),
            allowed=self._admin_peers,
            names=OwnNames.of(admin.hosts),
            clock=self.reactor,
        )
        port = PatientPort(
            admin.listen_port, site, ADMIN_BACKLOG, admin.listen_address, self.reactor
        )
        port.startListening()
        return [port]

    def _page_site(self) -> PageSite:
        own = OwnPage(self, self.history, self.reactor)
        http = HTTPClient(Agent(self.reactor))
        cluster = ClusterPages(
            own=own,
            clock=self.reactor,
            ask=lambda address: NodeClient(http, address, self.reactor, MOST_BYTES),
            connect=self.connect,
            servers=self.name_servers,
            table=self.known_brokers,
        )
        return PageSite(self, own=own.told, cluster=cluster.told, in_thread=self._in_thread)

    def _in_thread(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        pool = self.reactor.getThreadPool()
        return deferToThreadPool(self.reactor, pool, function, *args, **kwargs)

    def _in_own_thread(self, name: str) -> Callable[..., Deferred[Any]]:
        """For what may never return, such as a read from a file system that is gone: the end of the
        process does not wait for this thread, as it does for those of the pool.
        """
        return OneThread(self.reactor, name).call
