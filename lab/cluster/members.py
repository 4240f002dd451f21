"""The processes: each one C{twistd rmqha} with a file of C{conf/} and what this machine needs.

Stores, logs and process ids are in one folder; a cluster that is started on it again goes on
from its stores.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from attrs import define, field

from lab.harness.nodes import ROOT, Process, status_at
from lab.harness.ports import is_free
from rmqha.config.load import load
from rmqha.config.settings import Settings

CONF = ROOT / "conf"
NAMES = "namesrv"
PAIRS = ("broker-a", "broker-b")
MEMBERS = (NAMES, *PAIRS, *(f"{pair}-s" for pair in PAIRS))
"""Their files, in the order of their start; masters end first, so that slaves get everything."""

SHIFTS = range(-8000, 1001, 100)
"""What is added to all ports where others have those of the files: below those of tests and
of outgoing connections."""

SMALL = (
    "mappedFileSizeCommitLog=67108864",
    "mappedFileSizeConsumeQueue=60000",
    "maxHashSlotNum=50000",
    "maxIndexNum=200000",
)
"""Files for a laptop, not for a server."""

LOOPBACK = ("brokerIP1", "brokerIP2", "bindAddress", "haListenAddress")

ANSWER = 1.0
"""Seconds a node has to tell how it is."""

OPEN = 60.0
"""Seconds a node has to open its store."""

STOP = 60.0
"""Seconds a node has to stop."""


class Unusable(Exception):
    """The cluster cannot be started, or a member of it did not."""


@define(eq=False)
class Member:
    """One node, of the settings that its file and the command line make.

    @ivar arguments: The command line, from C{rmqha} on.
    @ivar ended: Its exit code, if it has ended by itself.
    """

    name: str
    folder: Path
    settings: Settings
    arguments: list[str]
    process: Process = field(init=False)
    ended: int | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.process = Process(self.name, self.folder / f"{self.name}.log")

    @property
    def role(self) -> str:
        """C{namesrv}, C{slave}, or what kind of master."""
        if self.name == NAMES:
            return NAMES
        return self.settings.broker.role.name.lower().replace("_", " ")

    @property
    def ports(self) -> dict[str, int]:
        settings = self.settings
        if self.name == NAMES:
            found = {"clients": settings.namesrv.listen_port}
        else:
            found = {"clients": settings.broker.listen_port, "slaves": settings.ha.listen_port}
        return {**found, "status": settings.admin.listen_port}

    @property
    def pidfile(self) -> Path:
        """Where twistd writes its process id."""
        return self.folder / f"{self.name}.pid"

    def launch(self) -> None:
        """Start it, and do not wait; L{Unusable} if it runs already."""
        running = self._running()
        if running:
            raise Unusable(
                f"{self.name} is running already as process {running}; stop it with kill {running}"
            )
        self.pidfile.unlink(missing_ok=True)
        twistd = str(Path(sys.executable).parent / "twistd")
        start = [sys.executable, twistd, "-n", "--pidfile", str(self.pidfile)]
        # Ctrl-C reaches only this process; it stops the nodes in their order.
        self.process.spawn([*start, "rmqha", *self.arguments], session=True)

    def _running(self) -> int:
        try:
            pid = int(self.pidfile.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return 0
        return pid if os.fsencode(self.pidfile) in command.split(b"\0") else 0

    def status(self) -> dict[str, Any] | None:
        """What it says of itself; C{None} if nothing."""
        if not self.process.running:
            if self.process.process is not None:
                self.ended = self.process.wait()
            return None
        try:
            return status_at(self.ports["status"], ANSWER)
        except (OSError, ValueError):
            return None

    def until_open(self) -> None:
        """Wait until it has opened its store; L{Unusable} if it ends before, or takes too long."""
        deadline = time.monotonic() + OPEN
        while time.monotonic() < deadline:
            status = self.status()
            if self.ended is not None:
                raise Unusable(f"{self.name} did not start:\n{self.process.tail(8)}")
            if status is not None and status["state"] != "recovering":
                return
            time.sleep(0.05)
        raise Unusable(f"{self.name} is not open after {OPEN:.0f} s:\n{self.process.tail(8)}")


@define(eq=False)
class Cluster:
    """All of them, in the order of their start."""

    folder: Path
    members: list[Member]

    @classmethod
    def of(cls, folder: Path, more: tuple[str, ...] = ()) -> Cluster:
        """The cluster of a folder, with more keys for all brokers."""
        folder.mkdir(parents=True, exist_ok=True)
        shift = _free_shift()
        names = load(CONF / "namesrv.properties", role=NAMES)
        port = names.namesrv.listen_port + shift
        members = []
        for name in MEMBERS:
            if name == NAMES:
                conf, keys = CONF / "namesrv.properties", _names_keys(names, shift, folder)
            else:
                conf = CONF / "2m-2s-sync" / f"{name}.properties"
                keys = [*_broker_keys(conf, shift, folder / name, port), *more]
            role = ["--role", NAMES] if name == NAMES else []
            arguments = [*role, "--conf", str(conf)]
            for key in keys:
                arguments += ["--set", key]
            settings = load(conf, keys, role=NAMES if name == NAMES else None)
            members.append(Member(name, folder, settings, arguments))
        return cls(folder, members)

    @property
    def names(self) -> str:
        return f"127.0.0.1:{self.members[0].ports['clients']}"

    def start(self) -> None:
        """Start all, and wait until each has opened its store; L{Unusable} if one does not."""
        for member in self.members:
            member.launch()
            if member.name == NAMES:
                member.until_open()
        for member in self.members[1:]:
            member.until_open()

    def stop(self) -> list[str]:
        """Stop masters, then slaves, then the name server; say what did not end as it should."""
        wrong = []
        for role in ("master", "slave", NAMES):
            found = [member for member in self.members if member.role.endswith(role)]
            running = [member for member in found if member.process.running]
            for member in running:
                member.process.signal(signal.SIGTERM)
            for member in running:
                # twistd ends by the signal that stopped it.
                wrong += member.process.ended(STOP, (0, -signal.SIGTERM))
        return wrong + [
            f"{member.name} ended by itself with {member.ended}"
            for member in self.members
            if member.ended is not None
        ]


def _names_keys(names: Settings, shift: int, folder: Path) -> list[str]:
    return [
        f"listenPort={names.namesrv.listen_port + shift}",
        f"adminListenPort={names.admin.listen_port + shift}",
        f"kvConfigPath={folder / 'kvConfig.json'}",
        "bindAddress=127.0.0.1",
    ]


def _broker_keys(conf: Path, shift: int, root: Path, names: int) -> list[str]:
    settings = load(conf)
    keys = [
        f"listenPort={settings.broker.listen_port + shift}",
        f"namesrvAddr=127.0.0.1:{names}",
        f"storePathRootDir={root}",
        *(f"{key}=127.0.0.1" for key in LOOPBACK),
        *SMALL,
    ]
    if settings.ha.master is not None:
        keys.append(f"haMasterAddress=127.0.0.1:{settings.ha.master[1] + shift}")
    return keys


def _free_shift() -> int:
    """What to add to all ports so that they are free: 0 if those of the files are."""
    ports = []
    for name in MEMBERS:
        folder = CONF if name == NAMES else CONF / "2m-2s-sync"
        settings = load(folder / f"{name}.properties", role=NAMES if name == NAMES else None)
        ports += [settings.admin.listen_port]
        if name == NAMES:
            ports += [settings.namesrv.listen_port]
        else:
            listen = settings.broker.listen_port
            # A client may try the port two below first.
            ports += [listen - 2, listen, settings.ha.listen_port]
    for shift in (0, *random.sample(SHIFTS, len(SHIFTS))):
        if all(is_free(port + shift) for port in ports):
            return shift
    raise Unusable("no free ports for five nodes")
