"""Loss of power at any system call of a table that is kept in the journal of offsets."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rmqha.broker.tables.consumer_offsets import INTERVAL, ConsumerOffsetTable
from tests.support.effort import tries
from tests.support.unsynced_names import UnsyncedNames

PAUSE = 0.15
"""Seconds between two batches of the journal."""

STEPS = 15


def assert_kept(
    case: Any,
    offsets: ConsumerOffsetTable,
    change: Callable[[random.Random, int], None],
    restored: Callable[[Path], tuple[Any, ...]],
    held: Callable[[], tuple[Any, ...]],
) -> None:
    """Whatever the disk has of what was not synced, nothing is older than the last batch of the
    journal that was durable.

    @param case: Has the C{clock} and the C{root} of the tables.
    @param change: Makes a change, by its number.
    @param restored: What a process has that begins with an image of the disk; each of it has to be
        of one of the moments since.
    @param held: The same of this moment.
    """
    choice = random.Random(11)
    states = [held()]
    cuts = 0
    lost: list[str] = []
    images = case.folder()

    def cut() -> None:
        nonlocal cuts
        cuts += 1
        for _ in range(tries(3)):
            root = images / "store"
            disk.image(root, choice)
            for each, known in zip(restored(root), zip(*states, strict=True), strict=True):
                if each not in known:
                    lost.append(f"{cuts}: {each}, not {known}")
            shutil.rmtree(root)

    case.patch(os, "fdatasync", lambda fd: None)
    disk = UnsyncedNames(case.root, cut)
    offsets.journal.flushed.append(lambda: states.__setitem__(slice(None), [held()]))
    disk.install(case)
    for step in range(1, STEPS + 1):
        change(choice, step)
        states.append(held())
        if choice.random() < 0.7:
            case.clock.advance(PAUSE)
        if choice.random() < 0.3:
            case.clock.advance(INTERVAL)
    case.assertGreater(cuts, 30)
    case.assertEqual(lost[:5], [])
