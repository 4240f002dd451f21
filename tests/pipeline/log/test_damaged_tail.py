"""Damage in the last file of a store that nobody published a point for: what lies behind it tells
it from a torn tail, and nothing behind it is left out without a word.
"""

from __future__ import annotations

import json
from typing import Any

from rmqha.logfiles import log_end
from rmqha.pipeline.log.errors import RangeBroken
from rmqha.wire.log.layout import FIELDS
from tests.support.damaged_stores import SIZE, BadInputTestCase, change, offsets, rows

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from rmqha.logfiles.log_files import LogFiles
    from rmqha.pipeline.log import stores
    from rmqha.pipeline.scan import snapshot
    from tests.pipeline.spark.test_stream import drain, reader_of, rows_between
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"

COLUMNS = "physical_offset,_corrupt_record"


class DamagedTailTests(BadInputTestCase):
    """A golden store without a point; a record in the middle of its last file is changed."""

    def setUp(self) -> None:
        super().setUp()
        self.start = self.all[-1] - self.all[-1] % SIZE
        self.mine = [offset for offset in self.all if offset >= self.start]
        self.row = self.all.index(self.mine[3])
        self.bad = self.all[self.row]
        self.from_here = {"startingOffsets": {"store": self.start}}

    def flip(self, place: int, mask: int = 0xFF) -> None:
        file, at = self.file_of(self.bad), self.bad % SIZE + place
        change(file, at, bytes([file.read_bytes()[at] ^ mask]))

    def stream(self, **given: object) -> Any:
        return reader_of(path=self.store, allowUnconfirmedTail=True, **given)

    def test_every_byte(self) -> None:
        """Whichever byte of a record is changed, no read that ends well has fewer rows; one that is
        to go on says where it met damage, and a stream neither stands still nor says that it has
        read everything.
        """
        fields = [
            place
            for field in FIELDS.values()
            for place in range(field.place.start, field.place.stop)
        ]
        self.assertGreater(len(fields), 80)
        sound = [offset for offset in self.mine if offset != self.bad]
        for place in [*fields, self.records[self.row]["size"] - 1]:
            self.flip(place)
            whole = offsets(self.store, mode="DROPMALFORMED", **self.from_here)
            try:
                found = offsets(self.store, **self.from_here)
            except RangeBroken as error:
                self.assertEqual(self.bad, error.offset, place)
                marked = rows(self.store, mode="PERMISSIVE", columns=COLUMNS, **self.from_here)
                told = [row["physical_offset"] for row in marked if row["_corrupt_record"]]
                self.assertEqual([self.bad], told, place)
                self.assertIn(whole, (sound, self.mine[: self.mine.index(self.bad)]), place)
                self.assertRaises(RangeBroken, drain, self.stream(**self.from_here))
                passing = self.stream(mode="DROPMALFORMED", **self.from_here)
                self.assertEqual(whole, [row for batch in drain(passing) for row in batch])
            else:
                self.assertEqual(self.mine, found, place)
                self.assertEqual(self.mine, whole, place)
            behind = self.stream().reportLatestOffset()["stores"]["store"]["offset"]
            self.assertGreaterEqual(behind, self.end, place)
            self.flip(place)

    def test_met_by_a_running_stream(self) -> None:
        """A stream that has come up to the place stops there with the place, and is behind by what
        follows; one that passes over damage goes on with the next record if only a body is damaged.
        """
        reader = self.stream(**self.from_here)
        begun = reader.initialOffset()
        whole = self.file_of(self.bad).read_bytes()
        change(self.file_of(self.bad), self.bad % SIZE, bytes(SIZE - self.bad % SIZE))
        here = reader.latestOffset(begun, ReadAllAvailable())
        self.assertEqual(self.bad, here["stores"]["store"]["offset"])
        self.file_of(self.bad).write_bytes(whole)
        body = FIELDS["body_length"].place.stop
        for place, sound in ((FIELDS["magic"].place.start, False), (body, True)):
            self.flip(place)
            if sound:
                end = json.loads(json.dumps(reader.latestOffset(here, ReadAllAvailable())))
                self.assertRaises(RangeBroken, rows_between, reader, here, end)
            else:
                latest, limit = reader.latestOffset, ReadAllAvailable()
                self.assertEqual(
                    self.bad, self.assertRaises(RangeBroken, latest, here, limit).offset
                )
            told = reader.reportLatestOffset()["stores"]["store"]["offset"]
            self.assertGreaterEqual(told, self.end)
            passing = self.stream(mode="DROPMALFORMED")
            end = json.loads(json.dumps(passing.latestOffset(here, ReadAllAvailable())))
            left = self.all[self.row + 1 :] if sound else []
            self.assertEqual(left, rows_between(passing, here, end))
            self.flip(place)

    def test_head_of_the_file(self) -> None:
        """A file whose first bytes are zeros is not one that nothing was written to."""
        change(self.file_of(self.start), 0, bytes(8))
        for read in (offsets, rows):
            error = self.assertRaises(RangeBroken, read, self.store)
            self.assertEqual(self.start, error.offset)
        found = rows(self.store, mode="PERMISSIVE", columns=COLUMNS)
        self.assertEqual(
            [self.start], [r["physical_offset"] for r in found if r["_corrupt_record"]]
        )
        self.assertRaises(RangeBroken, drain, self.stream())

    def test_no_record_behind(self) -> None:
        """In doubt a log is refused, not shortened: bytes behind a fault that reach beyond what one
        torn record can leave are damage, though there is no record among them.
        """
        self.patch(log_end, "TORN_MOST", 1 << 10)
        junk = b"x" * (SIZE - self.bad % SIZE)
        change(self.file_of(self.bad), self.bad % SIZE, junk)
        self.assertEqual(self.bad, self.assertRaises(RangeBroken, offsets, self.store).offset)
        change(self.file_of(self.bad), self.bad % SIZE, junk[:1000] + bytes(len(junk) - 1000))
        self.assertEqual(self.all[: self.row], offsets(self.store))

    def test_being_written(self) -> None:
        """A record seen while it was written is no damage: it is looked at again later."""
        whole = self.file_of(self.bad).read_bytes()
        self.flip(0)
        behind = log_end.damage_behind

        def late(*args: Any) -> int | None:
            found = behind(*args)
            self.file_of(self.bad).write_bytes(whole)
            return found

        self.patch(log_end, "damage_behind", late)
        self.assertEqual({"store": self.end}, snapshot(self.store))
        self.assertEqual(self.all, offsets(self.store))

    def test_looked_for_once(self) -> None:
        """What a stream has passed is not followed again to tell how far it is behind."""
        begun: list[int] = []
        real = stores.find_end_past_damage

        def counted(files: LogFiles, known: int = 0) -> Any:
            begun.append(known)
            return real(files, known)

        self.patch(stores, "find_end_past_damage", counted)
        reader = self.stream()
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        begun.clear()
        reader.reportLatestOffset()
        self.assertEqual([self.end], begun)

    def test_young_record(self) -> None:
        """A stream leaves the last record of a log that is being written for the next batch, until
        another follows or it is a second old: parts of it that no check covers may be missing.
        """
        stored = self.records[-1]["storeTimestamp"] / 1000
        for now, seen in ((stored + 0.2, self.all[:-1]), (stored + 2, self.all)):
            self.patch(stores.time, "time", lambda now=now: now)
            batches = drain(self.stream())
            self.assertEqual(seen, [offset for batch in batches for offset in batch])
            self.assertEqual(self.all, offsets(self.store))
