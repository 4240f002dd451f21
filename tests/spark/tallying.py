"""Work for tests: read a range, and say what was in it and who read it.

It stands in a module of its own because tasks import it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.log.reading import MessageReader

SCHEMA = pa.schema(
    [
        pa.field(name, pa.int64(), nullable=False)
        for name in ("start", "end", "count", "total", "parent")
    ]
)


@frozen
class Tallied:
    """Counts the rows of a range, after a pause, and leaves a file for each batch in a folder."""

    reader: MessageReader
    marks: str
    pause: float

    @classmethod
    def of(cls, path: str, marks: str, pause: float) -> Self:
        options = ReadOptions.parse({"path": path, "visibility": "log"})
        return cls(MessageReader(options, ("physical_offset", "body")), marks, pause)

    def __call__(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        count = total = 0
        for number, batch in enumerate(self.reader.read(wanted)):
            Path(self.marks, f"{wanted.start}-{number}").touch()
            time.sleep(self.pause)
            count += batch.num_rows
            total += pc.sum(batch.column("physical_offset")).as_py()
        row = (wanted.start, wanted.end, count, total, os.getppid())
        yield pa.RecordBatch.from_arrays(
            [pa.array([value], pa.int64()) for value in row], schema=SCHEMA
        )
