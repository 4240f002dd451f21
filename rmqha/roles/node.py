"""
What every role's node is made of: the store, its threads, the admin port, its end.

A node starts in two halves.  What can go wrong at once (the store's lock, a port in
use) does so in C{startService}, so that twistd, daemonized or not, ends with an exit
code and the reason.  What takes time (recovery) comes after; if that fails the node
logs the reason, stops the reactor and ends the process with exit code 1.
"""

from __future__ import annotations

import atexit
import os
import resource
import sys
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IStreamServerEndpoint
from twisted.internet.protocol import ServerFactory
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.python.threadpool import ThreadPool

from rmqha.admin.http import AdminPort, AdminSite
from rmqha.config.settings import Settings
from rmqha.errors import RmqhaError
from rmqha.ha.states import NodeState
from rmqha.store.opening import Opening
from rmqha.store.store import Store

UNHEALTHY = frozenset(
    {NodeState.RECOVERING, NodeState.STOPPED, NodeState.FAILED, NodeState.DISK_FULL}
)
"""States in which C{/healthz} says 503."""

NAMED = (RmqhaError, OSError, CannotListenError)
"""What can keep a node from starting and says all there is to say; else it is a bug."""


def raise_file_limit() -> int:
    """
    Let this process open as many files as it may: a queue is a file or more.

    @return: The limit now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def exit_with(code: int) -> None:
    """
    Give the process an exit code although the reactor ends well: twistd has none.
    """

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)


def without_traceback(error: BaseException) -> None:
    """
    Let the process end by an error that was told already, and not by its traceback.

    It has to be raised all the same: that is how twistd learns that its start failed,
    removes its pid file and ends the waiting parent of a daemon with exit code 1.
    """
    before = sys.excepthook

    def hook(kind: Any, value: BaseException, trace: Any) -> None:
        if value is not error:
            before(kind, value, trace)

    sys.excepthook = hook


def listen_now(endpoint: IStreamServerEndpoint, factory: ServerFactory) -> IListeningPort:
    """
    Listen, or raise at once why that is impossible.

    @raise CannotListenError: If the port is in use.
    """
    result: list[Any] = []
    endpoint.listen(factory).addBoth(result.append)
    if not result:
        raise RuntimeError("listening on a local port does not wait")
    if isinstance(result[0], Failure):
        result[0].raiseException()
    port: IListeningPort = result[0]
    return port


class Node(Service):
    """
    The parts all roles share.

    @ivar store: The store open now; a slave's repair replaces it.
    @ivar file_limit: How many files this process may open.
    """

    _log = Logger()
    role = ""
    exit_with = staticmethod(exit_with)
    without_traceback = staticmethod(without_traceback)

    def __init__(self, settings: Settings, reactor: Any, *, repair: bool = False) -> None:
        self.settings = settings
        self.reactor = reactor
        self.repair = repair
        self.file_limit = 0
        self.ready: Deferred[None] = Deferred()
        self._fsync = ThreadPool(0, 1, "rmqha-fsync")
        self._ports: list[IListeningPort] = []
        self._told = ""
        self.store = self._new_store(self.opening())

    # --- for a role to say ----------------------------------------------------

    def opening(self) -> Opening:
        """
        How this role opens its store.
        """
        raise NotImplementedError

    def listen(self) -> list[IListeningPort]:
        """
        Open this role's ports, or raise.
        """
        return []

    def serve(self) -> None:
        """
        The store is open: begin this role's work.
        """

    def unserve(self) -> Deferred[None]:
        """
        End this role's work; the store is still open.
        """
        return succeed(None)

    # --- the service --------------------------------------------------------------

    def startService(self) -> None:
        """
        Take the lock, listen, begin to recover.

        @raise StoreLocked: If a running node has the store.
        @raise CannotListenError: If a port is in use.
        """
        self.file_limit = raise_file_limit()
        if self.settings.ignored:
            self._log.info(
                "Keys without meaning here: {keys}", keys=", ".join(self.settings.ignored)
            )
        for note in self.settings.notes:
            self._log.warn("{note}", note=note)
        try:
            self._ports += self._listen_admin()
            self._ports += self.listen()
            self._fsync.start()
            self.store.startService()
        except Exception as error:
            self._log.critical("Cannot start: {error}", error=error)
            self._fsync.stop()
            for port in self._ports:
                port.stopListening()
            if isinstance(error, NAMED):
                self.without_traceback(error)
            raise
        super().startService()
        self._when_open(self.store)

    def _when_open(self, store: Store) -> None:
        store.ready.addCallback(lambda _: self._opened()).addErrback(self._not_opened)

    def _opened(self) -> None:
        if not self.running:
            return
        self.serve()
        self._changed()
        if not self.ready.called:
            self.ready.callback(None)

    def _not_opened(self, failure: Failure) -> None:
        if not self.running:
            return  # stopped while it was being opened
        if not self.ready.called:
            self.ready.addErrback(lambda _: None)
            self.ready.errback(failure)
        if not failure.check(*NAMED):
            self._log.failure("Starting failed", failure)
        self._log.critical("Cannot start: {error}", error=failure.getErrorMessage())
        self.exit_with(1)
        self.reactor.stop()

    def stopService(self) -> Deferred[None]:
        """
        Close connections, flush, leave the store as a clean stop does.
        """
        if not self.running:
            return succeed(None)
        super().stopService()
        closing = [port.stopListening() or succeed(None) for port in self._ports]
        return (
            self.unserve()
            .addErrback(lambda failure: self._log.failure("Stopping failed", failure))
            .addCallback(lambda _: self.store.stopService())
            .addCallback(lambda _: DeferredList(closing, consumeErrors=True))
            .addCallback(lambda _: self._fsync.stop())
        )

    def _listen_admin(self) -> list[IListeningPort]:
        admin = self.settings.admin
        if not admin.listen_port:
            return []
        site = AdminPort(AdminSite(self))
        return [self.reactor.listenTCP(admin.listen_port, site, interface=admin.listen_address)]

    def _new_store(self, opening: Opening) -> Store:
        return Store(
            self.settings.store,
            opening,
            self.reactor,
            self._in_thread,
            self._in_flush_thread,
            changed=self._changed,
        )

    def _in_thread(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        pool = self.reactor.getThreadPool()
        return deferToThreadPool(self.reactor, pool, function, *args, **kwargs)

    def _in_flush_thread(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return deferToThreadPool(self.reactor, self._fsync, function, *args, **kwargs)

    # --- the status -----------------------------------------------------------------

    @property
    def state(self) -> NodeState:
        """
        What the node can do.
        """
        return NodeState(self.store.state) if self.store.state else NodeState.SERVING

    @property
    def reason(self) -> str:
        """
        Why, in words; empty when all is well.
        """
        return self.store.reason

    def unhealthy(self) -> str:
        """
        Why C{/healthz} says 503; empty when it says 200.
        """
        if self.state in UNHEALTHY:
            return f"{self.state.value}: {self.reason}".rstrip(": ")
        return ""

    def status(self) -> dict[str, Any]:
        """
        What C{/status} says; issue-proof names are listed in docs/operations.rst, Status.
        """
        store = self.store
        log = getattr(store, "log", None)
        return {
            "role": self.role,
            "state": self.state.value,
            "reason": self.reason,
            "minOffset": log.min_offset if log is not None else None,
            "maxOffset": log.end if log is not None else None,
            "confirmedOffset": log.confirmed if log is not None else None,
            "flushedOffset": log.flushed if log is not None else None,
            "dispatchedOffset": store.dispatcher.position if log is not None else None,
            "syncGuarantee": self.guarantee(),
            "brokerName": self.settings.broker.name,
            "store": str(self.settings.store.root),
            "recovery": self._recovery(),
            "retention": store.retention.status() if store.retention is not None else None,
            "derivedFaults": store.dispatcher.fault_count if log is not None else None,
            "fileLimit": self.file_limit,
            "pid": os.getpid(),
        }

    def guarantee(self) -> str:
        """
        What an acknowledged write means here, in words.
        """
        return "none: a slave takes no writes"

    def _recovery(self) -> dict[str, Any] | None:
        found = self.store.recovery
        if found is None:
            return None
        return {
            "from": found.start,
            "end": found.end,
            "records": found.records,
            "endedBy": found.reason.value if found.reason is not None else "end of files",
        }

    def _changed(self) -> None:
        state = f"{self.state.value} {self.reason}".strip()
        if state != self._told:
            self._told = state
            log = self._log.warn if self.unhealthy() else self._log.info
            log("{role} is {state}", role=self.role, state=state)
