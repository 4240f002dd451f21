"""C{rmqha switchover}."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tests.cli.command import CommandTestCase
from tests.support.effort import slow

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
        program = Path(sys.executable).parent / "rmqha"
        done = subprocess.run(
            [sys.executable, program, "switchover", *arguments],
            check=False,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
        )
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
