"""The master's machine is dead: one command makes its slave the master."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lab.harness.nodes import Node
from lab.harness.remote import Remote, pull, records, send
from rmqha.config.broker_settings import BrokerRole
from rmqha.config.load import load
from tests.faults.harness import BRISK, FaultTestCase

RMQHA = Path(sys.executable).parent / "rmqha"


class FailoverTests(FaultTestCase):
    """A pair whose master dies."""

    def test_failover(self) -> None:
        """It is refused while the master answers, says what it would do, does it, and goes on
        wherever it was left; nothing that was acknowledged is missing.
        """
        keys = {**BRISK, "brokerIP1": "127.0.0.1", "brokerIP2": "127.0.0.1"}
        master = Node(self.folder, "master", "master", brokerRole="SYNC_MASTER", **keys).start()
        slave = Node(
            self.folder,
            "slave",
            "slave",
            brokerRole="SLAVE",
            haMasterAddress="{}:{}".format(*master.address),
            haMasterClientAddress=f"127.0.0.1:{master.port}",
            **keys,
        ).start()
        self._processes += [master, slave]
        slave.until_upstream("in-sync")
        with Remote(master.port) as client:
            answers = client.ask_all([send("Orders", b"%d" % n) for n in range(50)])
        self.assertEqual({0}, {answer.code for answer in answers})
        refused = self.failover(slave, code=1)
        self.assertIn("answers: `rmqha switchover` changes the roles", refused)
        master.kill9()
        planned = self.failover(slave, "--dry-run")
        self.assertIn("it would be stopped, and promoted", planned)
        self.assertIn("stop it, or give --stop COMMAND", self.failover(slave, code=1))
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
        found = set()
        with Remote(slave.port) as client:
            while not (answer := client.ask(pull("Orders", "readers", len(found)))).code:
                found |= {record.body for record in records(answer)}
        self.assertEqual({b"%d" % n for n in range(50)}, found)

    def failover(self, slave: Node, *arguments: str, code: int = 0) -> str:
        """Run the command.

        @return: What it printed, and complained of.
        """
        done = subprocess.run(
            [sys.executable, RMQHA, "failover", slave.conf, *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=90,
        )
        self.tell(done.stdout + done.stderr)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr
