"""C{rmqha clone}, C{rmqha failover} and C{rmqha switchover}: what ends or refuses them."""

from __future__ import annotations

import socket
from pathlib import Path

from rmqha.cli.clone import see_that_it_goes_on
from rmqha.cli.local_nodes import LocalNodeFailed
from rmqha.config.properties import commented, parse
from tests.cli.command import CommandTestCase
from tests.support.commands import rmqha
from tests.support.effort import slow


class CloneTests(CommandTestCase):
    """A copy that cannot come to its end."""

    def test_stands_still(self) -> None:
        """A log that is not the master's ends it at once, with the way out."""
        see_that_it_goes_on({"state": "catching-up"}, "", 0.0)
        with self.assertRaises(LocalNodeFailed) as caught:
            see_that_it_goes_on({"state": "diverged", "reason": "byte 7 differs"}, "", 0.0)
        self.assertIn("diverged: byte 7 differs; `rmqha reinit`", str(caught.exception))

    def test_refused_tables(self) -> None:
        """Tables that stay refused end it, and do not for a moment."""
        see_that_it_goes_on({"state": "in-sync"}, "topics: no permission", 10.0)
        with self.assertRaises(LocalNodeFailed) as caught:
            see_that_it_goes_on({"state": "in-sync"}, "topics: no permission", 30.0)
        self.assertIn("refused: topics: no permission", str(caught.exception))


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


PAIR = "127.0.0.1:10911", "127.0.0.1:10921"


class SwitchoverCommandTests(CommandTestCase):
    """What is told of a command line, and of brokers that are not there."""

    def test_not_understood(self) -> None:
        """What is no pair of addresses, or asks for two things, is refused."""
        said = self.fails(2, "switchover", "broker-a:", PAIR[1])
        self.assertIn("'MASTER': 'broker-a:' is not host:port", said)
        self.assertIn("SLAVE", self.fails(2, "switchover", PAIR[0]))
        told = self.fails(2, "switchover", *PAIR, "--check", "--back")
        self.assertIn("exclude each other", told)

    def tried(self, *arguments: str) -> tuple[int, str]:
        """Run it in a process of its own, with a reactor: exit code, and stderr."""
        folder = Path(self.mktemp())
        folder.mkdir(parents=True)
        done = rmqha("switchover", *arguments, cwd=folder)
        self.assertEqual([], list(folder.iterdir()), "nothing was begun")
        return done.returncode, done.stderr

    @slow
    def test_not_there(self) -> None:
        """Brokers that do not answer are one line, and nothing was begun."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            nowhere = f"127.0.0.1:{free.getsockname()[1]}"
        code, told = self.tried(nowhere, nowhere)
        self.assertEqual((3, 1), (code, len(told.splitlines())), told)
        self.assertIn(f"cannot connect to {nowhere}", told)

    @slow
    def test_no_way_back(self) -> None:
        """Where nothing was begun there is no way back."""
        code, told = self.tried(*PAIR, "--back")
        self.assertEqual((1, 1), (code, len(told.splitlines())), told)
        self.assertIn("rmqha-switchover.json tells of no switchover", told)
