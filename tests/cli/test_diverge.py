"""C{rmqha diverge}."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from lab.harness.nodes import Folder, Node
from rmqha.cli.reach import ports_to_call
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log import record_checksums
from rmqha.store.log.recovery import cut
from tests.cli.command import CommandTestCase
from tests.support import damage
from tests.support.commands import rmqha
from tests.support.effort import slow

VERSION = golden.VERSIONS[0]


class DivergeTests(CommandTestCase):
    def setUp(self) -> None:
        self.first, self.second = golden.store(VERSION), golden.store(VERSION)

    def test_equal(self) -> None:
        """Copies do not diverge."""
        said = self.answer("diverge", self.first, "--against", self.second)
        self.assertFalse(said["diverged"])
        self.assertEqual(said["firstRecordNotShared"], 2652010)
        text = self.succeed("diverge", self.first, "--against", self.second)
        self.assertIn("equal from byte 0 to 2652010", text)
        self.assertIn("0 records (0 bytes) of its own", text)

    def test_behind(self) -> None:
        """A store that is behind does not diverge; what it lacks is told by topic."""
        cut(LogFolder.load(self.second / "commitlog", damage.SIZE), 532)
        text = self.succeed("diverge", self.first, "--against", self.second)
        self.assertIn(f"{self.first}: ends at byte 2652010, 1287 records", text)
        self.assertIn("GoldenBulk: 1060", text)

    def test_diverged(self) -> None:
        """The place, the record and what each side would lose are told; exit code 1."""
        damage.flip(damage.log_file(self.second, 0), 208 + 50)
        said = self.answer("diverge", self.first, "--against", self.second, code=1)
        self.assertTrue(said["diverged"])
        self.assertEqual(said["difference"]["offset"], 258)
        self.assertEqual((said["firstRecordNotShared"], said["store"]["records"]), (208, 1288))
        self.assertEqual(said["store"]["bytes"], 2652010 - 208)
        result = self.run_command("diverge", self.first, "--against", self.second)
        self.assertEqual(result.exit_code, 1)
        self.assertIn("diverged: equal from byte 0 to 258", result.stdout)

    def test_damaged(self) -> None:
        """A flipped bit in a body is no shorter log: exit code 1, and whose damage it is."""
        damage.flip(damage.log_file(self.second, 0), 208 + 90)
        result = self.run_command("diverge", self.first, "--against", self.second)
        self.assertEqual(result.exit_code, 1)
        self.assertIn("diverged: equal from byte 0 to 298", result.stdout)
        self.assertIn("the first record that differs begins at byte 208", result.stdout)
        self.assertIn("GoldenBulk: 1060", result.stdout)
        said = self.answer("diverge", self.first, "--against", self.second, code=1)["versions"]
        self.assertEqual((said["start"], said["ours"], said["theirs"]), (208, 1, 0))
        records = said["both"] + 1
        self.assertIn(
            f"from there on {said['both']} of {records} records decode on both sides, "
            f"1 only on {self.first}\n",
            result.stdout,
        )
        first, second = result.stdout.splitlines()[-2:]
        self.assertNotIn("damaged places", first)
        self.assertIn("damaged places among them: 1", second)

    def test_whose_properties(self) -> None:
        """Of a bit that no CRC covers the checksums that each store keeps say whose it is; that
        nobody can tell where there is none, or each speaks for its own.
        """

        def keep(store: Path) -> None:
            raw = RawLog.open(store)
            record_checksums.remake(store, raw)
            raw.close()

        def flip() -> None:
            damage.flip(damage.log_file(self.second, 0), 531)

        def told() -> str:
            return self.run_command("diverge", self.first, "--against", self.second).stdout

        flip()
        self.assertIn("no checksum tells which version of the first is right", told())
        for keeps in ((self.first,), (self.first, self.second), (self.second,)):
            flip()
            record_checksums.remove(self.first)
            for store in keeps:
                keep(store)
            flip()
            self.assertIn(f"says that {self.first} is right\n", told())
        for store in (self.first, self.second):
            keep(store)
        self.assertIn("each side's checksum says that its own version of the first", told())

    def test_nothing_is_changed(self) -> None:
        """It is a dry run."""
        before = {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in self.second.rglob("*")
            if path.is_file()
        }
        self.succeed("diverge", self.first, "--against", self.second)
        after = {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in self.second.rglob("*")
            if path.is_file()
        }
        self.assertEqual(before, after)

    def test_nothing_in_common(self) -> None:
        """Logs that do not touch are refused with both ranges."""
        for number in range(1, 11):
            (self.first / damage.name(number)).unlink()
        for number in range(3):
            (self.second / damage.name(number)).unlink()
        said = self.fails(1, "diverge", self.first, "--against", self.second)
        self.assertIn("no byte in common", said)

    def test_bad_arguments(self) -> None:
        """What is neither a folder nor an address, and options that do not fit; the default client
        port stands for the HA port beside it.
        """
        for text, said_of_it, ports in (
            ("db1:10911", None, (("db1", 10912), 10911)),
            ("db1:10912", None, (("db1", 10912), 10911)),
            ("db1", None, (("db1", 10912), 10911)),
            ("[::1]:7", 8, (("::1", 7), 8)),
            ("db1", 0, (("db1", 10912), 0)),
        ):
            self.assertEqual(ports_to_call(text, said_of_it), ports)
        for other in ("nowhere", "nowhere:", "nowhere:70000"):
            said = self.fails(2, "diverge", self.first, "--against", other)
            self.assertIn("neither a folder nor HOST:PORT", said)
        self.assertIn("Missing option", self.fails(2, "diverge", self.first))
        for more in (("--all",), ("--from", "1"), ("--client-port", "1")):
            said = self.fails(2, "diverge", self.first, "--against", self.second, *more)
            self.assertIn("need a running master", said)
        both = ("--all", "--from", "1")
        said = self.fails(2, "diverge", self.first, "--against", "127.0.0.1:1", *both)
        self.assertIn("exclude each other", said)


@slow
class RunningMasterTests(SynchronousTestCase):
    """Against a node of its own process."""

    def setUp(self) -> None:
        self.folder = Folder("diverge-")
        self.addCleanup(self.folder.remove)
        self.master = self.node("master", golden.store(VERSION)).start()
        # Some of the store's delayed messages are due, and a master delivers them.
        status = self.master.until(
            lambda status: (
                not any(
                    level["pending"] for level in status["remoting"]["delayed"]["levels"].values()
                )
            ),
            "nothing is due",
        )
        self.end = status["maxOffset"]

    def node(self, role: str, root: Path, **more: Any) -> Node:
        node = Node(
            self.folder.path,
            role,
            root=root,
            mappedFileSizeCommitLog=damage.SIZE,
            messageDelayLevel="1s",
            **more,
        )
        self.addCleanup(node.kill9)
        return node

    def diverge(self, store: Path, *more: str, code: int = 0, port: int = 0) -> str:
        """Run it as its own process, as a reactor runs but once; against the HA port by default."""
        host, ha_port = self.master.address
        done = rmqha("diverge", store, "--against", f"{host}:{port or ha_port}", *more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code < 2 else done.stderr

    def test_compared(self) -> None:
        """Equal, behind and diverged, in words; the master sees nobody stay, and counts nothing."""
        store = golden.store(VERSION)
        said = json.loads(self.diverge(store, "--json"))
        self.assertEqual(said["firstRecordNotShared"], 2652010)
        delivered = said["against"]["records"]
        self.assertGreater(delivered, 0)
        cut(LogFolder.load(store / "commitlog", damage.SIZE), 532)
        said = json.loads(self.diverge(store, "--json", port=self.master.port))
        self.assertEqual(said["firstRecordNotShared"], 532)
        self.assertEqual(said["against"]["records"], 1287 + delivered)
        store = golden.store(VERSION)
        damage.flip(damage.log_file(store, 0), 208 + 90)
        text = self.diverge(store, "--client-port", "0", code=1)
        self.assertIn("diverged: equal from byte 1 to 298", text)
        self.assertIn("the first record that differs begins at byte 208", text)
        self.assertIn("GoldenBulk: 1060", text)
        status = self.master.status()
        self.assertEqual((status["connections"], status["replicas"]), (0, []))
        # One of them saw that this is the HA port: it is not the one behind the client port.
        self.assertEqual(status["closedConnections"], {"peer": 4})
        self.assertEqual(status["retentionSlots"], [])

    def test_store_in_use(self) -> None:
        """A slave may be running on the store; it does not notice."""
        root = self.folder.path / "slave" / "store"
        slave = self.node("slave", root, master=self.master.address).start()
        slave.until_synced(self.end)
        self.assertIn(f"equal from byte 1 to {self.end}", self.diverge(root))
        upstream = slave.status()["upstream"]
        self.assertEqual((upstream["state"], upstream["reconnects"]), ("in-sync", 0))

    def test_unreachable(self) -> None:
        """Nobody listens: exit code 3, and one line.  With TLS the client port is asked first."""
        self.master.kill9()
        tls = self.folder.path / "tls.properties"
        tls.write_text("haTlsEnable=true\n")
        for more, text in (
            ((), "cannot be reached: Connection was refused"),
            (("--tls", str(tls)), "was not connected to: its client port did not answer ("),
        ):
            said = self.diverge(golden.store(VERSION), *more, code=3)
            self.assertIn(text, said)
            self.assertEqual(len(said.splitlines()), 1)
