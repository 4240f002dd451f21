"""C{rmqha demo} as a user runs it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.harness.nodes import until
from rmqha.cli.demo import LIMIT
from tests.support.commands import RMQHA, rmqha


class DemoTests(SynchronousTestCase):
    """The demo, with a folder for what is temporary."""

    def setUp(self) -> None:
        """A folder in which nothing may stay behind."""
        self.folder = Path(tempfile.mkdtemp(prefix="demo-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def begun(self, *words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            # Who runs tests in the background has them ignore Ctrl-C.
            ["env", "--default-signal=INT", RMQHA, "demo", *words],
            env=dict(os.environ, TMPDIR=str(self.folder)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def until_said(self, process: subprocess.Popen[str], who: str) -> list[int]:
        """Read until the line of one node, and return the process ids of all nodes so far."""
        assert process.stdout is not None
        found = []
        for line in process.stdout:
            found += [int(number) for number in re.findall(r"process (\d+),", line)]
            if f" s  {who} " in line:
                return found
        self.fail(f"no line of the {who}: {process.stderr and process.stderr.read()}")

    def assert_gone(self, *numbers: int) -> None:
        places = [Path(f"/proc/{number}") for number in numbers]
        until(lambda: not any(place.exists() for place in places), f"the end of {numbers}", LIMIT)

    def test_well(self) -> None:
        """It tells each step and ends well; stores, logs and the ledger are kept where it was told
        to work, for the commands that it names.
        """
        work = self.folder / "work"
        process = self.begun("--dir", str(work))
        said, wrong = process.communicate(timeout=2 * LIMIT)
        self.assertEqual((0, ""), (process.returncode, wrong), said)
        lines = said.splitlines()
        self.assertEqual(f"Stores and logs are in {work}", lines.pop())
        for line, told in zip(lines, (
            rf"demo +works in {work}, on ports of 127.0.0.1",
            r"name server +process \d+, clients on \d+",
            r"master +process \d+, SYNC_MASTER, clients on \d+, store a",
            r"slave +process \d+, in sync with 127.0.0.1:\d+, store b",
            r"client +4\d\d messages acknowledged: each is on both nodes",
            r"master +kill -9 while the client sends: \d+ more messages acknowledged, \d+ without",
            r"promote +rmqha promote b --tables a: \d+ records up to byte \d+, master epoch 0 -> 1",
            r"new master +process \d+, clients on \d+, store b",
            r"client +2\d\d messages acknowledged: ",
            r"client +reads \d+ messages, all \d+ acknowledged among them",
            r"verify +rmqha verify b: clean",
            r"doctor +rmqha doctor: each of \d+ acknowledged messages is at its byte",
            r"demo +all is well: no acknowledged message was lost",
        ), strict=True):  # fmt: skip
            self.assertRegex(line, rf"^ *\d+\.\d s  {told}")
        ledger = ("--ledger", work / "acknowledged.jsonl")
        rmqha("doctor", *ledger, work / "b", check=True)
        self.assertEqual([work], list(self.folder.iterdir()))

    def test_interrupted(self) -> None:
        """Ctrl-C ends all its processes, and nothing stays behind."""
        process = self.begun()
        nodes = self.until_said(process, "master")
        process.send_signal(signal.SIGINT)
        _, wrong = process.communicate(timeout=LIMIT)
        self.assertEqual((130, "rmqha: interrupted\n"), (process.returncode, wrong))
        self.assert_gone(*nodes)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_killed(self) -> None:
        """Its nodes end with it however it ends."""
        process = self.begun()
        nodes = self.until_said(process, "master")
        process.kill()
        self.assertEqual(2, len(nodes))
        self.assert_gone(*nodes)

    def test_wrong(self) -> None:
        """A node that ends unasked ends the demo, with what it said and where its log is."""
        process = self.begun()
        server, master = self.until_said(process, "master")
        os.kill(server, signal.SIGKILL)
        _, wrong = process.communicate(timeout=LIMIT)
        self.assertEqual(1, process.returncode)
        (folder,) = self.folder.iterdir()
        self.assertRegex(wrong, "^rmqha: the name server has ended, and last said: ")
        self.assertEqual(f"Stores and logs are in {folder}\n", wrong[wrong.index("Stores") :])
        self.assertIn("name server", (folder / "name-server.log").read_text())
        self.assert_gone(master)
