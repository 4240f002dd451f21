"""Why a log cannot be read, or cannot be read further from a position."""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import PipelineError


@frozen
class DataLost(PipelineError):
    """Retention deleted bytes that should be read; C{failOnDataLoss=false} skips them.

    @ivar store: The store's name.
    @ivar start: The first byte that is missing.
    @ivar end: Just past the last byte that is missing.
    """

    sentence = (
        "{store}: bytes {start} to {end} of the log were deleted; failOnDataLoss=false skips them"
    )
    store: str
    start: int
    end: int


@frozen
class LogCutBack(PipelineError):
    """A log was cut back below what is being read or was read: rows came from bytes that are gone.

    @ivar store: The store's name.
    @ivar at: Where it was cut, a physical offset.
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


@frozen
class NotThisLog(PipelineError):
    """A position belongs to another log.

    @ivar store: The store's name.
    @ivar offset: The position, a physical offset.
    @ivar last: Where the last record below it starts.
    @ivar expected: The fingerprint of that record in the position.
    @ivar found: The one that the store has.
    """

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


@frozen
class LogOfAnotherBroker(PipelineError):
    """A position belongs to another broker's log.

    @ivar store: The store's name.
    @ivar offset: The position, a physical offset.
    @ivar expected: The broker in the position, in words.
    @ivar found: The one that the store has.
    """

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


@frozen
class LogEndsBefore(PipelineError):
    """A log ends before the place up to which it was read.

    @ivar store: The store's name.
    @ivar offset: That place, a physical offset.
    @ivar end: Where the log ends.
    """

    sentence = (
        "{store}: the log ends at byte {end}, before byte {offset} up to which "
        "it was read: this copy is behind, or it is another log; read a copy that reaches so "
        "far, or, if what it had is gone for good, remove its rows (rmqha spark rewind --store "
        "{store} --to {end})"
    )
    store: str
    offset: int
    end: int


@frozen
class LogCopiedAnew(PipelineError):
    """A slave put its log aside while it was read, and copies it again.

    @ivar store: The store's name.
    @ivar time: When, in milliseconds since 1970.
    @ivar position: The physical offset up to which it was to be read.
    """

    sentence = (
        "{store}: the slave put its log aside at {time} ms and copies it again; "
        "read it when the copy has reached byte {position}: a stream continues if its "
        "bytes are the same"
    )
    store: str
    time: int
    position: int


@frozen
class CopyBehind(PipelineError):
    """A copy of a log ends before the bytes that should be read.

    @ivar store: The store's name.
    @ivar wanted: A physical offset.
    @ivar end: How far the copy goes.
    """

    sentence = "{store}: this copy of the log ends at byte {end}, before byte {wanted}"
    store: str
    wanted: int
    end: int


@frozen
class StoresDiffer(PipelineError):
    """A stream is continued without a store for which its checkpoint has a position.

    @ivar store: The store's name.
    @ivar known: Names of the stores that are given.
    """

    store: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.known)
        return f"store {self.store} is in the checkpoint but was not given; given: {names}"


@frozen
class SameLog(PipelineError):
    """Two stores of one query are copies of one log: every row would come twice.

    @ivar one: A store's name.
    @ivar other: The other one's.
    @ivar offset: Physical offset of a record that both have.
    """

    sentence = "stores {one} and {other} are copies of one log (record {offset})"
    one: str
    other: str
    offset: int


@frozen
class NoPublishedPoint(PipelineError):
    """A stream reads a store that does not publish how far its log is final.

    @ivar path: The store's root.
    """

    sentence = (
        "{path} has no published point, so the end of its log may still change; "
        "allowUnconfirmedTail=true reads it up to the last whole record"
    )
    path: str


@frozen
class PublishedPointStale(PipelineError):
    """The log changed since rmqha closed the store: another broker had it.

    @ivar path: The store's root.
    @ivar confirmed: The end that was published.
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


@frozen
class RangeBroken(PipelineError):
    """A range of the log cannot be read to its end.

    @ivar path: The log file.
    @ivar offset: Physical offset of the place that cannot be passed.
    @ivar end: Where the range ends.
    @ivar reason: What is wrong there.
    """

    sentence = "{path} at byte {offset}: {reason}; the range ends at {end}"
    path: str
    offset: int
    end: int
    reason: str


@frozen
class QueueGap(PipelineError):
    """A queue's offsets leap, and that is not allowed (C{failOnQueueGap}).

    @ivar store: The store's name.
    @ivar topic: The topic.
    @ivar queue_id: The queue id.
    @ivar expected: The queue offset that should have come.
    @ivar found: The one that came.
    """

    sentence = (
        "{store}: queue {queue_id} of {topic} goes on at offset {found}, "
        "not at {expected}: records are missing; failOnQueueGap=false reads on"
    )
    store: str
    topic: str
    queue_id: int
    expected: int
    found: int


@frozen
class PositionInvalid(PipelineError):
    """A position in a checkpoint cannot be understood.

    @ivar text: What it says.
    @ivar reason: What is wrong with it.
    """

    text: str
    reason: str

    def __str__(self) -> str:
        return (
            f"cannot read a position of the checkpoint: {self.reason} ({self.text[:200]}); begin a "
            "new checkpoint, where the table ends (--resume-from-table) or at startingOffsets"
        )
