"""
C{rmqha diverge}.
"""

from __future__ import annotations

from rmqha.store.files import LogFolder
from rmqha.store.recovery import cut
from tests.cli.command import CommandTestCase
from tests.support import golden, mutilate

VERSION = golden.VERSIONS[0]


class DivergeTests(CommandTestCase):
    def setUp(self) -> None:
        self.first, self.second = golden.store(VERSION), golden.store(VERSION)

    def test_equal(self) -> None:
        """
        Copies do not diverge.
        """
        said = self.answer("diverge", self.first, "--against", self.second)
        self.assertFalse(said["diverged"])
        self.assertEqual(said["firstRecordNotShared"], 2652010)
        text = self.succeed("diverge", self.first, "--against", self.second)
        self.assertIn("equal from byte 0 to 2652010", text)
        self.assertIn("0 records (0 bytes) of its own", text)

    def test_behind(self) -> None:
        """
        A store that is behind does not diverge; what it lacks is told by topic.
        """
        cut(LogFolder.load(self.second / "commitlog", mutilate.SIZE), 532)
        text = self.succeed("diverge", self.first, "--against", self.second)
        self.assertIn(f"{self.first}: ends at byte 2652010, 1287 records", text)
        self.assertIn("GoldenBulk: 1060", text)

    def test_diverged(self) -> None:
        """
        The place, the record and what each side would lose are told; exit code 1.
        """
        mutilate.flip(mutilate.log_file(self.second, 0), 208 + 50)
        said = self.answer("diverge", self.first, "--against", self.second, code=1)
        self.assertTrue(said["diverged"])
        self.assertEqual(said["difference"]["offset"], 258)
        self.assertEqual(said["firstRecordNotShared"], 208)
        self.assertEqual(said["store"]["records"], 1288)
        self.assertEqual(said["store"]["bytes"], 2652010 - 208)
        result = self.run_command("diverge", self.first, "--against", self.second)
        self.assertEqual(result.exit_code, 1)
        self.assertIn("diverged: equal from byte 0 to 258", result.stdout)

    def test_damaged(self) -> None:
        """
        A flipped bit in a body is no shorter log: exit code 1, and whose damage it is.
        """
        mutilate.flip(mutilate.log_file(self.second, 0), 208 + 90)
        result = self.run_command("diverge", self.first, "--against", self.second)
        self.assertEqual(result.exit_code, 1)
        self.assertIn("diverged: equal from byte 0 to 298", result.stdout)
        self.assertIn("the first record not shared begins at byte 208", result.stdout)
        self.assertIn("GoldenBulk: 1060", result.stdout)
        first, second = result.stdout.splitlines()[-2:]
        self.assertNotIn("bad place", first)
        self.assertIn("1 bad places among them", second)

    def test_nothing_is_changed(self) -> None:
        """
        It is a dry run.
        """
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
        """
        Logs that do not touch are refused with both ranges.
        """
        for number in range(1, 11):
            (self.first / mutilate.name(number)).unlink()
        for number in range(3):
            (self.second / mutilate.name(number)).unlink()
        said = self.fails(1, "diverge", self.first, "--against", self.second)
        self.assertIn("no byte in common", said)

    def test_running_master(self) -> None:
        """
        An address is understood, and said to be for later.
        """
        for address in ("127.0.0.1:10912", "broker-a:10912", "[::1]:10912"):
            said = self.fails(2, "diverge", self.first, "--against", address)
            self.assertIn("not built yet", said)
        said = self.fails(2, "diverge", self.first, "--against", "nowhere")
        self.assertIn("no such folder", said)
        self.assertIn("Missing option", self.fails(2, "diverge", self.first))
