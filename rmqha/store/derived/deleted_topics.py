"""
Topics that were deleted (C{rmqha/deleted.json}): their records are in the log for as long as its
files, and have no queues any more.

Without this whatever goes through the log again, after a crash or for a check, would make the
queues anew or miss them.  It is dropped when the log is not the one it speaks of.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from attrs import define
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rmqha.logfiles import json_table
from rmqha.logfiles.published import DELETED
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.files.allocate import InThread


def save(root: Path, log: LogReader, ends: dict[str, int]) -> None:
    """
    Keep which topics were deleted.  Blocking.

    @param ends: By topic, the physical offset up to which its records have no queue.
    """
    path = root / DELETED
    path.parent.mkdir(parents=True, exist_ok=True)
    end = max(ends.values(), default=0)
    json_table.replace(path, {"offset": end, "crc": tail_crc(log, end), "topics": dict(ends)})


@define(eq=False)
class Deletion:
    """
    Deletes the queues of topics, in an open store.

    @ivar root: The store's folder.
    """

    queues: ConsumeQueues
    root: Path
    log: LogReader
    clock: IReactorTime
    in_thread: InThread

    async def forget(self, topics: Collection[str], end: int) -> None:
        """
        Delete the queues of some topics, one in each turn of the reactor.  One that has
        messages again keeps them all.

        @param end: Physical offset up to which all records of these topics are of the life that
            has ended; confirmed.
        @raise StoreError: If that cannot be kept; then nothing is deleted.
        """
        ended = [topic for topic in topics if self.queues.ends_before(topic, end)]
        if not ended:
            return
        ends = {topic: at for topic, at in self.queues.deleted.items() if at > self.log.min_offset}
        ends |= dict.fromkeys(ended, end)
        await self.in_thread(save, self.root, self.log, ends)
        for topic in ended:
            if self.queues.ends_before(topic, end):
                self.queues.forget(topic, end)
            await deferLater(self.clock, 0, lambda: None)
