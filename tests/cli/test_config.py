"""
C{rmqha config check}.
"""

from __future__ import annotations

from pathlib import Path

from tests.cli.command import CommandTestCase


class ConfigTests(CommandTestCase):
    def conf(self, text: str) -> Path:
        """
        A file with settings.
        """
        path = Path(self.mktemp())
        path.write_text(text)
        return path

    def test_good(self) -> None:
        """
        Every key is listed with its value and where that comes from.
        """
        path = self.conf("brokerRole=SYNC_MASTER\nlistenPort=20911\nhaSlaveHandler=x\n"[:40])
        text = self.succeed("config", "check", path, "--set", "slaveTimeout=1000")
        lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
        self.assertEqual(lines["brokerRole"], ["SYNC_MASTER", "line", "1"])
        self.assertEqual(lines["haListenPort"][-2:], ["20912", "default"])
        self.assertEqual(lines["slaveTimeout"], ["1000", "--set"])

    def test_json(self) -> None:
        """
        The same as JSON, with what was noted and what was ignored.
        """
        path = self.conf("mappedFileSizeCommitLog=262144\nnamesrvAddr=a:1\nuseTLS=false\n")
        said = self.answer("config", "check", path)
        self.assertEqual(said["settings"]["mappedFileSizeCommitLog"]["value"], "262144")
        self.assertFalse(said["settings"]["mappedFileSizeCommitLog"]["default"])
        self.assertIsInstance(said["notes"], list)
        self.assertIsInstance(said["ignored"], list)

    def test_notes(self) -> None:
        """
        Keys that mean nothing here are listed on stderr.
        """
        path = self.conf("sendMessageThreadPoolNums=16\n")
        result = self.run_command("config", "check", path)
        self.assertEqual(result.exit_code, 0)
        self.assertIn("ignored, without effect in rmqha: sendMessageThreadPoolNums", result.stderr)

    def test_all_problems(self) -> None:
        """
        All problems are told at once, one a line, each with its place.
        """
        path = self.conf("flushDiskTyp=SYNC_FLUSH\nlistenPort=70000\nenableDLegerCommitLog=true\n")
        result = self.run_command("config", "check", path, "--set", "nonsense")
        self.assertEqual(result.exit_code, 1)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 4, lines)
        self.assertIn(
            f"{path}:1: unknown key flushDiskTyp; did you mean flushDiskType?", result.stderr
        )
        self.assertIn("listenPort=70000", result.stderr)
        self.assertIn("enableDLegerCommitLog", result.stderr)
        self.assertIn("nonsense", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_role(self) -> None:
        """
        A role that contradicts the file is refused; an unknown one is a usage error.
        """
        path = self.conf("brokerRole=SLAVE\nbrokerId=1\n")
        self.assertIn("brokerRole", self.fails(1, "config", "check", path, "--role", "master"))
        self.assertIn("observer", self.fails(2, "config", "check", path, "--role", "observer"))

    def test_no_file(self) -> None:
        """
        A file that is not there is one line.
        """
        self.assertIn("No such file", self.fails(1, "config", "check", "/nowhere/broker.conf"))
