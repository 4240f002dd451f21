"""Tests for L{rmqha.ha.elected.written_growth}."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import (
    ControllerRefused,
    ControllerUnanswered,
    DiskFull,
    NoController,
    NotWritable,
)
from rmqha.ha.elected.written_growth import WrittenGrowth
from rmqha.store.tables.growth_file import Growth
from tests.ha.elected.cases import EPOCH, OWN, SLAVE, THIRD, PuppetCoordinator, at


class WrittenGrowthTests(SynchronousTestCase):
    """With a disk that writes when it is told to."""

    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.coordinator = PuppetCoordinator(at(OWN, EPOCH, OWN, SLAVE))
        self.jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []
        self.growth = self.made()

    def made(self) -> WrittenGrowth:
        return WrittenGrowth(coordinator=self.coordinator, root=self.root, in_thread=self.in_thread)

    def in_thread(self, call: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.jobs.append((lambda: call(*args), done))
        return done

    def run_job(self) -> None:
        job, done = self.jobs.pop(0)
        done.callback(job())

    def recalled(self) -> tuple[frozenset[int], ...]:
        """What another process of the same master finds."""
        found = Deferred.fromCoroutine(self.made().recall(self.coordinator.state))
        self.run_job()
        return self.successResultOf(found)

    def test_written_first(self) -> None:
        """The controller is asked when the next process would know that it was."""
        state, new = self.coordinator.state, frozenset({OWN, SLAVE, THIRD})
        self.coordinator.patient = True
        altered = self.growth.alter(state, new)
        self.assertEqual(self.coordinator.asked, [])
        self.run_job()
        self.assertEqual(self.coordinator.asked, [new])
        self.assertEqual(self.recalled(), (new,))
        self.coordinator.answer()
        self.assertEqual(self.successResultOf(altered), self.coordinator.state)
        self.assertEqual(self.recalled(), ())

    def test_asked_again(self) -> None:
        """What is written down already is not written again; nor is a set that only shrinks."""
        state, new = self.coordinator.state, frozenset({OWN, SLAVE, THIRD})
        self.coordinator.patient = True
        self.growth.alter(state, new)
        self.run_job()
        self.growth.alter(state, new)
        self.growth.alter(state, frozenset({OWN}))
        self.assertEqual((self.jobs, self.coordinator.asked), ([], [new, new, {OWN}]))

    def test_not_written(self) -> None:
        """Without room nobody is asked."""
        altered = self.growth.alter(self.coordinator.state, frozenset({OWN, SLAVE, THIRD}))
        _, done = self.jobs.pop()
        done.errback(DiskFull(str(self.root), 1))
        self.failureResultOf(altered, DiskFull)
        self.assertEqual(self.coordinator.asked, [])
        self.assertEqual(Growth.read(self.root), Growth())

    def test_not_made(self) -> None:
        """What was refused, or reached nobody, is not recalled: its members were not counted on
        since.  What was not answered is, whatever is answered to the same later.
        """
        state, new = self.coordinator.state, frozenset({OWN, SLAVE, THIRD})
        self.coordinator.patient = True
        for error in (ControllerRefused("c:1", 2003, "no"), NoController(("c:1",), "refused")):
            altered = self.growth.alter(state, new)
            self.run_job()
            self.coordinator.refuse(error)
            self.assertNoResult(altered)
            self.run_job()
            self.failureResultOf(altered, type(error))
            self.assertEqual(self.recalled(), ())
        for error in (ControllerUnanswered("c:1", 1001, "late"), ControllerRefused("c:1", 1, "no")):
            altered = self.growth.alter(state, new)
            if self.jobs:
                self.run_job()
            self.coordinator.refuse(error)
            self.failureResultOf(altered, type(error))
            self.assertEqual(self.recalled(), (new,))

    def test_recalled_is_not_forgotten(self) -> None:
        """Nor is what a process before this one had asked for."""
        state, new = self.coordinator.state, frozenset({OWN, SLAVE, THIRD})
        self.coordinator.patient = True
        self.growth.alter(state, new)
        self.run_job()
        self.growth = self.made()
        recalled = Deferred.fromCoroutine(self.growth.recall(state))
        self.run_job()
        self.assertEqual(self.successResultOf(recalled), (new,))
        altered = self.growth.alter(state, new)
        self.coordinator.waiting.pop(0)
        self.coordinator.refuse(ControllerRefused("c:1", 2003, "no"))
        self.failureResultOf(altered, ControllerRefused)
        self.assertEqual(self.recalled(), (new,))

    def test_not_made_and_no_room(self) -> None:
        """Where that cannot be written down, nobody may take it for certain."""
        self.coordinator.patient = True
        altered = self.growth.alter(self.coordinator.state, frozenset({OWN, SLAVE, THIRD}))
        self.run_job()
        self.coordinator.refuse(ControllerRefused("c:1", 2003, "no"))
        self.jobs.pop()[1].errback(DiskFull(str(self.root), 1))
        self.failureResultOf(altered, ControllerUnanswered)

    def test_closed(self) -> None:
        """What was being written down when the master led no more is not asked for: who leads on in
        the same epoch may have looked before.  The end waits for the disk.
        """
        altered = self.growth.alter(self.coordinator.state, frozenset({OWN, SLAVE, THIRD}))
        closed = self.growth.close()
        self.assertNoResult(closed)
        self.run_job()
        self.successResultOf(closed)
        self.failureResultOf(altered, NotWritable)
        self.assertEqual(self.coordinator.asked, [])

    def test_closed_at_rest(self) -> None:
        """Nothing is waited for where nothing is being written, even if the last time failed."""
        altered = self.growth.alter(self.coordinator.state, frozenset({OWN, SLAVE, THIRD}))
        self.jobs.pop()[1].errback(DiskFull(str(self.root), 1))
        self.failureResultOf(altered, DiskFull)
        self.successResultOf(self.growth.close())
