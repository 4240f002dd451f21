"""The master's machine is dead: one command makes its slave the master."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

from lab.harness.nodes import NameServer, Node, until
from lab.harness.remote import Remote, pull, records, send
from rmqha.cli.live_promotion import masters_file, take
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.load import load
from rmqha.ha.promotion import intend
from tests.faults.harness import BRISK, FaultTestCase
from tests.support.commands import RMQHA, rmqha


class Unnamed(Node):
    """A node whose file alone says its role, and which others may change."""

    def write_conf(self) -> list[str]:
        """Write it, the first time."""
        if not self.conf.exists():
            super().write_conf()
        return ["--conf", str(self.conf), *self.arguments]


class FailoverTestCase(FaultTestCase):
    keys: dict[str, object] = {**BRISK, "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}

    def pair(self, kind: type[Node] = Unnamed, **keys: object) -> tuple[Node, Node]:
        """A master and its slave, in sync, with messages."""
        keys = {**self.keys, **keys}
        master = Node(self.folder, "master", "master", brokerRole="SYNC_MASTER", **keys).start()
        slave = kind(
            self.folder,
            "slave",
            "slave",
            haMasterAddress="{}:{}".format(*master.address),
            haMasterClientAddress=f"127.0.0.1:{master.port}",
            **keys,
        ).start()
        self._processes += [master, slave]
        slave.until_upstream("in-sync")
        with Remote(master.port) as client:
            answers = client.ask_all([send("Orders", b"%d" % n) for n in range(50)])
        self.assertEqual({0}, {answer.code for answer in answers})
        return master, slave

    def bodies(self, node: Node, topic: str = "Orders") -> list[bytes]:
        """What consumers read there, in order."""
        found: list[bytes] = []
        with Remote(node.port) as client:
            while not (answer := client.ask(pull(topic, "readers", len(found)))).code:
                found += [record.body for record in records(answer)]
        return found

    def rmqha(self, *arguments: object, code: int = 0) -> str:
        """Run a command, and return what it printed, and complained of."""
        done = rmqha(*arguments)
        self.tell(done.stdout + done.stderr)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr


class FailoverTests(FailoverTestCase):
    """The node is stopped and started again."""

    def test_failover(self) -> None:
        """It is refused while the master answers, says what it would do, does it, and goes on
        wherever it was left; nothing that was acknowledged is missing.
        """
        master, slave = self.pair(Node)
        refused = self.failover(slave, "--stop", "false", code=1)
        self.assertIn("answers: `rmqha switchover` changes the roles", refused)
        master.kill9()
        planned = self.failover(slave, "--dry-run", "--stop", "false")
        self.assertIn("it would be stopped, and promoted", planned)
        running = self.failover(slave, code=1)
        self.assertIn(f"names the role slave. Start it with rmqha run --conf {slave.conf}", running)
        end = slave.status()["maxOffset"]
        said = self.failover(slave, "--stop", f"kill {slave.pid}")
        self.assertIn(f"this log ends at byte {end}", said)
        self.assertIn(f"a new epoch is begun at byte {end}", said)
        self.assertIn("now you: start the node", said)
        self.assertIs(BrokerRole.SYNC_MASTER, load(slave.conf).broker.role)
        self.assertIsNone(load(slave.conf).ha.master)
        kept = slave.conf.with_name(f"{slave.conf.name}.before-failover")
        self.assertIn("brokerRole=SLAVE", kept.read_text(encoding="utf-8"))
        pid = self.folder / "new.pid"
        program = " ".join(map(str, (sys.executable, *slave.program)))
        start = f"setsid {program} -n --pidfile {pid} rmqha --conf {slave.conf}"
        self.addCleanup(lambda: os.kill(int(pid.read_text(encoding="ascii")), signal.SIGTERM))
        again = self.failover(slave, "--start", f"{start} >{self.folder}/new.log 2>&1 &")
        self.assertIn("is a master's already: going on", again)
        self.assertIn(f"serving as a master, from byte {end} on", again)
        self.assertIn("serving as a master", self.failover(slave))
        self.assertEqual({b"%d" % n for n in range(50)}, set(self.bodies(slave)))

    def failover(self, slave: Node, *arguments: str, code: int = 0) -> str:
        return self.rmqha("failover", slave.conf, *arguments, code=code)


class LiveTests(FailoverTestCase):
    """A slave that runs becomes the master in its process."""

    def test_live(self) -> None:
        """It is refused while the master answers, and changes nothing in a dry run; then the same
        process is the master, also after a start, and consumers go on where they were.
        """
        names = NameServer(self.folder)
        self._processes.append(names)
        names.start()
        master, slave = self.pair(namesrvAddr=names.client_address)
        with Remote(master.port) as client:
            client.ask(send("Orders", b"late", delay=4))
        slave.until_synced(master.status()["maxOffset"])
        before, pid = slave.conf.read_bytes(), slave.pid
        at = f"127.0.0.1:{slave.port}"
        for answers in ("is connected", "answers: `rmqha switchover`"):
            self.assertIn("`rmqha switchover`", self.rmqha("failover", slave.conf, code=1), answers)
        master.kill9()
        slave.until_upstream("connecting")
        self.assertIn("it would become the master", self.rmqha("failover", at, "--dry-run"))
        self.assertEqual(before, slave.conf.read_bytes())
        self.assertEqual("slave", slave.status()["role"])
        held = Remote(slave.port)
        with held:
            self.assertEqual(0, held.ask(pull("Orders", "readers", 0)).code)
            said = self.rmqha("failover", at)
        self.assertIn("gives no answer in 3 looks", said)
        self.assertIn("verified the whole log: ", said)
        self.assertIn("serving as a master, from byte", said)
        self.assertEqual(pid, slave.pid)
        status = slave.status()
        self.assertEqual(("master", 1), (status["role"], status["masterEpoch"]))
        self.assertNotIn("upstream", status)
        self.assertEqual(before, slave.conf.with_name("slave.conf.before-failover").read_bytes())
        with Remote(slave.port) as client:
            codes = {answer.code for answer in client.ask_all([send("Orders", b"new")])}
        self.assertEqual({11}, codes)  # it is stored, and has no slave
        until(lambda: b"late" in self.bodies(slave), "what was delayed comes", 30)
        wanted = [b"%d" % n for n in range(50)]
        self.assertEqual({*wanted, b"new", b"late"}, set(self.bodies(slave)))
        self.assertEqual(52, len(self.bodies(slave)))
        self.assertIn("the master already", self.rmqha("failover", at, code=1))
        self.assertNobodyCalls(master.ha_port, master.port)
        told = self.rmqha("status", "--name-server", names.client_address, "--json", code=1)
        self.assertIn('"role": "master"', told)
        self.assertNotIn('"role": "slave"', told)
        slave.term()
        slave.start()
        self.assertEqual("master", slave.status()["role"])
        self.assertEqual(52, len(self.bodies(slave)))

    def test_switchover(self) -> None:
        """Planned, it needs no stop of the slave either; its epoch is the one of the change."""
        names = NameServer(self.folder)
        self._processes.append(names)
        names.start()
        master, slave = self.pair(namesrvAddr=names.client_address)
        back = self.folder / "back.conf"
        lines = {**master.keys, "brokerRole": "SLAVE", "brokerId": 2}
        back.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        pid = self.folder / "back.pid"
        program = " ".join(map(str, (sys.executable, *master.program)))
        start = f"setsid {program} -n --pidfile {pid} rmqha --conf {back}"
        self.addCleanup(lambda: os.kill(int(pid.read_text(encoding="ascii")), signal.SIGTERM))
        done = rmqha(
            "switchover",
            *(f"127.0.0.1:{each.port}" for each in (master, slave)),
            *("--stop", f"kill {master.pid}"),
            *("--promote", f"{RMQHA} promote 127.0.0.1:{slave.port} --epoch $RMQHA_EPOCH"),
            *("--follow", f"{start} >{self.folder}/back.log 2>&1 &"),
            cwd=self.folder,
        )
        self.tell(done.stdout + done.stderr)
        self.assertEqual(0, done.returncode, done.stderr)
        status = slave.status()
        self.assertEqual(("master", 1), (status["role"], status["masterEpoch"]))
        self.assertEqual([b"%d" % n for n in range(50)], self.bodies(slave))

    def assertNobodyCalls(self, *ports: int) -> None:
        """Nobody connects to where the old master was; it would in a fifth of a second."""
        for port in ports:
            with socket.create_server(("127.0.0.1", port)) as server:
                server.settimeout(1.5)
                self.assertRaises(TimeoutError, server.accept)

    def test_master_is_back(self) -> None:
        """Killed when its file was a master's: it starts as the master as long as that is away, and
        else says how it becomes a slave again, as the command does; then it is one, and in sync.
        """
        master, slave = self.pair()
        slave.kill9()
        intend(slave.root, None, f"127.0.0.1:{master.port}")
        take(slave.conf, masters_file(slave.conf, "SYNC_MASTER"))
        slave.launch()
        until(lambda: not slave.running, "it does not start")
        back = f"`mv {slave.conf}.before-failover {slave.conf}`"
        self.assertIn(f"the master at 127.0.0.1:{master.port} is back", slave.tail())
        self.assertIn(back, slave.tail())
        said = self.rmqha("failover", slave.conf, code=1)
        self.assertIn(f"the master at 127.0.0.1:{master.port} answers: {back}", said)
        slave.conf.with_name("slave.conf.before-failover").replace(slave.conf)
        slave.launch()
        slave.until_synced(master.status()["maxOffset"])
        self.assertFalse((slave.root / "rmqha" / "promotion.json").exists())

    def test_kills(self) -> None:
        """Killed at any time, what starts is a promotable slave, or the master; all is there."""
        waits = [0.0, 0.1, 0.2, 0.3, 0.5, 0.8]
        ended = set()
        for wait in waits:
            folder, self.folder = self.folder, self.folder / f"after-{wait}"
            master, slave = self.pair()
            master.kill9()
            slave.until_upstream("connecting")
            running = subprocess.Popen(
                [sys.executable, RMQHA, "failover", slave.conf, "--timeout", "5"],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            assert running.stdout is not None
            for line in running.stdout:
                if "is a master's now" in line:
                    break
            time.sleep(wait)
            slave.kill9()
            running.wait(60)
            slave.start()
            role = slave.status()["role"]
            ended.add(role)
            if role == "slave":
                self.rmqha("failover", slave.conf)
            slave.until(lambda status: status["role"] == "master", "it is the master")
            slave.until(lambda status: status["state"] == "serving", "it serves")
            self.assertEqual(1, slave.status()["masterEpoch"])
            self.assertEqual([b"%d" % n for n in range(50)], self.bodies(slave))
            self.assertFalse((slave.root / "rmqha" / "promotion.json").exists())
            slave.kill9()
            self.folder = folder
        self.tell(f"roles after the kills: {ended}")
