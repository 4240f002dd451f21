"""C{rmqha repair}."""

from __future__ import annotations

import hashlib
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from lab.harness.nodes import Folder, Node
from rmqha.store.files.lock import StoreLock, is_locked
from tests.cli.command import CommandTestCase
from tests.support import damage
from tests.support.commands import rmqha
from tests.support.effort import slow

VERSION = golden.VERSIONS[0]
SIZE = golden.LOG_FILE_SIZE


def digests(store: Path) -> dict[str, str]:
    """A short picture of a log's files."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((store / "commitlog").iterdir())
    }


class RepairTests(CommandTestCase):
    def setUp(self) -> None:
        self.store, self.replica = golden.store(VERSION), golden.store(VERSION)
        self.whole = digests(self.store)

    def test_from_a_store(self) -> None:
        """The ranges, where what stood there is, and how many records; the log is whole then."""
        damage.overwrite(self.store / damage.name(10), 300, bytes(300))
        (self.store / damage.name(4)).unlink()
        text = self.succeed("repair", self.store, "--from", self.replica)
        self.assertIn(f"damaged: bytes {4 * SIZE} to {5 * SIZE}: files are missing", text)
        self.assertIn(f"replaced: bytes {10 * SIZE + 278} to {10 * SIZE + 834}", text)
        self.assertIn("kept: what stood there, in rmqha/quarantine/", text)
        self.assertIn("5 records replaced", text)
        self.assertEqual(digests(self.store), self.whole)
        self.succeed("verify", self.store, "--deep")
        self.assertFalse(is_locked(self.store / "lock"))
        (kept,) = (self.store / "rmqha" / "quarantine").iterdir()
        self.run_command("dump", kept)

    def test_nothing_to_do(self) -> None:
        """A sound store."""
        text = self.succeed("repair", self.store, "--from", self.replica)
        self.assertIn("no damaged or missing range", text)

    def test_dry_run(self) -> None:
        """It says what it would do, and leaves everything as it is."""
        damage.overwrite(self.store / damage.name(10), 300, bytes(300))
        before = digests(self.store)
        text = self.succeed("repair", self.store, "--from", self.replica, "--dry-run")
        self.assertIn("would be replaced: bytes", text)
        self.assertIn("2 records would be replaced", text)
        self.assertEqual(digests(self.store), before)
        self.assertEqual([*(self.store / "rmqha").iterdir()], [])

    def test_range(self) -> None:
        """A bit that no check covers, by its place."""
        path = self.store / damage.name(10)
        place = path.read_bytes().index(b"KEYS\x01") + 5
        damage.flip(path, place)
        at = 10 * SIZE + place
        said = self.answer(
            "repair", self.store, "--from", self.replica, "--range", f"{at}:{at + 1}"
        )
        self.assertEqual((said["records"], said["damaged"][0]["reason"]), (1, "asked for"))
        self.assertEqual(digests(self.store), self.whole)

    def test_not_had(self) -> None:
        """What the replica lacks is named with the reason, and the exit code is 1."""
        for store in (self.store, self.replica):
            damage.overwrite(store / damage.name(10), 300, bytes(300))
        said = self.answer("repair", self.store, "--from", self.replica, code=1)
        self.assertEqual(said["replaced"], [])
        self.assertIn("the replica's bytes are bad too", said["notHad"][0]["reason"])
        result = self.run_command("repair", self.store, "--from", self.replica)
        self.assertIn("not had: bytes 2621718 to 2622274: the replica's", result.stdout)

    def test_differs(self) -> None:
        """What stays though the replica has it otherwise is named, and the exit code is 1."""
        damage.flip(self.store / damage.name(10), 9856 + 90)
        damage.flip(self.replica / damage.name(10), 9856 + 358)
        result = self.run_command("repair", self.store, "--from", self.replica)
        self.assertEqual(result.exit_code, 1)
        self.assertIn("differs: bytes 2631654 to 2631658, left as is: the record at", result.stdout)
        self.assertEqual(digests(self.store), self.whole)

    def test_refused(self) -> None:
        """A store in use, the store itself, other file sizes, and a part of a store."""
        damage.overwrite(self.store / damage.name(10), 300, bytes(300))
        lock = StoreLock(self.store / "lock")
        lock.take()
        said = self.fails(1, "repair", self.store, "--from", self.replica)
        self.assertIn("is held by a running node", said)
        lock.release()
        said = self.fails(1, "repair", self.store, "--from", self.store)
        self.assertIn("is the store itself", said)
        (kept,) = [golden.store(VERSION)]
        for path in (kept / "commitlog").iterdir():
            path.unlink()
        for number in range(2):
            (kept / "commitlog" / f"{number * 4096:020d}").write_bytes(bytes(4096))
        said = self.fails(1, "repair", self.store, "--from", kept)
        self.assertIn("have 4096 bytes, ours 262144", said)
        damage.log_file(self.replica, 0)
        other = self.replica.rename(self.replica.with_name("other"))
        (other / "commitlog").rename(other.with_name("log"))
        said = self.fails(1, "repair", other.with_name("log"), "--from", self.store)
        self.assertIn("needs a store's root", said)

    def test_replica_in_use(self) -> None:
        """A replica's store on which a node runs is read as it is."""
        damage.overwrite(self.store / damage.name(10), 300, bytes(300))
        lock = StoreLock(self.replica / "lock")
        lock.take()
        self.addCleanup(lock.release)
        result = self.run_command("repair", self.store, "--from", self.replica)
        self.assertEqual(result.exit_code, 0, result.output)
        self.assertIn("it is read as it is now", result.stderr)
        self.assertEqual(digests(self.store), self.whole)

    def test_from_a_quarantine_file(self) -> None:
        """What was cut, or replaced, can be put back from the file that kept it."""
        start, stop = 10 * SIZE, 10 * SIZE + 30_570
        data = (self.store / damage.name(10)).read_bytes()[: stop - start]
        kept = self.store.with_name(f"{start:020d}-{stop:020d}.log")
        kept.write_bytes(data)
        damage.overwrite(self.store / damage.name(10), 300, bytes(300))
        text = self.succeed("repair", self.store, "--from", kept)
        self.assertIn(f"from {kept}", text)
        self.assertEqual(digests(self.store), self.whole)

    def test_bad_arguments(self) -> None:
        """What is no range, no address, and an option that does not fit."""
        for text in ("1", "5:5", "a:b", "9:3"):
            said = self.fails(2, "repair", self.store, "--from", self.replica, "--range", text)
            self.assertIn("is not two byte offsets A:B", said)
        said = self.fails(2, "repair", self.store, "--from", "nowhere")
        self.assertIn("neither a folder nor HOST:PORT", said)
        said = self.fails(2, "repair", self.store, "--from", self.replica, "--client-port", "1")
        self.assertIn("needs a running node", said)

    def test_progress(self) -> None:
        """On a terminal both the check and the copy show how far they are."""
        told: list[str] = []

        class Bar:
            def __init__(self, description: str) -> None:
                told.append(description)

            def __enter__(self) -> None:
                return None

            def __exit__(self, *args: object) -> None:
                return None

        damage.overwrite(self.store / damage.name(10), 300, bytes(300))
        with patch("rmqha.cli.repair.bar", Bar):
            self.succeed("repair", self.store, "--from", self.replica)
        self.assertEqual(told, ["checking the log", "fetching"])


@slow
class RunningMasterTests(SynchronousTestCase):
    """From a node of its own process."""

    def setUp(self) -> None:
        self.folder = Folder("repair-")
        self.addCleanup(self.folder.remove)
        self.store = golden.store(VERSION)
        self.whole = digests(self.store)

    def repair(self, address: tuple[str, int], *more: str, code: int = 0) -> str:
        """Run it as its own process, as a reactor runs but once."""
        done = rmqha("repair", self.store, "--from", f"{address[0]}:{address[1]}", *more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_from_a_master(self) -> None:
        """Damage, a missing file, and a hole come back by the HA port; no slave stays."""
        root = golden.store(VERSION)
        master = Node(
            self.folder.path,
            "master",
            root=root,
            mappedFileSizeCommitLog=SIZE,
            messageDelayLevel="1s",
        )
        self.addCleanup(master.kill9)
        master.start()
        damage.overwrite(self.store / damage.name(0), 0, bytes(600))
        (self.store / damage.name(4)).unlink()
        damage.overwrite(self.store / damage.name(6), 5000, bytes(9000))
        text = self.repair(master.address)
        self.assertIn("replaced: bytes 0 to", text)
        self.assertEqual(digests(self.store), self.whole)
        status = master.status()
        self.assertEqual((status["connections"], status["replicas"]), (0, []))
        damage.overwrite(self.store / damage.name(6), 5000, bytes(9000))
        self.repair(master.address, "--client-port", "0")
        self.assertEqual(digests(self.store), self.whole)
        damage.overwrite(self.store / damage.name(6), 5000, bytes(9000))
        master.kill9()
        text = self.repair(master.address, code=3)
        self.assertIn("cannot be reached: Connection was refused", text)
