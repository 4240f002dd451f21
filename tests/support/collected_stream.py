"""A stream of Spark's whose rows are gathered in this process, batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from lab.harness.nodes import until
from rmqha.logfiles.published import read_point
from tests.support.spark import session

#: Longest wait for a batch, in seconds: on a busy machine Spark needs a minute for its first.
SLOWLY = 240.0

#: What Spark says when it has waited ten seconds for a Python to start, and waits no longer.
BUSY = "failed to connect back"

COLUMNS = "topic,queue_id,queue_offset,physical_offset,store_size,uniq_key"


class Gathered:
    """What a stream gave, each batch once however often it was made.

    @ivar beyond: What was read above the published point: the batch, its end, the point.
    @ivar starts: How often it was started, but for when the machine was too busy.
    """

    def __init__(self, store: Path, place: Path, **options: object) -> None:
        """@param place: Where its checkpoint goes."""
        self.store, self.place = store, place
        self.options = {"columns": COLUMNS, "visibility": "log", "path": store, **options}
        self.batches: dict[int, list[Any]] = {}
        self.beyond: list[tuple[int, int, int]] = []
        self.starts = 0
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Start it, or go on where its checkpoint says."""
        reader = session().readStream.format("rmqha")
        for name, value in self.options.items():
            reader = reader.option(name, str(value))
        writer = reader.load().writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self.place / "checkpoint"))
        self._query = writer.trigger(processingTime="1 second").start()
        self.starts += 1

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def _take(self, frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        point = read_point(self.store)
        if rows and point is not None:
            end = rows[-1]["physical_offset"] + rows[-1]["store_size"]
            if end > point.confirm and all(cut.at >= end for cut in point.cuts):
                self.beyond.append((batch, end, point.confirm))
        self.batches[batch] = rows

    @property
    def query(self) -> StreamingQuery:
        assert self._query is not None, "it was started"
        return self._query

    @property
    def rows(self) -> list[Any]:
        """All rows, in the order of the batches."""
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]

    @property
    def end(self) -> int:
        """Physical offset up to which rows came."""
        for batch in sorted(self.batches, reverse=True):
            if self.batches[batch]:
                last = self.batches[batch][-1]
                return int(last["physical_offset"] + last["store_size"])
        return 0

    def until(self, end: int, *, again: bool = False, timeout: float = SLOWLY) -> None:
        """Wait until rows have come up to a place, starting again when it fails, or not."""

        def look() -> bool:
            if not self.query.isActive:
                error = str(self.query.exception())
                if BUSY in error:
                    self.starts -= 1
                elif not again:
                    raise AssertionError(f"the stream ended: {error}")
                self.start()
            return self.end >= end

        until(look, f"rows up to {end}", timeout, tell=lambda: f"they end at {self.end}", pause=0.1)

    def until_failed(self, timeout: float = SLOWLY) -> str:
        """Wait until it fails, and return why."""
        until(lambda: not self.query.isActive, "a failed stream", timeout, pause=0.1)
        error = str(self.query.exception())
        if BUSY not in error:
            return error
        self.start()
        return self.until_failed(timeout)
