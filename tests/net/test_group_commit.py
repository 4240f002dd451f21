"""Tests for L{rmqha.net.group_commit}."""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.group_commit import GroupCommit


class GroupCommitTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.writes: list[Deferred[None]] = []
        self.group = GroupCommit(self.begin)

    def begin(self) -> Deferred[None]:
        """A write that ends when the test says so."""
        self.writes.append(Deferred())
        return self.writes[-1]

    def test_one_running_and_one_wanted(self) -> None:
        """However many want one during a write, there is one more, and all of them wait for it."""
        first = self.group.commit()
        others = [self.group.commit() for _ in range(5_000)]
        self.assertEqual(len(self.writes), 1)
        self.writes[0].callback(None)
        self.successResultOf(first)
        self.assertNoResult(others[0])
        self.assertEqual(len(self.writes), 2)
        self.writes[1].callback(None)
        for other in others:
            self.successResultOf(other)
        self.assertEqual(len(self.writes), 2)
        self.assertFalse(self.group.writing)

    def test_failure(self) -> None:
        """All who waited for a write hear of its failure; the next write is another matter."""
        first = self.group.commit()
        second, third = self.group.commit(), self.group.commit()
        self.writes[0].errback(OSError("no"))
        self.failureResultOf(first, OSError)
        self.writes[1].errback(OSError("again"))
        self.failureResultOf(second, OSError)
        self.failureResultOf(third, OSError)
        fourth = self.group.commit()
        self.writes[2].callback(None)
        self.successResultOf(fourth)

    def test_wanted_by_who_is_told(self) -> None:
        """Who is told of a write may want the next one: it is one write, for all who do."""
        again: list[Deferred[None]] = []
        for _ in range(3):
            self.group.commit().addCallback(lambda _: again.append(self.group.commit()))
        self.writes[0].callback(None)
        self.writes[1].callback(None)
        self.successResultOf(again[0])
        self.writes[2].callback(None)
        for waiting in again[1:]:
            self.successResultOf(waiting)
        self.assertEqual((len(self.writes), len(again)), (3, 3))

    def test_write_that_raises(self) -> None:
        """A write that cannot even begin fails, and the next one is tried."""
        results: list[Deferred[None]] = [fail(OSError("first")), succeed(None)]

        def write() -> Deferred[None]:
            if len(results) == 2:
                results.pop(0).addErrback(lambda _: None)
                raise OSError("not begun")
            return results.pop(0)

        group = GroupCommit(write)
        self.failureResultOf(group.commit(), OSError)
        self.successResultOf(group.commit())
