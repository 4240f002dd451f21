"""Tests for L{rmqha.wire.lane.dispatch_run}."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest import skipUnless

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.columnar.queue_units import UNIT
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.hashing import java_hash, key_hash
from rmqha.wire.log.record import check, dispatch_fields
from tests.wire.columnar.test_record_blocks import (
    BASE,
    LEVELS,
    MAX_SIZE,
    RECORDS,
    SCHEDULE_TOPIC,
    log,
    record,
)

if TYPE_CHECKING or COMPILED:
    from rmqha.wire.lane.dispatch_run import DispatchReader


NO_UTF8 = (b"\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80")
"""Cut short, longer than need be, half of a pair of UTF-16, too high, and out of place."""


def log_of(records: list[dict[str, object]]) -> bytearray:
    """A log of records that have numbers of their own."""
    data = bytearray()
    for values in records:
        data += record(BASE + len(data), **values)  # type: ignore[arg-type]
    return data


@skipUnless(COMPILED, "the lane is not compiled here")
class DispatchReaderTests(SynchronousTestCase):
    """A few records in one pass: what the scalar codec gives, or less."""

    @given(
        st.lists(RECORDS, max_size=12),
        st.integers(1, 12),
        st.lists(st.integers(0, 3), min_size=12, max_size=12),
        st.integers(-1, 1 << 12),
    )
    def test_like_one_by_one(
        self, records: list[dict[str, object]], most: int, gaps: list[int], damage: int
    ) -> None:
        """It gives what the scalar codec gives, up to a record that is unusual or none."""
        for row, gap in zip(records, gaps, strict=False):
            row["number"] = gap
        data = log_of(records)
        if 0 <= damage < len(data):
            data[damage] ^= 0x40
        found = DispatchReader(
            memoryview(data), BASE, len(data), most, MAX_SIZE, delays=LEVELS.delays
        )
        wanted, keys, position = [], [], 0
        for count in range(found.records):
            size = check(
                memoryview(data),
                position,
                len(data),
                BASE + position,
                1 << 30,
                crc=False,
                max_size=MAX_SIZE,
            )
            self.assertIsInstance(size, int)
            row = dispatch_fields(memoryview(data), position, int(size), BASE + position, LEVELS)
            unit = UNIT.pack(BASE + position, size, row.tags_code)
            if row.has_unit:
                wanted.append((row.topic, row.queue_id, row.queue_offset, unit))
            if row.indexable:
                keys += [
                    (key_hash(row.topic, key), BASE + position, row.store_timestamp)
                    for key in row.keys
                ]
            position += int(size)
            if count == found.records - 1:
                self.assertEqual(found.last_timestamp, row.store_timestamp)
        self.assertEqual(found.end, position)
        self.assertEqual(
            list(zip(found.hashes, found.offsets, found.timestamps, strict=True)), keys
        )
        given = [
            (*queue, first + number, raw[20 * number : 20 * number + 20])
            for queue, first, raw in found.units()
            for number in range(len(raw) // 20)
        ]
        self.assertEqual(
            sorted(given, key=lambda unit: unit[3]), sorted(wanted, key=lambda unit: unit[3])
        )
        for queue in {unit[:2] for unit in wanted}:
            mine = [unit for unit in given if unit[:2] == queue]
            self.assertEqual(mine, [unit for unit in wanted if unit[:2] == queue])

    def test_usual_records(self) -> None:
        """Of usual records it takes as many as it may, and sorts their units by queue."""
        text = b"UNIQ_KEY\x01k\x02KEYS\x01a b\x02DELAY\x013\x02TAGS\x01t\x02"
        topics = (b"T", SCHEDULE_TOPIC.encode())
        records: list[dict[str, object]] = [
            {"topic": topics[number % 2], "properties": text} for number in range(6)
        ]
        data, positions = log(records)
        found = DispatchReader(
            memoryview(data), BASE, len(data), 100, MAX_SIZE, delays=LEVELS.delays
        )
        self.assertEqual((found.records, found.end, len(found.hashes)), (6, len(data), 18))
        found = DispatchReader(memoryview(data), BASE, len(data), 4, MAX_SIZE, delays=LEVELS.delays)
        self.assertEqual((found.records, found.end), (4, positions[4]))

    def test_letters(self) -> None:
        """Keys and tags in any letters, of one to four bytes each, are as usual as others."""
        text = "UNIQ_KEY\x01grün\x02KEYS\x01北京 a \U0001f980\U0010ffff заказ\x02TAGS\x01Größe\x02"
        data, _ = log([{"topic": b"T", "properties": text.encode()} for _ in range(3)])
        found = DispatchReader(
            memoryview(data), BASE, len(data), 100, MAX_SIZE, delays=LEVELS.delays
        )
        self.assertEqual((found.records, len(found.hashes)), (3, 15))
        keys = ("grün", "北京", "a", "\U0001f980\U0010ffff", "заказ")
        self.assertEqual([key_hash("T", key) for key in keys], found.hashes[:5])
        (_, _, units), *_ = found.units()
        self.assertEqual(java_hash("Größe"), UNIT.unpack_from(units)[2])

    def test_unusual_records(self) -> None:
        """A record that the loops do not understand, and all behind it, are left."""
        unusual: list[dict[str, object]] = [
            {"topic": "é".encode()},
            {"topic": SCHEDULE_TOPIC.encode(), "properties": b"DELAY\x01+3\x02"},
            *({"properties": b"KEYS\x01%b\x02" % text} for text in NO_UTF8),
        ]
        for values in unusual:
            data, positions = log([{"topic": b"T"}, values, {"topic": b"T"}])
            found = DispatchReader(
                memoryview(data), BASE, len(data), 100, MAX_SIZE, delays=LEVELS.delays
            )
            self.assertIn((found.records, found.end), ((1, positions[1]), (0, 0)))
