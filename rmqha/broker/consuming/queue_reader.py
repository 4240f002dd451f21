"""
What a queue holds from an offset on, as pieces of the log.

Messages of a queue that stand side by side in the log are one piece: nothing is copied, and
nothing is done for each of them but to read its unit.

Source: docs/protocol/remoting.md, Pulling.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from struct import Struct

import numpy as np
from attrs import frozen

from rmqha.config.broker_settings import PullSettings
from rmqha.errors import DerivedFault
from rmqha.logfiles.reader import LogReader
from rmqha.store.derived.consume_queue import ConsumeQueue
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.wire.columnar.queue_units import BLANK_SIZE, UNIT, UNIT_TYPE
from rmqha.wire.store_layout import UNIT_SIZE

SCAN = 800
"""Units looked at for tags in one pull, at least; stock brokers look at 16,000 bytes of them."""

SLAVE_RATIO = 0.10
"""How much less of the machine's memory a slave takes for its log."""

_FEW = 64
"""Up to so many units are compared sooner one by one; with more codes than that, all are."""

Run = tuple[int, int]
"""Physical offset and size of a piece of the log."""


class ReadStatus(StrEnum):
    """
    How a reading went; the names are known to clients.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"


@frozen
class ReadResult:
    """
    What was found.

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
    """
    This machine's memory, in bytes.
    """
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class QueueReader:
    """
    Reads queues within the limits of an answer.
    """

    def __init__(
        self,
        log: LogReader,
        queues: ConsumeQueues,
        settings: PullSettings,
        memory: int,
        *,
        slave: bool = False,
    ) -> None:
        """
        @param log: An open log.
        @param memory: The machine's memory, in bytes.
        @param slave: Whether the log may be behind another's.
        """
        self._log = log
        self._queues = queues
        self._machine, self._slave = memory, slave
        self.apply(settings)

    def apply(self, settings: PullSettings) -> None:
        """
        Read by other settings from now on.
        """
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
    ) -> ReadResult:
        """
        Read messages.

        @param offset: The first one wanted, in messages.
        @param most: How many are wanted, at least 1.
        @param codes: The tags codes of those wanted; C{None} is all.
        @param most_bytes: How many bytes are wanted, but for the first message.
        """
        queue = self._queues.get(topic, queue_id)
        low, high = (0, 0) if queue is None else (queue.min_offset, queue.max_offset)
        if queue is not None and low <= offset < high:
            return self._found(queue, offset, most, codes, most_bytes)
        if offset == high and high:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
        if not high:
            status, corrected = ReadStatus.NO_MESSAGE_IN_QUEUE, 0
        elif offset < low:
            status, corrected = ReadStatus.OFFSET_TOO_SMALL, low
        else:
            status, corrected = ReadStatus.OFFSET_OVERFLOW_BADLY, high
        return ReadResult(status, corrected if self._correct else offset, low, high)

    def holds(self, topic: str, queue_id: int) -> bool:
        """
        Whether a queue has, or had, messages here.
        """
        queue = self._queues.get(topic, queue_id)
        return queue is not None and queue.max_offset > 0

    def on_disk(self, offset: int) -> bool:
        """
        Whether a record is so far behind the log's end that memory may not hold it.

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
    ) -> ReadResult:
        limits = self._limits
        raw = queue.units(offset, max(SCAN, most) if codes is not None else most)
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
        scanned, runs = choose(raw, min(count, most), room, codes)
        status = ReadStatus.FOUND if runs else ReadStatus.NO_MATCHED_MESSAGE
        # What fills a gap in the queue says that it is at 0, which is nowhere.
        last = max(first, UNIT.unpack_from(raw, (scanned - 1) * UNIT_SIZE)[0])
        return ReadResult(
            status,
            offset + scanned,
            queue.min_offset,
            queue.max_offset,
            self._views(queue, runs) if runs else (),
            self.on_disk(last),
        )

    def _views(self, queue: ConsumeQueue, runs: list[Run]) -> list[memoryview]:
        """
        Pieces of the log.  They are cut out of one that holds them all, as far as a file goes.
        """
        views = []
        last, base, span = sum(runs[-1]), 0, memoryview(b"")
        for offset, size in runs:
            if offset - base + size > len(span):
                base, span = offset, self._log.read(offset, last - offset)
            view = span[offset - base : offset - base + size]
            if len(view) != size:
                raise DerivedFault(
                    queue.folder, offset, f"the log does not hold the {size} bytes it points to"
                )
            views.append(view)
        return views


def choose(
    raw: bytes, most: int, most_bytes: int, codes: frozenset[int] | None
) -> tuple[int, list[Run]]:
    """
    Choose from a queue's units.

    @param raw: Whole units.
    @param most: How many messages are wanted.
    @param most_bytes: How many bytes are wanted; the first message is chosen anyway.
    @param codes: The tags codes wanted; C{None} is all.
    @return: How many units are done with, and the pieces of the log.
    """
    total = len(raw) // UNIT_SIZE
    if codes is None:
        count = min(total, most)
        flat = _units(count).unpack_from(raw)
        size = sum(flat[1::3])
        if size <= most_bytes and flat[-3] + flat[-2] - flat[0] == size:
            # All of them, side by side.
            return count, [(flat[0], size)]
    runs: list[Run] = []
    done = total
    size = count = begin = end = 0
    for index in _candidates(raw, total, codes):
        start, length, code = UNIT.unpack_from(raw, index * UNIT_SIZE)
        if length == BLANK_SIZE or (codes is not None and code not in codes):
            continue
        if count == most or (count and size + length > most_bytes):
            done = index
            break
        if start != end:
            if end:
                runs.append((begin, end - begin))
            begin = start
        end = start + length
        count += 1
        size += length
    if end:
        runs.append((begin, end - begin))
    return done, runs


def matches(raw: bytes, codes: frozenset[int]) -> bool:
    """
    Whether any unit is of a message with one of these tags codes.
    """
    return bool(choose(raw, 1, 0, codes)[1])


def _candidates(raw: bytes, total: int, codes: frozenset[int] | None) -> Sequence[int]:
    """
    Where it is worth to look.
    """
    if codes is None or total <= _FEW or len(codes) > _FEW:
        return range(total)
    tags = np.frombuffer(raw, UNIT_TYPE)["tags"].astype(np.int64)
    wanted = np.zeros(total, bool)
    for code in codes:
        wanted |= tags == code
    found: list[int] = np.flatnonzero(wanted).tolist()
    return found


@lru_cache(maxsize=1024)
def _units(count: int) -> Struct:
    return Struct(">" + "qiq" * count)
