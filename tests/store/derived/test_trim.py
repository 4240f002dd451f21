"""Tests for L{rmqha.store.derived.trim}: deleting a log file with many queues."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.trim import BATCH, Trimmer
from rmqha.wire.columnar.queue_units import UNIT
from tests.support.derived import DerivedTestCase
from tests.support.logs import Held, now

COUNT = 3 * BATCH + 7


def units(first: int, count: int) -> bytes:
    """Units of records of 100 bytes, one behind the other."""
    return b"".join(UNIT.pack((first + i) * 100, 100, 0) for i in range(count))


class TrimTests(DerivedTestCase):
    """Many queues of one unit, and some of three files."""

    def setUp(self) -> None:
        """Make them, without files where none is wanted."""
        self.root = self.folder()
        self.queues = ConsumeQueues(self.root, 200)
        self.addCleanup(self.queues.close)
        self.long = (0, BATCH, COUNT - 1)
        for number in range(COUNT):
            queue = self.queues.create("Topic", number)
            assert queue is not None
            if number in self.long:
                queue.append(0, units(0, 25))
            else:
                # As if recovered: a unit of a record that is still there.
                queue.max_offset, queue._min_physical, queue.end_physical = 1, 5000, 5100

    def trimmer(self, in_thread: Callable[..., Any]) -> Trimmer:
        return Trimmer(self.queues, None, in_thread)

    def files(self) -> list[int]:
        """How many files the long queues have."""
        return [len(os.listdir(self.root / "consumequeue/Topic" / str(n))) for n in self.long]

    def test_not_in_one_turn(self) -> None:
        """The turn that deletes a log file looks at no queue.  A thread looks at some hundred at a
        time, and the reactor has a turn after each; only it reads and deletes.
        """
        thread = Held()
        looked: list[int] = []
        real = type(self.queues.create("Topic", 0)).deleted

        def deleted(queue: Any, log_min: int) -> Any:
            looked.append(queue.queue_id)
            return real(queue, log_min)

        with patch("rmqha.store.derived.consume_queue.ConsumeQueue.deleted", deleted):
            self.trimmer(thread).follow(1250)
            self.assertEqual(looked, [])
            # At once, for whoever asks.
            self.assertEqual(self.queues.get("Topic", 0).min_offset, 13)  # type: ignore[union-attr]
            turns = 0
            while thread.calls:
                before = len(looked)
                with patch("os.open", wraps=os.open) as opened:
                    thread.work()
                turns += 1
                self.assertLessEqual(len(looked) - before, BATCH)
                self.assertLessEqual(opened.call_count, 2)
        self.assertEqual(looked, list(range(COUNT)))
        # Four looks, three that delete, and the checksums.
        self.assertEqual((turns, self.files()), (8, [2, 2, 2]))

    def test_goes_on(self) -> None:
        """A file that is deleted meanwhile makes for one more walk, however many there were."""
        thread = Held()
        trimmer = self.trimmer(thread)
        for log_min in (100, 200, 1250, 99999):
            trimmer.follow(log_min)
        self.assertEqual(len(thread.calls), 1)
        while thread.calls:
            thread.work()
        self.assertEqual(self.files(), [1, 1, 1])

    def test_stop(self) -> None:
        """A stop waits for the thread, and looks at no further queue."""
        thread = Held()
        trimmer = self.trimmer(thread)
        self.successResultOf(trimmer.stop())
        trimmer = self.trimmer(thread)
        trimmer.follow(99999)
        stopped = trimmer.stop()
        self.assertNoResult(stopped)
        while thread.calls:
            self.assertNoResult(stopped)
            thread.work()
        self.successResultOf(stopped)
        self.assertEqual(self.files(), [1, 3, 3])
        trimmer.follow(100000)
        self.assertEqual(thread.calls, [])

    def test_an_error(self) -> None:
        """What cannot be deleted is in the log, and the next walk goes on."""
        trimmer = self.trimmer(now)
        with patch("pathlib.Path.unlink", side_effect=PermissionError("no")):
            trimmer.follow(1250)
        self.assertEqual(len(self.flushLoggedErrors(PermissionError)), 1)
        trimmer.follow(99999)
        self.assertEqual(self.files(), [2, 1, 1])
