"""A slave that is cloned from a running master by one command."""

from __future__ import annotations

from pathlib import Path

from lab.harness import compare_stores
from lab.harness.nodes import Node
from lab.harness.remote import Remote, send
from tests.faults.harness import BRISK, FaultTestCase
from tests.support import client


class CloneTests(FaultTestCase):
    def test_clone(self) -> None:
        """It has log and tables, also when made again, and what starts on its file is in sync."""
        master = Node(self.folder, "master", "master", brokerRole="SYNC_MASTER", **BRISK).start()
        self._processes.append(master)
        clients = f"127.0.0.1:{master.port}"
        client.make_topic(clients, "Orders", 4)
        client.make_group(clients, "workers")
        with Remote(master.port) as sender:
            sender.ask_all([send("Orders", bytes(3000)) for _ in range(2000)])
        client.commit(clients, "workers", "Orders", 0, 7)
        root, conf = self.folder / "clone", self.folder / "clone.conf"
        for command in ("clone", "clone", "reinit"):
            said = self.copied(clients, root, command=command)
            self.assertIn(f"start the slave: rmqha run --conf {conf}", said)
            self.assertIn(f"bytes 0 to {master.status()['maxOffset']} ", said)
        self.assertTrue((self.folder / "clone.before-reinit-1" / "commitlog").is_dir())
        self.assertTrue((self.folder / "clone.conf.before-reinit-1").is_file())
        other = self.copied(clients, root / "x", "--conf", conf, code=1)
        self.assertIn("another one: name a new one", other)
        keys: dict[str, object] = dict(
            line.split("=", 1) for line in conf.read_text(encoding="utf-8").splitlines()
        )
        slave = Node(self.folder, "slave", "clone", root=root, **keys)
        self._processes.append(slave)
        slave.start().until_upstream("in-sync")
        self.assertIn("a node runs on", self.copied(clients, root, command="reinit", code=1))
        there = f"127.0.0.1:{slave.port}"
        self.assertIn("Orders", client.topic_names(there))
        self.assertEqual(7, client.committed(there, "workers", "Orders", 0))
        master.term()
        slave.term()
        both = self.settings(master), self.settings(slave)
        self.assertEqual([], compare_stores.damage(*both)[:20])
        gone = self.copied(clients, root, command="reinit", code=3)
        self.assertIn("gives no answer", gone)
        self.assertTrue(root.is_dir(), gone)

    def copied(
        self, master: str, root: Path, *more: str | Path, command: str = "clone", code: int = 0
    ) -> str:
        """Run the command, and return what it printed, and complained of."""
        done = self.ended(command, master, root, *more, code=code)
        self.tell(done.stdout + done.stderr)
        return done.stdout + done.stderr
