"""Logs, stores, positions and options that are not what they should be: each is read as far as
it is right, or refused with a reason.

What L{tests.pipeline.test_scan} and L{tests.pipeline.spark.test_stream} try is not tried again.
"""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path
from typing import Any

from attrs import evolve

from lab.harness import golden
from rmqha.errors import NotAStore
from rmqha.pipeline.errors import ColumnOfOtherType, OptionInvalid
from rmqha.pipeline.log.errors import (
    CopyBehind,
    DataLost,
    LogCopiedAnew,
    LogCutBack,
    QueueGap,
    RangeBroken,
)
from rmqha.wire.log.encode import blank
from rmqha.wire.log.layout import FIELDS, MAGIC_BLANK
from rmqha.wire.log.published import Cut, CutReason, Span, render_spans
from rmqha.wire.log.record import Message
from rmqha.wire.log.sys_flag import COMPRESSED
from rmqha.wire.store_layout import OWN_FOLDER, POINT, SPLITS
from tests.support.damaged_stores import SIZE, BadInputTestCase, change, offsets, rows
from tests.support.rows import publish
from tests.wire.records import PLAIN, stored

try:
    import pyarrow as pa

    from rmqha.logfiles import walk_file
    from rmqha.logfiles.listing import LogFile
    from rmqha.pipeline.log.options import DECOMPRESSED_LIMIT, ReadOptions
    from rmqha.pipeline.log.reading import RangeProof
    from rmqha.pipeline.log.tables import schema_of
    from rmqha.pipeline.scan import snapshot
    from rmqha.pipeline.spark.batch import BatchReader
    from rmqha.pipeline.spark.types import spark_schema
    from tests.pipeline.spark.test_stream import drain, reader_of
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class FolderTests(BadInputTestCase):
    """What is no store is not read as an empty one."""

    def test_wrong_folders(self) -> None:
        """Each is named with what it lacks."""
        base = Path(self.mktemp())
        for name in ("empty", "dledger/dledger-n0/data", "odd"):
            (base / name).mkdir(parents=True)
        (base / "file").write_text("")
        (base / "odd" / "commitlog").write_text("")
        for name, reason in (
            ("missing", "it does not exist"),
            ("empty", "it has no folder commitlog"),
            ("file", "it is a file"),
            ("odd", "its commitlog is a file"),
            ("dledger", "DLedger"),
            ("dledger/dledger-n0", "it has no folder commitlog"),
        ):
            for read in (offsets, snapshot):
                self.assertIn(reason, str(self.assertRaises(NotAStore, read, base / name)))
            reader = reader_of(path=base / name, columns="topic")
            self.assertRaises(NotAStore, reader.initialOffset)

    def test_other_files(self) -> None:
        """A folder of files that are no log is refused; files with other names are passed over."""
        entry = struct.pack(">iiqq", 1, 100, 0, 1)  # as DLedger begins an entry
        for raw in (entry, b"From: somebody\n", b"\x1f\x8b\x08\0\0\0\0\0"):
            root = self.made()
            (root / "commitlog" / f"{0:020d}").write_bytes(raw.ljust(4096, b"x"))
            self.assertRaises(NotAStore, offsets, root)
        root = self.made(PLAIN)
        for name in ("README", "0", f"{4096:019d}", f"{4096:020d}.tmp"):
            (root / "commitlog" / name).write_bytes(b"x" * 4096)
        (root / "commitlog" / f"{1 << 20:020d}").mkdir()
        self.assertEqual([0], offsets(root))


class TailTests(BadInputTestCase):
    """A log nobody published a point for ends where its records do."""

    def test_torn_tails(self) -> None:
        """Wherever its last record is torn, a log ends before it, and says so."""
        whole = self.file_of(self.all[-1]).read_bytes()
        place, size = self.all[-1] % SIZE, self.records[-1]["size"]
        for kept in (1, 7, 8, 20, 60, 87, 88, size // 2, size - 1):
            torn = whole[: place + kept] + bytes(SIZE - place - kept)
            self.file_of(self.all[-1]).write_bytes(torn)
            self.assertEqual(self.all[:-1], offsets(self.store), kept)
            self.assertEqual({"store": self.all[-1]}, snapshot(self.store))
        change(self.file_of(self.all[-1]), place, b"garbage!")
        with self.assertLogs("rmqha.pipeline", "WARNING") as logs:
            self.assertEqual(self.all[:-1], offsets(self.store))
        self.assertIn(f"ends at byte {self.all[-1]}: bad magic", logs.output[0])

    def test_short_last_file(self) -> None:
        """So does one whose last file is shorter than the others."""
        for size in (self.all[-1] % SIZE + 30, self.all[-1] % SIZE):
            os.truncate(self.file_of(self.all[-1]), size)
            self.assertEqual(self.all[:-1], offsets(self.store))

    def test_same_in_an_earlier_file(self) -> None:
        """What would be a torn tail is damage where another file follows: an error, or one row."""
        last = max(offset for offset in self.all if offset < SIZE)
        os.truncate(self.file_of(0), last + 30)
        self.assertEqual(last, self.assertRaises(RangeBroken, offsets, self.store).offset)
        left = [offset for offset in self.all if offset != last]
        self.assertEqual(left, offsets(self.store, mode="DROPMALFORMED"))
        columns = "physical_offset,_corrupt_record"
        found = rows(self.store, mode="PERMISSIVE", columns=columns)
        bad = [row for row in found if row["_corrupt_record"] is not None]
        self.assertEqual([last], [row["physical_offset"] for row in bad])
        self.assertEqual(self.all, [row["physical_offset"] for row in found])


class GoneTests(BadInputTestCase):
    """Files that go while a query runs."""

    def test_deleted_after_planning(self) -> None:
        """The range is an error, or is skipped and told."""
        for given in ({}, {"failOnDataLoss": False}):
            publish(self.store, self.end)
            options, ranges = self.ranges(**given)
            self.file_of(0).rename(self.store / "kept")
            if options.fail_on_data_loss:
                error = self.assertRaises(DataLost, self.read, options, ranges[0])
                self.assertEqual((0, SIZE), (error.start, error.end))
            else:
                with self.assertLogs("rmqha.pipeline", "WARNING") as logs:
                    self.assertEqual([], self.read(options, ranges[0]))
                self.assertIn(f"bytes 0 to {SIZE}", logs.output[0])
            (self.store / "kept").rename(self.file_of(0))

    def test_start_in_a_hole(self) -> None:
        """A read that is to begin where a file is missing is one that lost data."""
        self.file_of(2 * SIZE).unlink()
        start = {"startingOffsets": {"store": 2 * SIZE + 100}}
        for read in (offsets, snapshot):
            error = self.assertRaises(DataLost, read, self.store, **start)
            self.assertEqual((2 * SIZE + 100, 3 * SIZE), (error.start, error.end))
        kept = [offset for offset in self.all if offset >= 3 * SIZE]
        self.assertEqual(kept, offsets(self.store, failOnDataLoss=False, **start))

    def test_deleted_while_planning(self) -> None:
        """A file gone between listing and looking is as if it had never been listed."""
        opened, first = walk_file.opened_log, [self.file_of(0)]

        def late(file: LogFile) -> Any:
            for path in first:
                path.unlink()
            first.clear()
            return opened(file)

        time = self.records[0]["storeTimestamp"]
        self.patch(walk_file, "opened_log", late)
        kept = [offset for offset in self.all if offset >= SIZE]
        self.assertEqual(kept, offsets(self.store, startingTimestamp=time))

    def test_no_store_on_this_host(self) -> None:
        """A host without the store, or with a copy behind, is no loss of data: none is skipped."""
        options, ranges = self.ranges(failOnDataLoss=False)
        for file in sorted(self.folder.iterdir())[1:]:
            file.unlink()
        self.assertRaises(CopyBehind, self.read, options, ranges[-1])
        shutil.rmtree(self.folder)
        self.assertRaises(NotAStore, self.read, options, ranges[-1])

    def test_point_gone(self) -> None:
        """Nor does a host count that has no point, if there was one for the plan."""
        publish(self.store, self.end)
        options, ranges = self.ranges()
        (self.store / OWN_FOLDER / POINT).unlink()
        self.assertRaises(CopyBehind, self.read, options, ranges[0])

    def test_point_goes_meanwhile(self) -> None:
        """Without a point rows that are read already are not given either."""
        publish(self.store, self.end)
        options, ranges = self.ranges()
        prove = RangeProof.prove

        def gone(guard: RangeProof) -> None:
            prove(guard)
            (self.store / OWN_FOLDER / POINT).unlink()

        self.patch(RangeProof, "prove", gone)
        self.assertRaises(CopyBehind, self.read, options, ranges[0])

    def test_copied_anew_meanwhile(self) -> None:
        """A log put aside under a task gives no more rows, and no row is called wrong."""
        publish(self.store, self.end)
        options, ranges = self.ranges()
        self.cut(0, CutReason.COPY)
        error = self.assertRaises(LogCopiedAnew, self.read, options, ranges[0])
        self.assertEqual((5, ranges[0].end), (error.time, error.position))


class QueueGapTests(BadInputTestCase):
    """Records that are missing, which only the offsets of their queues show."""

    def setUp(self) -> None:
        super().setUp()
        self.strict = {"failOnQueueGap": True}

    def test_whole_logs(self) -> None:
        """Logs of brokers have no gap, however they are divided."""
        for version, name in (("5.3.3", "store"), ("4.9.7", "store"), ("5.3.3", "killed")):
            store = golden.store(version, name)
            self.assertEqual(offsets(store), offsets(store, **self.strict))
            found = offsets(store, topic="GoldenA", **self.strict)
            self.assertEqual(offsets(store, topic="GoldenA"), found)

    def test_blank_in_the_middle(self) -> None:
        """A blank that hides the rest of its file is an error, if that is wanted."""
        bad = self.all[700]
        change(self.file_of(bad), bad % SIZE, bytes(blank(SIZE - bad % SIZE)[:8]))
        hidden = range(bad, bad - bad % SIZE + SIZE)
        self.assertEqual([o for o in self.all if o not in hidden], offsets(self.store))
        error = self.assertRaises(RangeBroken, offsets, self.store, **self.strict)
        self.assertEqual(bad, error.offset)

    def test_left_out(self) -> None:
        """So is a damaged record passed over, and a queue offset that was damaged itself."""
        bad = self.records[700]
        place = bad["physicalOffset"] % SIZE
        change(
            self.file_of(bad["physicalOffset"]),
            place + FIELDS["body_length"].place.stop,
            b"\xff\xff",
        )
        error = self.assertRaises(
            QueueGap, offsets, self.store, mode="DROPMALFORMED", **self.strict
        )
        told = (error.topic, error.queue_id, error.expected)
        self.assertEqual((bad["topic"], bad["queueId"], bad["queueOffset"]), told)
        self.assertEqual(error.found, error.expected + 1)


class ManyCutsTests(BadInputTestCase):
    """A log that was cut back very often."""

    def test_ranges(self) -> None:
        """A range is no longer for it, and one more cut is noticed, be it at the same place."""
        cuts = tuple(Cut(1000 * number, 5) for number in range(1000))
        publish(self.store, self.end, cuts=cuts)
        options, ranges = self.ranges()
        self.assertLess(max(len(each.to_json()) for each in ranges), 1000)
        self.assertEqual(self.all[0], self.read(options, ranges[0])[0])
        publish(self.store, self.end, cuts=(*cuts[1:], cuts[3]))
        self.assertRaises(LogCutBack, self.read, options, ranges[0])


class DamageTests(BadInputTestCase):
    """A broken chain below the end, met by what plans and not by what reads."""

    def setUp(self) -> None:
        super().setUp()
        publish(self.store, self.end)
        self.bad = self.all[3]
        change(self.file_of(0), self.bad + 1, b"\xff")
        self.left = self.all[:3] + [offset for offset in self.all if offset >= SIZE]

    def test_streams(self) -> None:
        """A stream with limits stops at damage, or goes on behind it, and skips nothing else."""
        for given in ({"maxBytesPerTrigger": "30k"}, {"maxRowsPerTrigger": 50}, {}):
            error = self.assertRaises(RangeBroken, drain, reader_of(path=self.store, **given))
            self.assertEqual(self.bad, error.offset)
            batches = drain(reader_of(path=self.store, mode="DROPMALFORMED", **given))
            self.assertEqual(self.left, [offset for batch in batches for offset in batch])

    def test_damage_at_the_end(self) -> None:
        """So does one that has nothing but damage left."""
        change(self.file_of(self.all[-1]), self.all[-1] % SIZE + 1, b"\xff")
        batches = drain(reader_of(path=self.store, mode="DROPMALFORMED", maxRowsPerTrigger=400))
        self.assertEqual(self.left[:-1], [offset for batch in batches for offset in batch])

    def test_places_behind_damage(self) -> None:
        """Where a read begins is not sought over damage, unless passed over, or rows were lost."""
        time = self.records[500]["storeTimestamp"]
        inside = next(o for o in self.all[4:] if o < SIZE) + 1
        for start in ({"startingOffsets": {"store": inside}}, {"startingTimestamp": time}):
            error = self.assertRaises(RangeBroken, offsets, self.store, **start)
            self.assertEqual(self.bad, error.offset)
            found = offsets(self.store, mode="DROPMALFORMED", **start)
            self.assertEqual([o for o in self.left if o >= found[0]], found)
            self.assertGreaterEqual(found[0], SIZE)

    def test_too_long(self) -> None:
        """A size that goes beyond the range, but not the file, is damage as any other."""
        spans = [
            Span(0, self.all[9], 0, 9, 0, 1),
            Span(self.all[9], self.end, 9, len(self.all) - 9, 0, 1),
        ]
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(spans))
        change(self.file_of(0), self.bad, struct.pack(">i", self.all[20] - self.bad))
        given = {"maxPartitionBytes": 1}
        error = self.assertRaises(RangeBroken, offsets, self.store, **given)
        self.assertEqual(self.bad, error.offset)
        found = offsets(self.store, mode="DROPMALFORMED", **given)
        self.assertEqual(self.all[:3] + self.all[9:], found)


class BodyTests(BadInputTestCase):
    """Bodies and properties are whatever a producer sent."""

    def test_compressed_bodies(self) -> None:
        """One that is not what it says, or becomes too long, is damage of that record only."""
        zero, most = bytes(3 << 20), 1 << 20
        packed = {
            kind: pa.compress(zero, codec, asbytes=True)
            for kind, codec in ((0x100, "lz4"), (0x200, "zstd"))
        }
        packed[0x300] = packed[0] = zlib.compress(zero)
        for kind, bomb in packed.items():
            codec = {0x100: "lz4", 0x200: "zstd"}.get(kind)
            torn = pa.compress(b"torn", codec, asbytes=True) if codec else zlib.compress(b"torn")
            good = bytes(pa.compress(b"good", "lz4", asbytes=True))
            fine = evolve(PLAIN, body=good, sys_flag=COMPRESSED | 0x100)
            for body in (bomb, b"", b"nothing of the kind", torn[:-3], torn[:5], b"\0" * 50):
                bad = evolve(PLAIN, body=body, sys_flag=COMPRESSED | kind)
                root = self.made(fine, bad, fine)
                self.assertEqual(3, len(offsets(root)))
                given = {"decompress": True, "maxDecompressedBytes": most}
                error = self.assertRaises(RangeBroken, rows, root, **given)
                self.assertIn("cannot be decompressed", str(error))
                found = rows(root, mode="PERMISSIVE", **given)
                self.assertEqual([b"good", None, b"good"], [row["body"] for row in found])
                self.assertIsNotNone(found[1]["_corrupt_record"])
            whole = rows(self.made(evolve(PLAIN, body=bomb, sys_flag=1 | kind)), decompress=True)
            self.assertEqual([len(zero)], [len(row["body"]) for row in whole])
        unknown = evolve(PLAIN, body=b"x", sys_flag=COMPRESSED | 0x700)
        self.assertRaises(RangeBroken, rows, self.made(unknown), decompress=True)

    def test_invalid_utf8(self) -> None:
        """What is not UTF-8 becomes U+FFFD; names that become equal are one, the last."""
        properties = b"TAGS\1a\xff\2\xff\0011\2KEYS\1\xc3\x28\2\xfe\0012\2ok\1\xe4\xb8\xad\2"
        (row,) = rows(self.made(evolve(PLAIN, properties=properties)))
        self.assertEqual(("a\ufffd", "\ufffd("), (row["tags"], row["keys"]))
        wanted = {"TAGS": "a\ufffd", "\ufffd": "2", "KEYS": "\ufffd(", "ok": "\u4e2d"}
        self.assertEqual(wanted, dict(row["properties"]))
        self.assertEqual(len(wanted), len(row["properties"]))

    def test_absurd_times(self) -> None:
        """Times that no calendar has are null, and stop nothing."""
        times = (0, -1, 1 << 62, -(1 << 63), (1 << 63) - 1, 253_402_300_799_999)
        found = rows(self.made(*(evolve(PLAIN, born_timestamp=time) for time in times)))
        known = [row["born_timestamp"] is not None for row in found]
        self.assertEqual([True, True, False, False, False, True], known)

    def test_odd_properties(self) -> None:
        """Properties without an end, a name, or of marks alone are read as far as they go."""
        for raw, wanted in (
            (b"\1", {}),
            (b"\2\2\2", {}),
            (b"a", {}),
            (b"a\1b", {"a": "b"}),
            (b"a\1b\2\2c\1d\2", {"a": "b", "c": "d"}),
            (b"a\1b\2a\1c\2", {"a": "c"}),
        ):
            (row,) = rows(self.made(evolve(PLAIN, properties=raw)))
            self.assertEqual(wanted, dict(row["properties"]), raw)


class ForgeryTests(BadInputTestCase):
    """A body that holds what would be a record, at the offset where it will lie."""

    def forged(self, offset: int) -> Message:
        """A message with records of a topic of another's inside, up to its very end."""
        secret = evolve(PLAIN, topic="Secret", body=b"forged")
        inner = b""
        for number in range(10):
            place = offset + 88 + len(inner)
            inner += stored(secret, queue_offset=number, offset=place, store_timestamp=1000)
        return evolve(PLAIN, body=inner)

    def test_never_a_row(self) -> None:
        """However the log is divided, and over damage before it, a body's inside is no row."""
        root = self.made(PLAIN, self.forged, PLAIN, self.forged, PLAIN)
        every = offsets(root)
        self.assertEqual(5, len(every))
        inside = every[1] + 88 + len(stored(self.forged(0))) // 20
        for size in (1, 100, 1000):
            self.assertEqual(every, offsets(root, maxPartitionBytes=size))
        for start in range(every[1] + 1, every[2], 97):
            self.assertEqual(every[2:], offsets(root, startingOffsets={"store": start}))
        self.assertEqual(every[2:], offsets(root, startingOffsets={"store": inside}))
        file = root / "commitlog" / f"{0:020d}"
        whole = file.read_bytes()
        end = snapshot(root)["store"]
        publish(root, end)
        for place in (every[0], every[1]):
            for change_at in (1, 5, 28, 36, 84):
                change(file, place + change_at, b"\x7f")
                for mode in ("PERMISSIVE", "DROPMALFORMED"):
                    found = rows(root, mode=mode)
                    self.assertNotIn("Secret", [row["topic"] for row in found])
                    self.assertNotIn(b"forged", [row["body"] for row in found])
                    reader = reader_of(path=root, mode=mode, maxRowsPerTrigger=1)
                    for batch in drain(reader):
                        self.assertLessEqual(set(batch), set(every))
                file.write_bytes(whole)

    def test_blank_in_a_body(self) -> None:
        """Nor does a blank inside a body end the file."""
        size = 8192
        root = self.made(
            lambda offset: evolve(PLAIN, body=struct.pack(">ii", size - 88, MAGIC_BLANK) * 20),
            PLAIN,
            size=size,
        )
        self.assertEqual(2, len(offsets(root, maxPartitionBytes=1)))


class SchemaTests(BadInputTestCase):
    """A schema may promise what rows do not keep."""

    def test_never_null(self) -> None:
        """A column that is said to have no nulls is refused when it has one, and not before."""
        root = self.made(PLAIN, evolve(PLAIN, properties=b"TAGS\1a\2"))
        for column, kept in (("topic", True), ("tags", False)):
            options = ReadOptions.parse({"path": root, "columns": column}, streaming=None)
            schema = spark_schema(schema_of(options))
            schema.fields[0].nullable = False
            reader = BatchReader(options, schema)
            (partition,) = reader.partitions()
            if kept:
                (batch,) = reader.read(partition)
                self.assertEqual(2, batch.num_rows)
                self.assertFalse(batch.schema.field(0).nullable)
            else:
                error = self.assertRaises(ColumnOfOtherType, list, reader.read(partition))
                self.assertIn("never null", str(error))


class OptionTests(BadInputTestCase):
    """Options of kinds that L{tests.pipeline.log.test_options} does not try."""

    def test_each(self) -> None:
        """Each is refused by name, none ends in anything but a typed error."""
        deep = "[" * 100_000
        for name, text in (
            ("columnNameOfCorruptRecord", "topic"),
            ("columnNameOfCorruptRecord", "Body"),
            ("columnNameOfCorruptRecord", ""),
            ("maxDecompressedBytes", str(DECOMPRESSED_LIMIT + 1)),
            ("maxDecompressedBytes", "9" * 18 + "t"),
            ("startingOffsets", deep),
            ("startingOffsets", '{"store": 1e3}'),
            ("startingOffsets", '{"store": true}'),
            ("startingOffsets", "{}"),
            ("endingOffsets", '{"a": {"0": 1}, "b": 2}'),
            ("subscribePattern", "a{99999999999999999999}"),
            ("subscribePattern", "(" * 10_000),
            ("startingTimestamp", "0001-01-01T00:00:00+14:00x"),
            ("startingTimestamp", "9" * 30),
            ("queueIds", "-1"),
            ("queueIds", "\u00b2"),
            ("mode", "permissively"),
            ("messageDelayLevel", "1s 2parsecs"),
            ("columns", ""),
            ("path", ""),
            ("path", "a\0b"),
            ("path", "hdfs://host/store"),
        ):
            given = {"path": "/data/store", name: text}
            error = self.assertRaises(OptionInvalid, ReadOptions.parse, given)
            self.assertEqual(name, error.option)
        for stores in (deep, "[]", "{}", "7", '{"a": 7}', '{"": "/a"}', '["/x/a", "/y/a"]'):
            self.assertRaises(OptionInvalid, ReadOptions.parse, {"stores": stores})
        for name in ("../up", "a/b", ".hidden", "", "x" * 200, "a b"):
            given = {"path": "/s", "readerName": name}
            self.assertRaises(OptionInvalid, ReadOptions.parse, given, streaming=True)
