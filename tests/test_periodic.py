"""Tests for L{rmqha.periodic}: jobs that outlive their own errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from rmqha.health import HealthProbe
from rmqha.periodic import (
    DEAD_AFTER,
    LOG_EVERY,
    STUCK_AFTER,
    Periodic,
    SingleRun,
    Watch,
    jobs_of,
    rows_of,
)
from tests.support.health import unhealthy
from tests.support.log_lines import log_lines


class PeriodicTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.calls: list[float] = []
        self.does: Callable[[], Any] = lambda: None
        self.job = Periodic("to count", self.clock, self.work, vital=True)

    def work(self) -> Any:
        """Note when it is called, and do what the test wants."""
        self.calls.append(self.clock.seconds())
        return self.does()

    def broken(self) -> None:
        """What a job does that fails."""
        raise OSError("no such thing")

    def lines(self) -> list[str]:
        """Collect what is logged from now on."""
        return log_lines(self, least=LogLevel.info)

    def test_by_the_clock(self) -> None:
        """It runs after each interval, at once only when told to, and no more after the end."""
        self.job.start(2.0)
        self.clock.pump([2.0, 1.0, 1.0])
        self.successResultOf(self.job.stop())
        self.clock.pump([2.0, 2.0])
        self.assertEqual(self.calls, [2.0, 4.0])
        self.job.start(2.0, now=True)
        self.assertEqual(self.calls, [2.0, 4.0, 8.0])

    def test_hurry(self) -> None:
        """It runs at once when it has to, once more after a run that is under way, and the interval
        counts from then; not before the start, nor after the end.
        """
        self.job.hurry()
        self.job.start(2.0)
        self.clock.advance(1.5)
        self.job.hurry()
        self.clock.pump([1.0, 1.0])
        self.assertEqual(self.calls, [1.5, 3.5])
        waiting = Deferred[None]()
        self.does = lambda: waiting
        self.clock.advance(2.0)
        self.job.hurry()
        self.clock.advance(0.5)
        self.does = lambda: None
        waiting.callback(None)
        self.assertEqual(self.calls[2:], [5.5, 6.0])
        self.clock.advance(2.0)
        self.successResultOf(self.job.stop())
        self.job.hurry()
        self.assertEqual(self.calls[4:], [8.0])

    def test_outlives_errors(self) -> None:
        """A function that raises is called again, and so is one whose Deferred fails."""
        self.does = self.broken
        self.job.start(1.0)
        self.clock.advance(1.0)
        self.does = lambda: failing(OSError("later"))
        self.clock.advance(1.0)
        self.does = lambda: None
        self.clock.advance(1.0)
        self.assertEqual((self.calls, self.job.running), ([1.0, 2.0, 3.0], True))
        self.flushLoggedErrors(OSError)

    def test_first_run_fails(self) -> None:
        """One that fails at once is repeated all the same, and the caller goes on."""
        self.does = self.broken
        self.job.start(1.0, now=True)
        self.clock.advance(1.0)
        self.assertEqual(self.calls, [0.0, 1.0])
        self.flushLoggedErrors(OSError)

    def test_never_beside_itself(self) -> None:
        """While a run lasts no other begins; the times that pass are left out."""
        slow: Deferred[None] = Deferred()
        self.does = lambda: slow
        self.job.start(1.0)
        self.clock.pump([1.0, 1.0, 1.0, 0.5])
        self.assertEqual(self.calls, [1.0])
        slow.callback(None)
        self.does = lambda: None
        self.clock.advance(0.5)
        self.assertEqual(self.calls, [1.0, 4.0])

    def test_never_beside_itself_after_a_new_start(self) -> None:
        """Not even one that was stopped and started while it ran."""
        slow: Deferred[None] = Deferred()
        self.does = lambda: slow
        self.job.start(1.0, now=True)
        self.job.stop()
        self.job.start(2.0, now=True)
        self.clock.pump([2.0, 2.0])
        self.assertEqual(self.calls, [0.0])
        slow.callback(None)
        self.does = lambda: None
        self.clock.advance(2.0)
        self.assertEqual(self.calls, [0.0, 6.0])

    def test_another_interval(self) -> None:
        """A second start changes the interval from now on; the same one changes nothing."""
        self.job.start(2.0)
        self.clock.advance(1.0)
        self.job.start(2.0)
        self.clock.advance(1.0)
        self.job.start(5.0)
        self.clock.pump([4.0, 1.0])
        self.assertEqual(self.calls, [2.0, 7.0])

    def test_waits_for_the_run_under_way(self) -> None:
        """Its end is the end of what it does, well or not."""
        slow: Deferred[None] = Deferred()
        self.does = lambda: slow
        self.job.start(1.0, now=True)
        over, again = self.job.stop(), self.job.stop()
        self.assertNoResult(over)
        slow.errback(OSError("no"))
        self.successResultOf(over)
        self.successResultOf(again)
        self.flushLoggedErrors(OSError)

    def test_stopped_by_its_own_function(self) -> None:
        """The function may end it."""
        self.does = lambda: self.job.stop() and None
        self.job.start(1.0)
        self.clock.pump([1.0, 1.0])
        self.assertEqual((self.calls, self.clock.getDelayedCalls()), ([1.0], []))

    def test_few_lines(self) -> None:
        """A job that fails each second is a line a minute, and one when it works again."""
        lines = self.lines()
        self.does = self.broken
        self.job.start(1.0)
        self.clock.pump([1.0] * int(2 * LOG_EVERY))
        self.does = lambda: None
        self.clock.pump([1.0, 1.0])
        self.assertEqual(
            lines,
            [
                'The job "to count" failed (1 in a row), and goes on every 1 s',
                'The job "to count" failed (61 in a row), and goes on every 1 s',
                'The job "to count" works again after 120 failures',
            ],
        )
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 2)

    def test_flapping(self) -> None:
        """One that fails and works in turn writes two lines a minute at most."""
        lines = self.lines()
        self.job.start(1.0)
        for _ in range(30):
            self.does = self.broken
            self.clock.advance(1.0)
            self.does = lambda: None
            self.clock.advance(1.0)
        self.assertEqual(len(lines), 2)
        self.flushLoggedErrors(OSError)

    def test_status(self) -> None:
        """It tells how often it ran and failed, when it ran last, and what was wrong last."""
        fresh = self.job.status()
        self.assertEqual(
            (fresh["runs"], fresh["secondsSinceRun"], fresh["interval"]), (0, None, None)
        )
        self.job.start(2.0)
        self.does = self.broken
        self.clock.pump([2.0, 2.0])
        self.does = lambda: None
        self.clock.pump([2.0, 0.5])
        self.assertEqual(
            self.job.status(),
            {
                "name": "to count",
                "vital": True,
                "interval": 2.0,
                "secondsSinceRun": 0.5,
                "runs": 3,
                "failures": 2,
                "failuresInARow": 0,
                "lastError": "OSError: no such thing",
            },
        )
        self.flushLoggedErrors(OSError)

    def test_trouble(self) -> None:
        """A vital job is a trouble from the third failure in a row to its next success."""
        self.does = self.broken
        self.job.start(1.0)
        found = []
        for _ in range(3):
            self.clock.advance(1.0)
            found.append(unhealthy(self.job))
        self.does = lambda: None
        self.clock.advance(1.0)
        found.append(unhealthy(self.job))
        wrong = 'failing-job: "to count" failed 3 times in a row: OSError: no such thing'
        self.assertEqual(found, ["", "", wrong, ""])
        self.flushLoggedErrors(OSError)

    def test_stuck(self) -> None:
        """A vital job's run that does not end is a trouble, then one for another start."""
        hung: Deferred[None] = Deferred()
        self.does = lambda: hung
        self.job.start(1.0, now=True)
        self.clock.advance(STUCK_AFTER - 1)
        self.assertEqual(unhealthy(self.job), "")
        self.clock.advance(1)
        said = f'stuck-job: a run of "to count" is not over after {STUCK_AFTER:.0f} s'
        self.assertEqual(unhealthy(self.job), said)
        self.assertEqual(unhealthy(self.job, HealthProbe.LIVE), "")
        self.clock.advance(DEAD_AFTER - STUCK_AFTER)
        self.assertIn("stuck-job", unhealthy(self.job, HealthProbe.LIVE))
        hung.callback(None)
        self.assertEqual(unhealthy(self.job), "")

    def test_dead(self) -> None:
        """A vital job that nothing repeats any more is dead, one that was stopped is not."""
        self.does = lambda: None
        self.job.start(1.0, now=True)
        loop = self.job._loop
        assert loop is not None
        loop.stop()
        self.assertEqual(
            unhealthy(self.job, HealthProbe.LIVE), 'dead-job: nothing repeats "to count" any more'
        )
        self.job.stop()
        self.assertEqual(unhealthy(self.job, HealthProbe.LIVE), "")

    def test_no_trouble(self) -> None:
        """One that is not vital is none, however often it fails."""
        job = Periodic("to err", self.clock, self.broken)
        job.start(1.0)
        self.clock.pump([1.0] * 5)
        self.assertEqual((job.failures, unhealthy(job)), (5, ""))
        self.flushLoggedErrors(OSError)


@define(eq=False)
class Seen(Watch):
    """Remembers when it looked."""

    clock: IReactorTime
    times: list[float] = field(factory=list)

    job = "seeing"
    every = 2.0
    at_once = True

    def look(self) -> None:
        self.times.append(self.clock.seconds())
        raise ValueError("nothing to see")


class WatchTests(SynchronousTestCase):
    """L{Watch}."""

    def test_watch(self) -> None:
        """It looks at once and then each time, whatever it meets, until it is stopped; its node's
        status names it as long.
        """
        clock = Clock()
        seen = Seen(clock)
        self.assertEqual(rows_of(jobs_of(seen)), [])
        seen.start()
        clock.pump([1.0] * 4)
        (row,) = rows_of(jobs_of(seen))
        self.assertEqual((row["name"], row["interval"], row["failures"]), ("seeing", 2.0, 3))
        seen.stop()
        clock.pump([1.0] * 4)
        self.assertEqual(seen.times, [0.0, 2.0, 4.0])
        self.assertEqual(rows_of(jobs_of(seen)), [])
        self.assertEqual(len(self.flushLoggedErrors(ValueError)), 1)


def failing(error: Exception) -> Deferred[None]:
    """A Deferred that has failed."""
    failed: Deferred[None] = Deferred()
    failed.errback(error)
    return failed


class SingleRunTests(SynchronousTestCase):
    def test_whoever_waits(self) -> None:
        """All who wait are told of the end of the run, which may have failed, and not before."""
        for failed in (False, True):
            run, work = SingleRun(), Deferred[None]()
            result = run.begin(lambda work=work: work)  # type: ignore[misc]
            waiters = [run.over(), run.over()]
            self.assertTrue(run.under_way)
            for waiter in waiters:
                self.assertNoResult(waiter)
            if failed:
                work.errback(OSError())
                self.failureResultOf(result, OSError)
            else:
                work.callback(None)
                self.successResultOf(result)
            self.assertFalse(run.under_way)
            for waiter in waiters:
                self.assertIs(self.successResultOf(waiter), None)

    def test_not_begun(self) -> None:
        """Work that could not begin is no run, or there would never be another."""
        run = SingleRun()
        with self.assertRaises(ZeroDivisionError):
            run.begin(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
        self.assertFalse(run.under_way)
        self.successResultOf(run.over())

    def test_at_once(self) -> None:
        """Work that is done at once leaves nothing under way, and nobody waits."""
        run = SingleRun()
        self.successResultOf(run.begin(lambda: succeed(None)))
        self.assertFalse(run.under_way)
        self.successResultOf(run.over())
