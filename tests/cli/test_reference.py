"""The guide's page on commands."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from rmqha.cli.main import main
from rmqha.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "commands.rst"


class CommandsPageTests(SynchronousTestCase):
    def test_up_to_date(self) -> None:
        """The page is what the commands say of themselves."""
        wanted = reference()
        self.assertEqual(
            wanted, PAGE.read_text(encoding="utf-8"), "run python -m rmqha.cli.reference"
        )
        for name in main.commands:
            self.assertIn(f"rmqha {name}", wanted)
