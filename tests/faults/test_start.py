"""
How a node that cannot start ends: with its reason and an exit code, daemonized or not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from lab.harness.nodes import Folder, Node, until
from rmqha.roles.host.exit_codes import FAILED, FOR_A_PERSON

TWISTD = Path(sys.executable).parent / "twistd"


class StartTests(SynchronousTestCase):
    """
    What twistd hides, told all the same.
    """

    def setUp(self) -> None:
        self.folder = Folder()
        self.addCleanup(self.folder.remove)

    def node(self, name: str = "first", **keys: object) -> Node:
        """
        A master that was not started.
        """
        keys = {"mappedFileSizeCommitLog": golden.LOG_FILE_SIZE, **keys}
        node = Node(self.folder.path, "master", name, **keys)
        self.addCleanup(node.kill9)
        return node

    def command(self, node: Node, *, daemon: bool) -> list[str]:
        """
        The command line of a node; a daemon logs to C{<name>-daemon.log}.
        """
        log = self.folder.path / f"{node.name}-daemon.log"
        how = ["--logfile", str(log)] if daemon else ["-n"]
        pid = ["--pidfile", str(self.folder.path / f"{node.name}.pid")]
        return [sys.executable, str(TWISTD), *how, *pid, "rmqha", *node.write_conf()]

    def refused(self, node: Node, *, daemon: bool, code: int = FAILED) -> str:
        """
        Start a node that must not start.

        @param code: How it has to end.
        @return: Everything it said.
        """
        ended = subprocess.run(
            self.command(node, daemon=daemon),
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.folder.path,
            check=False,
        )
        self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
        logs = [path.read_text() for path in self.folder.path.glob("*-daemon.log")]
        said = ended.stdout + ended.stderr + "".join(logs)
        self.assertNotIn("Traceback", said)
        pid = self.folder.path / f"{node.name}.pid"
        until(lambda: not pid.exists(), "the pid file to go")  # a daemon's a moment later
        return said

    def test_daemonized(self) -> None:
        """
        A daemonized node serves, holds its lock, and stops cleanly on SIGTERM.
        """
        node = self.node()
        subprocess.run(
            self.command(node, daemon=True), check=True, timeout=60, cwd=self.folder.path
        )
        pid_file = self.folder.path / "first.pid"
        pid = int(pid_file.read_text())
        self.addCleanup(_kill, pid)
        until(lambda: node.health() == 200, "the daemon to be healthy")
        again = self.node("second", storePathRootDir=node.root)
        self.assertIn("is held by a running node", self.refused(again, daemon=True))
        os.kill(pid, signal.SIGTERM)
        until(lambda: not pid_file.exists(), "the daemon to end")
        self.assertFalse((node.root / "abort").exists())

    def test_locked(self) -> None:
        """
        A store that another node has open is refused, and not touched.
        """
        first = self.node().start()
        second = self.node("second", storePathRootDir=first.root)
        self.assertIn("is held by a running node", self.refused(second, daemon=False))
        self.assertEqual(first.health(), 200)

    def test_port_in_use(self) -> None:
        """
        A port that is taken is named, daemonized or not.
        """
        first = self.node().start()
        second = self.node("second", haListenPort=first.ha_port)
        for daemon in (False, True):
            said = self.refused(second, daemon=daemon)
            self.assertIn("Address already in use", said)

    def test_no_folder(self) -> None:
        """
        A store that cannot be there is named with the system's reason, daemonized or not.
        """
        file = self.folder.path / "file"
        file.touch()
        node = self.node(storePathRootDir=file)
        for daemon in (False, True):
            self.assertIn(
                f"Cannot start: [Errno 17] File exists: '{file}'", self.refused(node, daemon=daemon)
            )

    def test_bad_configuration(self) -> None:
        """
        All mistakes are told at once, with their lines; starting it again does not help.
        """
        node = self.node(flushDiskTyp="SYNC_FLUSH", haTransferBatchSize="many")
        for daemon in (False, True):
            said = self.refused(node, daemon=daemon, code=FOR_A_PERSON)
            self.assertIn("did you mean flushDiskType?", said)
            self.assertIn("haTransferBatchSize=many", said)

    def test_damaged_log(self) -> None:
        """
        Damage that only recovery finds ends a master with its reason; --repair cuts
        there and keeps what it cut.
        """
        store = golden.store("4.9.7")
        last = sorted((store / "commitlog").iterdir())[-1]
        with open(last, "r+b") as file:
            file.seek(100)
            file.write(b"\xff")
        node = self.node(storePathRootDir=store)
        said = self.refused(node, daemon=False, code=FOR_A_PERSON)
        self.assertIn("this is damage, not a torn tail", said)
        node.arguments.append("--repair")
        node.start()
        node.term()
        self.assertFalse((store / "abort").exists())
        self.assertEqual(len(list((store / "rmqha" / "quarantine").iterdir())), 1)

    def test_missing_last_file(self) -> None:
        """
        A log that lacks the end it had at its clean stop is refused, with both numbers.
        """
        store = golden.store("5.3.3")
        node = self.node(storePathRootDir=store).start()
        node.term()
        sorted((store / "commitlog").iterdir())[-1].unlink()
        said = self.refused(node, daemon=False, code=FOR_A_PERSON)
        self.assertIn("has lost its tail", said)

    def test_accounts(self) -> None:
        """
        Accounts that cannot be read end it before its store is touched, for a person to mend.
        """
        node = self.node(aclEnable="true", aclPlainFile=self.folder.path / "nowhere.yml")
        self.assertIn("nowhere.yml", self.refused(node, daemon=False, code=FOR_A_PERSON))


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
