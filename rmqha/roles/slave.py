"""
The slave: follows a master, and never lets its log differ without saying so.
"""

from __future__ import annotations

from typing import Any

from twisted.application.service import IService
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IStreamClientEndpoint

from rmqha.config.settings import DivergencePolicy, FlushDisk, Settings, StoreSettings
from rmqha.errors import Refused, StoreError
from rmqha.ha.follower import Divergence, Follower
from rmqha.ha.repair import plan_cut
from rmqha.net.scatter import ScatterClientEndpoint
from rmqha.roles.node import Node
from rmqha.store import tables
from rmqha.store.files import LogFolder
from rmqha.store.opening import Opening
from rmqha.store.truncate import OWN_FOLDER, intend, set_log_aside

CONNECT_TIMEOUT = 5.0
"""Seconds a connection attempt may take, as in stock slaves."""


class SlaveNode(Node):
    """
    A slave's service tree.

    @ivar follower: Replication, once L{ready} has fired.
    """

    role = "slave"
    follower: Follower | None = None

    def opening(self) -> Opening:
        """
        A slave's log may always be cut at damage: its master has the bytes.
        """
        return Opening(master=False, repair=True)

    def serve(self) -> None:
        """
        Begin to follow, or go on after a repair.
        """
        self.store.bad_record = self._bad_record
        if self.follower is not None:
            return
        ha = self.settings.ha
        self.follower = Follower(
            endpoint=self._endpoint(),
            address="" if ha.master is None else f"{ha.master[0]}:{ha.master[1]}",
            current_log=lambda: self.store.log,
            settings=ha,
            clock=self.reactor,
            repair=self._repair,
            bootstrapping=self._mark_bootstrap,
            is_bootstrapping=self._marker.exists(),
            hold_flushed=self.settings.store.flush_disk is FlushDisk.SYNC_FLUSH,
        )
        self.follower.startService()

    def _endpoint(self) -> IStreamClientEndpoint | None:
        ha = self.settings.ha
        if ha.master is None:
            return None
        host, port = ha.master
        bind = (ha.local_address, 0) if ha.local_address else None
        return ScatterClientEndpoint(self.reactor, host, port, CONNECT_TIMEOUT, bind)

    def unserve(self) -> Deferred[None]:
        """
        Disconnect.
        """
        return self.follower.stopService() if self.follower is not None else succeed(None)

    def _bad_record(self, error: StoreError) -> None:
        if self.follower is not None:
            self.follower.bad_record(error)

    # --- bootstrap ----------------------------------------------------------------

    @property
    def _marker(self) -> Any:
        return self.settings.store.root / OWN_FOLDER / "bootstrapping.json"

    def _mark_bootstrap(self, on: bool) -> None:
        if on:
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            tables.replace(self._marker, {"master": str(self.settings.ha.master)})
        else:
            for name in (self._marker, self._marker.with_name(self._marker.name + ".bak")):
                name.unlink(missing_ok=True)

    # --- repairs ------------------------------------------------------------------

    def _repair(
        self, policy: DivergencePolicy, divergence: Divergence | None
    ) -> Deferred[str]:
        """
        Carry a policy out: close the store, do it under the lock while opening anew.
        """
        if policy is DivergencePolicy.TRUNCATE:
            if divergence is None:
                return fail(Refused("truncate", "nobody knows where the logs part"))
            return self._in_thread(
                plan_cut, self.store.log, divergence, self.settings.ha.max_truncate
            ).addCallback(self._truncate)
        return self._reopen(
            self._set_aside, "the old log was set aside; copying the master's from its start"
        )

    def _truncate(self, at: int) -> Deferred[str]:
        end = self.store.log.end

        def cut(settings: StoreSettings) -> None:
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            intend(settings.root, folder, at, end)
            folder.close()

        return self._reopen(cut, f"cut the log from {end} back to {at}; the tail is quarantined")

    def _set_aside(self, settings: StoreSettings) -> None:
        if self._marker.exists():
            # An unfinished copy, and nobody's only one: it starts over.
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            while folder.files:
                folder.files.pop().remove()
        else:
            self._mark_bootstrap(True)
            set_log_aside(settings.commitlog)

    def _reopen(self, before: Any, text: str) -> Deferred[str]:
        def start(_: object) -> Deferred[None]:
            if not self.running:
                return succeed(None)
            opening = Opening(master=False, repair=True, before=before)
            self.store = self._new_store(opening)
            self.store.startService()
            opened: Deferred[None] = Deferred()
            self.store.ready.addCallbacks(opened.callback, opened.errback)
            return opened.addCallback(lambda _: self.serve())

        return self.store.stopService().addCallback(start).addCallback(lambda _: text)

    # --- the status -----------------------------------------------------------------

    def unhealthy(self) -> str:
        """
        A slave is unhealthy too while its replication stands still.
        """
        node = super().unhealthy()
        if node or self.follower is None or not self.follower.state.is_stop:
            return node
        return f"{self.follower.state.value}: {self.follower.reason}"

    def status(self) -> dict[str, Any]:
        """
        A node's status, and the upstream.
        """
        status = super().status()
        if self.follower is not None:
            stored = self.store.last_record_stored() if hasattr(self.store, "log") else 0
            status["upstream"] = self.follower.status(stored)
        else:
            status["upstream"] = None
        return status


def make_service(settings: Settings, reactor: Any, *, repair: bool = False) -> IService:
    """
    A slave's service tree.
    """
    return SlaveNode(settings, reactor, repair=repair)


