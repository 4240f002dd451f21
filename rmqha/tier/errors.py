"""Errors of a log's files in an object store."""

from __future__ import annotations

from rmqha.errors import RmqhaError


class TierError(RmqhaError):
    """What is wrong with a tier, or with the way to it."""


class TierPlaceInvalid(TierError):
    """A URL is of no file system or object store.

    @ivar url: The URL, without what is secret in it.
    """

    sentence = "{url} cannot be a tier: {reason}"
    url: str
    reason: str


class TierMissing(TierError):
    """There is no tier where one is to be read.

    @ivar url: Where, without what is secret in it.
    """

    sentence = (
        "there is no tier at {url}: no log was ever uploaded there; correct the URL, or "
        "upload first (rmqha tier STORE URL)"
    )
    url: str


class TierUnreachable(TierError):
    """The object store does not do what it is asked for: it does not answer, or does not let us."""

    sentence = "{object} cannot be had: {reason}"
    object: str
    reason: str


class TierRefused(TierUnreachable):
    """It will not before a person has changed something."""

    sentence = "{object} cannot be had: {reason}; {mend}, and run the command again"
    mend: str


class TierManifestInvalid(TierError):
    """What says what a file in a tier must be cannot be read."""

    sentence = "{object} is no manifest of a tier: {reason}"
    object: str
    reason: str


class TierObjectSize(TierError):
    """An object has not the size of the log file that it was: it was cut, replaced or removed.

    @ivar size: Bytes that it has; -1 if it is not there.
    """

    object: str
    size: int
    expected: int

    def __str__(self) -> str:
        found = "is missing" if self.size < 0 else f"has {self.size} bytes"
        return f"{self.object} {found}, {self.expected} bytes were uploaded: it is damaged"


class TierBytesChanged(TierError):
    """Bytes of an object are others than those that were uploaded."""

    sentence = (
        "{object} has other bytes from {start} to {end} than were uploaded "
        "(CRC-32 {crc:08x}, expected {expected:08x}): it is damaged"
    )
    object: str
    start: int
    end: int
    crc: int
    expected: int


class TierOfAnotherLog(TierError):
    """A tier and a store have not the same log.

    @ivar theirs: Whose log, or which bytes, the tier has, in words.
    @ivar ours: The same of the store.
    """

    sentence = (
        "{object} and {path} are of different logs, at the file that begins at byte "
        "{start}: {theirs} and {ours}"
    )
    object: str
    path: str
    start: int
    theirs: str
    ours: str


class LogFileShort(TierError):
    """A full log file of a store lacks bytes at its end."""

    sentence = "{path} has {size} bytes of {expected}, it is not uploaded"
    path: str
    size: int
    expected: int


class LogCutMeanwhile(TierError):
    """A log was cut back while one of its files was uploaded."""

    sentence = (
        "{path} ends at byte {end}, and the log is final only up to byte "
        "{final} now: its upload is not counted"
    )
    path: str
    end: int
    final: int
