"""How a node that cannot start ends: with its reason and an exit code, daemonized or not."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from lab.harness.nodes import Folder, Node, until
from lab.harness.remote import Remote, pull, records, send
from rmqha.roles.host.exit_codes import FAILED, FOR_A_PERSON
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.truncate import intend
from rmqha.wire.store_layout import CHECKPOINT, DISPATCHED, OWN_FOLDER, TRUNCATION
from tests.faults.harness import FaultTestCase
from tests.support import client
from tests.support.commands import ended

TWISTD = Path(sys.executable).parent / "twistd"


class StartTests(SynchronousTestCase):
    """What twistd hides, told all the same."""

    def setUp(self) -> None:
        self.folder = Folder()
        self.addCleanup(self.folder.remove)

    def node(self, name: str = "first", **keys: object) -> Node:
        keys = {"mappedFileSizeCommitLog": golden.LOG_FILE_SIZE, **keys}
        node = Node(self.folder.path, "master", name, **keys)
        self.addCleanup(node.kill9)
        return node

    def command(self, node: Node, *, daemon: bool) -> list[str]:
        """The command line of a node; a daemon logs to C{<name>-daemon.log}."""
        log = self.folder.path / f"{node.name}-daemon.log"
        how = ["--logfile", str(log)] if daemon else ["-n"]
        pid = ["--pidfile", str(self.folder.path / f"{node.name}.pid")]
        return [sys.executable, str(TWISTD), *how, *pid, "rmqha", *node.write_conf()]

    def refused(self, node: Node, *, daemon: bool, code: int = FAILED) -> str:
        """Start a node that must not start, but end with a code, and return what it said."""
        done = ended(*self.command(node, daemon=daemon), cwd=self.folder.path)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        logs = [path.read_text() for path in self.folder.path.glob("*-daemon.log")]
        said = done.stdout + done.stderr + "".join(logs)
        self.assertNotIn("Traceback", said)
        pid = self.folder.path / f"{node.name}.pid"
        until(lambda: not pid.exists(), "the pid file to go")  # a daemon's a moment later
        return said

    def test_daemonized(self) -> None:
        """A daemonized node serves, holds its lock, and stops cleanly on SIGTERM."""
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
        """A store that another node has open is refused, and not touched."""
        first = self.node().start()
        second = self.node("second", storePathRootDir=first.root)
        self.assertIn("is held by a running node", self.refused(second, daemon=False))
        self.assertEqual(first.health(), 200)

    def test_port_in_use(self) -> None:
        """A port that is taken is named, daemonized or not."""
        first = self.node().start()
        second = self.node("second", haListenPort=first.ha_port)
        for daemon in (False, True):
            said = self.refused(second, daemon=daemon)
            self.assertIn("Address already in use", said)

    def test_no_folder(self) -> None:
        """A store that cannot be there is named with its key and the reason, daemonized or not."""
        file = self.folder.path / "file"
        file.touch()
        node = self.node(storePathRootDir=file)
        for daemon in (False, True):
            self.assertIn(
                f"Cannot start: [Errno 17] storePathRootDir={file}: File exists: '{file}'",
                self.refused(node, daemon=daemon),
            )

    def test_bad_configuration(self) -> None:
        """All mistakes are told at once, with their lines; starting it again does not help."""
        node = self.node(flushDiskTyp="SYNC_FLUSH", haTransferBatchSize="many")
        for daemon in (False, True):
            said = self.refused(node, daemon=daemon, code=FOR_A_PERSON)
            self.assertIn("did you mean flushDiskType?", said)
            self.assertIn("haTransferBatchSize=many", said)

    def test_damaged_log(self) -> None:
        """Damage that only recovery finds ends a master with its reason; --repair cuts there."""
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
        """A log that lacks the end it had at its clean stop is refused, with both numbers."""
        store = golden.store("5.3.3")
        node = self.node(storePathRootDir=store).start()
        node.term()
        sorted((store / "commitlog").iterdir())[-1].unlink()
        said = self.refused(node, daemon=False, code=FOR_A_PERSON)
        self.assertIn("has lost its tail", said)

    def test_accounts(self) -> None:
        """Accounts that cannot be read end it before its store is touched, for a person to mend."""
        node = self.node(aclEnable="true", aclPlainFile=self.folder.path / "nowhere.yml")
        self.assertIn("nowhere.yml", self.refused(node, daemon=False, code=FOR_A_PERSON))


QUEUES = 2000


class AgainTests(FaultTestCase):
    """What a start knows of the one before it."""

    def alone(self, **keys: object) -> Node:
        node = Node(self.folder, "master", "alone", **keys)
        self._processes.append(node)
        return node

    def checked(self, node: Node) -> tuple[int, int]:
        """What its last start checked: from where, and up to where."""
        found = re.findall(r"Log ends at byte (\d+) .* records from byte (\d+)", node.log())
        end, start = map(int, found[-1])
        return start, end

    def test_killed_in_its_first_seconds(self) -> None:
        """A store of many queues of which nothing is known is checked from its beginning once: a
        node that is killed soon after its start goes on from there at the next.
        """
        node = self.alone(mappedFileSizeCommitLog=golden.LOG_FILE_SIZE).start()
        address = f"127.0.0.1:{node.port}"
        client.make_topic(address, "Many", QUEUES)
        for count in (QUEUES, 400):
            with Remote(node.port) as broker:
                sent = [send("Many", bytes(1000), queue) for queue in range(count)]
                self.assertEqual({answer.code for answer in broker.ask_all(sent)}, {0})
            # What is younger by its store time than the checkpoint less three seconds is checked.
            self.passes(3.5 if count == QUEUES else 0.0)
        node.kill9()
        known = (node.root / CHECKPOINT, node.root / OWN_FOLDER / DISPATCHED)
        for path in known:
            path.unlink(missing_ok=True)
        node.start()
        start, end = self.checked(node)
        self.assertEqual(start, 0)
        until(lambda: all(path.exists() for path in known), "marks of this start", tell=node.tail)
        node.kill9()
        node.start()
        again, _ = self.checked(node)
        self.tell(f"{QUEUES} queues, {end} bytes: checked from byte {start}, then from {again}")
        self.assertGreater(again, end // 2)
        self.assertEqual(node.status()["maxOffset"], end)
        for queue in (0, QUEUES - 1):
            with Remote(node.port) as broker:
                self.assertTrue(records(broker.ask(pull("Many", "g", 0, queue))))

    def test_cut_of_another_log(self) -> None:
        """A C{truncate.json} that came from another store, with all that belongs to it, cuts
        nothing: a master refuses it, for a person to mend, and starts as it was without it.
        """
        other, root = golden.store("5.3.3"), golden.store("4.9.7")
        folder = LogFolder.load(other / "commitlog", golden.LOG_FILE_SIZE)
        intend(other, folder, 50_000, 100_000)
        folder.close()
        shutil.copytree(other / OWN_FOLDER, root / OWN_FOLDER, dirs_exist_ok=True)
        stale = root / OWN_FOLDER / TRUNCATION
        before = {path: path.read_bytes() for path in (root / "commitlog").iterdir()}
        node = self.alone(storePathRootDir=root, mappedFileSizeCommitLog=golden.LOG_FILE_SIZE)
        node.launch()
        self.assertEqual(FOR_A_PERSON, node.wait(), node.tail())
        said = node.log()
        self.assertIn(f"{stale} asks for a truncation that is not of this log", said)
        self.assertIn("the bytes before byte 50000 are not those", said)
        stale.unlink()
        node.start()
        self.assertEqual(node.health("readyz"), 200)
        node.term()
        for path, content in before.items():
            self.assertTrue(path.read_bytes().startswith(content.rstrip(b"\0")), path)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
