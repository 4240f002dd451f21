"""Whether who is forked is all that a process of its own would be."""

import json
import os
import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from lab.harness.forked import Forked
from lab.harness.nodes import Folder, Node
from lab.harness.remote import Remote
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.support.commands import RMQHA, ended, rmqha

#: What C{/proc} says of who was forked.
FORKED = "lab.harness.forked"


class ForkedTests(SynchronousTestCase):
    def test_alike(self) -> None:
        """A command says the same, on the same streams, and ends alike."""
        for told in (
            ["--version"],
            ["--help"],
            ["doctor", "nowhere"],
            ["status", "127.0.0.1:1"],
            ["nothing"],
        ):
            command = [sys.executable, str(RMQHA), *told]
            own = subprocess.run(command, check=False, capture_output=True, text=True)
            done = rmqha(*told)
            found = done.returncode, done.stdout, done.stderr
            self.assertEqual((own.returncode, own.stdout, own.stderr), found)

    def test_node(self) -> None:
        """It is our child, in its folder, and its end is told by its signal."""
        folder = Folder()
        self.addCleanup(folder.remove)
        node = Node(folder.path, "master")
        self.addCleanup(node.kill9)
        node.start()
        at = f"/proc/{node.pid}"
        self.assertIn(FORKED, self.command(node.pid))
        self.assertEqual(str(node.cwd), os.readlink(f"{at}/cwd"))
        with open(f"{at}/status", encoding="ascii") as status:
            self.assertIn(f"PPid:\t{os.getpid()}\n", status.read())
        booted = self.booted(node)
        node.kill9()
        self.assertEqual(-9, node.process.returncode)
        node.start()
        self.assertGreater(self.booted(node), booted, "each life of a node has a time of its own")

    @staticmethod
    def booted(node: Node) -> int:
        with Remote(node.port) as client:
            answer = client.ask(Command(code=RequestCode.GET_BROKER_RUNTIME_INFO))
        return int(json.loads(answer.body)["table"]["bootTimestamp"])

    def test_born_otherwise(self) -> None:
        """Whom Python is to treat otherwise is a process of its own, as is what is none of ours."""
        for told, environment in (
            ([str(RMQHA), "events", "127.0.0.1:1", "--follow"], {"PYTHONUTF8": "0"}),
            (["-c", "input()"], {}),
        ):
            with Forked(
                [sys.executable, *told],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            ) as process:
                self.assertNotIn(FORKED, self.command(process.pid))
                process.kill()

    def test_check(self) -> None:
        """A command that has to end well and does not is an error."""
        with self.assertRaises(subprocess.CalledProcessError):
            ended(sys.executable, RMQHA, "nothing", check=True)

    def command(self, pid: int) -> str:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
            return file.read()
