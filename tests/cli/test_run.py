"""C{rmqha run}."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.scripts import twistd

from rmqha.roles.host.exit_codes import FOR_A_PERSON
from tests.cli.command import CommandTestCase
from tests.support.effort import slow


class RunTests(CommandTestCase):
    def words(self, *given: str) -> list[str]:
        """What twistd is told."""
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
            words,
            ["twistd", "--nodaemon", "--pidfile=", "rmqha", "--role", "master", *given],
        )
        self.assertEqual(self.words("namesrv")[-2:], ["--role", "namesrv"])

    def test_unknown(self) -> None:
        """Another role is refused, and none."""
        self.assertIn("'observer' is not one of 'master', ", self.fails(2, "run", "observer"))
        said = self.fails(2, "run")
        self.assertIn("Missing argument 'ROLE'. Choose from: master, slave, member, namesrv", said)

    @slow
    def test_mistake(self) -> None:
        """A mistake ends it with one line that says what it is, and with the code that tells a
        service manager to leave it alone.
        """
        done = subprocess.run(
            [Path(sys.executable).parent / "rmqha", "run", "slave", "--set", "noSuchKey=1"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        self.assertEqual(FOR_A_PERSON, done.returncode, done.stderr)
        self.assertEqual("rmqha: --set: unknown key noSuchKey\n", done.stderr)
        self.assertEqual("", done.stdout)
