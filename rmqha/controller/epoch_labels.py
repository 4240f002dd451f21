"""What the epoch labels of a log tell: how they grow, what a cut leaves of them, and where two logs
surely are one.

Each label ends where the next one starts, the newest at the log's end.  Labels say where to begin
to compare, and what a stock member will cut; what is equal is decided by bytes.

Source: docs/protocol/controller.rst, Epoch file.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqha.errors import StoreError
from rmqha.wire.ha_v2 import EpochLabel

Labels = tuple[EpochLabel, ...]


class EpochLabelBehind(StoreError):
    """A label that is to follow another is not above it, or starts before it."""

    sentence = (
        "epoch label {label} from byte {start} cannot follow label {newest} "
        "from byte {newest_start}"
    )
    label: int
    start: int
    newest: int
    newest_start: int


def appended(labels: Labels, label: EpochLabel) -> Labels:
    """A log's labels and one more.  A label under which nothing was written gives way to the one
    that starts where it does.

    @raise EpochLabelBehind: If it is not above the newest, or starts before it.
    """
    if labels:
        newest = labels[-1]
        if label.label <= newest.label or label.start < newest.start:
            raise EpochLabelBehind(label.label, label.start, newest.label, newest.start)
        if label.start == newest.start:
            labels = labels[:-1]
    return (*labels, label)


def cut(labels: Labels, at: int) -> Labels:
    """The labels of a log that ends at C{at} now."""
    return tuple(label for label in labels if label.start < at)


def end_of(labels: Sequence[EpochLabel], number: int, log_end: int) -> int:
    """Where a label's bytes end.

    @param number: Which label it is, counted from the oldest.
    """
    return labels[number + 1].start if number + 1 < len(labels) else log_end


def consistent_point(
    ours: Sequence[EpochLabel], our_end: int, theirs: Sequence[EpochLabel], their_end: int
) -> int | None:
    """Up to where labels say that two logs are one: to the smaller end of the newest label that
    both have, with the same start.

    @param our_end: Where our log ends.
    @param their_end: Where theirs ends.
    @return: A physical offset; C{None} if they have no label in common.
    """
    known = {label: number for number, label in enumerate(theirs)}
    for number in reversed(range(len(ours))):
        other = known.get(ours[number])
        if other is not None:
            return min(end_of(ours, number, our_end), end_of(theirs, other, their_end))
    return None
