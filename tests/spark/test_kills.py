"""Jobs that write tables are killed again and again while their log grows: every record is one row
in the end.  They are streams of Spark, and the same sinks without it, which begin ten times as fast
and so are killed more often.

Each test tells how often each job was killed, and what was found in its table.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from attrs import define
from twisted.trial.unittest import SynchronousTestCase

from rmqha.pipeline.errors import TableRefused
from tests.support.commands import RMQHA
from tests.support.spark_needs import why_no_java

try:
    import deltalake
    import pyarrow as pa
    import pyiceberg
    from deltalake.exceptions import DeltaError

    from lab.stock.s3_server import S3Server
    from rmqha.pipeline.sinks.commits import Commits
    from rmqha.pipeline.sinks.table import IcebergPlace
    from rmqha.pipeline.sinks.target import Format, Target, found_at
    from tests.support.lake import listed
    from tests.support.object_servers import server

    _ = (deltalake, pyiceberg)
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why

_Job = TypeVar("_Job", bound="Job")

ROOT = Path(__file__).resolve().parent.parent.parent

KILLS = {"parquet": 3, "delta": 3, "iceberg": 2}
"""How often the stream into each kind of table is killed, unless C{RMQHA_KILLS} says more."""

MORE = int(os.environ.get("RMQHA_KILLS", "0"))

OFTEN = 6
"""How often a job without Spark is killed, unless that says more."""

LOOK = 0.5
"""Seconds between two looks at the tables."""

RATE = 300_000
"""Bytes a second that the log grows."""

LONG = 150.0
"""Seconds in which a stream has to get on; a driver starts in ten on a quiet machine."""

EACH = 60.0
"""Seconds more for each kill that was asked for."""

KEPT = timedelta(seconds=5)
"""For how long an operator keeps what a table was."""

BRIEF = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Java that does not live long."""


@define(eq=False)
class Job:
    """A process that writes one table.

    @ivar place: A folder of its own.
    @ivar url: Where its table is in an object store, C{""} if it is on the disk.
    @ivar catalog: The properties of the catalog that lists an Iceberg table there.
    @ivar taken: How often its table was taken back.
    @ivar fell: How often it ended by itself: in a server that lists objects of several moments.
    @ivar seen: How far its table was when it last had got on, in bytes of the log.
    @ivar before: How far it was before that: its table is not taken back farther.
    """

    format: str
    store: Path
    place: Path
    moments: random.Random
    url: str = ""
    catalog: tuple[tuple[str, str], ...] = ()
    kills: int = 0
    taken: int = 0
    fell: int = 0
    seen: int = 0
    before: int = 0
    taken_back: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _due: float = 0.0

    @property
    def target(self) -> Target:
        more: dict[str, object] = {"iceberg": self.iceberg} if self.iceberg else {}
        out = self.url or self.place / "table"
        return Target.at(out, format=Format(self.format), **more)

    @property
    def iceberg(self) -> IcebergPlace | None:
        """Where an Iceberg table is listed, if not beside its files."""
        return IcebergPlace("tests", self.catalog) if self.catalog else None

    @property
    @abstractmethod
    def wanted(self) -> int:
        """How often it is to be killed."""

    @abstractmethod
    def command(self) -> list[str]:
        """What runs until it is killed."""

    @abstractmethod
    def last_command(self) -> list[str]:
        """What ends when all is in the table."""

    @property
    def done(self) -> bool:
        return self.kills >= self.wanted

    @property
    def log(self) -> Path:
        return self.place / "log"

    def start(self, *, last: bool = False) -> None:
        """Start it, in a group of its own with Java and the workers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.last_command() if last else self.command(),
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def end(self) -> int:
        if self.format == "parquet":  # which only one may have open
            held = Commits.of(self.target.shape).last()[1].get("held", {})
            return max((each["store"]["offset"] for each in held.values()), default=0)
        try:
            with found_at(self.target.shape.place, self.iceberg) as table:
                return max((held.end for held in table.sources().values()), default=0)
        except TableRefused:  # it is not made yet
            return 0
        except DeltaError:
            if not self.url:
                raise
            return self.seen  # S3Proxy lists what it had at several moments; S3 does not

    def step(self) -> None:
        """Kill it some moments after it has got on, and start it again."""
        now = time.monotonic()
        assert self._process is not None, "it was started"
        if self.url and self._process.poll():
            self.fell += 1
            self.start()
        if self._due and now >= self._due:
            self.kill(group=self.kills % 2 == 0)
            self.kills += 1
            # Behind every other kill an operator takes the table back, or tidies it.
            if self.kills % 2:
                self.take_back()
            else:
                self.tidy()
            self.start()
            self._due = 0.0
        elif not self._due and (end := self.end()) > self.seen:
            self.before, self.seen = self.seen, end
            self.taken_back = False
            self._due = now + self.moments.uniform(0.0, 1.5)

    def take_back(self) -> None:
        """Undo the last commit of a table that can do so: the stream has to be told then."""
        if self.format == "delta":
            table = self.delta()
            table.restore(table.version() - 1)
        elif self.format == "iceberg":
            with found_at(self.target.shape.place, self.iceberg) as found:
                iceberg = found._table  # type: ignore[attr-defined]
                now = iceberg.current_snapshot()
                parent = now.parent_snapshot_id
                if parent is None or iceberg.snapshot_by_id(parent) is None:
                    return
                iceberg.manage_snapshots().rollback_to_snapshot(parent).commit()
        else:
            return
        self.taken += 1
        self.seen, self.taken_back = self.end(), True

    def tidy(self) -> None:
        """Compact and vacuum a table, change what it remembers, and forget what it was."""
        if self.format == "delta":
            table = self.delta()
            table.optimize.compact()
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)
            table.alter.set_table_properties(
                {"delta.setTransactionRetentionDuration": "interval 1 seconds"}
            )
            table.alter.set_column_metadata("topic", {"comment": f"kill {self.kills}"})
        elif self.format == "iceberg":
            with found_at(self.target.shape.place, self.iceberg) as found:
                iceberg = found._table  # type: ignore[attr-defined]
                before = datetime.now(UTC) - KEPT
                iceberg.maintenance.expire_snapshots().older_than(before).commit()

    def delta(self) -> deltalake.DeltaTable:
        """A Delta table, as its own library has it."""
        return deltalake.DeltaTable(self.target.shape.place)

    def rows(self) -> pa.Table:
        """Offsets and keys of the rows, as readers of the table's kind see them."""
        columns = ["physical_offset", "uniq_key"]
        if self.format == "delta":
            return self.delta().to_pyarrow_table(columns=columns)
        if self.format == "iceberg":
            with found_at(self.target.shape.place, self.iceberg) as found:
                iceberg = found._table  # type: ignore[attr-defined]
                return iceberg.scan(selected_fields=tuple(columns)).to_arrow()
        return listed(self.target, columns)

    def kill(self, *, group: bool = True) -> None:
        """Kill the driver and all it started, or the driver alone."""
        assert self._process is not None, "it was started"
        if group:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        assert self._process is not None, "it was started"
        return self._process.wait(LONG + EACH * MORE)

    def clear(self) -> None:
        """Leave nothing behind, Java neither."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()


@define(eq=False)
class Stream(Job):
    @property
    def wanted(self) -> int:
        return MORE or KILLS[self.format]

    def command(self) -> list[str]:
        command = [str(RMQHA), "spark", "stream", str(self.store), "--out", self.target.shape.place]
        command += ["--format", self.format, "--master", "local[1]", "--option", "visibility=log"]
        command += ["--set", "spark.driver.memory=512m", "--set", "spark.ui.enabled=false"]
        command += ["--set", f"spark.driver.extraJavaOptions={BRIEF}"]
        if self.url:
            # One that somebody has named has to be new when the table was taken back.
            command += ["--checkpoint", str(self.place / f"checkpoint-{self.taken}")]
        if self.catalog:
            command += ["--catalog", "tests"]
        for key, value in self.catalog:
            command += ["--catalog-property", f"{key}={value}"]
        if self.taken_back:
            command.append("--resume-from-table")
        return [*command, "--option", "maxBytesPerTrigger=1m"]

    def last_command(self) -> list[str]:
        return [*self.command(), "--available-now", "--option", "maxBytesPerTrigger=1g"]


@define(eq=False)
class Appender(Job):
    @property
    def wanted(self) -> int:
        return MORE or OFTEN

    def command(self) -> list[str]:
        module = [sys.executable, "-m", "tests.spark.appending"]
        table = [self.target.shape.place, self.format, json.dumps(dict(self.catalog))]
        return [*module, str(self.store), *table]

    def last_command(self) -> list[str]:
        return [*self.command(), "once"]


class KillTests(SynchronousTestCase):
    """Exactly once rests on what is committed with the files, and on nothing else."""

    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="kills-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.store = self.place / "store"
        self.seed = os.environ.get("RMQHA_SEED") or str(random.SystemRandom().randrange(10**9))
        self.tell(f"RMQHA_SEED={self.seed} {self.id()}")

    def tell(self, text: str) -> None:
        """A line for whoever wants to know what was tried."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    def test_streams(self) -> None:
        """After all kills, the rows of each table are the records of the log."""
        self.exactly_once([self.job(Stream, format) for format in KILLS])

    def test_streams_in_s3(self) -> None:
        """So it is with tables in an S3 server."""
        self.exactly_once(self.in_s3(Stream))

    def test_sinks(self) -> None:
        """So it is without Spark."""
        self.exactly_once([self.job(Appender, format) for format in KILLS])

    def test_sinks_in_s3(self) -> None:
        """So it is without Spark in an S3 server."""
        self.exactly_once(self.in_s3(Appender))

    def job(self, kind: type[_Job], format: str) -> _Job:
        place = self.place / format
        place.mkdir()
        return kind(format, self.store, place, random.Random(f"{self.seed} {format}"))

    def in_s3(self, kind: type[_Job]) -> list[_Job]:
        """Jobs that write to an S3 server."""
        s3 = server(S3Server)
        changed = patch.dict(os.environ, s3.environment)
        changed.start()
        self.addCleanup(changed.stop)
        jobs = []
        for format in KILLS:
            job = self.job(kind, format)
            job.url = s3.url(f"{self.place.name}/{format}").partition("?")[0]
            if format == "iceberg":
                own = {
                    "type": "sql",
                    "uri": f"sqlite:///{job.place / 'catalog.db'}",
                    "warehouse": job.url,
                }
                job.catalog = tuple({**own, **s3.iceberg}.items())
            jobs.append(job)
        return jobs

    def exactly_once(self, jobs: Sequence[Job]) -> None:
        """Kill jobs while the log grows, and let them end."""
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.growing", str(self.store), str(RATE)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        stdin = writer.stdin
        assert stdin is not None, "it is a pipe"
        self.addCleanup(writer.kill)
        for job in jobs:
            self.addCleanup(job.clear)
            job.start()
        limit = time.monotonic() + LONG + EACH * MORE
        while any(not job.done for job in jobs) and time.monotonic() < limit:
            for job in jobs:
                if not job.done:
                    job.step()
            # Retention of the broker: what no table can need again.
            stdin.write(b"%d\n" % min(job.before for job in jobs))
            time.sleep(LOOK)
        told, _ = writer.communicate()
        wanted = json.loads(told)
        for job in jobs:
            said = job.log.read_text(errors="replace")
            self.assertGreater(job.kills, 0, said)
            job.kill()
            job.start(last=True)
        for job in jobs:
            code = job.wait()
            self.assertEqual(0, code, job.log.read_text(errors="replace"))
            self.check(job, wanted)

    def check(self, job: Job, wanted: dict[str, int]) -> None:
        """A table has every record once, and all files that it knows."""
        rows = job.rows()
        offsets = rows.column("physical_offset").to_pylist()
        keys = set(rows.column("uniq_key").to_pylist())
        lost = {f"{n:032X}" for n in range(wanted["rows"])} - keys
        twice = len(offsets) - len(set(offsets))
        self.tell(
            f"{job.target.shape.place}: {job.kills} of {job.wanted} kills, taken back "
            f"{job.taken} times; of {wanted['rows']} records {len(lost)} lost, {twice} twice; "
            f"{wanted['start']} of {wanted['end']} bytes deleted meanwhile; "
            f"ended by itself {job.fell} times"
        )
        self.assertEqual((0, 0), (len(lost), twice), job.format)
        self.assertEqual(wanted["end"], job.end(), job.format)
        self.assertEqual(wanted["rows"], len(offsets), job.format)
        self.assertEqual(wanted["rows"], len(keys), job.format)
        if job.format == "delta":
            known = {uri.rpartition("/")[2] for uri in job.delta().file_uris()}
            there = {name.rpartition("/")[2] for name in job.target.shape.folder.walk()}
            self.assertLessEqual(known, there)
