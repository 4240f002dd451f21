"""One slave that takes over its master's tables, and looks all the time whether its reactor still
turns: C{python -m lab.bench.syncing FOLDER HA-ADDRESS CLIENT-ADDRESS}, the child of
L{lab.bench.metadata}.

It says one line of JSON: C{adopted}, seconds from the beginning of the round to the last of the
four tables; C{written}, the same to all of them on the disk; C{worst}, the longest that anything
had to wait for the reactor in that time, in seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from twisted.internet import reactor as installed
from twisted.internet.defer import Deferred

from lab.harness.nodes import SMALL
from rmqha.config.load import load
from rmqha.config.settings import Settings
from rmqha.roles.slave import SlaveNode

TICK = 0.001
"""Seconds between two looks."""

SETTLED = 2.0
"""Seconds after the last thing that may have to be done before the measurement ends."""

TABLES = ("topics", "groups", "consumerOffsets", "delayOffsets")

FILES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")


class Watch:
    """Looks at a slave and at its reactor."""

    def __init__(self, slave: SlaveNode) -> None:
        self.slave = slave
        self.reactor = slave.reactor
        self.begun = self.adopted = self.written = self.worst = 0.0
        self.done: Deferred[None] = Deferred()
        self._due = 0.0

    def begin(self, _: object = None) -> None:
        """The slave begins to ask now."""
        self.begun = self._due = time.perf_counter()
        self._look()

    def _look(self) -> None:
        now = time.perf_counter()
        self.worst = max(self.worst, now - self._due)
        metadata = self.slave.status()["metadata"]
        if not self.adopted and all(metadata[name]["state"] == "adopted" for name in TABLES):
            self.adopted = now - self.begun
        folder = self.slave.settings.store.root / "config"
        if self.adopted and not self.written and all((folder / name).exists() for name in FILES):
            self.written = now - self.begun
        if self.written and now > self.begun + self.written + SETTLED:
            self.done.callback(None)
            return
        self._due = time.perf_counter() + TICK
        self.reactor.callLater(TICK, self._look)


def settings(folder: Path, ha: str, clients: str) -> Settings:
    """A slave without consumers."""
    own = {
        "storePathRootDir": folder / "store",
        "listenPort": 0,
        "haListenPort": 0,
        "adminListenPort": 0,
        "haMasterAddress": ha,
        "haMasterClientAddress": clients,
        "brokerIP1": "127.0.0.1",
    }
    return load(None, [f"{key}={value}" for key, value in (SMALL | own).items()], "slave")


def main(folder: str, ha: str, clients: str) -> None:
    """Take the tables over once."""
    reactor: object = installed
    slave = SlaveNode(settings(Path(folder), ha, clients), reactor)
    watch = Watch(slave)
    slave.startService()
    slave.ready.addCallback(watch.begin)

    def end(_: object) -> None:
        found = {"adopted": watch.adopted, "written": watch.written, "worst": watch.worst}
        print(json.dumps(found), flush=True)
        slave.stopService().addBoth(lambda _: installed.stop())  # type: ignore[attr-defined]

    watch.done.addCallback(end)
    installed.run()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(*sys.argv[1:])
