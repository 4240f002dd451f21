"""What a queue holds from an offset on, as pieces of the log.

Messages of a queue that stand side by side in the log are one piece: nothing is copied.  Where the
lane is compiled, units are chosen and records looked at in one pass
(L{rmqha.wire.lane.pull_run}); what is anything but sound is chosen and judged here, step by step.

Source: docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from enum import StrEnum
from errno import EOPNOTSUPP
from operator import add
from typing import TYPE_CHECKING

from attrs import frozen

from rmqha.broker.consuming.chosen_units import ChosenUnits, Run, choose, choose_passing
from rmqha.broker.consuming.cold_reads import RECENT, NotInMemory, absent, places_of
from rmqha.broker.consuming.served_records import ServedRecords, first_wrong
from rmqha.broker.state import BrokerState
from rmqha.config.broker_settings import PullSettings
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.wire.columnar.queue_units import UNIT
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.sql92.filter import Filter, read_filter
from rmqha.wire.store_layout import BLANK_SIZE, UNIT_SIZE

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.pull_run import sound_runs

SCAN = 800
"""Units looked at for tags in one pull, at least; stock brokers look at 16,000 bytes of them."""

SLAVE_RATIO = 0.10
"""How much less of the machine's memory a slave takes for its log."""

Found = tuple[int, int, Sequence[memoryview]]
"""How many units are done with, the physical offset of the last of them, and what was found."""


class ReadStatus(StrEnum):
    """How a reading went; the names are known to clients."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"


@frozen
class ReadResult:
    """What was found.

    @ivar next_offset: Where to go on, in messages.
    @ivar min_offset: The queue's first message.
    @ivar max_offset: Just past its last.
    @ivar body: Whole records; the views keep their mappings alive.
    @ivar lagging: Whether the last message looked at may have left memory.
    """

    status: ReadStatus
    next_offset: int
    min_offset: int = 0
    max_offset: int = 0
    body: Sequence[memoryview] = ()
    lagging: bool = False


def physical_memory() -> int:
    """This machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


Choice = Callable[[int], ChosenUnits]
"""Takes so many messages at most of the units of a reading."""


class QueueReader:
    """Reads queues within the limits of an answer."""

    def __init__(self, state: BrokerState, served: ServedRecords, memory: int) -> None:
        """@param served: Judges what is read of the log.
        @param memory: The machine's memory, in bytes.
        """
        self.next_offset = state.store.next_offset
        self._served, self._log = served, served.log
        self._queues = state.store.queues
        self._machine, self._slave = memory, state.slave
        # Where those files begin of which the file system cannot tell what is in memory.
        self._untold: set[int] = set()
        self.apply(state.settings.pull)

    def apply(self, settings: PullSettings) -> None:
        """Read by other settings from now on."""
        self._limits = settings
        ratio = settings.memory_ratio - (SLAVE_RATIO if self._slave else 0.0)
        self._memory = settings.memory_size or int(self._machine * ratio)
        self._correct = not self._slave or settings.check_in_slave

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        most: int,
        codes: frozenset[int] | None = None,
        most_bytes: int | None = None,
        passing: str | None = None,
        *,
        patient: bool = False,
    ) -> ReadResult:
        """Read messages.

        @param offset: The first one wanted, in messages.
        @param most: How many are wanted, at least 1.
        @param codes: The tags codes of those wanted; C{None} is all.
        @param most_bytes: How many bytes are wanted, but for the first message.
        @param passing: The filter that lets those by that are wanted; C{None} is all.
        @param patient: Whether it can wait for the disk.
        @raise NotInMemory: If it has to.
        """
        queue = self._queues.get(topic, queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        if queue is not None and low <= offset < high:
            return self._found(queue, offset, most, codes, most_bytes, passing, patient=patient)
        if (offset == high and high) or self._is_ahead(topic, queue_id, high, offset):
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if not high:
            status, corrected = ReadStatus.NO_MESSAGE_IN_QUEUE, 0
        elif offset < low:
            status, corrected = ReadStatus.OFFSET_TOO_SMALL, low
        else:
            status, corrected = ReadStatus.OFFSET_OVERFLOW_BADLY, high
        return ReadResult(status, corrected if self._correct else offset, low, high)

    def _is_ahead(self, topic: str, queue_id: int, high: int, offset: int) -> bool:
        """Whether a message is in the log that readers of a master do not see yet, or is the next:
        who wants it has seen those before it, and must not be sent back.
        """
        return not self._slave and high < offset <= self.next_offset(topic, queue_id)

    def passed_over(self, topic: str, queue_id: int, passing: str, offset: int) -> int:
        """How far a consumer may go on without a look: up to the first message that a filter lets
        by, the queue's end, or where the work for one reading ends.

        @param offset: Where it is, in messages, which must be in the queue.
        """
        queue = self._queues.get(topic, queue_id)
        raw = b"" if queue is None else queue.units(offset, SCAN)
        chosen = choose_passing(raw, offset, 1, 0, read_filter(passing), self._served)
        return offset + (chosen.rows[0] if chosen.rows else chosen.done)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """A queue's first message, and just past its last, as readers see it; 0 and 0 where there
        is no queue.
        """
        queue = self._queues.get(topic, queue_id)
        return (0, 0) if queue is None else (queue.min_offset, queue.max_offset)

    def begins_on_disk(self, topic: str, queue_id: int) -> bool:
        """Whether memory may not hold a queue's first message any more."""
        queue = self._queues.get(topic, queue_id)
        unit = None if queue is None else queue.unit(queue.min_offset)
        return unit is not None and self.on_disk(unit[0])

    def holds(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has, or had, messages here."""
        queue = self._queues.get(topic, queue_id)
        return queue is not None and queue.max_offset > 0

    def on_disk(self, offset: int) -> bool:
        """Whether a record is so far behind the log's end that memory may not hold it.

        @param offset: Physical.
        """
        return self._log.end - offset > self._memory

    def _found(
        self,
        queue: ConsumeQueue,
        offset: int,
        most: int,
        codes: frozenset[int] | None,
        most_bytes: int | None,
        passing: str | None,
        *,
        patient: bool,
    ) -> ReadResult:
        limits = self._limits
        some = codes is not None or passing is not None
        raw = queue.units(offset, max(SCAN, most) if some else most)
        first, size, _ = UNIT.unpack_from(raw)
        if first < self._log.min_offset and size != BLANK_SIZE:
            queue.correct_min(self._log.min_offset)
            low, high = queue.min_offset, queue.max_offset
            lagging = self.on_disk(first)
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, low, low, high, lagging=lagging)
        if self.on_disk(first):
            count, room = limits.disk_count, limits.disk_bytes
        else:
            count, room = limits.memory_count, limits.memory_bytes
        if most_bytes is not None:
            room = min(room, most_bytes)
        most = min(count, most)
        if patient and RECENT < self._log.end - first <= self._log.end - self._log.min_offset:
            self._require_memory(first, raw, most)
        wanted = None if passing is None else read_filter(passing)
        found = self._at_once(raw, offset, most, room, codes, first, wanted)
        if found is None:
            found = self._step_by_step(
                queue, raw, offset, most, self._choice(raw, offset, room, codes, wanted)
            )
        done, last, body = found
        return ReadResult(
            ReadStatus.FOUND if body else ReadStatus.NO_MATCHED_MESSAGE,
            offset + done,
            queue.min_offset,
            queue.max_offset,
            body,
            # What fills a gap in the queue says that it is at 0, which is nowhere.
            self.on_disk(max(first, last)),
        )

    def _require_memory(self, first: int, raw: bytes, most: int) -> None:
        file = self._log.folder.at(first)
        if file.start in self._untold:
            return
        places = places_of(raw, most, file.start, file.size)
        try:
            if any(absent(file.fd, place) for place in places):
                raise NotInMemory(str(file.path), places)
        except OSError as error:
            if error.errno == EOPNOTSUPP:
                self._untold.add(file.start)

    def _at_once(
        self,
        raw: bytes,
        offset: int,
        most: int,
        room: int,
        codes: frozenset[int] | None,
        first: int,
        wanted: Filter | None,
    ) -> Found | None:
        """Choose and judge in one pass, where that is compiled.

        @param first: Physical offset of the first unit's record.
        @return: C{None} if anything is not sound, in doubt, or goes on in another file.
        """
        log = self._log
        if not COMPILED or not log.min_offset <= first < log.end:
            return None
        view = log.read(first, log.file_size)
        found = sound_runs(raw, offset, most, room, codes, view, first, wanted)
        if found is None:
            return None
        done, last, runs, reached = found
        doubted = self._served.doubted
        # What a filter did not let by may have been something else.
        looked = runs if wanted is None else [(0, reached)]
        if any(doubted(first + start, first + end) for start, end in looked):
            return None
        return done, last, [view[start:end] for start, end in runs]

    def _choice(
        self,
        raw: bytes,
        offset: int,
        room: int,
        codes: frozenset[int] | None,
        wanted: Filter | None,
    ) -> Choice:
        """What chooses of units."""
        if wanted is None:
            return lambda most: choose(raw, most, room, codes)
        return lambda most: choose_passing(raw, offset, most, room, wanted, self._served)

    def _step_by_step(
        self, queue: ConsumeQueue, raw: bytes, offset: int, most: int, choice: Choice
    ) -> Found:
        """Choose, then judge.

        @raise RequestRefused: If the first message is not what its unit says.
        """
        chosen = choice(most)
        body: Sequence[memoryview] = ()
        if chosen.runs:
            chosen, body = self._sound(queue, offset, choice, chosen)
        last, _, _ = UNIT.unpack_from(raw, (chosen.done - 1) * UNIT_SIZE)
        return chosen.done, last, body

    def _sound(
        self, queue: ConsumeQueue, offset: int, choice: Choice, chosen: ChosenUnits
    ) -> tuple[ChosenUnits, list[memoryview]]:
        """The pieces of the log, up to the first record that is not what its unit says.

        @raise RequestRefused: If that is the first one.
        """
        views = self._views(chosen.runs)
        good = self._good(chosen, views, offset)
        if good == len(chosen.starts):
            return chosen, views
        if good:
            chosen = choice(good)
            return chosen, self._views(chosen.runs)
        if len(chosen.starts) > 1:
            # One of those side by side with it may be behind the log's end.
            return self._sound(queue, offset, choice, choice(1))
        number = offset + chosen.rows[0]
        what = f"message {number} of queue {queue.queue_id} of topic {queue.topic}"
        raise self._served.refusal(chosen.starts[0], chosen.sizes[0], what)

    def _good(self, chosen: ChosenUnits, views: list[memoryview], offset: int) -> int:
        """How many of the records may be sent.

        @param views: Of the pieces, as far as the log has them.
        """
        row, doubted = 0, self._served.doubted
        for count, (begin, size), view in zip(chosen.counts, chosen.runs, views, strict=False):
            part = slice(row, row + count)
            starts, sizes = chosen.starts[part], chosen.sizes[part]
            if doubted(begin, begin + size):
                reasons = map(doubted, starts, map(add, starts, sizes))
                return row + next(at for at, reason in enumerate(reasons) if reason)
            wrong = first_wrong(view, starts, sizes, _numbers(chosen.rows[part], offset))
            row += wrong
            if wrong < count:
                break
        return row

    def _views(self, runs: list[Run]) -> list[memoryview]:
        """Pieces of the log.  They are cut out of one that holds them all, as far as a file goes.

        @return: Those before the first that the log does not hold.
        """
        views: list[memoryview] = []
        last, base, span = sum(runs[-1]), 0, memoryview(b"")
        for offset, size in runs:
            if offset - base + size > len(span):
                if not self._log.min_offset <= offset <= self._log.end:
                    break
                base, span = offset, self._log.read(offset, last - offset)
            view = span[offset - base : offset - base + size]
            if len(view) != size:
                break
            views.append(view)
        return views


def _numbers(rows: Sequence[int], offset: int) -> Sequence[int]:
    """Queue offsets of units.

    @param offset: That of the first unit that was read.
    """
    if isinstance(rows, range):
        return range(rows.start + offset, rows.stop + offset)
    return [offset + row for row in rows]
