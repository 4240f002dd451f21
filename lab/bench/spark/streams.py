"""Streams into a Delta table: how fast, how steady, how late."""

from __future__ import annotations

import json
import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from attrs import frozen
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from lab.bench.report import Row, spread
from lab.bench.spark.field import Field
from lab.bench.spark.made import FILE_SIZE, Maker, publish
from lab.bench.spark.peers import Peer, compared, in_turns
from lab.bench.stock import JVM
from lab.stock.s3_server import BUCKET, S3Server

ROUNDS = 3
S3_ROUNDS = 2
BATCH = 256 << 20
"""Bytes of a batch of the steady stream."""

FEWEST = 8
"""Batches that a store is streamed in, however small it is."""

SMALL = 1 << 20
"""Bytes of a batch where only the commit counts."""

BATCHES = 25
COMMITS = 5000

RATE = 5_000_000
"""Bytes a second of the writer that is followed."""

CADENCE = 0.1
"""Seconds between two published points, as C{rmqhaPublishInterval} is by default."""

LENGTH = 30.0
LATE = 0.6


def steady(field: Field) -> list[Row]:
    """A long stream beside the export of the same store."""
    batch = _batch(field)

    def export() -> float:
        root = str(field.store.root)
        told = field.spark.ask("export", store=root, compression="zstd")
        return float(field.store.end / told["seconds"])

    works = {"export": export, "stream": lambda: _rate(field, field.spark, batch)}
    found = in_turns(works, field.rounds(ROUNDS))
    what = f"stream into Delta, steady, zstd-1, batches of {batch >> 20} MiB"
    return [compared(what, found["stream"], "export", found["export"], 0.5)]


def in_s3(field: Field) -> list[Row]:
    """The same stream into a table in an S3 server, which runs on the same processors, beside one
    on the disk.

    @raise Missing: If the server was not fetched.
    """
    folder = field.folder / "s3"
    folder.mkdir()
    server = S3Server(folder)
    batch = _batch(field)
    try:
        server.start(jvm=JVM)
        with field.another("in-s3", 2, environment=server.environment) as session:

            def stream() -> float:
                url = server.url("table").partition("?")[0]
                try:
                    return _rate(field, session, batch, url=url)
                finally:
                    shutil.rmtree(server.folder / BUCKET / "table", ignore_errors=True)

            works = {"local": lambda: _rate(field, session, batch), "S3": stream}
            found = in_turns(works, field.rounds(S3_ROUNDS))
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    what = f"stream into Delta in S3, steady, zstd-1, batches of {batch >> 20} MiB"
    return [compared(what, found["S3"], "local", found["local"], 0.8)]


def _batch(field: Field) -> int:
    return min(BATCH, field.store.end // FEWEST)


def _rate(field: Field, session: Peer, batch: int, **more: str) -> float:
    """Bytes a second of a stream; its first batch starts the tasks and makes the table, so it does
    not count, nor does the last one, which is not full.
    """
    told = session.ask("stream", store=str(field.store.root), limit=str(batch), **more)
    times = told["seconds"][1:]
    whole = len(times) - 1
    return float(batch * whole / sum(times[:whole]))


def flat(field: Field) -> list[Row]:
    """Small batches into a new table, and into one with thousands of commits more.

    Those commits are of C{deltalake} alone and name files that are never read: what a batch
    pays for is the length of the table's log and the number of its files.
    """
    table, batches = field.folder / "flat", 5 if field.quick else BATCHES
    commits = COMMITS // 25 if field.quick else COMMITS

    def batch_times() -> list[float]:
        told = field.spark.ask(
            "stream",
            store=str(field.store.root),
            limit=str(SMALL),
            table=str(table),
            keep=True,
            most=batches + 3,
        )
        times: list[float] = told["seconds"][3:]
        return times

    young = batch_times()
    begun = time.perf_counter()
    grow(table, commits)
    each = (time.perf_counter() - begun) / commits
    old = batch_times()
    shutil.rmtree(table)
    ratio = statistics.median(old) / statistics.median(young)
    return [
        Row(
            what=f"a small batch into a Delta table of {commits} commits",
            ours=spread([1000 * value for value in old], "ms"),
            beside="into a new one " + spread([1000 * value for value in young], "ms"),
            ratio=f"{ratio:.2f}",
            goal="flat: <= 1.2x",
            met=ratio <= 1.2,
            notes=(f"each of the {commits} commits took deltalake {1000 * each:.1f} ms",),
        )
    ]


def grow(root: Path, commits: int) -> None:
    """Add commits of one file each to a table."""
    table = DeltaTable(root)
    columns = table.metadata().partition_columns
    values = dict.fromkeys(columns, "2023-11-14")
    for number in range(commits):
        action = AddAction(
            path=f"none-{number:06d}.parquet",
            size=1,
            partition_values=values,
            modification_time=0,
            data_change=True,
            stats='{"numRecords":1}',
        )
        table.create_write_transaction([action], "append", table.schema(), columns)
        table.update_incremental()


@frozen
class Published:
    """A point: the end, and when it was there, in seconds since 1970."""

    end: int
    time: float


class Writer(threading.Thread):
    """Lets a log grow steadily, and publishes how far it is."""

    def __init__(self, root: Path, length: float) -> None:
        super().__init__(daemon=True)
        self.published: list[Published] = []
        self._root = root
        self._length = length
        self._maker = Maker()
        folder = root / "commitlog"
        folder.mkdir(parents=True)
        self._path = folder / f"{0:020d}"
        with open(self._path, "wb") as file:
            file.truncate(min(FILE_SIZE, int(2 * RATE * (length + 10))))
        self._number = 0
        self._step()

    def _step(self) -> None:
        count = round(RATE * CADENCE / self._maker.size)
        offset = self._number * self._maker.size
        rows = self._maker.make(self._number, count, offset)
        with open(self._path, "r+b") as file:
            file.seek(offset)
            file.write(rows.data)
        self._number += count
        end = self._number * self._maker.size
        publish(self._root, end)
        self.published.append(Published(end, time.time()))

    def run(self) -> None:
        begun = time.monotonic()
        for number in range(int(self._length / CADENCE)):
            time.sleep(max(0.0, begun + number * CADENCE - time.monotonic()))
            self._step()


def late(field: Field) -> list[Row]:
    """From a point's publication to the commit that has all below it."""
    length = 10.0 if field.quick else LENGTH
    store, table = field.folder / "growing", field.folder / "followed"
    writer = Writer(store, length + 12)
    writer.start()
    told = field.spark.ask("follow", store=str(store), table=str(table), length=length + 8)
    writer.join()
    delays = lags(writer.published, commits_of(table), 5.0)
    p50, p99 = statistics.median(delays), sorted(delays)[int(len(delays) * 0.99)]
    shutil.rmtree(store)
    shutil.rmtree(table)
    told_late = (
        f"from publication to commit: p99 {p99:.2f} s of {len(delays)} points, in "
        f"{told['batches']} batches of {told['median']:.2f} s"
    )
    return [
        Row(
            what=f"from publication to commit at {RATE / 1e6:g} MB/s, p50",
            ours=f"{p50:.2f} s",
            beside="",
            ratio="",
            goal=f"<= {LATE:g} s",
            met=p50 <= LATE,
            notes=[told_late],
        )
    ]


def commits_of(table: Path) -> list[Published]:
    """How far each commit of a Delta table got, by its own transactions, and when."""
    found = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        ends = [
            action["txn"]["version"]
            for action in actions
            if "txn" in action and not action["txn"]["appId"].endswith(("/first", "/last", "/sum"))
        ]
        times = [act["commitInfo"]["timestamp"] for act in actions if "commitInfo" in act]
        if ends and times:
            found.append(Published(max(ends), times[0] / 1000))
    return found


def lags(points: Sequence[Published], commits: Sequence[Published], skipped: float) -> list[float]:
    """Seconds from each point to the first commit that reaches it.

    @param skipped: Seconds after the first commit of which points do not count.
    """
    if not commits:
        return []
    first = commits[0].time + skipped
    found = []
    for point in points:
        reached = [commit.time for commit in commits if commit.end >= point.end]
        if reached and point.time >= first:
            found.append(min(reached) - point.time)
    return found
