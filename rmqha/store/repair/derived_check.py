"""Whether queues and index have what the records of a repaired range call for.

They were written when the records were good, so as a rule nothing is missing.  Where something
is, all of them are made anew: a queue that lacks a unit may be wrong elsewhere too.

Source: docs/protocol/store.rst, Dispatch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.listing import Finding
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.published import read_deleted_topics
from rmqha.logfiles.scan import WINDOW
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.dispatch_reading import keys, read_block
from rmqha.store.derived.index import Index
from rmqha.store.derived.rebuild import open_derived
from rmqha.store.log.range_repair import Range
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.queue_units import UNIT_TYPE, grouped_units
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.store_layout import UNIT_SIZE

_READ_ENTRIES = 1 << 18


def missing_from_derived(
    log: OfflineLog, settings: StoreSettings, ranges: Sequence[Range]
) -> Iterator[Finding]:
    """Hold queues and index against the records of some ranges.  Blocking.

    @param log: A log without damage.
    @param ranges: Each from a record to a record.
    """
    queues, index = open_derived(settings.root, settings, read_only=True)
    levels = DelayLevels.parse(settings.delay_levels)
    try:
        queues.load()
        queues.inspect(log.min_offset)
        queues.note_deleted(read_deleted_topics(settings.root, log, log.confirmed))
        if index is not None:
            index.load()
        for start, stop in ranges:
            wanted: Counter[tuple[int, int]] = Counter()
            position = start
            while position < min(stop, log.end):
                buf, block = read_block(log, position, log.confirmed, WINDOW)
                if block.end == position:
                    break
                if len(block.start):
                    rows = fields(buf, block, levels)
                    for name, first, raw in grouped_units(block, rows):
                        yield from _missing_units(queues, name, first, raw)
                    hashes, offsets, _ = keys(block, rows)
                    wanted.update(zip(offsets.tolist(), hashes.tolist(), strict=True))
                position = block.end
            if index is not None:
                yield from _missing_keys(index, wanted, start, position)
    finally:
        queues.close()
        if index is not None:
            index.close()


def _missing_units(
    queues: ConsumeQueues, name: tuple[str, int], first: int, raw: bytes
) -> Iterator[Finding]:
    """Units that are not there; one of a later record in a place is right."""
    first, raw = queues.living(name[0], first, raw)
    count = len(raw) // UNIT_SIZE
    queue = queues.get(*name)
    held = queue.units(first, count) if queue is not None and count else b""
    if held == raw:
        return
    path = f"{queues.folder}/{name[0]}/{name[1]}"
    there = np.frombuffer(held, UNIT_TYPE)
    ours = np.frombuffer(raw, UNIT_TYPE)[: len(there)]
    wrong = (there != ours) & ~(there["offset"] > ours["offset"])
    for row in np.flatnonzero(wrong).tolist():
        yield Finding(path, first + row, "the unit is not the record's")
    if len(there) < count:
        yield Finding(path, first + len(there), f"{count - len(there)} units are missing")


def _missing_keys(
    index: Index, wanted: Counter[tuple[int, int]], start: int, stop: int
) -> Iterator[Finding]:
    held: Counter[tuple[int, int]] = Counter()
    for file in index.files:
        if file.end_offset < start or file.begin_offset >= stop:
            continue
        for first in range(1, file.count, _READ_ENTRIES):
            piece = file.entries(first, _READ_ENTRIES)
            inside = piece[(piece["offset"] >= start) & (piece["offset"] < stop)]
            held.update(zip(inside["offset"].tolist(), inside["hash"].tolist(), strict=True))
    lacking = wanted - held
    if lacking:
        at = min(offset for offset, _ in lacking)
        reason = f"{lacking.total()} keys of records are not indexed"
        yield Finding(str(index.folder), at, reason)
