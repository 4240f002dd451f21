"""What goes over an HA connection and to a log, written by hand."""

from __future__ import annotations

from rmqha.errors import StoreError
from rmqha.store.log.commit_log import CommitLog
from rmqha.wire.ha_frame import TRANSFER_HEADER


def encode_header(offset: int, size: int) -> bytes:
    """The header of a frame at an offset; without a body, a heartbeat, the next one to be sent."""
    return TRANSFER_HEADER.pack(offset, size)


def append_frame(log: CommitLog, offset: int, data: memoryview | bytes) -> None:
    """Append one whole frame's body to a log, as a connection does piece by piece; it may span
    files, and
    has to continue the log.  Without room nothing of it is log.
    """
    view = memoryview(data)
    try:
        while view:
            room = log.reserve(offset, len(view))
            room[:] = view[: len(room)]
            log.staged(len(room))
            offset += len(room)
            view = view[len(room) :]
    except StoreError:
        log.discard()
        raise
    log.accept()
