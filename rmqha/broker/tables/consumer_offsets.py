"""
How far each group has come in each queue: C{config/consumerOffset.json}.

An offset only grows, unless a client commits a lower one by a request of its own, which is
done and logged, or a master that a slave follows set it back.

Source: docs/protocol/remoting.md, Offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.broker.tables.persisted import Persisted
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.periodic import Job
from rmqha.store.files.allocate import InThread
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.remoting.json_body import from_json

INTERVAL = 5.0
"""Most seconds from a commit to its being written; stock brokers' too."""


class ConsumerOffsetTable:
    """
    The table of offsets, in messages.

    @ivar file: Their file.
    @ivar committed: Each is called after a client's commit with group, topic, queue id, offset.
    """

    _log = Logger()

    def __init__(self, folder: Path, clock: IReactorTime, in_thread: InThread) -> None:
        """
        @param folder: C{config} in the store's folder.
        """
        self.file = Persisted(
            folder / "consumerOffset.json", self.table, clock, in_thread, INTERVAL
        )
        self._quiet = RateLimitedLog(self._log, clock)
        self.committed: list[Callable[[str, str, int, int], None]] = []
        # By topic@group; a topic has no @.
        self._table: dict[str, dict[int, int]] = {}
        self._rest = OffsetTable()

    def load(self) -> None:
        """
        Read the file.

        @raise TableUnreadable: If there is one, and it cannot be read.
        @raise BodyInvalid: If it is no table of offsets.
        """
        found = self.file.load()
        if found is not None:
            table = from_json(OffsetTable, found)
            self._rest = evolve(table, offset_table={})
            self._table = table.offset_table

    def save(self) -> Deferred[None]:
        """
        Write the file now.

        @return: Fires when that is durable, as L{Persisted.save_now} does.
        """
        return self.file.save_now()

    def stop(self) -> Deferred[None]:
        """
        Write the file.

        @return: Fires when that is done, well or not.
        """
        return self.file.stop()

    def jobs(self) -> Iterator[Job]:
        """
        What is done again and again.
        """
        yield self.file.job

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """
        A group's offset in a queue; C{None} if it never had one.
        """
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """
        A group's offsets in a topic, by queue id; the caller's own copy.
        """
        return dict(self._table.get(f"{topic}@{group}", ()))

    def commit(self, group: str, topic: str, queue_id: int, offset: int, who: str) -> None:
        """
        Set an offset because a client says so, also to a lower one.

        @param who: The client, for the log.
        """
        queues = self._table.setdefault(f"{topic}@{group}", {})
        before = queues.get(queue_id)
        for listener in self.committed:
            listener(group, topic, queue_id, offset)
        if before == offset:
            return
        if before is not None and offset < before:
            self._quiet.warn(
                "offset lowered",
                who.rpartition(":")[0],
                "{who} moved the offset of group {group} in queue {queue_id} of {topic} back"
                " from {before} to {offset}",
                who=who,
                group=group,
                queue_id=queue_id,
                topic=topic,
                before=before,
                offset=offset,
            )
        queues[queue_id] = offset
        self.file.dirty()

    def advance(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """
        Set an offset if that moves it forward.

        @return: Whether it did.
        """
        before = self.get(group, topic, queue_id)
        if offset <= (-1 if before is None else before):
            return False
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.file.dirty()
        return True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """
        Set an offset, also to a lower one, because the master did; the caller tells the log.
        """
        self._table.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.file.dirty()

    def merge_max(self, table: OffsetTable) -> int:
        """
        Take over what another broker knows to be further.

        @return: How many offsets moved.
        """
        moved = 0
        for key, queues in table.offset_table.items():
            ours = self._table.get(key, {})
            if ours == queues:
                continue
            higher = {at: new for at, new in queues.items() if new > ours.get(at, -1)}
            if higher:
                self._table[key] = ours | higher
                moved += len(higher)
        if moved:
            self.file.dirty()
        return moved

    def topics_of(self, group: str) -> set[str]:
        """
        The topics in which a group has offsets.
        """
        pairs = (key.partition("@") for key in self._table)
        return {topic for topic, _, other in pairs if other == group}

    def groups_of(self, topic: str) -> set[str]:
        """
        The groups that have offsets in a topic.
        """
        pairs = (key.partition("@") for key in self._table)
        return {group for other, _, group in pairs if other == topic}

    def remove(self, group: str, topic: str) -> None:
        """
        Forget a group's offsets in a topic.
        """
        if self._table.pop(f"{topic}@{group}", None) is not None:
            self.file.dirty()

    def remove_group(self, group: str) -> None:
        for topic in self.topics_of(group):
            del self._table[f"{topic}@{group}"]
            self.file.dirty()

    def remove_topics(self, topics: Collection[str]) -> None:
        """
        Forget all groups' offsets in some topics.
        """
        for key in [key for key in self._table if key.partition("@")[0] in topics]:
            del self._table[key]
            self.file.dirty()

    def remove_topic(self, topic: str) -> None:
        """
        Forget all groups' offsets in a topic.
        """
        for group in self.groups_of(topic):
            del self._table[f"{topic}@{group}"]
            self.file.dirty()

    def rest(self, table: OffsetTable) -> None:
        """
        Keep what else is in a table: what newer releases put beside the offsets.
        """
        rest = evolve(table, offset_table={})
        if rest != self._rest:
            self._rest = rest
            self.file.dirty()

    def table(self) -> OffsetTable:
        """
        The whole table as it is now; it is not changed any more.
        """
        copy = {key: dict(queues) for key, queues in self._table.items()}
        return evolve(self._rest, offset_table=copy)
