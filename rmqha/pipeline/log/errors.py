"""Why a log cannot be read, or cannot be read further from a position."""

from __future__ import annotations

from rmqha.errors import PipelineError


class DataLost(PipelineError):
    """Retention deleted bytes that should be read; C{failOnDataLoss=false} skips them."""

    sentence = (
        "{store}: bytes {start} to {end} of the log were deleted; failOnDataLoss=false skips them"
    )
    store: str
    start: int
    end: int


class LogCutBack(PipelineError):
    """A log was cut back below what is being read or was read: rows came from bytes that are gone.

    @ivar time: When, in milliseconds since 1970.
    @ivar position: The physical offset up to which rows were asked for, or read.
    """

    sentence = (
        "{store}: the log was cut back to byte {at} at {time} ms, "
        "the position is {position}: rows from byte {at} on are not in the log any "
        "more; remove them (rmqha spark rewind) and start at that byte"
    )
    store: str
    at: int
    time: int
    position: int


class NotThisLog(PipelineError):
    """A position belongs to another log."""

    store: str
    offset: int
    last: int
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.store}: position {self.offset} belongs to another log: the record at byte "
            f"{self.last} has fingerprint {self.found or 'none'}, the position has {self.expected}"
        )


class LogOfAnotherBroker(PipelineError):
    """A position belongs to another broker's log."""

    sentence = (
        "{store}: position {offset} belongs to the log of broker {expected}, "
        "not of broker {found}; if that is its new name, say so with rmqha spark rewind "
        "--store {store} --to {offset}, which removes nothing then, and begin a new "
        "checkpoint (--resume-from-table)"
    )
    store: str
    offset: int
    expected: str
    found: str


class LogEndsBefore(PipelineError):
    """A log ends before the place up to which it was read."""

    sentence = (
        "{store}: the log ends at byte {end}, before byte {offset} up to which "
        "it was read: this copy is behind, or it is another log; read a copy that reaches so "
        "far, or, if what it had is gone for good, remove its rows (rmqha spark rewind --store "
        "{store} --to {end})"
    )
    store: str
    offset: int
    end: int


class LogCopiedAnew(PipelineError):
    """A slave put its log aside while it was read, and copies it again.

    @ivar time: When, in milliseconds since 1970.
    """

    sentence = (
        "{store}: the slave put its log aside at {time} ms and copies it again; "
        "read it when the copy has reached byte {position}: a stream continues if its "
        "bytes are the same"
    )
    store: str
    time: int
    position: int


class CopyBehind(PipelineError):
    """A copy of a log ends before the bytes that should be read."""

    sentence = "{store}: this copy of the log ends at byte {end}, before byte {wanted}"
    store: str
    wanted: int
    end: int


class StoresDiffer(PipelineError):
    """A stream is continued without a store for which its checkpoint has a position."""

    store: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.known)
        return f"store {self.store} is in the checkpoint but was not given; given: {names}"


class SameLog(PipelineError):
    """Two stores of one query are copies of one log: every row would come twice."""

    sentence = "stores {one} and {other} are copies of one log (record {offset})"
    one: str
    other: str
    offset: int


class NoPublishedPoint(PipelineError):
    """A stream reads a store that does not publish how far its log is final."""

    sentence = (
        "{path} has no published point, so the end of its log may still change; "
        "allowUnconfirmedTail=true reads it up to the last whole record"
    )
    path: str


class PublishedPointStale(PipelineError):
    """The log changed since rmqha closed the store: another broker had it.

    @ivar end: How far whole records go now; the same if only what is below differs.
    """

    path: str
    confirmed: int
    end: int

    def __str__(self) -> str:
        found = f"ends at {self.end}" if self.end > self.confirmed else "has other bytes before it"
        return (
            f"{self.path}: the published point is at {self.confirmed}, but the log {found}: "
            "another broker has written to the store since; pointFile=ignore reads it"
        )


class RangeBroken(PipelineError):
    """A range of the log cannot be read to its end."""

    sentence = "{path} at byte {offset}: {reason}; the range ends at {end}"
    path: str
    offset: int
    end: int
    reason: str


class QueueGap(PipelineError):
    """A queue's offsets leap, and that is not allowed (C{failOnQueueGap})."""

    sentence = (
        "{store}: queue {queue_id} of {topic} goes on at offset {found}, "
        "not at {expected}: records are missing; failOnQueueGap=false reads on"
    )
    store: str
    topic: str
    queue_id: int
    expected: int
    found: int


class PositionInvalid(PipelineError):
    """A position in a checkpoint cannot be understood."""

    text: str
    reason: str

    def __str__(self) -> str:
        return (
            f"cannot read a position of the checkpoint: {self.reason} ({self.text[:200]}); begin a "
            "new checkpoint, where the table ends (--resume-from-table) or at startingOffsets"
        )
