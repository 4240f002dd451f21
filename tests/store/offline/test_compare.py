"""Where two logs part, and what each has beyond."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import cut
from rmqha.store.offline.compare import first_difference, parting, record_start
from tests.support import damage

VERSION = golden.VERSIONS[0]


class Diverging(SynchronousTestCase):
    def setUp(self) -> None:
        self.first = golden.store(VERSION)
        self.second = golden.store(VERSION)
        rows = golden.jsonl(VERSION, "expected.jsonl")
        self.rows = [row for row in rows if "blank" not in row]

    def part(self) -> tuple[OfflineLog, OfflineLog]:
        return OfflineLog(self.first), OfflineLog(self.second)

    def raws(self) -> tuple[RawLog, RawLog]:
        """Both logs, as they lie on disk."""
        return RawLog.open(self.first), RawLog.open(self.second)

    def topics(self, first: int) -> dict[str, int]:
        """How many records each topic has from a record on."""
        return dict(Counter(row["topic"] for row in self.rows[first:]))

    def test_equal(self) -> None:
        """Copies do not part."""
        found = parting(*self.raws())
        end = OfflineLog(self.first).end
        self.assertIsNone(found.difference)
        self.assertEqual((found.start, found.at), (0, end))
        self.assertEqual(found.first, found.second)
        self.assertEqual((found.first.bytes, found.first.records), (0, 0))

    def test_prefix(self) -> None:
        """A log that is behind is no other log: what it lacks is counted."""
        at = self.rows[700]["physicalOffset"]
        cut(LogFolder.load(self.second / "commitlog", damage.SIZE), at)
        found = parting(*self.raws())
        self.assertIsNone(found.difference)
        self.assertEqual(found.at, at)
        self.assertEqual(found.first.records, len(self.rows) - 700)
        self.assertEqual(found.first.topics, self.topics(700))
        self.assertEqual(found.second.records, 0)

    def test_changed_byte(self) -> None:
        """One other byte is found; the record it belongs to is the first not shared."""
        for number in (0, 1, 333, len(self.rows) - 1):
            row = self.rows[number]
            place = row["physicalOffset"] + row["size"] - 1  # no CRC there
            file, inside = divmod(place, damage.SIZE)
            damage.flip(damage.log_file(self.second, file), inside)
            found = parting(*self.raws())
            assert found.difference is not None
            self.assertEqual(found.difference.offset, place)
            self.assertEqual(found.difference.path, str(damage.log_file(self.first, file)))
            self.assertEqual(found.difference.other_path, str(damage.log_file(self.second, file)))
            self.assertEqual(found.difference.value ^ 1, found.difference.other_value)
            self.assertEqual(found.at, row["physicalOffset"])
            for side in (found.first, found.second):
                self.assertEqual(side.records, len(self.rows) - number)
                self.assertEqual(side.topics, self.topics(number))
            damage.flip(damage.log_file(self.second, file), inside)

    def test_damaged_byte(self) -> None:
        """A byte that a CRC covers is a difference too, wherever it lies; the side that is
        damaged is known by its bad place, or by what stands behind its end.
        """
        for number in (0, 333, len(self.rows) - 1):
            row = self.rows[number]
            place = row["physicalOffset"] + 90  # in the body
            file, inside = divmod(place, damage.SIZE)
            damage.flip(damage.log_file(self.second, file), inside)
            found = parting(*self.raws())
            assert found.difference is not None
            self.assertEqual((found.difference.offset, found.at), (place, row["physicalOffset"]))
            self.assertEqual((found.first.bad, found.first.tail), (0, 0))
            self.assertEqual(found.first.records, len(self.rows) - number)
            self.assertEqual(found.second.records, len(self.rows) - number - 1)
            is_last = number == len(self.rows) - 1
            self.assertEqual(found.second.bad, 0 if is_last else 1)
            self.assertEqual(found.second.tail, row["size"] if is_last else 0)
            damage.flip(damage.log_file(self.second, file), inside)

    def test_another_tail(self) -> None:
        """Each side's own records are counted for themselves."""
        at = self.rows[-5]["physicalOffset"]
        cut(LogFolder.load(self.second / "commitlog", damage.SIZE), at)
        record = bytearray(OfflineLog(self.first).read(0, 208))
        record[28:36] = at.to_bytes(8, "big")
        damage.overwrite(damage.log_file(self.second, -1), at % damage.SIZE, bytes(record))
        found = parting(*self.raws())
        self.assertEqual(found.at, at)
        self.assertEqual((found.second.records, found.second.bytes), (1, 208))
        self.assertEqual((found.second.topics, found.first.records), ({"GoldenA": 1}, 5))

    def test_later_start(self) -> None:
        """Only what both still hold is compared."""
        damage.log_file(self.second, 0).unlink()
        found = parting(*self.raws())
        self.assertEqual(found.start, damage.SIZE)
        self.assertIsNone(found.difference)

    def test_nothing_in_common(self) -> None:
        """Logs that do not touch cannot be compared."""
        for number in range(1, 11):
            (self.first / damage.name(number)).unlink()
        for number in range(3):
            (self.second / damage.name(number)).unlink()
        self.assertRaises(ValueError, parting, *self.raws())

    def test_gap(self) -> None:
        """Bytes of a missing file are passed over."""
        first, second = self.part()
        (self.second / damage.name(2)).unlink()
        gapped = OfflineLog.of(OfflineLog(self.second, end=0).raw, second.end)
        self.assertIsNone(first_difference(first, gapped))
        damage.flip(self.second / damage.name(4), 9)
        found = first_difference(first, gapped)
        assert found is not None
        self.assertEqual(found.offset, 4 * damage.SIZE + 9)
        self.assertEqual(
            first_difference(gapped, first),
            found.__class__(
                found.offset, found.other_path, found.path, found.other_value, found.value
            ),
        )

    def test_record_start(self) -> None:
        """Every byte belongs to the record, or the blank, that begins at or before it."""
        log = OfflineLog(self.first)
        row = self.rows[12]
        for place in (0, 1, row["size"] - 1):
            self.assertEqual(
                record_start(log, row["physicalOffset"] + place), row["physicalOffset"]
            )
        blanks = [row for row in golden.jsonl(VERSION, "expected.jsonl") if "blank" in row]
        for blank in blanks:
            for place in (0, 4, blank["size"] - 1):
                self.assertEqual(
                    record_start(log, blank["physicalOffset"] + place), blank["physicalOffset"]
                )
        self.assertEqual(record_start(log, log.end), log.end)

    def test_quarantine_side(self) -> None:
        """Logs of folders alone are compared as well."""
        alone = Path(self.mktemp())
        shutil.copytree(self.second / "commitlog", alone)
        self.assertIsNone(parting(RawLog.open(self.first), RawLog.open(alone)).difference)
