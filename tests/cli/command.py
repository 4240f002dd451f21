"""Running the C{rmqha} command in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from twisted.trial.unittest import SynchronousTestCase

from rmqha.cli.main import main
from rmqha.priority import VARIABLE, Priority


class CommandTestCase(SynchronousTestCase):
    """Tests that run commands and look at what they say."""

    def run_command(self, *args: str | Path) -> Result:
        """Run C{rmqha} with arguments; whatever happens, it may not end in a traceback."""
        # Stepped back once, the process that runs tests would remain so.
        environment = {VARIABLE: Priority.NORMAL.value}
        result = CliRunner().invoke(main, [str(arg) for arg in args], env=environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def succeed(self, *args: str | Path) -> str:
        """Run a command that must end well, and return what it printed."""
        result = self.run_command(*args)
        self.assertEqual(result.exit_code, 0, result.output)
        return result.stdout

    def fails(self, code: int, *args: str | Path) -> str:
        """Run a command that must end with a code and a line on stderr, and return the line."""
        result = self.run_command(*args)
        self.assertEqual(result.exit_code, code, result.output)
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.output)
        self.assertTrue(lines[0].startswith("rmqha: "), lines[0])
        return lines[0]

    def answer(self, *args: str | Path, code: int = 0) -> Any:
        result = self.run_command(*args, "--json")
        self.assertEqual(result.exit_code, code, result.output)
        return json.loads(result.stdout)
