"""Errors of a log's files in an object store."""

from __future__ import annotations

from attrs import frozen

from rmqha.errors import RmqhaError


class TierError(RmqhaError):
    """What is wrong with a tier, or with the way to it."""


@frozen
class TierPlaceInvalid(TierError):
    """A URL is of no file system or object store.

    @ivar url: The URL, without what is secret in it.
    @ivar reason: Why not.
    """

    url: str
    reason: str

    def __str__(self) -> str:
        return f"{self.url} cannot be a tier: {self.reason}"


@frozen
class TierMissing(TierError):
    """There is no tier where one is to be read.

    @ivar url: Where, without what is secret in it.
    """

    url: str

    def __str__(self) -> str:
        return (
            f"there is no tier at {self.url}: no log was ever uploaded there; correct the URL, or "
            "upload first (rmqha tier STORE URL)"
        )


@frozen
class TierUnreachable(TierError):
    """The object store does not do what it is asked for: it does not answer, or does not let us.

    @ivar object: What was asked for.
    @ivar reason: Its words.
    """

    object: str
    reason: str

    def __str__(self) -> str:
        return f"{self.object} cannot be had: {self.reason}"


@frozen
class TierManifestInvalid(TierError):
    """What says what a file in a tier must be cannot be read.

    @ivar object: The manifest.
    @ivar reason: Why not.
    """

    object: str
    reason: str

    def __str__(self) -> str:
        return f"{self.object} is no manifest of a tier: {self.reason}"


@frozen
class TierObjectSize(TierError):
    """An object has not the size of the log file that it was: it was cut, replaced or removed.

    @ivar object: The object.
    @ivar size: Bytes that it has; -1 if it is not there.
    @ivar expected: Bytes that were put there.
    """

    object: str
    size: int
    expected: int

    def __str__(self) -> str:
        found = "is missing" if self.size < 0 else f"has {self.size} bytes"
        return f"{self.object} {found}, {self.expected} bytes were uploaded: it is damaged"


@frozen
class TierBytesChanged(TierError):
    """Bytes of an object are others than those that were uploaded.

    @ivar object: The object.
    @ivar start: Physical offset of the first byte of the block that is not right.
    @ivar end: Just past its last.
    @ivar crc: CRC-32 of what it has.
    @ivar expected: CRC-32 of what was uploaded.
    """

    object: str
    start: int
    end: int
    crc: int
    expected: int

    def __str__(self) -> str:
        return (
            f"{self.object} has other bytes from {self.start} to {self.end} than were uploaded "
            f"(CRC-32 {self.crc:08x}, expected {self.expected:08x}): it is damaged"
        )


@frozen
class TierOfAnotherLog(TierError):
    """A tier and a store have not the same log.

    @ivar object: The tier's file, or its manifest.
    @ivar path: The store's, or the store.
    @ivar start: Physical offset of the first byte of a file that differs.
    @ivar theirs: Whose log, or which bytes, the tier has, in words.
    @ivar ours: The same of the store.
    """

    object: str
    path: str
    start: int
    theirs: str
    ours: str

    def __str__(self) -> str:
        return (
            f"{self.object} and {self.path} are of different logs, at the file that begins at byte "
            f"{self.start}: {self.theirs} and {self.ours}"
        )


@frozen
class LogFileShort(TierError):
    """A full log file of a store lacks bytes at its end.

    @ivar path: The file.
    @ivar size: Bytes that it has.
    @ivar expected: Bytes that it should have.
    """

    path: str
    size: int
    expected: int

    def __str__(self) -> str:
        return f"{self.path} has {self.size} bytes of {self.expected}, it is not uploaded"


@frozen
class LogCutMeanwhile(TierError):
    """A log was cut back while one of its files was uploaded.

    @ivar path: The file.
    @ivar end: Just past the file, a physical offset.
    @ivar final: Up to where the log is final now.
    """

    path: str
    end: int
    final: int

    def __str__(self) -> str:
        return (
            f"{self.path} ends at byte {self.end}, and the log is final only up to byte "
            f"{self.final} now: its upload is not counted"
        )
