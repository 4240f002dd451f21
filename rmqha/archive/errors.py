"""Why a log cannot be archived any further, or no store be built from an archive."""

from __future__ import annotations

from datetime import UTC, datetime

from rmqha.errors import RmqhaError, StoreError


class ReceiveStopped(StoreError, kw_only=True):
    """The master's log does not go on where the archive ends.

    @ivar state: What that is called: C{diverged}, C{below-min}, C{ahead}, ...
    @ivar at: The first byte that is not the master's, if that is known.
    @ivar master_min: Where the master's log begins, if it has told.
    """

    state: str
    reason: str
    start: int
    end: int
    at: int | None = None
    master_min: int | None = None
    master_end: int | None = None

    def __str__(self) -> str:
        text = f"{self.state}: {self.reason}; the archive has bytes {self.start} to {self.end}"
        if self.master_min is not None:
            text += f", the master said that it has {self.master_min} to {self.master_end}"
        return text


class FileSizeUnknown(RmqhaError):
    """A new archive needs the size of the master's log files, and the master did not tell it.

    @ivar master: The master's client port.
    """

    sentence = (
        "{master} does not tell the size of its log files ({reason}): "
        "give --file-size (mappedFileSizeCommitLog of the master)"
    )
    master: str
    reason: str


def shown_time(milliseconds: int) -> str:
    """A moment since 1970 for people, who may give it back to a command."""
    try:
        time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds}ms"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
