"""Topics that were deleted (C{rmqha/deleted.json}): their records are in the log for as long as its
files, and have no queues any more.

Without this whatever goes through the log again, after a crash or for a check, would make the
queues anew or miss them.  Each is dropped when the log is not the one it speaks of, or has none of
the records any more.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field
from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rmqha.logfiles import json_table
from rmqha.logfiles.published import DELETED, DeletedTopic
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.files.allocate import InThread


@define(eq=False)
class Deletion:
    """Deletes the queues of topics, in an open store.

    @ivar root: The store's folder.
    """

    queues: ConsumeQueues
    root: Path
    log: LogReader
    clock: IReactorTime
    in_thread: InThread
    _one: DeferredLock = field(factory=DeferredLock, init=False)

    @contextmanager
    def begun(self, topic: str, end: int) -> Generator[None, None, None]:
        """Until its queues are deleted, nothing makes a topic again that is in the log by now.

        @param end: Where the log ends.
        """
        deletions = self.queues.deletions
        deletions[topic] = end
        try:
            yield
        finally:
            if deletions.get(topic) == end:
                del deletions[topic]

    async def forget(self, topics: Mapping[str, DeletedTopic]) -> None:
        """Delete the queues of some topics, one in each turn of the reactor.  Messages that one got
        after it was deleted stay.

        @param topics: With what is known of each elsewhere; the log is confirmed up to their ends.
        @raise StoreError: If that cannot be kept; then nothing is deleted.
        """
        await self._one.acquire()
        try:
            news = {
                name: self._with_ours(name, topic)
                for name, topic in topics.items()
                if topic.end > self.queues.deleted.get(name, 0)
            }
            if news:
                await self.in_thread(self._save, self.known() | news)
            for number, (name, topic) in enumerate(news.items()):
                if number:
                    await deferLater(self.clock, 0, lambda: None)
                self.queues.note_deleted({name: topic})
                self.queues.forget_deleted(name)
        finally:
            self._one.release()

    def _save(self, topics: Mapping[str, DeletedTopic]) -> None:
        """Keep which topics were deleted.  Blocking."""
        path = self.root / DELETED
        path.parent.mkdir(parents=True, exist_ok=True)
        ends = {topic.end for topic in topics.values()}
        crcs = {end: tail_crc(self.log, end) for end in ends}
        rows = {
            name: {"offset": topic.end, "crc": crcs[topic.end], "queues": topic.queues}
            for name, topic in topics.items()
        }
        json_table.replace(path, {"topics": rows})

    def known(self) -> dict[str, DeletedTopic]:
        """The topics that were deleted, as far as the log has records of them."""
        ends: dict[str, dict[int, int]] = {}
        for (name, queue_id), end in self.queues.begins.items():
            ends.setdefault(name, {})[queue_id] = end
        return {
            name: DeletedTopic(end, ends.get(name, {}))
            for name, end in self.queues.deleted.items()
            if end > self.log.min_offset
        }

    def _with_ours(self, name: str, topic: DeletedTopic) -> DeletedTopic:
        """What is known of a topic, with where its queues ended here when it was deleted."""
        ends = {queue.queue_id: queue.next_offset_at(topic.end) for queue in self.queues.of(name)}
        for known in (self.known().get(name, topic), topic):
            ends |= {at: max(end, ends.get(at, 0)) for at, end in known.queues.items()}
        return DeletedTopic(topic.end, ends)
