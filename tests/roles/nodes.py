"""Nodes whose threads, clock and master are a test's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IListeningPort, IStreamClientEndpoint
from twisted.internet.testing import MemoryReactorClock

from rmqha.config.load import load
from rmqha.config.settings import Settings
from rmqha.roles.member import MemberNode
from rmqha.roles.node import Node
from rmqha.roles.slave import SlaveNode
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from tests.support import derived
from tests.support.logs import now
from tests.support.scripted_master import PuppetEndpoint


class NodeReactor(MemoryReactorClock):
    """A reactor in memory that counts how often it was stopped."""

    stops = 0

    def stop(self) -> None:
        self.stops += 1


def settings(root: Path, role: str = "slave", *, file_size: int = 4096, **keys: Any) -> Settings:
    """A node's settings: small files, a master at 10.0.0.1, frames of 1000 bytes, no ports.

    @param keys: Fields of C{StoreSettings} with C{store_} before the name, else of
        C{HASettings}.
    """
    loaded = load(None, [f"storePathRootDir={root}", "listenPort=0", "adminListenPort=0"], role)
    store = {
        name.removeprefix("store_"): keys.pop(name)
        for name in list(keys)
        if name.startswith("store_")
    }
    ha = {"batch": 1000, "master": ("10.0.0.1", 10912), "listen_port": 0} | keys
    return evolve(
        loaded,
        store=derived.settings(root, file_size=file_size, **store),
        ha=evolve(loaded.ha, **ha),
    )


class Puppet(Node):
    """A node whose master is played by hand, with its threads and wanted exit codes."""

    def __init__(
        self, settings: Settings, reactor: Any, run: Callable[..., Deferred[Any]] = now
    ) -> None:
        self.run = run
        self.codes: list[int] = []
        self.endpoint = PuppetEndpoint(reactor)
        super().__init__(settings, reactor)
        self.exit_with = self.codes.append  # type: ignore[method-assign, assignment]

    def _in_thread(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return self.run(function, *args, **kwargs)

    def _in_own_thread(self, name: str) -> Callable[..., Deferred[Any]]:
        return self.run

    def listen(self) -> list[IListeningPort]:
        """Whoever connects does so by hand."""
        return []

    def dialled(self, host: str, port: int) -> IStreamClientEndpoint:
        return self.endpoint

    def _environment(self) -> StoreEnvironment:
        # By default old files go at four in the morning, also of the day of the test.
        return evolve(
            super()._environment(),
            fsync=FsyncInThread(self.run),
            disk_use=lambda folder: 0.1,
            local_hour=lambda now: 12,
        )


class PuppetSlave(Puppet, SlaveNode):
    """A slave."""


class PuppetMember(Puppet, MemberNode):
    """A member of a set."""
