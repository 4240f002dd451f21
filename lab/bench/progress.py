"""How fast a slave gets its master's log, seen from outside.

A slave is looked at rarely, as answering costs it time: once it shows its first bytes, and
then when it should be nearly done.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import frozen

FIRST = 0.3
"""Seconds left alone after its first bytes."""

PAUSE = 0.02
"""Seconds between two looks near the end."""


@frozen
class Look:
    """What a slave says of itself.

    @ivar held: Where its log ends, in bytes.
    @ivar dispatched: How far its queues and index are built, in bytes.
    """

    held: int
    dispatched: int


@frozen
class Run:
    """One bootstrap, in bytes a second.

    @ivar copied: Until the log's last byte was accepted.
    @ivar dispatched: Until queues and index were built too; 0 if that was not awaited.
    """

    copied: float
    dispatched: float


def follow(
    look: Callable[[], Look | None],
    end: int,
    *,
    dispatch: bool,
    limit: float,
    tell: Callable[[], str],
) -> Run:
    """Watch a slave that started empty, from the first look that shows bytes.

    @param look: Asks it; C{None} while it does not answer.
    @param end: Where the master's log ends, in bytes.
    @param dispatch: Whether to wait for queues and index.
    @param limit: Seconds it may take.
    @param tell: What to say when it takes longer.
    """
    deadline = time.monotonic() + limit
    first = when = copied = 0.0
    while time.monotonic() < deadline:
        found = look()
        if found is None or not found.held:
            time.sleep(PAUSE)
            continue
        now = time.perf_counter()
        if not when:
            first, when = found.held, now
            time.sleep(FIRST)
            continue
        if found.held >= end and not copied:
            copied = (end - first) / (now - when)
        if copied and (not dispatch or found.dispatched >= end):
            return Run(copied, (end - first) / (now - when) if dispatch else 0.0)
        # Dispatch speeds up once all bytes are there: its first part says nothing of the rest.
        left = 0.0 if copied else 0.5 * (end - found.held) * (now - when) / found.held
        time.sleep(max(PAUSE, left))
    raise AssertionError(f"no end within {limit:g} s\n{tell()}")
