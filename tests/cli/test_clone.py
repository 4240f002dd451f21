"""C{rmqha clone}: what ends it; L{tests.faults.test_clone} runs it."""

from __future__ import annotations

from rmqha.cli.clone import see_that_it_goes_on
from rmqha.cli.local_nodes import LocalNodeFailed
from tests.cli.command import CommandTestCase


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
