"""C{rmqha run}."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.scripts import twistd
from twisted.trial.unittest import SynchronousTestCase

from lab.harness.ports import free_port
from rmqha.roles.host.exit_codes import FAILED, FOR_A_PERSON
from rmqha.store.files.lock import StoreLock
from tests.cli.command import CommandTestCase
from tests.support.commands import rmqha
from tests.support.effort import slow


class RunTests(CommandTestCase):
    def words(self, *given: str) -> list[str]:
        told: list[list[str]] = []
        self.patch(sys, "argv", ["rmqha"])
        self.patch(twistd, "run", lambda: told.append(sys.argv))
        self.succeed("run", *given)
        (words,) = told
        return words

    def test_roles(self) -> None:
        """Each role runs in the foreground, with its options and without a pid file."""
        given = ("--conf", "a.conf", "--set", "listenPort=1", "--force")
        words = self.words("master", *given)
        self.assertEqual(
            words, ["twistd", "--nodaemon", "--pidfile=", "rmqha", "--role", "master", *given]
        )
        self.assertEqual(self.words("namesrv")[-2:], ["--role", "namesrv"])

    def test_without_a_file(self) -> None:
        """The role may be left out where the folder or the master says it."""
        common = ["twistd", "--nodaemon", "--pidfile=", "rmqha"]
        for given in (("--store", "a"), ("--slave-of", "b:10911"), ("--conf", "a.conf")):
            self.assertEqual([*common, *given], self.words(*given))

    def test_unknown(self) -> None:
        """Another role is refused, and none."""
        self.assertIn("'observer' is not one of 'master', ", self.fails(2, "run", "observer"))
        said = self.fails(2, "run")
        self.assertIn("give a ROLE (master, slave, member, namesrv), or --store DIR for a", said)


class ProcessTests(SynchronousTestCase):
    """C{rmqha run} as a process of its own, which does not start."""

    def ended(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """Run it until it ends by itself."""
        return rmqha("run", *words)

    def folder(self) -> Path:
        path = Path(tempfile.mkdtemp(prefix="run-"))
        self.addCleanup(shutil.rmtree, path)
        return path

    def ports(self) -> tuple[int, list[str]]:
        """A client port, and the options that put the node there, on loopback."""
        port = free_port(-2, 1, 3)
        keys = f"listenPort={port}", "bindAddress=127.0.0.1", "haListenAddress=127.0.0.1"
        return port, [word for key in keys for word in ("--set", key)]

    @slow
    def test_mistake(self) -> None:
        """A mistake ends it with one line, and the code that tells service managers to stop."""
        for words, said in (
            (("slave", "--set", "noSuchKey=1"), "--set: unknown key noSuchKey"),
            (
                ("--slave-of", "a:b"),
                "--slave-of=a:b is not allowed: HOST, or HOST:PORT with a port from 1 to 65535",
            ),
        ):
            done = self.ended(*words)
            self.assertEqual(FOR_A_PERSON, done.returncode, done.stderr)
            self.assertEqual((f"rmqha: {said}\n", ""), (done.stderr, done.stdout))

    @slow
    def test_master_away(self) -> None:
        """A port that is none of RocketMQ's and cannot be asked may be there at the next start."""
        done = self.ended("--slave-of", f"127.0.0.1:{free_port()}")
        self.assertEqual(FAILED, done.returncode, done.stderr)
        self.assertIn("Connection refused, so it is not known whether", done.stderr)
        self.assertEqual(1, len(done.stderr.splitlines()))

    @slow
    def test_folder_in_use(self) -> None:
        """The first log line says what was to run, where; another why not, and what to do."""
        root, (port, options) = self.folder(), self.ports()
        lock = StoreLock(root / "lock")
        lock.take()
        self.addCleanup(lock.release)
        done = self.ended("--store", root, *options)
        self.assertEqual(FAILED, done.returncode)
        own = [line for line in done.stdout.splitlines() if " [twisted" not in line]
        self.assertRegex(
            own[0],
            rf" rmqha \S+ master \(ASYNC_MASTER\), broker \S+/0, store {root}, clients on "
            rf"127.0.0.1:{port}, replicas on 127.0.0.1:{port + 1}, admin on 127.0.0.1:{port + 3}$",
        )
        (why,) = (line for line in own if "Cannot start: " in line)
        self.assertIn(f"{root}/lock is held by a running node. Stop that node, or give", why)
        self.assertTrue(why.endswith("--store DIR"), why)

    @slow
    def test_port_in_use(self) -> None:
        """A port that another process has is named, with the key that gives another."""
        port, options = self.ports()
        with socket.create_server(("127.0.0.1", port)):
            done = self.ended("--store", self.folder(), *options)
        self.assertEqual(FAILED, done.returncode)
        self.assertIn(f"Stop what listens on port {port}, or give this node other", done.stdout)
        self.assertIn("--set listenPort=PORT", done.stdout)
