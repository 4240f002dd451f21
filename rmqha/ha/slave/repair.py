"""What a policy may do about a log that is not its master's, and the guards before it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen
from twisted.internet.defer import Deferred

from rmqha.config.ha_settings import DivergencePolicy
from rmqha.errors import Refused
from rmqha.ha.states import SyncState
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.scan import scan


@frozen
class Divergence:
    """Where a slave's log stops being its master's.

    @ivar at: The first byte that differs, or the master's end.
    @ivar common_from: Everything in C{[common_from, at)} was compared equal.
    @ivar master_empty: Whether the master has nothing at all.
    """

    at: int
    common_from: int
    master_empty: bool = False


Repair = Callable[[DivergencePolicy, Divergence | None], Deferred[str]]
"""Carries a policy out on the store; the Deferred's text says what was done, its
failure why nothing was."""


def remedy(
    policy: DivergencePolicy,
    state: SyncState,
    divergence: Divergence | None,
    *,
    bootstrapping: bool,
) -> DivergencePolicy | None:
    """What is to be done about a stop state.

    @param bootstrapping: Whether our log is an unfinished copy: then there is nothing
        to lose, and one whose continuation is deleted starts over by itself.
    @return: C{None} if nothing: an empty master is never followed into emptiness.
    """
    if state is SyncState.BELOW_MIN:
        if bootstrapping or policy is DivergencePolicy.REBOOTSTRAP:
            return DivergencePolicy.REBOOTSTRAP
    elif state in (SyncState.AHEAD, SyncState.DIVERGED):
        if divergence is None or divergence.master_empty:
            return None
        if policy is not DivergencePolicy.STOP:
            return policy
    return None


def plan_cut(
    log: LogReader, divergence: Divergence, max_bytes: int, *, to_nothing: bool = False
) -> int:
    """Where to cut a log so that only what was compared equal, or lies before it, is left.
    Blocking: it walks the file that holds the place.

    @param max_bytes: C{haMaxTruncateBytes}.
    @param to_nothing: Whether a log whose very first record differs may lose all.
    @return: A record's start (or a blank's), at or before the first difference.
    @raise Refused: If the master is empty, no whole record was compared equal, or more
        than C{max_bytes} would go.
    """
    if divergence.master_empty:
        raise Refused("truncate", "the master's log is empty; it may be the wrong master, or wiped")
    position = _file_start(log, divergence.at)
    for _, block in scan(log, position, min(divergence.at, log.confirmed), crc=False):
        position = block.end
    if not _record_compared(log, divergence) and (position or not to_nothing):
        raise Refused(
            "truncate",
            f"no whole record before byte {divergence.at} was compared equal "
            f"(compared from {divergence.common_from})",
        )
    if log.end - position > max_bytes:
        raise Refused(
            "truncate",
            f"{log.end - position} bytes would be cut, haMaxTruncateBytes allows {max_bytes}",
        )
    return position


def _record_compared(log: LogReader, divergence: Divergence) -> bool:
    """Whether a whole record, not just the zeros of a blank, was compared equal.  Of a log's first
    byte no master can be asked; it is the first of a size, and 0 in any record.
    """
    low = max(divergence.common_from, log.min_offset)
    low = 0 if low == 1 else low
    high = min(divergence.at, log.confirmed)
    if low >= high:
        return False
    for _, block in scan(log, low - low % log.file_size, high, crc=False):
        if len(block.start) and int(block.start[-1]) >= low:
            return True
    return False


def _file_start(log: LogReader, offset: int) -> int:
    if offset > log.min_offset and offset % log.file_size == 0:
        offset -= 1
    return max(log.min_offset, offset - offset % log.file_size)
