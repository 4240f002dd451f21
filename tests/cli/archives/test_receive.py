"""C{rmqha receive}, as its own process, and what a service manager is told."""

from __future__ import annotations

import errno
import json
import signal
import sys

import click
from twisted.trial.unittest import SynchronousTestCase

from lab.harness.nodes import Folder, Node, Process, until
from lab.harness.ports import free_ports
from lab.harness.remote import Remote, send
from rmqha.archive.errors import FileSizeUnknown, ReceiveStopped
from rmqha.cli.archives.as_service import as_service
from rmqha.cli.main import main
from rmqha.errors import FlushFailed, StoreLocked
from rmqha.tier.errors import TierOfAnotherLog
from tests.cli.command import CommandTestCase
from tests.support.commands import RMQHA, rmqha
from tests.support.effort import slow


class MistakeTests(CommandTestCase):
    def test_from(self) -> None:
        """The master's address is needed, and is one."""
        self.assertIn("--from", self.fails(2, "receive", "archive"))
        self.assertIn("is not host:port", self.fails(2, "receive", "--from", "a:b", "archive"))

    def test_numbers(self) -> None:
        """Numbers are in their range."""
        for option in ("--report-delay", "--fsync-interval", "--log-interval", "--file-size"):
            said = self.fails(2, "receive", "--from", "127.0.0.1:1", "archive", option, "0")
            self.assertIn(option, said)

    def test_nobody_to_ask(self) -> None:
        """Without a client port a new archive needs a file size."""
        said = self.fails(2, "receive", "--from", "127.0.0.1:2", "/nowhere", "--client-port", "0")
        self.assertIn("--client-port 0 needs --file-size", said)


class ReceiveTests(CommandTestCase):
    def setUp(self) -> None:
        folder = Folder("receive-")
        self.addCleanup(folder.remove)
        self.folder = folder.path
        self.archive = self.folder / "archive"
        self.process = Process("receive", self.folder / "receive.log")
        self.addCleanup(self.process.kill9)

    def run_receive(self, *args: str) -> None:
        self.process.spawn([sys.executable, str(RMQHA), "receive", str(self.archive), *args])

    @slow
    def test_begins_and_ends(self) -> None:
        """A new archive has its master's file size; signals end it with code 0, to be resumed."""
        master = Node(self.folder, "master").start()
        self.addCleanup(master.kill9)
        source = ["--from", f"127.0.0.1:{master.ha_port}", "--log-interval", "1"]
        manifest = self.archive / "rmqha" / "archive.json"
        # A shell's background job is deaf to Ctrl-C, and so are its children.
        deaf = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        for number in (signal.SIGTERM if deaf else signal.SIGINT, signal.SIGTERM):
            with Remote(master.port) as client:
                for _ in range(3):
                    self.assertEqual(client.ask(send("Orders", b"x" * 1000)).code, 0)
            end = master.status()["maxOffset"]
            self.run_receive(*source, "--client-port", str(master.port))
            until(lambda: f"to {end}" in self.process.log(), "all", tell=self.process.tail)  # noqa: B023
            self.process.signal(number)
            self.assertEqual(self.process.wait(), 0, self.process.tail())
            known = json.loads(manifest.read_text(encoding="ascii"))
            self.assertEqual(
                (known["fileSize"], known["lastOffset"], known["brokerName"]),
                (1 << 20, end, "broker-a"),
            )
        self.assertEqual(self.process.complaints(), [])
        self.assertIn("clean", self.succeed("verify", self.archive))
        self.assertIn("in-sync with 127.0.0.1:", self.process.log())
        self.assertIn(" info     receive [archive.archive] Archive ", self.process.log())

    @slow
    def test_another_log(self) -> None:
        """At a master with another log it ends with a line and the code that stops restarts."""
        for name, topic in (("one", "Orders"), ("other", "Prices")):
            folder = self.folder / name
            folder.mkdir()
            master = Node(folder, "master").start()
            self.addCleanup(master.kill9)
            with Remote(master.port) as client:
                self.assertEqual(client.ask(send(topic, b"x" * 1000)).code, 0)
            end = master.status()["maxOffset"]
            told = ["--client-port", str(master.port), "--log-interval", "1"]
            self.run_receive("--from", f"127.0.0.1:{master.ha_port}", *told)
            if name == "one":
                until(lambda: f"to {end}" in self.process.log(), "all", tell=self.process.tail)  # noqa: B023
                self.process.signal(signal.SIGTERM)
                self.assertEqual(self.process.wait(), 0, self.process.tail())
        self.assertEqual(self.process.wait(), 78, self.process.tail())
        self.assertIn("rmqha: diverged: ", self.process.log().splitlines()[-1])

    @slow
    def test_no_file_size(self) -> None:
        """Without an answer a new archive is not begun with a size that may be wrong."""
        (port,) = free_ports(1)
        done = rmqha("receive", self.archive, "--from", "127.0.0.1:1", "--client-port", str(port))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("does not tell the size of its log files", done.stderr.splitlines()[-1])
        self.assertNotIn("Traceback", done.stderr)
        self.assertFalse(self.archive.exists())


class AsServiceTests(SynchronousTestCase):
    def code(self, error: Exception) -> int:
        @click.command()
        def fails() -> None:
            with as_service():
                raise error

        self.patch(main, "commands", {"fails": fails})
        with self.assertRaises(SystemExit) as ended:
            main.main(["fails"])
        return int(ended.exception.code or 0)

    def test_lasts(self) -> None:
        """It is 78, for no restart, of what stays: parted logs, a folder that is not writable."""
        stopped = ReceiveStopped(state="diverged", reason="byte 7 differs", start=0, end=9)
        other = TierOfAnotherLog("s3://a/b", "/store", 0, "broker-a", "broker-b")
        for error in (stopped, other, PermissionError(errno.EACCES, "Permission denied", "/a")):
            self.assertEqual(78, self.code(error), error)

    def test_passes(self) -> None:
        """It is 1 for what may be over by then: a master that does not answer yet, another process
        that has the archive, a disk without room, or one that failed.
        """
        away = FileSizeUnknown("127.0.0.1:10911", "Connection refused")
        full = OSError(errno.ENOSPC, "No space left on device", "/a")
        failed = ReceiveStopped(state="failed", reason="/a/1: I/O error", start=0, end=9)
        flush = FlushFailed("/a/1", "I/O error")
        for error in (away, StoreLocked("/a/lock"), full, flush, failed):
            self.assertEqual(1, self.code(error), error)
