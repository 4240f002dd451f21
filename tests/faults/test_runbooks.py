"""The runbooks, as they are printed."""

from __future__ import annotations

import os
import re
import shutil
import signal
from datetime import UTC, datetime

from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Remote, commit, send
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.faults.harness import BRISK, FaultTestCase
from tests.support.runbooks import BIN, PAGES, Machine, RunbookTestCase, blocks
from tests.support.small_disk import small_disk


class Saying(Machine):
    """A machine on which every command says the same."""

    def __init__(self, said: str) -> None:
        self.said = said

    def run(self, command: str, names: dict[str, str]) -> str:
        return self.said


class FollowedTests(RunbookTestCase):
    """What a command says is compared with its page."""

    def test_progress(self) -> None:
        """A slow machine says how far it is; what else the page has not is seen."""
        step = "rmqha clone", ["bytes 0 to ... are copied"]
        done = "bytes 0 to 6440 (6.4 kB) are copied\n"
        for told in ("", "0 bytes of 6.4 kB are copied\n2.1 kB of 6.4 kB are copied\n"):
            self.follow(Saying(told + done), {}, step)
        for told in ("a warning\n", "files of 6.4 kB are copied\n"):
            with self.assertRaises(self.failureException):
                self.follow(Saying(told + done), {}, step)


class RunbookTests(FaultTestCase, RunbookTestCase):
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
        other = "{}:{}".format(*self.master.address)
        names = self.names(
            self.slave, **{"OTHER:10912": f"{other} --client-port {self.master.port}"}
        )
        stop, *rest = steps
        self.follow(machine, names, stop)
        # Not before: while the slave runs, its scrubber may mend that by itself.
        path = min((self.slave.root / "commitlog").iterdir())
        with open(path, "r+b") as file:
            file.seek(3000)
            (byte,) = file.read(1)
            file.seek(3000)
            file.write(bytes([byte ^ 255]))
        self.follow(machine, names, *rest)

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
        """Both nodes, as their machines start them: the master's, and the slave's."""
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
        old = disk / "store.before-reinit-1"
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
