"""Tests for L{rmqha.store.paced_dispatch}."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from attrs import define, field
from twisted.internet.base import DelayedCall
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.store import paced_dispatch
from rmqha.store.derived import dispatch
from rmqha.store.environment import StoreEnvironment
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.paced_dispatch import (
    BUSY,
    BUSY_PAUSE,
    FAR,
    FAR_SLICE,
    FAST,
    LATE,
    LIVE_PAUSE,
    LIVE_SLICE,
    QUIET_PAUSE,
    SLICE,
    PacedDispatch,
)
from tests.support.logs import LogTestCase, message, now

TURN = 1e-6
SIZES = {"file_size": 1 << 16, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}


@define(eq=False)
class Behind:
    """A dispatcher and its log: so many bytes behind, and less by as many with each run."""

    behind: int
    step: int = 0
    end: int = 0
    confirmed: int = 0
    replicated: bool = False
    runs: list[float] = field(factory=list)
    urgent: Callable[[], bool] = bool
    awaited: Callable[[], bool] = lambda: True
    on_wait: Callable[[], None] = lambda: None

    def run(self, budget: float) -> bool:
        self.runs.append(budget)
        self.behind -= self.step
        return self.behind > 0

    def verify(self, most: int) -> None:
        pass


class Turns(Clock):
    """A clock that, as a reactor, does not make a call in the turn in which it was asked for."""

    def callLater(self, when: float, what: Any, *args: Any, **more: Any) -> DelayedCall:
        return super().callLater(max(when, TURN), what, *args, **more)


class Ticking(Clock):
    """A clock that goes on by ten microseconds whenever it is asked."""

    def seconds(self) -> float:
        self.rightNow += 1e-5
        return self.rightNow


class SliceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Turns()

    def paced(self, stub: Any) -> PacedDispatch:
        return PacedDispatch(
            log=stub,
            dispatcher=stub,
            environment=StoreEnvironment(clock=self.clock, in_thread=now, fsync=FsyncInThread(now)),
            wanted=lambda: True,
            disk_full=self.fail,
            whole=lambda: None,
        )

    def test_short_slices(self) -> None:
        """Close to the end it works for a hundred microseconds, then the reactor has its turn."""
        stub = Behind(LATE, step=LATE // 4)
        self.paced(stub).soon()
        self.clock.advance(LIVE_PAUSE)
        for turn in range(1, 5):
            self.assertEqual(stub.runs, [LIVE_SLICE] * turn)
            self.clock.advance(TURN)
        self.assertEqual(len(stub.runs), 4)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertLessEqual(LIVE_SLICE, 100e-6)

    def test_longer_slices(self) -> None:
        """Where that cannot keep up, slices are longer until it has caught up."""
        self.patch(paced_dispatch, "BULK_RATE", 1e18)
        stub = Behind(FAR + 1, step=FAR // 2)
        self.paced(stub).soon()
        self.clock.advance(LIVE_PAUSE)
        self.clock.pump([0.1, 0.1])
        self.assertEqual(stub.runs, [FAR_SLICE, SLICE, LIVE_SLICE])

    def test_not_awaited(self) -> None:
        """While no client waits, what comes in some milliseconds is dispatched together."""
        stub = Behind(BUSY // 32, step=BUSY // 32, awaited=bool)
        self.paced(stub).soon()
        self.clock.advance(2 * LIVE_PAUSE)
        self.assertEqual(stub.runs, [])
        self.clock.advance(BUSY_PAUSE - 2 * LIVE_PAUSE)
        self.assertEqual(len(stub.runs), 1)

    def test_quiet_slave(self) -> None:
        """A slave for which no client waits is woken by no timer for each write, while little
        comes.
        """
        stub = Behind(0, awaited=bool, replicated=True)
        paced, much = self.paced(stub), int(FAST * QUIET_PAUSE) + 1000
        for size, pause in (
            (1, QUIET_PAUSE),
            (much, QUIET_PAUSE),
            (1, BUSY_PAUSE),
            (1, QUIET_PAUSE),
        ):
            stub.behind = stub.step = size
            stub.runs.clear()
            paced.soon()
            self.clock.advance(pause - LIVE_PAUSE)
            self.assertEqual(stub.runs, [])
            self.clock.advance(LIVE_PAUSE + TURN)
            self.assertEqual(len(stub.runs), 1)

    def test_urgent(self) -> None:
        """While a pop waits, what comes alone is dispatched at once, and so is what follows: a wait
        of less than a millisecond would last a whole one.
        """
        stub = Behind(BUSY // 16, step=BUSY // 16, urgent=lambda: True)
        paced = self.paced(stub)
        self.clock.advance(1.0)
        for runs in (1, 2, 3):
            paced.soon()
            self.clock.advance(TURN)
            self.assertEqual(len(stub.runs), runs)

    def test_urgent_after_an_append(self) -> None:
        """A pop that begins to wait after a message was stored does not wait for the millisecond
        of those that did not hurry; nor does a message behind one for which nobody waits.
        """
        stub = Behind(BUSY // 16, step=BUSY // 16)
        paced = self.paced(stub)
        self.clock.advance(1.0)
        for hurry in (stub.on_wait, paced.soon):
            stub.urgent = bool
            paced.soon()
            stub.on_wait()
            self.clock.advance(TURN)
            runs = len(stub.runs)
            stub.urgent = lambda: True
            hurry()
            self.clock.advance(TURN)
            self.assertEqual(len(stub.runs), runs + 1)

    def test_wait_without_records(self) -> None:
        """Where nothing came a wait dispatches nothing, and where there is no room it changes
        nothing.
        """
        stub = Behind(0, urgent=lambda: True)
        paced = self.paced(stub)
        stub.on_wait()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        paced.soon()
        paced.starved = True
        (planned,) = self.clock.getDelayedCalls()
        planned.reset(paced_dispatch.RETRY)
        stub.on_wait()
        self.assertEqual(planned.getTime(), paced_dispatch.RETRY)

    def test_urgent_with_more(self) -> None:
        """The more came, the longer what comes next waits then."""
        stub = Behind(BUSY // 2, step=BUSY, urgent=lambda: True)
        paced = self.paced(stub)
        paced.soon()
        self.clock.advance(TURN)
        paced.soon()
        self.clock.advance(0.4 * BUSY_PAUSE)
        self.assertEqual(len(stub.runs), 1)
        self.clock.advance(0.2 * BUSY_PAUSE)
        self.assertEqual(len(stub.runs), 2)

    def test_busy(self) -> None:
        """Where much came, what comes next is waited for a little longer."""
        stub = Behind(BUSY + 1, step=1 << 20)
        paced = self.paced(stub)
        paced.soon()
        self.clock.advance(LIVE_PAUSE)
        paced.soon()
        self.clock.advance(LIVE_PAUSE)
        self.assertEqual(len(stub.runs), 1)
        self.clock.advance(BUSY_PAUSE)
        self.assertEqual(len(stub.runs), 2)


class TurnTests(LogTestCase):
    def test_the_reactor_has_its_turn(self) -> None:
        """A burst is dispatched in several turns, each hardly longer than its slice."""
        self.patch(dispatch, "COMPILED", False)
        clock = Ticking()
        store = self.opened(self.folder() / "store", clock=clock, settings=SIZES)
        for number in range(400):
            store.put(message(400, queue_id=number % 4))
        turns = []
        store.dispatcher.on_pause.append(lambda: turns.append(clock.rightNow))
        clock.advance(LIVE_PAUSE)
        self.assertEqual(store.dispatcher.position, store.log.end)
        self.assertGreater(len(turns), 3)
        for before, after in pairwise(turns):
            self.assertLess(after - before, 2 * LIVE_SLICE)
