"""Whether copies of one log are the same, byte for byte, and where they are not.

    >>> verify(spark, {"master": "/data/a", "slave": "/data/b"})

The first copy is the one that the others are held against.  What is compared lies above the
first byte of every copy and below the end of every one; what lies outside is told, and so is
what could not be read.  A log that is cut while the job runs is an error.

Source: docs/guide/jobs.rst, Verify.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from rmqha.logfiles.log_files import settled
from rmqha.pipeline.errors import OptionInvalid
from rmqha.pipeline.jobs.progress import Shown, silent
from rmqha.pipeline.jobs.spark_work import Path as AnyPath
from rmqha.pipeline.jobs.spark_work import spread
from rmqha.pipeline.jobs.verify.chunks import CHUNK, CHUNKS, Comparing, DigestKind, edges
from rmqha.pipeline.jobs.verify.copies import check_common, check_uncut, copy_of, options_of
from rmqha.pipeline.jobs.verify.findings import ComparisonReport, read_chunks

TWO = "at least two copies, each a folder of its own"


def verify(
    spark: SparkSession,
    stores: Mapping[str, AnyPath],
    *,
    chunk: int = CHUNK,
    sum: DigestKind = DigestKind.CRC32,
    end: int | None = None,
    point_file: str = "use",
    shown: Shown = silent,
) -> ComparisonReport:
    """Compare copies of one log.

    @param stores: The copies by name, at least two; the first is held against the others.
    @param chunk: Bytes of a chunk.
    @param sum: What chunks are told by.
    @param end: Compare below this physical offset only.
    @param point_file: The option C{pointFile}.
    @param shown: Shows how far the tasks are.
    @raise OptionInvalid: If they are not at least two, in folders of their own.
    @raise NothingInCommon: If there is nothing to compare.
    @raise LogCutBack: If a copy was cut below what was compared.
    """
    begun = time.monotonic()
    options = options_of(stores, point_file)
    copies = settled(
        lambda: tuple(copy_of(name, Path(path), options) for name, path in stores.items())
    )
    if len({Path(copy.root).resolve() for copy in copies}) < max(2, len(copies)):
        raise OptionInvalid("stores", ", ".join(map(str, stores.values())), TWO)
    low = max(copy.first for copy in copies)
    high = min(copy.end for copy in copies)
    high = high if end is None else min(high, end)
    check_common(copies, low, high)
    work = Comparing(copies, edges(low, high, chunk), chunk, sum, options)
    differences, skipped = read_chunks(spread(spark, work.tasks, work, CHUNKS, shown))
    check_uncut(copies, high, options)
    return ComparisonReport.of(work, copies, (low, high), differences, skipped, begun)
