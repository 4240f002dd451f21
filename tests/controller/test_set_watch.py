"""Tests for L{rmqha.controller.set_watch}."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.controller.coordinator import ElectedMember, SetState
from rmqha.controller.set_watch import HURRIED, LOOK, NEAR, RELAXED, SOON, TICK, SetWatch
from rmqha.errors import NoController

STATE = SetState(master=None, master_epoch=3, in_sync=frozenset(), set_epoch=1)


class WatchTests(SynchronousTestCase):
    """How often it asks, and what it does with answers."""

    def setUp(self) -> None:
        """A controller that answers at once."""
        self.clock = Clock()
        self.asked: list[float] = []
        self.heard = True
        self.given: list[SetState] = []
        self.says: str | Deferred[str] = ""
        self.gone = False
        self.state = STATE
        self.watch = SetWatch(
            coordinator=self,  # type: ignore[arg-type]
            clock=self.clock,
            heard=lambda: self.heard,
            decided=self.decided,
        )
        self.addCleanup(self.watch.stop)

    def current(self) -> Deferred[SetState]:
        self.asked.append(self.clock.seconds())
        if self.gone:
            return fail(NoController(("10.0.0.1:9878",), "refused"))
        return succeed(self.state)

    async def decided(self, state: SetState) -> str:
        self.given.append(state)
        return self.says if isinstance(self.says, str) else await self.says

    def asks(self, seconds: float) -> int:
        """How often it asks in some seconds."""
        before = len(self.asked)
        for _ in range(round(seconds / TICK)):
            self.clock.advance(TICK)
        return len(self.asked) - before

    def test_how_often(self) -> None:
        """At once; then seldom while the master is heard, often when lost, less often later."""
        self.watch.start()
        self.assertEqual((len(self.asked), self.given), (1, [STATE]))
        self.assertEqual(self.asks(4 * LOOK), 4)
        self.heard = False
        self.assertAlmostEqual(self.asks(HURRIED), HURRIED / TICK, delta=2)
        self.assertAlmostEqual(self.asks(10.0), 10.0 / RELAXED, delta=1)
        self.assertGreater(self.watch.alone(), HURRIED)
        self.heard = True
        self.asks(LOOK)
        self.assertEqual((self.watch.alone(), self.asks(4 * LOOK)), (0.0, 4))

    def test_hurry(self) -> None:
        """News of elections are a reason to ask at once; while asking, one to ask once more."""
        self.watch.start()
        self.watch.hurry()
        self.assertEqual(self.asked, [0.0, 0.0])
        self.says = waiting = Deferred[str]()
        self.watch.hurry()
        self.watch.hurry()
        self.watch.hurry()
        self.assertEqual(len(self.asked), 3)
        self.says = ""
        waiting.callback("")
        self.assertEqual((len(self.asked), self.asks(TICK)), (4, 0))

    def test_hurry_after_the_end(self) -> None:
        """A watch that was stopped asks no more, whatever is told."""
        self.watch.start()
        self.says = waiting = Deferred[str]()
        self.watch.hurry()
        self.watch.hurry()
        stopped = self.watch.stop()
        self.assertNoResult(stopped)
        waiting.callback("")
        self.successResultOf(stopped)
        self.watch.hurry()
        self.assertEqual((len(self.asked), self.asks(LOOK)), (2, 0))

    def test_one_after_the_other(self) -> None:
        """While a decision is acted on there is no other."""
        self.says = waiting = Deferred[str]()
        self.heard = False
        self.watch.start()
        self.assertEqual(self.asks(5.0), 0)
        self.says = ""
        waiting.callback("not yet")
        self.assertEqual((self.watch.trouble, self.asks(TICK)), ("not yet", 1))
        self.assertEqual(self.watch.trouble, "")

    def test_not_master_yet(self) -> None:
        """The newly elected takes a moment to be master; that is asked often, not for long."""
        self.watch.start()
        self.asks(SOON)
        self.state = SetState(
            master=ElectedMember(2, "10.0.0.2:10911"),
            master_epoch=4,
            in_sync=frozenset({2}),
            set_epoch=2,
        )
        self.heard, self.says = False, "not master yet"
        self.watch.hurry()
        before = len(self.asked)
        self.clock.pump([NEAR] * 4)
        self.assertEqual(len(self.asked) - before, 4)
        self.clock.pump([NEAR] * round(SOON / NEAR))
        self.assertAlmostEqual(self.asks(2.0), 2.0 / TICK, delta=1)

    def test_master_at_last(self) -> None:
        """Once it is followed there is no hurry."""
        self.test_not_master_yet()
        self.state = evolve(self.state, master_epoch=5)
        self.watch.hurry()
        self.says, self.heard = "", True
        self.clock.advance(NEAR)
        self.assertEqual(self.asks(2 * LOOK), 2)

    def test_no_controller(self) -> None:
        """It is told, and how long nobody answers."""
        self.watch.start()
        self.gone = True
        self.asks(2 * LOOK)
        self.assertIn("no controller of 10.0.0.1:9878 leads", self.watch.trouble)
        self.assertAlmostEqual(self.watch.silent(), 2 * LOOK, delta=TICK)
        self.gone = False
        self.asks(LOOK)
        self.assertEqual(self.watch.trouble, "")
