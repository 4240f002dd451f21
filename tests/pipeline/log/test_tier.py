"""Tests of reads that join a store with its tier."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.harness import golden
from lab.harness.nodes import ROOT
from rmqha.errors import NotAStore
from rmqha.tier import joined_log
from rmqha.tier.errors import (
    TierBytesChanged,
    TierManifestInvalid,
    TierMissing,
    TierObjectSize,
    TierOfAnotherLog,
    TierUnreachable,
)
from rmqha.tier.objects import ObjectFolder
from rmqha.tier.upload import Uploader
from rmqha.wire.log.published import Span, render_spans
from rmqha.wire.store_layout import OWN_FOLDER, POINT, SPLITS
from tests.support.rows import expected, publish
from tests.support.tiers import END, FULL, SIZE, TierCase

try:
    from rmqha.pipeline.errors import OptionInvalid
    from rmqha.pipeline.log.errors import DataLost
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.scan import scan, snapshot
    from tests.support import lake
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"


class TierReadCase(TierCase):
    """A store whose full files are in a tier."""

    def setUp(self) -> None:
        super().setUp()
        every = expected(golden.VERSIONS[0], "store")
        self.all = [record["physicalOffset"] for record in every]
        self.upload()

    def offsets(self, path: Path | None = None, **options: Any) -> list[int]:
        given = {"visibility": "log", "columns": "physical_offset", "tier": self.url, **options}
        rows = scan(path or self.store, **given).read_all().to_pylist()
        return [row["physical_offset"] for row in rows]


class JoinedTests(TierReadCase):
    """The files of a store and of its tier are one log."""

    def test_what_retention_deleted(self) -> None:
        """Rows of deleted files come from the tier, others from the store; nothing twice."""
        self.assertEqual(self.all, self.offsets())
        for count in (1, 4, FULL):
            self.retention(count)
            self.assertEqual(self.all, self.offsets())
        self.assertEqual([at for at in self.all if at >= FULL * SIZE], self.offsets(tier=None))

    def test_same_rows(self) -> None:
        """Every column of every row is as from the store alone."""
        whole = scan(self.store, visibility="log").read_all()
        self.retention(FULL)
        self.assertTrue(whole.equals(scan(self.store, visibility="log", tier=self.url).read_all()))

    def test_middle_file(self) -> None:
        """A file that is missing between others comes from the tier too."""
        self.file(3).unlink()
        self.assertEqual(self.all, self.offsets())

    def test_tier_alone(self) -> None:
        """Without a store all that was uploaded can be read, and a job can go on from there."""
        shutil.rmtree(self.store)
        below = [at for at in self.all if at < FULL * SIZE]
        found = scan(tier=self.url, visibility="log", columns="physical_offset").read_all()
        self.assertEqual(below, found.column("physical_offset").to_pylist())
        self.assertEqual({"store": FULL * SIZE}, snapshot(tier=self.url))
        self.assertRaises(NotAStore, self.offsets)

    def test_starts(self) -> None:
        """A read begins at an offset, and at a time, that only the tier has."""
        self.retention(6)
        record = expected(golden.VERSIONS[0], "store")[40]
        offset, time = record["physicalOffset"], record["storeTimestamp"]
        wanted = [at for at in self.all if at >= offset]
        self.assertEqual(wanted, self.offsets(startingOffsets={"store": offset}))
        self.assertIn(offset, self.offsets(startingTimestamp=time))

    def test_split_index(self) -> None:
        """What is in the tier is cut where its split index says, without the store's."""
        shutil.rmtree(self.place)
        self.forget()
        places = [at for at in self.all if at < SIZE]
        first = [
            Span(start, end, row, 1, 0, 1) for row, (start, end) in enumerate(pairwise(places))
        ]
        (self.store / OWN_FOLDER / SPLITS).write_bytes(render_spans(first))
        self.upload()
        (self.store / OWN_FOLDER / SPLITS).unlink()
        self.retention(4)
        rows = (
            scan(self.store, table="ranges", tier=self.url, maxPartitionBytes=20000)
            .read_all()
            .to_pylist()
        )
        cuts = {row["start_offset"] for row in rows}
        self.assertTrue({span.start for span in first} & cuts - {0})
        self.assertTrue(rows[0]["path"].startswith(self.url))

    def test_deleted_in_both(self) -> None:
        """What neither has is lost, and told with its bytes."""
        self.retention(4)
        self.manifest(1).unlink()
        error = self.assertRaises(DataLost, self.offsets, startingOffsets={"store": 0})
        self.assertEqual((SIZE, 2 * SIZE), (error.start, error.end))
        kept = [at for at in self.all if at // SIZE != 1]
        self.assertEqual(kept, self.offsets(failOnDataLoss=False))

    def test_point_alone_ends_it(self) -> None:
        """A tier that another replica filled further does not take a store beyond its own point."""
        publish(self.store, 5 * SIZE)
        for number in range(5, FULL + 1):
            self.file(number).unlink()
        self.assertEqual([at for at in self.all if at < 5 * SIZE], self.offsets())

    def test_uploaded_just_before_it_was_deleted(self) -> None:
        """A reader that looked at the tier before sees later uploads when it needs them."""
        shutil.rmtree(self.place)
        self.forget()
        publish(self.store, 2 * SIZE)
        self.upload()
        publish(self.store, END)
        self.assertEqual(self.all, self.offsets())
        self.upload()
        for number in range(6):
            self.file(number).unlink()
        self.assertEqual(self.all, self.offsets())

    def test_stock_broker(self) -> None:
        """A store without a published point is joined as well."""
        (self.store / OWN_FOLDER / POINT).unlink()
        self.retention(7)
        self.assertEqual(self.all, self.offsets())

    def test_export_goes_on(self) -> None:
        """A table that was filled from a store goes on from its tier, each row once."""
        target = lake.Target.at(self.folder() / "table")
        publish(self.store, self.all[700])
        lake.append(target, self.store, tier=self.url)
        publish(self.store, END)
        self.retention(FULL)
        lake.append(target, self.store, tier=self.url)
        self.assertEqual(self.all, lake.offsets(target))


class DamagedTests(TierReadCase):
    """What is in a tier and not as it was uploaded is never a row."""

    def setUp(self) -> None:
        super().setUp()
        self.retention(5)

    def test_changed_byte(self) -> None:
        """A byte that changed is damage, with the object and the block, whatever the mode is."""
        with open(self.object(2), "r+b") as file:
            file.seek(5 * self.BLOCK + 7)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte ^ 1]))
        start = 2 * SIZE + 5 * self.BLOCK
        for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
            error = self.assertRaises(TierBytesChanged, self.offsets, mode=mode)
            self.assertEqual((start, start + self.BLOCK), (error.start, error.end))
            self.assertTrue(error.object.endswith("commitlog/00000000000000524288"))

    def test_replaced(self) -> None:
        """So is an object that another one of the same size replaced."""
        shutil.copy(self.object(3), self.object(2))
        self.assertRaises(TierBytesChanged, self.offsets)

    def test_cut(self) -> None:
        """An object that lacks its end is told with both sizes."""
        os.truncate(self.object(1), SIZE - 3)
        error = self.assertRaises(TierObjectSize, self.offsets)
        self.assertEqual((SIZE - 3, SIZE), (error.size, error.expected))

    def test_removed(self) -> None:
        """An object that is gone while its manifest says it is there is no end of the log."""
        self.object(1).unlink()
        error = self.assertRaises(TierObjectSize, self.offsets, failOnDataLoss=False)
        self.assertEqual((-1, SIZE), (error.size, error.expected))
        self.assertIn("is missing", str(error))

    def test_manifest(self) -> None:
        """A manifest that cannot be read, or is another file's, is told."""
        whole = self.manifest(1).read_bytes()
        for raw in (b"", b"[]", whole[:-30], self.manifest(2).read_bytes()):
            self.manifest(1).write_bytes(raw)
            self.forget()
            self.assertRaises(TierManifestInvalid, self.offsets)

    def test_wrong_types(self) -> None:
        """A value of another type is told with the manifest's place and its key."""
        whole = self.manifest(1).read_bytes()
        keys = (
            "firstOffset",
            "lastOffset",
            "blockSize",
            "uploaded",
            "brokerName",
            "splits",
            "before",
        )
        for key in keys:
            for wrong in ("6x", True, 6.5, {"a": 1}):
                if key != "brokerName" or wrong != "6x":
                    self.manifest(1).write_text(json.dumps(json.loads(whole) | {key: wrong}))
                    self.forget()
                    error = self.assertRaises(TierManifestInvalid, self.offsets)
                    self.assertIn(f"{key} is {wrong!r}", str(error))
                    self.assertIn(self.manifest(1).name, str(error))

    def test_other_log(self) -> None:
        """A store and a tier of another log are not joined."""
        data = self.file(FULL - 1).read_bytes()
        end = len(data.rstrip(b"\0"))
        self.file(FULL - 1).write_bytes(data[: end - 50] + b"changed" + data[end - 43 :])
        error = self.assertRaises(TierOfAnotherLog, self.offsets)
        self.assertEqual((FULL - 1) * SIZE, error.start)

    def test_other_broker(self) -> None:
        """Nor are those of two brokers, where no file is in both."""
        for number in range(5, FULL):
            self.file(number).unlink()
        publish(self.store, END, broker_name="other")
        self.assertRaises(TierOfAnotherLog, self.offsets)

    def test_no_tier(self) -> None:
        """Where nobody uploaded anything there is no tier, whether there is a store or not."""
        wrong = self.url + "x"
        for path in (self.store, None):
            given = {"path": path} if path else {}
            self.assertRaises(TierMissing, snapshot, tier=wrong, **given)

    def test_begin_went(self) -> None:
        """A tier whose first files were removed says so, once, and is read from where it begins."""
        self.retention(4)
        for number in range(2):
            self.manifest(number).unlink()
        with self.assertLogs("rmqha.tier.joined_log", "WARNING") as told:
            self.assertEqual([at for at in self.all if at >= 2 * SIZE], self.offsets())
            joined_log._listings.clear()
        self.assertEqual(1, len(told.output))
        said = f"began at byte 0 of its log, and what is before byte {2 * SIZE} is not in it"
        self.assertIn(said, told.output[0])

    def test_file_of_another_broker(self) -> None:
        """A file with its manifest that is another broker's is refused, whether the tier says whose
        it is or not; of one that has the same name the chain of manifests tells.
        """
        self.retention(FULL)
        whole = self.manifest(3).read_bytes()
        table = json.loads(whole)
        for more, known in (
            ({"brokerName": "other"}, True),
            ({"brokerName": "other", "before": None}, False),
            ({"before": [2 * SIZE, 7]}, True),
        ):
            self.manifest(3).write_bytes(json.dumps({**table, **more}).encode())
            if not known:
                shutil.rmtree(self.place / "logs")
            self.forget()
            error = self.assertRaises(TierOfAnotherLog, self.offsets)
            self.assertEqual(3 * SIZE, error.start)
        self.manifest(3).write_bytes(whole)
        self.forget()
        self.assertEqual(self.all, self.offsets())

    def test_two_logs_in_one_tier(self) -> None:
        """A tier with another one copied into it is not read: it is of two logs."""
        other = golden.store(golden.VERSIONS[1], into=self.folder())
        publish(other, END, broker_name="other")
        place = self.folder() / "tier"
        Uploader(root=other, folder=ObjectFolder.at(f"file://{place}")).run()
        shutil.copytree(place / "logs", self.place / "logs", dirs_exist_ok=True)
        self.forget()
        self.assertIn("other", str(self.assertRaises(TierOfAnotherLog, self.offsets)))

    def test_unreachable(self) -> None:
        """A store that answers with an error stops the read with its words."""

        def refuse(folder: ObjectFolder, name: str) -> None:
            with folder._asked(name):
                raise OSError("AWS Error EXPIRED_TOKEN during HeadObject operation")

        self.patch(ObjectFolder, "open", refuse)
        self.assertIn("EXPIRED_TOKEN", str(self.assertRaises(TierUnreachable, self.offsets)))


class GuideTests(TierReadCase):
    """What the guide shows does what it says."""

    def test_recipe(self) -> None:
        """The recipe counts what retention deleted as well."""
        text = (ROOT / "docs" / "guide" / "tier.rst").read_text(encoding="utf-8")
        block = text.partition(":name: recipe-history\n\n")[2].partition("\n\nOn a host")[0]
        code = textwrap.dedent(block)
        for shown, here in (
            ("/var/lib/rmqha", str(self.store)),
            ("s3://archive/broker-a", self.url),
            ("2026-01-01T00:00:00Z", "2020-01-01T00:00:00Z"),
        ):
            self.assertIn(shown, code)
            code = code.replace(shown, here)
        found: list[list[dict[str, Any]]] = []
        for count in (0, FULL):
            self.retention(count)
            names: dict[str, Any] = {}
            exec(code, names)
            found.append(sorted(names["sizes"].to_pylist(), key=lambda row: row["topic"]))
        self.assertEqual(found[0], found[1])
        self.assertGreater(sum(row["store_size_sum"] for row in found[0]), SIZE)


class OptionTests(TierCase):
    def test_names(self) -> None:
        """One URL is the only store's; several stores need their names."""
        stores = '{"a": "/a", "b": "/b"}'
        one = ReadOptions.parse({"path": "/a", "tier": "s3://bucket/a/"})
        self.assertEqual("s3://bucket/a", one.tier_of("store"))
        two = ReadOptions.parse({"stores": stores, "tier": {"b": "s3://bucket/b"}})
        self.assertEqual(("", "s3://bucket/b"), (two.tier_of("a"), two.tier_of("b")))
        for tier in ("s3://bucket/b", '{"c": "s3://bucket/c"}', "/folder", "{}", '{"a": 1}'):
            self.assertRaises(OptionInvalid, ReadOptions.parse, {"stores": stores, "tier": tier})

    def test_secret(self) -> None:
        """A key in a URL is in no text that shows the options."""
        options = ReadOptions.parse({"path": "/a", "tier": "s3://key:hidden@bucket/a"})
        self.assertNotIn("hidden", repr(options))
