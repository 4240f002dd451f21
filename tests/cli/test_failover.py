"""C{rmqha failover}: what is refused before anything is asked."""

from __future__ import annotations

from pathlib import Path

from rmqha.config.properties import commented, parse
from tests.cli.command import CommandTestCase


class FailoverTests(CommandTestCase):
    def conf(self, *lines: str) -> Path:
        path = Path(self.mktemp())
        text = "\n".join([f"storePathRootDir={path.absolute()}-store", *lines, ""])
        path.write_text(text, encoding="utf-8")
        return path

    def test_of_a_set(self) -> None:
        """A set's controllers elect."""
        lines = ("enableControllerMode=true", "controllerAddr=127.0.0.1:1", "brokerRole=SLAVE")
        said = self.fails(1, "failover", self.conf(*lines))
        self.assertIn("`rmqha controller explain`", said)

    def test_of_a_master(self) -> None:
        """A master's file is no slave's, unless this command has made it one."""
        path = self.conf("brokerRole=SYNC_MASTER")
        self.assertIn("it takes the file of a slave", self.fails(1, "failover", path))

    def test_unknown_master(self) -> None:
        """Whose master only name servers know is told to name it."""
        said = self.fails(1, "failover", self.conf("brokerRole=SLAVE"))
        self.assertIn("give --master HOST:PORT", said)

    def test_no_file(self) -> None:
        """What is a path is not taken for an address."""
        self.assertIn("there is no file /etc/no", self.fails(2, "failover", "/etc/no"))


class CommentedTests(CommandTestCase):
    """The lines of some keys as comments."""

    def test_lines(self) -> None:
        """Whole entries go, also those on several lines; all else stays as it was written."""
        text = "# a=0\na = 1\nb:2\\\n  3\\\n 4\n\nc=5\\\\\na=6"
        self.assertEqual(
            "# a=0\n#a = 1\n#b:2\\\n#  3\\\n# 4\n\nc=5\\\\\n#a=6\n", commented(text, ("a", "b"))
        )
        self.assertEqual([("c", "5\\")], [(e.key, e.value) for e in parse(commented(text, "ab"))])
        self.assertEqual("c=1\n", commented("c=1\n\n", ("a",)))
