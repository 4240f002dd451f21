"""What a node sets aside for good."""

from __future__ import annotations

import gc
import sys
import weakref

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from lab.harness.nodes import ROOT
from rmqha.roles.host.garbage import HELD_OFF, QUIET, SetAside
from tests.support.commands import ended


class Part:
    """One of two that know each other."""

    def __init__(self) -> None:
        self.other: Part | None = None


def cycle() -> weakref.ref[Part]:
    """Two that nobody else knows."""
    one, other = Part(), Part()
    one.other, other.other = other, one
    return weakref.ref(one)


class SetAsideTests(SynchronousTestCase):
    """L{SetAside}, and nothing of it left for other tests."""

    def setUp(self) -> None:
        self.addCleanup(gc.enable)
        self.addCleanup(gc.unfreeze)
        gc.collect()

    def test_held_off(self) -> None:
        """Nothing is collected before a node serves."""
        set_aside = SetAside(Clock())
        self.assertFalse(gc.isenabled())
        set_aside()
        self.assertTrue(gc.isenabled())

    def test_waits_long(self) -> None:
        """A node that waits for others before it serves is collected from after a while."""
        clock = Clock()
        SetAside(clock)
        clock.advance(HELD_OFF - 1)
        self.assertFalse(gc.isenabled())
        clock.advance(1)
        self.assertTrue(gc.isenabled())

    def test_nothing_is_looked_at(self) -> None:
        """What was there before is not looked at by a collection; serving begins without one."""
        before = cycle()
        SetAside(Clock())()
        self.assertIsNotNone(before())
        self.assertLess(len(gc.get_objects()), 1000)
        gc.collect()
        self.assertIsNotNone(before())

    def test_what_came_since(self) -> None:
        """Cycles of what came since are found as ever."""
        SetAside(Clock())()
        after = cycle()
        gc.collect()
        self.assertIsNone(after())

    def test_again(self) -> None:
        """A node that serves another store lets the one before go, when some time has passed."""
        clock = Clock()
        set_aside = SetAside(clock)
        set_aside()
        old = cycle()
        gc.freeze()
        gc.collect()
        self.assertIsNotNone(old())
        set_aside()
        self.assertIsNotNone(old())
        clock.advance(QUIET)
        self.assertIsNone(old())
        self.assertLess(len(gc.get_objects()), 1000)

    def test_not_while_writes_come(self) -> None:
        """A member that leads keeps no sender waiting; it lets the old go when it follows."""
        clock = Clock()
        set_aside = SetAside(clock)
        set_aside()
        old = cycle()
        set_aside()
        clock.advance(QUIET / 2)
        set_aside(writes=True)
        clock.advance(10 * QUIET)
        self.assertIsNotNone(old())
        self.assertLess(len(gc.get_objects()), 1000)
        set_aside()
        clock.advance(QUIET)
        self.assertIsNone(old())


class NodeTests(SynchronousTestCase):
    def test_only_a_process_of_its_own(self) -> None:
        """A node made by twistd does; with a given reactor, in another's process, it does not."""
        lines = (
            "import sys, tempfile",
            "from rmqha.roles import tap",
            "options = tap.Options()",
            "root = tempfile.mkdtemp()",
            "keys = ('storePathRootDir=' + root, 'listenPort=0', 'haListenPort=0')",
            "options.parseOptions(['--role', 'master', *(f'--set={key}' for key in keys)])",
            "node = tap.makeService(options)",
            "print(type(node.set_aside).__name__)",
            "node = tap.makeService(options, node.reactor)",
            "print(type(node.set_aside).__name__)",
        )
        done = ended(sys.executable, "-c", "\n".join(lines), cwd=ROOT, check=True)
        self.assertEqual(done.stdout.split(), ["SetAside", "function"])
