"""
C{rmqha run}.
"""

from __future__ import annotations

import sys

from twisted.scripts import twistd

from tests.cli.command import CommandTestCase


class RunTests(CommandTestCase):
    def words(self, *given: str) -> list[str]:
        """
        What twistd is told.
        """
        told: list[list[str]] = []
        self.patch(sys, "argv", ["rmqha"])
        self.patch(twistd, "run", lambda: told.append(sys.argv))
        self.succeed("run", *given)
        (words,) = told
        return words

    def test_roles(self) -> None:
        """
        Each role runs in the foreground, with its options and without a pid file.
        """
        given = ("--conf", "a.conf", "--set", "listenPort=1", "--force")
        words = self.words("master", *given)
        self.assertEqual(
            words,
            ["twistd", "--nodaemon", "--pidfile=", "rmqha", "--role", "master", *given],
        )
        self.assertEqual(self.words("namesrv")[-2:], ["--role", "namesrv"])

    def test_unknown(self) -> None:
        """
        Another role is refused.
        """
        self.assertIn("observer", self.fails(2, "run", "observer"))
