"""Copies of one log that are to be compared."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from attrs import frozen

from rmqha.logfiles.listing import root_of
from rmqha.logfiles.log_end import find_end_in_last_file
from rmqha.logfiles.pread_log import PreadLog
from rmqha.logfiles.scan import data_end
from rmqha.pipeline.errors import NothingInCommon
from rmqha.pipeline.jobs.spark_work import Path as AnyPath
from rmqha.pipeline.log.options import ReadOptions
from rmqha.pipeline.log.ranges import Range
from rmqha.pipeline.log.reading import RangeProof
from rmqha.pipeline.log.stores import StoreView
from rmqha.wire.log.published import Cut


@frozen(kw_only=True)
class Copy:
    """One copy of a log, as the job found it when it began.

    @ivar name: What it is called.
    @ivar root: Its store's root.
    @ivar broker: The broker's name, if it is known.
    @ivar first: Physical offset of its first byte.
    @ivar end: How far it goes: what its node published, or without that its last byte that
        is not zero.
    @ivar whole: Where its last whole record ends, as far as that is known.
    @ivar published: Whether its node published how far it goes.
    @ivar cuts: The cuts of the log that are known.
    """

    name: str
    root: str
    broker: str | None
    first: int
    end: int
    whole: int
    published: bool
    cuts: tuple[Cut, ...] = ()

    def range(self, start: int, end: int) -> Range:
        return Range(
            store=self.name,
            broker=self.broker,
            root=self.root,
            path=self.root,
            file_start=start,
            file_end=end,
            start=start,
            end=end,
            cuts=self.cuts,
            proofs=(),
        )


def options_of(stores: Mapping[str, AnyPath], point_file: str) -> ReadOptions:
    """How the copies are read; each alone, because together they are refused."""
    named = {name: os.fspath(path) for name, path in stores.items()}
    return ReadOptions.parse({"stores": named, "pointFile": point_file, "visibility": "log"})


def copy_of(name: str, path: Path, options: ReadOptions) -> Copy:
    """Look at one copy.

    @raise NotAStore: If there is none.
    """
    store = StoreView.open(name, root_of(path.absolute()), options)
    published = store.point is not None
    end = whole = store.end if published else find_end_in_last_file(store.files).end
    if not published:
        with PreadLog(store.files) as log:
            end = data_end(log, whole)
    return Copy(
        name=name,
        root=str(store.files.root),
        broker=store.point.broker_name if store.point is not None else None,
        first=store.files.first,
        end=end,
        whole=whole,
        published=published,
        cuts=store.cuts,
    )


def check_common(copies: Iterable[Copy], low: int, high: int) -> None:
    """@raise NothingInCommon: If there is nothing to compare, but for logs that are all empty."""
    if low > high or (low == high and any(copy.end > copy.first for copy in copies)):
        raise NothingInCommon(low, high)


def check_uncut(copies: Iterable[Copy], high: int, options: ReadOptions) -> None:
    """@raise LogCutBack: If a copy was cut below C{high} since the job began."""
    for copy in copies:
        if copy.root:
            RangeProof(copy.range(copy.first, high), options).check_cuts()
