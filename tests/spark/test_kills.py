"""
Streams into tables that are killed again and again while their log grows: every record is
one row in the end.
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
from pathlib import Path
from unittest.mock import patch

from attrs import define
from twisted.trial.unittest import SynchronousTestCase

from rmqha.pipeline.errors import TableRefused
from tests.support.spark_needs import why_no_java

try:
    import deltalake
    import pyiceberg

    from lab.stock.s3_server import S3Server
    from rmqha.pipeline.sinks.commits import Commits
    from rmqha.pipeline.sinks.target import Format, Target, found_at
    from tests.support.lake import files, found, listed
    from tests.support.object_servers import server

    _ = (deltalake, pyiceberg)
except ImportError as missing:  # without the extras
    skip = f"an extra of the pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why

ROOT = Path(__file__).resolve().parent.parent.parent
RMQHA = Path(sys.executable).with_name("rmqha")

KILLS = {"parquet": 3, "delta": 3, "iceberg": 1}
"""How often the stream into each kind of table is killed."""

RATE = 300_000
"""Bytes a second that the log grows."""

LONG = 150.0
"""Seconds in which a stream has to get on; a driver starts in ten on a quiet machine."""


@define(eq=False)
class Stream:
    """
    A stream into one table, as a process.
    """

    format: str
    store: Path
    place: Path
    url: str = ""
    kills: int = 0
    seen: int = 0
    taken_back: bool = False
    _process: subprocess.Popen[bytes] | None = None
    _due: float = 0.0

    @property
    def table(self) -> Path:
        """
        Its table's folder, if it is on the disk.
        """
        return self.place / self.format

    @property
    def target(self) -> Target:
        """
        The table, wherever it is.
        """
        return Target.at(self.url or self.table, format=Format(self.format))

    @property
    def done(self) -> bool:
        """
        Whether it was killed often enough.
        """
        return self.kills >= KILLS[self.format]

    @property
    def log(self) -> Path:
        """
        What the process said.
        """
        return self.place / f"{self.format}.log"

    def start(self, *more: str) -> None:
        """
        Start it, in a group of its own with Java and the workers.
        """
        command = [str(RMQHA), "spark", "stream", str(self.store), "--out", self.target.shape.place]
        command += ["--format", self.format, "--master", "local[1]"]
        command += ["--option", "visibility=log", "--option", "maxBytesPerTrigger=1m"]
        command += ["--set", "spark.driver.memory=512m", "--set", "spark.ui.enabled=false", *more]
        if self.taken_back:
            command.append("--resume-from-table")
        if self.url:
            command += ["--checkpoint", str(self.place / "checkpoint")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def end(self) -> int:
        """
        How far its table is.
        """
        if self.format == "parquet":  # which only one may have open
            held = Commits.of(self.target.shape).last()[1].get("held", {})
            return max((each["store"]["offset"] for each in held.values()), default=0)
        try:
            with found_at(self.table) as table:
                return max((held.end for held in table.sources().values()), default=0)
        except TableRefused:  # it is not made yet
            return 0

    def step(self) -> None:
        """
        Kill it some moments after it has got on, and start it again.
        """
        now = time.monotonic()
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
            self.seen = end
            self.taken_back = False
            self._due = now + random.uniform(0.0, 1.5)

    def take_back(self) -> None:
        """
        Undo the last commit of a table that can do so: the stream has to be told then.
        """
        if self.format == "delta":
            table = deltalake.DeltaTable(self.table)
            table.restore(table.version() - 1)
        elif self.format == "iceberg":
            with found_at(self.table) as found:
                table = found._table  # type: ignore[attr-defined]
                now = table.current_snapshot()
                if now.parent_snapshot_id is None:
                    return
                back = table.manage_snapshots().rollback_to_snapshot(now.parent_snapshot_id)
                back.commit()
        else:
            return
        self.seen, self.taken_back = self.end(), True

    def tidy(self) -> None:
        """
        Compact and vacuum a table, and change what it remembers.
        """
        if self.format == "delta":
            table = deltalake.DeltaTable(self.table)
            table.optimize.compact()
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)
            table.alter.set_table_properties(
                {"delta.setTransactionRetentionDuration": "interval 1 seconds"}
            )

    def kill(self, *, group: bool = True) -> None:
        """
        Kill the driver and all it started, or the driver alone.
        """
        assert self._process is not None, "it was started"
        if group:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """
        Its exit code.
        """
        assert self._process is not None, "it was started"
        return self._process.wait(LONG)

    def clear(self) -> None:
        """
        Leave nothing behind, Java neither.
        """
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()


class KillTests(SynchronousTestCase):
    """
    Exactly once rests on what is committed with the files, and on nothing else.
    """

    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="kills-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.store = self.place / "store"

    def test_exactly_once(self) -> None:
        """
        After all kills, the rows of each table are the records of the log.
        """
        self.exactly_once([Stream(format, self.store, self.place) for format in KILLS])

    def test_in_s3(self) -> None:
        """
        So it is with a folder of Parquet files in an S3 server.
        """
        s3 = server(S3Server)
        changed = patch.dict(os.environ, s3.environment)
        changed.start()
        self.addCleanup(changed.stop)
        url = s3.url(self.place.name).partition("?")[0]
        self.exactly_once([Stream("parquet", self.store, self.place, url)])

    def exactly_once(self, streams: list[Stream]) -> None:
        """
        Kill streams while the log grows, and let them end.
        """
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.growing", str(self.store), str(RATE)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(writer.kill)
        for stream in streams:
            self.addCleanup(stream.clear)
            stream.start()
        limit = time.monotonic() + LONG
        while any(not stream.done for stream in streams) and time.monotonic() < limit:
            for stream in streams:
                if not stream.done:
                    stream.step()
            time.sleep(0.2)
        told, _ = writer.communicate()
        wanted = json.loads(told)
        for stream in streams:
            said = stream.log.read_text(errors="replace")
            self.assertGreater(stream.kills, 0, said)
            stream.kill()
            stream.start("--available-now", "--option", "maxBytesPerTrigger=1g")
        for stream in streams:
            code = stream.wait()
            self.assertEqual(0, code, stream.log.read_text(errors="replace"))
            self.check(stream, wanted)

    def check(self, stream: Stream, wanted: dict[str, int]) -> None:
        """
        A table has every record once, and all files that it knows.
        """
        rows = listed(stream.target) if stream.url else found(stream.table, stream.format)
        offsets = rows.column("physical_offset").to_pylist()
        self.assertEqual(wanted["end"], stream.end(), stream.format)
        self.assertEqual(wanted["rows"], len(offsets), stream.format)
        self.assertEqual(wanted["rows"], len(set(offsets)), stream.format)
        keys = set(rows.column("uniq_key").to_pylist())
        self.assertEqual({f"{n:032X}" for n in range(wanted["rows"])}, keys, stream.format)
        if stream.format == "delta":
            table = deltalake.DeltaTable(stream.table)
            known = {uri.rpartition("/")[2] for uri in table.file_uris()}
            self.assertLessEqual(known, {name.rpartition("/")[2] for name in files(stream.table)})
