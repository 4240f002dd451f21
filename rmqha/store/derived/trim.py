"""Queues, index and checksums after log files were deleted: what speaks of deleted records goes
too.

That the log begins later is known to all queues at once, and each corrects itself when it is
asked.  Only their files are left, and to find those every queue has to be looked at: tens of
thousands, a few hundred at a time.  A thread looks and deletes, the reactor takes out of the
queues what was found, unless they have changed so that it is not true any more.

Source: docs/protocol/store.rst, Deleting files.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmqha.periodic import SingleRun
from rmqha.store.derived.consume_queue import ConsumeQueue, DeletedUnits
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.index import Index
from rmqha.store.files.allocate import InThread
from rmqha.store.log.record_checksums import forget_below

BATCH = 400
"""Queues that are looked at together: less than a millisecond, if none has anything to delete."""

Found = list[tuple[ConsumeQueue, DeletedUnits]]
"""Queues that have something to delete, each with what."""


def look(queues: Iterable[ConsumeQueue], log_min: int) -> Found:
    """Find out what some queues can do without.  Blocking."""
    rows = ((queue, queue.deleted(log_min)) for queue in queues)
    return [(queue, found) for queue, found in rows if found is not None]


@define(eq=False)
class Trimmer:
    """Follows the log's first byte with queues and index.

    One walk through the queues is under way at a time; a file of the log that is deleted
    meanwhile makes for one more.

    @ivar queues: The queues of the store.
    @ivar index: Its index, if it has one.
    @ivar in_thread: Reads and deletes.
    """

    queues: ConsumeQueues
    index: Index | None
    in_thread: InThread
    _wanted: int = field(default=0, init=False)
    _stopped: bool = field(default=False, init=False)
    _walking: SingleRun = field(factory=SingleRun, init=False)

    _log = Logger()

    def follow(self, log_min: int) -> None:
        """The log begins at C{log_min} now, a physical offset."""
        self.queues.start.offset = self._wanted = log_min
        if not (self._walking.under_way or self._stopped):
            self._walking.begin(lambda: Deferred.fromCoroutine(self._walk())).addErrback(
                lambda failure: self._log.failure(
                    "Cannot delete the queue, index and checksum files of a deleted log file",
                    failure,
                )
            )

    def stop(self) -> Deferred[None]:
        """Begin nothing more.  What is left goes when the next file of the log does.

        @return: Fires when no thread is at work.
        """
        self._stopped = True
        return self._walking.over()

    async def _walk(self) -> None:
        done = -1
        while done < self._wanted:
            done = self._wanted
            if self.index is not None and self.index.delete_before(done):
                await self.in_thread(self.index.descriptors.remove_doomed)
            queues = list(self.queues)
            for start in range(0, len(queues), BATCH):
                if self._stopped:
                    return
                found = await self.in_thread(look, queues[start : start + BATCH], done)
                if sum(queue.forget(one) for queue, one in found):
                    await self.in_thread(self.queues.descriptors.remove_doomed)
            await self.in_thread(forget_below, self.queues.root, done)
