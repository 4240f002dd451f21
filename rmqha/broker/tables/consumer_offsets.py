"""How far each group has come in each queue: C{config/consumerOffset.json}.

An offset only grows, unless a client commits a lower one by a request of its own, which is
done and logged, or a master that a slave follows set it back.

The file is written every few seconds; between two writes a journal keeps what changed
(L{rmqha.broker.tables.offset_journal}).

Source: docs/protocol/remoting.md, Offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.broker.tables.offset_journal import OffsetJournal
from rmqha.broker.tables.persisted import Persisted
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.periodic import NodePart
from rmqha.store.files.allocate import InThread
from rmqha.store.tables import offset_segments
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.offset_segments import ALL_QUEUES, BACK, BY_CLIENT, ORDERED
from rmqha.store.tables.offset_table import OffsetsRead, read_offsets
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.store_layout import CONSUMER_OFFSETS

INTERVAL = 5.0
"""Most seconds from a commit to its being written; stock brokers' too."""


class ConsumerOffsetTable(NodePart):
    """The table of offsets, in messages.

    @ivar journal: What changed since that was written.
    @ivar read: What there was at the start.
    @ivar committed: Each is called after a client's commit with group, topic, queue id, offset.
    """

    _log = Logger()

    def __init__(
        self, tables: CheckedTables, clock: IReactorTime, in_thread: InThread, pause: float = 0.0
    ) -> None:
        """@param tables: The store's.
        @param pause: Least seconds between two writes of the journal; 0 for none.
        """
        # By topic@group; a topic has no @.
        self._table: dict[str, dict[int, int]] = {}
        self._rest = OffsetTable()
        self._tables = tables
        folder = offset_segments.folder_of(tables.root)
        self.journal = OffsetJournal(folder, self._table, clock, in_thread, pause)
        self.file = Persisted(
            tables.path(CONSUMER_OFFSETS),
            self.table,
            clock,
            in_thread,
            INTERVAL,
            tables=tables,
            journal=self.journal,
        )
        self.read: OffsetsRead | None = None
        self.committed: list[Callable[[str, str, int, int], None]] = []
        self._quiet = RateLimitedLog(self._log, clock)

    def load(self) -> None:
        """Read the file, and let happen again what the journal has.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If there is a file, and it makes no sense.
        @raise BodyInvalid: If it is no table of offsets.
        """
        read = self.read = read_offsets(self._tables, own=True)
        self.file.loaded(read.file)
        self.journal.segment = read.next_segment
        if read.offsets is not None:
            self._rest = evolve(read.offsets, offset_table={})
            self._table.clear()
            self._table.update(read.offsets.offset_table)
        if read.replayed:
            self.file.dirty()
        if read.replayed or read.torn:
            self._log.info(
                "Replayed the journal of consumer offsets: {count} offsets are newer than in "
                "{path}; {torn} bytes at its end are not whole",
                count=read.replayed,
                path=self.file.path.name,
                torn=read.torn,
            )
        for damage in read.damaged:
            self._log.warn("The journal of consumer offsets is damaged: {damage}", damage=damage)

    def journal_damage(self) -> dict[str, str]:
        """What of the journal was damaged at the start, by file: offsets that were durable."""
        damaged = () if self.read is None else self.read.damaged
        return {segment.name: str(segment) for segment in damaged if segment.damaged}

    def save(self) -> Deferred[None]:
        """Write the file now.

        @return: Fires when that is durable, as L{Persisted.save_now} does.
        """
        return self.file.save_now()

    def stop(self) -> Deferred[None]:
        """Write the file.

        @return: Fires when that is done, well or not.
        """
        return self.journal.stop().addCallback(lambda _: self.file.stop())

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """A group's offset in a queue; C{None} if it never had one."""
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """A group's offsets in a topic, by queue id; the caller's own copy."""
        return dict(self._table.get(f"{topic}@{group}", ()))

    def commit(self, group: str, topic: str, queue_id: int, offset: int, who: str) -> None:
        """Set an offset because a client says so, also to a lower one.

        @param who: The client, for the log.
        """
        key = f"{topic}@{group}"
        queues = self._table.setdefault(key, {})
        before = queues.get(queue_id)
        kind = BY_CLIENT
        for listener in self.committed:
            listener(group, topic, queue_id, offset)
        if before == offset:
            return
        if before is not None and offset < before:
            kind |= BACK
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
        self._changed(key, queue_id, kind)

    def advance(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Set an offset if that moves it forward.

        @return: Whether it did.
        """
        before = self.get(group, topic, queue_id)
        if offset <= (-1 if before is None else before):
            return False
        key = f"{topic}@{group}"
        self._table.setdefault(key, {})[queue_id] = offset
        self._changed(key, queue_id)
        return True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset, also to a lower one, because the master did; the caller tells the log."""
        key = f"{topic}@{group}"
        self._table.setdefault(key, {})[queue_id] = offset
        self._changed(key, queue_id, BACK)

    def bring_back(self, end: Callable[[str, int, int], int | None]) -> Iterator[None]:
        """Let no offset be above its queue: a crash may have cost the log its last messages, and
        others come to their places, which the group would pass over.  It stops at each offset, and
        none may be changed by others until it is done.

        @param end: Just past a queue's last message, by topic, queue id and the offset at which a
            group is; C{None} if there is no such topic.
        """
        for key, queues in self._table.items():
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                yield
                most = end(topic, queue_id, offset)
                if most is None or offset <= most:
                    continue
                queues[queue_id] = most
                self._changed(key, queue_id, BACK)
                self._quiet.warn(
                    "offset above its queue",
                    self.file.path.name,
                    "Moved the offset of group {group} in queue {queue_id} of {topic} back from "
                    "{before} to {offset}, where the queue ends: the log lost what came after",
                    group=group,
                    queue_id=queue_id,
                    topic=topic,
                    before=offset,
                    offset=most,
                )
        self._quiet.flush()

    def merge_max(self, table: OffsetTable) -> int:
        """Take over what another broker knows to be further.

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
                for queue_id in higher:
                    self._changed(key, queue_id)
        return moved

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Each topic and group that have offsets now."""
        split = (key.partition("@") for key in self._table)
        return tuple((topic, group) for topic, _, group in split)

    def topics_of(self, group: str) -> set[str]:
        """The topics in which a group has offsets."""
        return {topic for topic, other in self.pairs() if other == group}

    def groups_of(self, topic: str) -> set[str]:
        """The groups that have offsets in a topic."""
        return {group for other, group in self.pairs() if other == topic}

    def remove(self, group: str, topic: str) -> None:
        """Forget a group's offsets in a topic."""
        self._remove(f"{topic}@{group}")

    def remove_group(self, group: str) -> None:
        """Forget a group's offsets in all topics."""
        for topic in self.topics_of(group):
            self._remove(f"{topic}@{group}")

    def remove_topics(self, topics: Collection[str]) -> None:
        """Forget all groups' offsets in some topics."""
        for key in [key for key in self._table if key.partition("@")[0] in topics]:
            self._remove(key)

    def remove_topic(self, topic: str) -> None:
        """Forget all groups' offsets in a topic."""
        for group in self.groups_of(topic):
            self._remove(f"{topic}@{group}")

    def rest(self, table: OffsetTable) -> None:
        """Keep what else is in a table: what newer releases put beside the offsets."""
        rest = evolve(table, offset_table={})
        if rest != self._rest:
            self._rest = rest
            self.file.dirty()

    def some(self, places: Collection[tuple[str, int]]) -> OffsetTable:
        """The offsets of some queues, each by C{topic@group} and queue id, as far as there are any.
        Threads may ask.
        """
        found: dict[str, dict[int, int]] = {}
        for key, queue_id in places:
            offset = self._table.get(key, {}).get(queue_id)
            if offset is not None:
                found.setdefault(key, {})[queue_id] = offset
        return OffsetTable(offset_table=found)

    def table(self) -> OffsetTable:
        """The whole table as it is now; it is not changed any more."""
        copy = {key: dict(queues) for key, queues in self._table.items()}
        return evolve(self._rest, offset_table=copy)

    def on_order(self, key: str, queue_id: int) -> None:
        """What a group pops in order of a queue changed: it is kept, and told, as offsets are.

        @param key: C{topic@group}.
        """
        self._changed(key, queue_id, ORDERED)

    def _changed(self, key: str, queue_id: int, kind: int = 0) -> None:
        self.file.dirty()
        self.journal.mark(key, queue_id, kind)

    def _remove(self, key: str) -> None:
        if self._table.pop(key, None) is not None:
            self._changed(key, ALL_QUEUES)
