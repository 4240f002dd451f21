"""What twistd writes of a node."""

from __future__ import annotations

import json
import signal

from twisted.trial.unittest import SynchronousTestCase

from lab.harness.nodes import Folder, Node, until
from tests.support.effort import slow


class LoggingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Folder("logging-")
        self.addCleanup(self.folder.remove)

    @slow
    def test_json(self) -> None:
        """From the first line to the last each is an object that names the node."""
        node = Node(self.folder.path, "master", logFormat="json", logLevel="info")
        node.start()
        node.term()
        rows = [json.loads(line) for line in node.log_path.read_text().splitlines()]
        self.assertEqual({row["node"] for row in rows}, {"broker-a/0"})
        self.assertIn("master is serving", [row["text"] for row in rows])

    @slow
    def test_file(self) -> None:
        """With C{--logfile} the lines are there, and C{SIGUSR1} turns it over."""
        node = Node(self.folder.path, "master")
        path = self.folder.path / "node.log"
        node.launch_options = ["--logfile", str(path)]
        node.start()
        node.signal(signal.SIGUSR1)
        node.term()
        old = path.with_name("node.log.1")
        until(old.exists, "the old file")
        both = old.read_text() + path.read_text()
        self.assertIn(" broker-a/0 [roles.master] master is serving", both)
        self.assertIn("Server Shut Down.", path.read_text())
