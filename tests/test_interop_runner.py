"""What C{make interop} makes of the names it is given."""

from __future__ import annotations

import io
import sys

from twisted.trial.unittest import SynchronousTestCase

from lab.stock import jars
from tests.interop import __main__ as runner
from tests.interop.cases import InteropTestCase

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
        """An unknown name is told, with those there are, and nothing at all is run."""
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

    def test_full_and_daily(self) -> None:
        """A whole run and a part of it are not one run."""
        self.assertIn("say one of them", self.refused("--full", "--daily"))

    def test_known(self) -> None:
        """A class and one of its tests are both names, and a base of classes is none."""
        for name in (SLAVE, f"{SLAVE}.test_sync"):
            self.assertEqual("", runner.wrong([name], full=False))
        self.assertEqual("", runner.wrong([SWITCHES, f"{SWITCHES}.test_switches"], full=True))
        self.assertIn(f"no scenario is named {BASE}", runner.wrong([BASE], full=True))


class DailyTests(SynchronousTestCase):
    """C{python -m tests.interop --daily}"""

    def test_two_days(self) -> None:
        """Two days run all there is, and what one version alone has on both."""
        every = [f"tests.interop.{name}" for name in ("a.Ours4Tests", "a.Ours5Tests")]
        every += [f"tests.interop.{name}" for name in ("a.SetTests", "b.Stock5Tests", "b.Of4Case")]
        one, two = (runner.of_the_day(every, day) for day in (7, 8))
        self.assertEqual(set(every), {*one, *two})
        self.assertEqual(set(every[2:]), {*one} & {*two})
        self.assertEqual(one, runner.of_the_day(every, 9))

    def test_pairs_differ(self) -> None:
        """One day has pairs with either version."""
        names = [f"tests.interop.m{n}.Ours{digit}Tests" for n in range(20) for digit in (4, 5)]
        found = {name[-6] for name in runner.of_the_day(names, 7)}
        self.assertEqual({"4", "5"}, found)


class PartsTests(SynchronousTestCase):
    """What the processes that share a run take, one after another."""

    def test_parts(self) -> None:
        """What is long comes first, alone; no class is lost or run twice; the last parts are the
        smallest.
        """
        every = {}
        for number in range(70):
            case = type(f"C{number}", (InteropTestCase,), {"long": number % 9 == 5})
            every[case.__name__] = case
        found = list(runner.parts(every))
        long = [[name] for name, case in every.items() if case.long]
        self.assertEqual(8, len(long))
        self.assertEqual(long, found[: len(long)])
        self.assertEqual(sorted(every), sorted(name for part in found for name in part))
        sizes = [len(part) for part in found[len(long) :]]
        self.assertEqual(sorted(sizes, reverse=True), sizes)
        self.assertLessEqual(sizes[0] * runner.AT_ONCE, sum(sizes) / 2)
        self.assertEqual({runner.LEAST}, set(sizes[-runner.AT_ONCE : -1]))

    def test_a_few(self) -> None:
        """As few as one is a part."""
        self.assertEqual([["one"]], list(runner.parts({"one": InteropTestCase})))
        self.assertEqual([], list(runner.parts({})))
