"""By topic: however many topics a log has, each has few files, and few are open."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from lab.bench.corpus import message
from rmqha.wire.log.encode import blank, encode, place
from tests.pipeline.sinks.test_tables import LakeTestCase
from tests.support.effort import slow

try:
    import pyarrow.parquet as pq

    from rmqha.pipeline.jobs.rewind import rewind
    from rmqha.pipeline.log.options import ReadOptions
    from rmqha.pipeline.sinks import parquet
    from rmqha.pipeline.sinks.parquet import OURS
    from rmqha.pipeline.sinks.table_layout import By, encoded
    from rmqha.pipeline.sinks.target import Appending
    from tests.support.lake import append, files, offsets, rows, written
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"

FILE = 1 << 20


def store_of(topics: int, records: int) -> tuple[Path, int]:
    """A log of many topics in turn: its root, and how many records it has."""
    root = Path(tempfile.mkdtemp(prefix="topics-"))
    (root / "commitlog").mkdir()
    data, offset = bytearray(), 0
    for number in range(records):
        topic = f"topic-{number % topics:04}"
        record = encode(message(topic, 0, os.urandom(100), f"{number:032X}"), max_message_size=4096)
        if FILE - len(data) < len(record) + 8:
            data += blank(FILE - len(data))
            (root / "commitlog" / f"{offset:020d}").write_bytes(data)
            offset, data = offset + FILE, bytearray()
        time = 1_700_000_000_000 + number
        at = offset + len(data)
        place(record, queue_offset=number // topics, offset=at, store_timestamp=time)
        data += record
    (root / "commitlog" / f"{offset:020d}").write_bytes(data.ljust(FILE, b"\0"))
    return root, records


class ManyTopicsTests(LakeTestCase):
    """Logs with more topics than files may be open."""

    def few_descriptors(self, count: int) -> None:
        """Let no more files be opened; what is open already, leftovers too, does not count."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        held = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (held + count, before[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, before)

    def check(self, topics: int, records: int, most: int, *layouts: tuple[str, By]) -> None:
        """Each layout by topic has a file a topic, and every record once."""
        store, count = store_of(topics, records)
        self.addCleanup(shutil.rmtree, store)
        ranges = len(list((store / "commitlog").iterdir()))
        self.assertGreater(ranges, 1)
        self.few_descriptors(most)
        for format, by in layouts:
            target = self.target(format, by=by)
            append(target, store)
            if by is By.TOPIC:
                self.assertEqual(count, len(set(offsets(target))), (format, by))
            self.assertEqual(topics, len(files(target.root)), (format, by))
            self.assertEqual("", append(target, store)[0].aside)
            unfinished = target.root / OURS / "unfinished"
            self.assertEqual([], [path for path in unfinished.rglob("*") if path.is_file()])

    def test_more_than_descriptors(self) -> None:
        """400 topics, and 200 files that may be open."""
        layouts = (("parquet", By.TOPIC), ("delta", By.TOPIC), ("parquet", By.TABLE))
        self.check(400, 4800, 200, *layouts)

    @slow
    def test_five_thousand(self) -> None:
        """5,000 topics, and C{ulimit -n 1024}."""
        self.check(5000, 15000, 1024, ("parquet", By.TOPIC))

    def test_target_size(self) -> None:
        """A topic with more rows than a file is to have gets several, each in the log's order."""
        store, count = store_of(2, 8000)
        self.addCleanup(shutil.rmtree, store)
        self.patch(parquet, "CHUNK", 256 << 10)
        target = self.target("parquet", by=By.TOPIC)
        whole = sum(1 for _ in self.files_by(target, store, 1 << 30))
        self.assertEqual(2, whole)
        target = self.target("parquet", by=By.TOPIC)
        sizes = [path.stat().st_size for path in self.files_by(target, store, 300 << 10)]
        self.assertEqual(4, len(sizes))
        self.assertLess(max(sizes), 800 << 10)
        self.assertEqual(count, len(set(offsets(target))))
        for name in files(target.root):
            places = pq.ParquetFile(target.root / name).read(["physical_offset"])[0].to_pylist()
            self.assertEqual(sorted(places), places)
            _, start, end, _ = name.rpartition("/")[2].rsplit("-", 3)
            self.assertEqual((places[0], True), (int(start), places[-1] < int(end)))
        middle = sorted(offsets(target))[count // 2]
        self.assertEqual(count - count // 2, rewind(target.root, middle).rows)
        append(target, store)
        self.assertEqual(count, len(set(offsets(target))))

    def files_by(self, target: Any, store: Path, size: int) -> list[Path]:
        self.patch(parquet, "TARGET", size)
        append(target, store)
        return [target.root / name for name in files(target.root)]

    def test_unfinished(self) -> None:
        """What a killed job laid aside is gone when the table is opened next."""
        store, count = store_of(20, 2000)
        self.addCleanup(shutil.rmtree, store)
        for format in ("parquet", "delta", "iceberg"):
            target = self.target(format, by=By.TOPIC)
            append(target, store, commit=False)
            append(target, store)
            self.assertEqual(count, len(set(offsets(target))), format)
            topics = Counter(rows(target).column("topic").to_pylist())
            self.assertEqual({100}, set(topics.values()), format)

    def test_odd_names(self) -> None:
        """Topics are gathered by their names, whatever these are."""
        target = self.target("parquet", by=By.TOPIC)
        append(target, self.store)
        topics = set(rows(target).column("topic").to_pylist())
        folders = {path.name for path in target.root.iterdir() if "=" in path.name}
        self.assertEqual({f"topic={encoded(topic)}" for topic in topics}, folders)


class ReadOnceTests(LakeTestCase):
    """An export reads the log once."""

    def test_bytes_read(self) -> None:
        """Where no position is planned, too: the reader knows its last record."""
        append(self.target(), self.store)  # which imports what is needed
        size = sum(path.stat().st_size for path in (self.store / "commitlog").iterdir())
        options = ReadOptions.parse({"path": self.store, "visibility": "log"})
        job = Appending(self.target(), options)
        self.addCleanup(job.close)
        work = job.work()
        before = self.read_bytes()
        batch = written(work, options)
        self.assertLess(self.read_bytes() - before, 2.5 * size)  # one pass finds the end
        job.commit(batch)
        self.assertEqual(self.all[-1], job.held["store"].position.last)

    def read_bytes(self) -> int:
        """What this process has read so far."""
        return int(Path("/proc/self/io").read_text().split()[1])
