"""
Why a log cannot be read, or not read on, from a position.
"""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import PipelineError


@frozen
class DataLost(PipelineError):
    """
    Bytes that are to be read were deleted; C{failOnDataLoss=false} skips them.

    @ivar store: The store's name.
    @ivar start: The first byte that is missing.
    @ivar end: Just past the last byte that is missing.
    """

    store: str
    start: int
    end: int

    def __str__(self) -> str:
        return (
            f"{self.store}: bytes [{self.start}, {self.end}) of the log are deleted; "
            "failOnDataLoss=false skips them"
        )


@frozen
class LogCutBack(PipelineError):
    """
    A log was cut below what is read or was read: rows came from bytes that are no more.

    @ivar store: The store's name.
    @ivar at: Where it was cut, a physical offset.
    @ivar time: When, in milliseconds since 1970.
    @ivar position: The physical offset up to which rows were asked for, or read.
    """

    store: str
    at: int
    time: int
    position: int

    def __str__(self) -> str:
        return (
            f"{self.store}: the log was cut back to byte {self.at} at {self.time} ms, "
            f"the position is {self.position}: rows from byte {self.at} on are not in the log "
            "any more; remove them and start at the cut"
        )


@frozen
class NotThisLog(PipelineError):
    """
    A position belongs to a log with other bytes.

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
            f"{self.store}: position {self.offset} is of another log: the record at byte "
            f"{self.last} has fingerprint {self.found or 'none'}, the position says {self.expected}"
        )


@frozen
class LogOfAnotherBroker(PipelineError):
    """
    A position belongs to another broker's log; its record has been deleted, so that only
    the names tell.

    @ivar store: The store's name.
    @ivar offset: The position, a physical offset.
    @ivar expected: The broker's name in the position.
    @ivar found: The one that the store has.
    """

    store: str
    offset: int
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.store}: position {self.offset} is of the log of broker {self.expected}, "
            f"this is {self.found}'s"
        )


@frozen
class LogCopiedAnew(PipelineError):
    """
    A slave's log was put aside while it was read, and is being copied anew.

    @ivar store: The store's name.
    @ivar time: When, in milliseconds since 1970.
    @ivar position: The physical offset up to which it was to be read.
    """

    store: str
    time: int
    position: int

    def __str__(self) -> str:
        return (
            f"{self.store}: the log was put aside at {self.time} ms and is being copied anew; "
            f"read it again when the copy is at byte {self.position}: a stream goes on if its "
            "bytes are the same"
        )


@frozen
class CopyBehind(PipelineError):
    """
    A copy of a log does not reach as far as is to be read.

    @ivar store: The store's name.
    @ivar wanted: A physical offset.
    @ivar end: How far the copy goes.
    """

    store: str
    wanted: int
    end: int

    def __str__(self) -> str:
        return f"{self.store}: byte {self.wanted} is wanted, this copy ends at {self.end}"


@frozen
class StoresDiffer(PipelineError):
    """
    A stream goes on without a store that it has a position for.

    @ivar store: The store's name.
    @ivar known: Names of the stores that are given.
    """

    store: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.known)
        return f"the checkpoint has a position for store {self.store}, given are {names}"


@frozen
class SameLog(PipelineError):
    """
    Two stores of one query are copies of one log: every row would come twice.

    @ivar one: A store's name.
    @ivar other: The other one's.
    @ivar offset: Physical offset of a record that both have.
    """

    one: str
    other: str
    offset: int

    def __str__(self) -> str:
        return f"stores {self.one} and {self.other} are copies of one log (record {self.offset})"


@frozen
class NoPublishedPoint(PipelineError):
    """
    A stream has nothing that says how far a log may be read.

    @ivar path: The store's root.
    """

    path: str

    def __str__(self) -> str:
        return (
            f"{self.path} has no published point: its tail may still change; "
            "allowUnconfirmedTail=true reads it as far as records are whole"
        )


@frozen
class PublishedPointStale(PipelineError):
    """
    A store was closed by rmqha and is another since: somebody else had it.

    @ivar path: The store's root.
    @ivar confirmed: The end that was published.
    @ivar end: How far whole records go now; the same if only what is below differs.
    """

    path: str
    confirmed: int
    end: int

    def __str__(self) -> str:
        found = f"goes to {self.end}" if self.end > self.confirmed else "has other bytes there"
        return (
            f"{self.path}: the published point says {self.confirmed}, but the log {found}: "
            "another broker has had the store since; pointFile=ignore reads it"
        )


@frozen
class RangeBroken(PipelineError):
    """
    Records do not end where a range of the log ends.

    @ivar path: The log file.
    @ivar offset: Physical offset of the place that cannot be passed.
    @ivar end: Where the range ends.
    @ivar reason: What is wrong there.
    """

    path: str
    offset: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.reason}; the range ends at {self.end}"


@frozen
class PositionInvalid(PipelineError):
    """
    A position in a checkpoint is none of ours.

    @ivar text: What it says.
    @ivar reason: What is wrong with it.
    """

    text: str
    reason: str

    def __str__(self) -> str:
        return f"a position cannot be read: {self.reason} ({self.text[:200]})"
