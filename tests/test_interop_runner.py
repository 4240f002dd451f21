"""What C{make interop} makes of the names it is given."""

from __future__ import annotations

import io
import sys

from twisted.trial.unittest import SynchronousTestCase

from lab.stock import jars
from tests.interop import __main__ as runner

SLAVE = "tests.interop.test_java_slave.JavaBehindUs4Tests"
SWITCHES = "tests.interop.test_member_switches.SwitchTests"
BASE = "tests.interop.test_member_faults.LinkedTestCase"


class NameTests(SynchronousTestCase):
    """C{python -m tests.interop NAME ...}"""

    def refused(self, *arguments: str) -> str:
        """What a run is refused with, before any peer is looked for."""
        said = io.StringIO()
        self.patch(sys, "stderr", said)
        self.patch(jars, "resolve", lambda version: self.fail("a peer was looked for"))
        self.assertEqual(2, runner.main([*arguments]))
        return said.getvalue()

    def test_unknown(self) -> None:
        """A name of nothing is told, with the names there are, and nothing is run, not even what
        other names choose.
        """
        for full in ([], ["--full"]):
            for name in ("unknown", "--ful", f"{SLAVE}s", "tests.interop.test_java_slave"):
                said = self.refused(*full, SLAVE, name)
                self.assertIn(f"no scenario is named {name}; there are", said)
                self.assertIn(f"\n  {SLAVE}\n", said)
                self.assertNotIn(BASE, said)

    def test_unknown_test(self) -> None:
        """Of a class that there is its tests are named."""
        said = self.refused(f"{SLAVE}.test_synch")
        self.assertIn(f"no scenario is named {SLAVE}.test_synch; there are", said)
        self.assertIn(f"\n  {SLAVE}.test_sync\n", said)
        self.assertNotIn(SWITCHES, said)

    def test_full_only(self) -> None:
        """What only the full run has is told as such."""
        for name in (SWITCHES, f"{SWITCHES}.test_switches"):
            self.assertEqual(f"{name} runs with make interop-full only\n", self.refused(name))

    def test_known(self) -> None:
        """A class and one of its tests are both names, and a base of classes is none."""
        for name in (SLAVE, f"{SLAVE}.test_sync"):
            self.assertEqual("", runner.wrong([name], full=False))
        self.assertEqual("", runner.wrong([SWITCHES, f"{SWITCHES}.test_switches"], full=True))
        self.assertIn(f"no scenario is named {BASE}", runner.wrong([BASE], full=True))
