"""The records of a range for work that needs no rows, proved as rows are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.walk_file import Walked
from rmqha.pipeline.log.errors import DataLost, RangeBroken
from rmqha.pipeline.log.log_walk import walk_on
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.log.reading import RangeProof, reads_of


def proved(wanted: Range, options: ReadOptions) -> Iterator[Walked]:
    """Follow the records of a range.

    A caller must not publish what it found before this ends: only then is it
    sure that the log was not cut meanwhile.

    @return: Runs of records that follow each other up to the range's end.
    @raise PipelineError: If they cannot be had, or must not be believed.
    """
    guard = RangeProof(wanted, options)
    guard.await_copy()
    guard.prove()
    file = LogFile(Path(wanted.path), wanted.file_start, wanted.file_end)
    try:
        for walked in walk_on(file, wanted.start, wanted.end, None, read=reads_of(options)):
            guard.check_cuts()
            yield walked
        guard.check_cuts()
    except RangeBroken:
        guard.check_cuts()  # the better reason, if there is one
        raise
    except FileNotFoundError as error:
        raise DataLost(wanted.store, wanted.start, wanted.end) from error
