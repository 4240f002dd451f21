"""The runbooks, as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Remote, commit, send
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.faults.harness import BRISK, FaultTestCase
from tests.support.small_disk import small_disk

PAGES = Path(__file__).parents[2] / "docs" / "runbooks"
BIN = Path(sys.executable).parent

SYSTEMCTL = """#!/bin/sh
stop() {{
    pid=$(cat {pid}); kill $pid; while kill -0 $pid 2>/dev/null; do sleep 0.1; done
}}
start() {{
    setsid {python} {opt}/bin/twistd -n --pidfile {pid} rmqha --conf {conf} {ports} >>{log} 2>&1 &
}}
case "$1" in
    restart) stop; start;;
    reload) kill -HUP $(cat {pid}); sleep 1;;
    *) $1;;
esac
"""
"""What systemd does for the one node of a machine."""

JOURNALCTL = """#!/bin/sh
tail -n 20 {log}
"""

PORTS = ("listenPort", "haListenPort", "adminListenPort")
"""Of a machine of its own they are the usual ones."""


def blocks(page: str) -> Iterator[list[tuple[str, list[str]]]]:
    """The blocks of a page: commands, each with the lines that one sees."""
    text = (PAGES / page).read_text(encoding="utf-8")
    for block in re.findall(r"\.\. code-block:: console\n\n((?:   .*\n|\n)+)", text):
        found: list[tuple[str, list[str]]] = []
        for line in filter(None, (line[3:] for line in block.splitlines())):
            if line.startswith("# "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        yield found


class Machine:
    """Where a node runs whose file, store and unit have the names of the pages."""

    def __init__(self, folder: Path, node: Node) -> None:
        self.node = node
        self.pid = folder / f"{node.name}.unit.pid"
        self.opt = folder / f"{node.name}-opt"
        self.opt.symlink_to(BIN.parent)
        self.bin = folder / f"{node.name}-bin"
        self.bin.mkdir()
        for name, script in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            path = self.bin / name
            path.write_text(
                script.format(
                    pid=self.pid,
                    python=sys.executable,
                    opt=self.opt,
                    conf=node.conf,
                    log=folder / f"{node.name}.unit.log",
                    ports=" ".join(f"--set {key}={node.keys[key]}" for key in PORTS),
                ),
                encoding="ascii",
            )
            path.chmod(0o755)

    def run(self, command: str, names: dict[str, str]) -> str:
        """Run a line of a page.

        @return: What is seen.
        """
        for name, here in names.items():
            command = command.replace(name, here)
        done = subprocess.run(
            ["bash", "-c", command],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            env={**os.environ, "PATH": f"{self.bin}:{BIN}:{os.environ['PATH']}", "COLUMNS": "200"},
        )
        seen = done.stdout
        for name, here in names.items():
            seen = seen.replace(here, name)
        # A node without a replica is unhealthy, and damage is what a check is for.
        may_fail = command.startswith(("rmqha status", "rmqha verify", "rmqha diverge"))
        assert done.returncode in ((0, 1) if may_fail else (0,)), seen
        return seen

    def end(self) -> None:
        """Stop its node."""
        if self.pid.exists():
            subprocess.run([self.bin / "systemctl", "stop"], check=True, timeout=60)


class RunbookTests(FaultTestCase):
    """A pair."""

    def setUp(self) -> None:
        """In sync, with some messages."""
        super().setUp()
        keys = {**BRISK, "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}
        self.master = Node(self.folder, "master", "a", brokerRole="SYNC_MASTER", **keys).start()
        self.slave = Node(
            self.folder,
            "slave",
            "b",
            haMasterAddress="{}:{}".format(*self.master.address),
            haMasterClientAddress=f"127.0.0.1:{self.master.port}",
            **keys,
        )
        self.slave.write_conf()
        self._processes.append(self.master)
        with Remote(self.master.port) as client:
            client.ask_all([send("Orders", b"%d" % n) for n in range(50)])

    def machine(self, node: Node) -> Machine:
        """That of a node."""
        made = Machine(self.folder, node)
        self.addCleanup(made.end)
        return made

    def names(self, node: Node, **more: str) -> dict[str, str]:
        """What the names of a page are on a machine."""
        return {
            "/etc/rmqha/broker.conf": str(node.conf),
            "/var/lib/rmqha": str(node.root),
            "rmqha status": f"rmqha status 127.0.0.1:{node.admin_port}",
            "rmqha slots": f"rmqha slots 127.0.0.1:{node.admin_port}",
            **more,
        }

    def follow(
        self, machine: Machine, names: dict[str, str], *steps: tuple[str, list[str]]
    ) -> None:
        """Do what a page says, and see what it says."""
        for command, wanted in steps:
            if command == "rmqha status" and "serving" in "".join(wanted):
                self.until_serving(machine.node, in_sync="in-sync" in "".join(wanted))
            seen = machine.run(command, names)
            self.tell(f"# {command}\n{seen}")
            lines = [line.rstrip() for line in seen.splitlines() if line.strip()]
            pattern = "".join(
                r"(?:.*\n)*?" if line == "..." else re.escape(line).replace(r"\.\.\.", ".*") + r"\n"
                for line in wanted
            )
            self.assertRegex("\n".join([*lines, ""]), rf"\A{pattern}\Z", command)

    def until_serving(self, node: Node, *, in_sync: bool) -> None:
        """Wait until a node serves, and is in sync."""

        def serves() -> bool:
            try:
                status = node.status()
            except OSError:
                return False
            upstream = (status.get("upstream") or {}).get("state")
            return status["state"] == "serving" and (not in_sync or upstream == "in-sync")

        until(serves, "it serves", 60)

    def test_master_dead(self) -> None:
        """The slave becomes the master, and the old one its slave."""
        look, do, see, again = blocks("master-dead.rst")
        machine = self.machine(self.slave)
        machine.run("systemctl start rmqha@broker", {})
        self.until_serving(self.slave, in_sync=True)
        self.master.kill9()
        self.follow(machine, self.names(self.slave), *look, *do, *see)
        new = f"127.0.0.1:{self.slave.port}"
        back = self.names(self.master, **{"NEW-MASTER": new})
        self.follow(self.machine(self.master), back, *again)

    def test_slave_dead(self) -> None:
        """A new one is cloned."""
        make, see = blocks("slave-dead.rst")
        new = Node(self.folder, "slave", "c")
        names = self.names(new, MASTER=f"127.0.0.1:{self.master.port}")
        self.follow(self.machine(new), names, *make)
        self.follow(self.machine(self.master), self.names(self.master), *see)

    def test_damaged_file(self) -> None:
        """The bytes come from the other node."""
        (steps,) = blocks("damaged-file.rst")
        machine = self.machine(self.slave)
        machine.run("systemctl start rmqha@broker", {})
        self.until_serving(self.slave, in_sync=True)
        path = min((self.slave.root / "commitlog").iterdir())
        with open(path, "r+b") as file:
            file.seek(3000)
            (byte,) = file.read(1)
            file.seek(3000)
            file.write(bytes([byte ^ 255]))
        other = "{}:{}".format(*self.master.address)
        names = self.names(
            self.slave, **{"OTHER:10912": f"{other} --client-port {self.master.port}"}
        )
        self.follow(machine, names, *steps)

    def test_restore_moment(self) -> None:
        """What came later is gone, on both nodes."""
        restore, again = blocks("restore-moment.rst")
        master, slave = self.machine(self.master), self.machine(self.slave)
        self.master.term()
        for machine in (master, slave):
            machine.run("systemctl start rmqha@broker", {})
        self.until_serving(self.slave, in_sync=True)
        end = self.master.status()["maxOffset"]
        self.passes(1.5)
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.passes(1.5)
        with Remote(self.master.port) as client:
            client.ask_all([send("Orders", b"wrong") for _ in range(20)])
        self.assertGreater(self.master.status()["maxOffset"], end)
        self.follow(master, self.names(self.master, MOMENT=moment), *restore)
        self.assertEqual(end, self.master.status()["maxOffset"])
        address = f"127.0.0.1:{self.master.port}"
        names = {"MASTER": address, "/tmp/clone.conf": str(self.folder / "clone.conf")}
        self.follow(slave, self.names(self.slave, **names), *again)
        self.assertEqual(end, self.slave.status()["maxOffset"])

    def in_sync(self, machine: Machine) -> Machine:
        """Start a slave as its machine does."""
        machine.run("systemctl start rmqha@broker", {})
        self.until_serving(machine.node, in_sync=True)
        return machine

    def both(self) -> tuple[Machine, Machine]:
        """Both nodes, as their machines start them.

        @return: The master's, and the slave's.
        """
        self.master.term()
        master = self.machine(self.master)
        master.run("systemctl start rmqha@broker", {})
        return master, self.in_sync(self.machine(self.slave))

    def test_add_slave(self) -> None:
        """A second one is in sync beside the first."""
        make, see = blocks("add-slave.rst")
        self.master.keys["haReplicaIdentity"] = "connection"
        self.master.write_conf()
        master, _ = self.both()
        new = Node(self.folder, "slave", "c")
        names = self.names(new, MASTER=f"127.0.0.1:{self.master.port}")
        self.follow(self.machine(new), names, *make)
        self.follow(master, self.names(self.master), *see)

    def test_wrong_offsets(self) -> None:
        """A group goes on at a moment before."""
        look, dry, do = blocks("wrong-offsets.rst")
        self.in_sync(self.machine(self.slave))
        self.passes(1.5)
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with Remote(self.master.port) as client:
            client.ask_all([send("Orders", b"again") for _ in range(30)])
            body = b'{"groupName":"billing"}'
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
            self.assertEqual(0, client.ask(Command(code=code, body=body)).code)
            self.assertEqual(0, client.ask(commit("Orders", "billing", 80)).code)
        broker = {"billing Orders": f"billing Orders -b 127.0.0.1:{self.master.port}"}
        names = {**broker, "MOMENT": moment}
        self.follow(self.machine(self.master), names, *look, *dry, *do)

    def test_change_retention(self) -> None:
        """Both nodes take it while they run."""
        (steps,) = blocks("change-retention.rst")
        for machine in self.both():
            self.follow(machine, self.names(machine.node), *steps)

    def test_upgrade(self) -> None:
        """Slave, then master, run from another folder."""
        (steps,) = blocks("upgrade.rst")
        for machine in reversed(self.both()):
            new = machine.opt.with_name(f"{machine.opt.name}-new")
            new.symlink_to(BIN.parent)
            self.follow(
                machine, self.names(machine.node, **{"/opt/rmqha": str(machine.opt)}), *steps
            )
            self.assertEqual(new, machine.opt.readlink())

    def test_two_masters(self) -> None:
        """The old one, which was only cut off, is the slave of the new one."""
        look, stop, again = blocks("two-masters.rst")
        names = NameServer(self.folder)
        self._processes.append(names)
        names.launch()
        for node in (self.master, self.slave):
            node.keys |= {"namesrvAddr": names.client_address, "registerNameServerPeriod": 10000}
            node.write_conf()
        master, slave = self.both()
        pid = int(master.pid.read_text(encoding="ascii"))
        units = "--stop 'systemctl stop' --start 'systemctl start'"
        os.kill(pid, signal.SIGSTOP)
        try:
            slave.run(f"rmqha failover {self.slave.conf} {units}", {})
        finally:
            os.kill(pid, signal.SIGCONT)
        with Remote(self.slave.port) as client:
            client.ask_all([send("Orders", b"new") for _ in range(9)])
        until(lambda: self.master.status()["state"] == "fenced", "it is fenced", 60)
        new, (host, port) = f"127.0.0.1:{self.slave.port}", self.slave.address
        other = {"NEW-MASTER:10912": f"{host}:{port} --client-port {self.slave.port}"}
        here = self.names(self.master, **other, **{"NEW-MASTER": new})
        self.follow(master, here, *look, *stop, *again)

    def test_disk_nearly_full(self) -> None:
        """It is well again when there is room."""
        look, remove, slots = blocks("disk-nearly-full.rst")
        disk = small_disk(self, 64 << 20)
        self.master.term()
        shutil.move(self.master.root, disk / "store")
        self.master.root = disk / "store"
        self.master.keys |= {"storePathRootDir": self.master.root, "cleanResourceInterval": 1000}
        self.master.write_conf()
        master, _ = self.both()
        old = disk / "store.before-clone-1"
        old.mkdir()
        room = os.statvfs(disk)
        left = int(room.f_blocks * 0.125)
        with open(old / "log", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, (room.f_bavail - left) * room.f_frsize)
        until(lambda: self.master.reasons() == {"disk-filling"}, "it is told", 30)
        names = self.names(self.master)
        self.follow(master, names, *look, *remove[:1])
        until(lambda: not self.master.reasons(), "it is well", 30)
        self.follow(master, names, *remove[1:], *slots)

    def test_move_to_tls(self) -> None:
        """Three rounds, each node after the other; then clear text is refused."""
        make, first, second, look, third = blocks("move-to-tls.rst")
        page = (PAGES / "move-to-tls.rst").read_text(encoding="utf-8")
        (keys,) = re.findall(r"\.\. code-block:: properties\n\n((?:   .*\n)+)", page)
        folder = self.folder / "etc"
        folder.mkdir()
        (folder / "tls.properties").write_text(
            keys.replace("   ", "").replace("/etc/rmqha", str(folder)), encoding="ascii"
        )
        machines = self.both()
        names = [self.names(machine.node, **{"/etc/rmqha": str(folder)}) for machine in machines]
        master, here = machines[0], names[0]
        self.follow(master, here, *make)
        for steps in (first, second):
            for machine, there in zip(machines, names, strict=True):
                self.follow(machine, there, *steps)
        self.follow(master, here, *look)
        for machine, there in zip(machines, names, strict=True):
            self.follow(machine, there, *third)
        self.until_serving(self.slave, in_sync=True)
        with Remote(self.master.port) as client, self.assertRaises(OSError):
            client.ask(send("Orders", b"in clear text"))
