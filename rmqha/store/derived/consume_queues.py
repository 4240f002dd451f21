"""All consume queues of a store: C{consumequeue/<topic>/<queueId>/}.

Source: docs/protocol/store.rst, Consume queues.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from attrs import Factory, define, field

from rmqha.logfiles.listing import Finding
from rmqha.logfiles.published import DeletedTopic
from rmqha.store.derived.consume_queue import ConsumeQueue, LogStart
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.derived.unit_files import COMPILED, Tally
from rmqha.store.files.descriptors import Descriptors
from rmqha.wire.columnar.queue_units import OFFSET_MAX, UNIT_TYPE, QueueRun, fileable
from rmqha.wire.store_layout import ASIDE, CONSUMEQUEUE, INDEX, OWN_FOLDER, UNIT_SIZE

if TYPE_CHECKING or COMPILED:
    from rmqha.store.derived.write_run import write_usual

Moves = dict[tuple[str, int], tuple[int, int]]
"""Where queues ended before and after units came, by topic and queue id, in units."""

_QUEUE_ID = re.compile("0|[1-9][0-9]*")


def set_aside(path: Path) -> Path:
    """Move a derived file or folder that cannot be read out of RocketMQ's folders.

    @param path: Something below the store's root; what was set aside before under the
        same name is replaced.
    @return: Where it is now: C{rmqha/aside/} in the root, found as the parent of the
        C{consumequeue} or C{index} folder.
    """
    parts = path.parts
    depth = max(i for i, name in enumerate(parts) if name in (CONSUMEQUEUE, INDEX))
    target = Path(*parts[:depth], OWN_FOLDER, ASIDE, "+".join(parts[depth:]))
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        for old in target.iterdir():
            old.unlink()
        target.rmdir()
    os.replace(path, target)
    return target


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


@define(eq=False)
class ConsumeQueues:
    """The queues of one store, by topic and queue id.

    @ivar root: The store's folder; the queues are in its C{consumequeue}.
    @ivar file_size: C{mappedFileSizeConsumeQueue}, in bytes, a multiple of 20.
    @ivar faults: What was wrong in the files when they were loaded and recovered.
    @ivar start: Where the log begins, for all of them.
    @ivar moved: The end of each queue, by topic and queue id, that units came to or went from
        since this was last taken; 0 for one that is gone.
    @ivar deleted: Deleted topics, and the physical offset up to which their records have no units.
    @ivar deletions: The same of topics that are being deleted.
    @ivar begins: Where queues of deleted topics begin when they are made again: just past what was
        deleted, by topic and queue id.
    @ivar tally: What came to all of them.
    """

    root: Path
    file_size: int
    descriptors: Descriptors = field(factory=Descriptors)
    faults: list[Finding] = field(init=False, factory=list)
    start: LogStart = field(init=False, factory=LogStart)
    moved: dict[tuple[str, int], int] = field(init=False, factory=dict)
    deleted: dict[str, int] = field(init=False, factory=dict)
    deletions: dict[str, int] = field(init=False, factory=dict)
    begins: dict[tuple[str, int], int] = field(init=False, factory=dict)
    tally: Tally = field(init=False, factory=Tally)
    _queues: dict[tuple[str, int], ConsumeQueue] = field(init=False, factory=dict)
    # The same by topic.
    _topics: dict[str, dict[int, ConsumeQueue]] = field(init=False, factory=dict)
    # The same as text: paths are made of it for each queue.
    _folder: str = field(init=False, default=Factory(lambda self: str(self.folder), True))

    @property
    def folder(self) -> Path:
        return self.root / CONSUMEQUEUE

    @property
    def end_physical(self) -> int:
        """Physical offset just past the newest record any queue holds; 0 for none."""
        return max((queue.end_physical for queue in self._queues.values()), default=0)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def topics(self) -> Collection[str]:
        return self._topics.keys()

    def of(self, topic: str) -> Collection[ConsumeQueue]:
        return self._topics.get(topic, {}).values()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Give a queue that exists."""
        return self._queues.get((topic, queue_id))

    def end(self, topic: str, queue_id: int) -> int:
        """The queue offset just past a queue's last message; 0 if there is no such queue."""
        queue = self._queues.get((topic, queue_id))
        return 0 if queue is None else queue.max_offset

    def create(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """Give a queue, a new empty one if need be; C{None} if it could have no folder.

        Nothing is made on disk before the first unit.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None and fileable(topic, queue_id):
            folder = f"{self._folder}/{topic}/{queue_id}"
            queue = ConsumeQueue(
                folder=folder,
                topic=topic,
                queue_id=queue_id,
                file_size=self.file_size,
                descriptors=self.descriptors,
                start=self.start,
                anew=topic in self.deleted,
            )
            self._queues[topic, queue_id] = queue
            self._topics.setdefault(topic, {})[queue_id] = queue
        return queue

    def placeable(self, queue: ConsumeQueue, offset: int) -> bool:
        """Whether a record's queue offset can be taken at its word.

        A damaged or hostile one would have us write blanks for ever: the most that is
        filled is one file's worth.
        """
        if not 0 <= offset < OFFSET_MAX:
            return False
        reach = queue.next_offset + self.file_size // 20
        return not queue.max_offset or offset <= reach

    def load(self) -> None:
        """Take the files on disk.  Queues that cannot be used are set aside, unless the
        descriptors are for reading only.
        """
        if not self.folder.is_dir():
            return
        for topic in _entries(self.folder):
            if not topic.is_dir():
                self._ignored(topic.path)
                continue
            for folder in _entries(topic.path):
                if _QUEUE_ID.fullmatch(folder.name) and folder.is_dir():
                    self._load(topic.name, folder)
                else:
                    self._ignored(folder.path)

    def _load(self, topic: str, folder: os.DirEntry[str]) -> None:
        queue = self.create(topic, int(folder.name))
        if queue is None:
            self._ignored(folder.path)
            return
        faults = queue.load()
        self.faults += faults
        unusable = faults and not queue.max_offset and os.listdir(folder.path)
        if unusable and not self.descriptors.read_only:
            set_aside(Path(folder.path))

    def _ignored(self, path: str) -> None:
        self.faults.append(Finding(path, 0, "ignored: not a consume queue"))

    def inspect(self, log_min: int) -> None:
        """Find the end of every queue and change nothing (see L{ConsumeQueue.inspect})."""
        for queue in self:
            queue.inspect(log_min)

    def recover(self, peek: RecordReader, *, durable: bool = False) -> None:
        """Find the valid end of every queue (see L{ConsumeQueue.recover})."""
        for queue in self:
            self.faults += queue.recover(peek, durable=durable)

    def ends(self) -> dict[tuple[str, int], int]:
        """Where each queue ends, and L{moved} begins anew.  It takes time for each queue."""
        self.take_moved()
        return {key: queue.max_offset for key, queue in list(self._queues.items())}

    def next_offsets(self, known: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """The queue offset that a new message of each queue gets.  It takes time for each queue.

        @param known: Offsets that were given out; none becomes smaller.
        """
        known = known | {key: max(known.get(key, 0), at) for key, at in self.begins.items()}
        found = {
            key: max(known.get(key, 0), queue.next_offset)
            for key, queue in list(self._queues.items())
        }
        return known | found

    def begin(self, topic: str, queue_id: int, offset: int, *, sure: bool = False) -> int:
        """Let a queue that has no message go on where somebody counts on it, if that is further.
        One with units of messages that are gone knows that itself.  Of queues that are open for
        reading only none gets a file.

        @param offset: What a group has committed.
        @param sure: Whether it is a queue's own end, from another file or node.
        @return: The queue offset that its next message gets.
        """
        queue = self._queues.get((topic, queue_id))
        knows = queue is not None and (queue.has_messages if sure else queue.end_physical > 0)
        if 0 < offset < OFFSET_MAX and not knows and topic not in self.deleted:
            queue = self.create(topic, queue_id)
            if queue is not None and queue.next_offset < offset:
                if self.descriptors.read_only:
                    queue.highest = offset - 1
                else:
                    queue.begin(offset)
                self.moved[topic, queue_id] = offset
        return 0 if queue is None else queue.next_offset

    def idle_ends(self) -> dict[str, dict[int, int]]:
        """Where the queues go on that have no message left, by topic and queue id.  It takes time
        for each queue.
        """
        found: dict[str, dict[int, int]] = {}
        for (topic, queue_id), queue in list(self._queues.items()):
            if queue.max_offset and not queue.has_messages:
                found.setdefault(topic, {})[queue_id] = queue.max_offset
        return found

    def tally_anew(self) -> Tally:
        """Give L{tally}, which begins anew, and let each queue count anew what comes."""
        for queue in self:
            queue.take_came()
        self.tally = Tally()
        return self.tally

    def take_moved(self) -> dict[tuple[str, int], int]:
        """Give L{moved}, which begins anew."""
        moved, self.moved = self.moved, {}
        return moved

    def truncate_to(self, limit: int) -> None:
        """Forget every record that ends above C{limit}, a physical offset."""
        for queue in self:
            queue.truncate_to(limit)
            self._note(queue)

    def _note(self, queue: ConsumeQueue) -> None:
        """Units may have gone from a queue; one that has none left goes too."""
        key = queue.topic, queue.queue_id
        self.moved[key] = queue.max_offset
        if not queue.max_offset:
            del self._queues[key]
            of_topic = self._topics[queue.topic]
            del of_topic[queue.queue_id]
            if not of_topic:
                del self._topics[queue.topic]

    def forget_deleted(self, topic: str) -> None:
        """Delete of the queues of a deleted topic what it had then."""
        for queue in list(self.of(topic)):
            queue.anew = True
            queue.forget_before(self.deleted[topic])
            self._note(queue)

    def note_deleted(self, topics: Mapping[str, DeletedTopic]) -> None:
        """Take note of the topics that were deleted before."""
        for name, topic in topics.items():
            self.deleted[name] = topic.end
            self.begins |= {(name, queue_id): end for queue_id, end in topic.queues.items()}

    def outlived(self, topic: str, offset: int) -> bool:
        """Whether a topic was deleted after a record was stored, or is being deleted.

        @param offset: The record's physical offset.
        """
        return offset < self.living_from(topic)

    def living_from(self, topic: str) -> int:
        """Physical offset from which on a topic's records were stored after it was deleted, if it
        ever was.
        """
        return max(self.deleted.get(topic, 0), self.deletions.get(topic, 0))

    def living(self, topic: str, first: int, raw: bytes) -> tuple[int, bytes]:
        """Leave out the units of a deleted topic's records.

        @param first: Queue offset of the first unit.
        @param raw: Units in the log's order.
        @return: The same of those that are left.
        """
        end = self.deleted.get(topic)
        if end is None:
            return first, raw
        gone = int(np.searchsorted(np.frombuffer(raw, UNIT_TYPE)["offset"].astype(np.int64), end))
        return first + gone, raw[gone * UNIT_SIZE :]

    def write_usual(
        self, runs: list[QueueRun], at: int, most: int, whole: bool, news: Moves
    ) -> int:
        """Write units whose queues simply go on, in one compiled pass, up to the first that is
        unusual: that one has to be looked at by itself.

        @param at: The number of the first of C{runs}.
        @param most: How many at most.
        @param whole: Whether this is a pass over the whole log.
        @param news: Takes how far each queue moved.
        @return: The number of the first that was not written.
        """
        return self.descriptors.use_open(
            lambda opened, dirty, *rest: write_usual(
                runs,
                at,
                most,
                whole,
                self.file_size,
                self._queues,
                self.deleted,
                self.moved,
                news,
                self.tally,
                opened,
                dirty,
                *rest,
            )
        )

    def begin_pass(self) -> None:
        """A dispatch of the whole log begins (see L{ConsumeQueue.mend})."""
        for queue in self:
            queue.begin_pass()

    def end_pass(self, log_min: int, report: Callable[[Finding], None]) -> None:
        """That dispatch has reached the log's end: what it did not meet is dropped."""
        for queue in self:
            queue.end_pass(log_min, report)
            self._note(queue)

    def destroy(self) -> None:
        """Delete all units of all queues, and their files: they are made anew from the log."""
        for queue in self:
            queue.destroy()
        self._queues.clear()
        self._topics.clear()

    def flush(self) -> int:
        """Make all units durable; may be called from any thread.

        @return: How many files were written out.
        """
        return self.descriptors.flush()

    def close(self) -> None:
        """Close the files; nothing is flushed by this."""
        for queue in self:
            queue.go_on_in(-1, "")
        self.descriptors.close()
