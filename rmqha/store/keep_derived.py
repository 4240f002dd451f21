"""What is derived from the log, made durable, and the marks that say so.

In this order: a mark that is on the disk before what it speaks of would have a start after a
power cut believe queues that are not there.  Source: docs/protocol/store.rst, The store's folder.
"""

from __future__ import annotations

from pathlib import Path

from rmqha.store.derived import dispatch_mark
from rmqha.store.derived.dispatch import Dispatcher, DispatchMark
from rmqha.store.derived.dispatch_mark import mark_path
from rmqha.store.files.mapped import disk_error
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.wire.store_layout import CHECKPOINT


def keep_derived(
    root: Path,
    dispatcher: Dispatcher,
    mark: DispatchMark,
    *,
    checkpoint: Checkpoint,
    stored: int,
    durable: int,
) -> None:
    """Make queues and index durable up to a mark, and then the mark.  Blocking.

    @param stored: When the last record below the mark was stored, in milliseconds since 1970.
    @param durable: The end of a record up to which the log itself is on the disk.
    @raise DiskFull: If there is no room, or no descriptor.
    """
    dispatcher.queues.flush()
    if dispatcher.index is not None:
        dispatcher.index.flush()
    path = mark_path(root)
    try:
        dispatch_mark.save(path, dispatcher.log, mark, durable)
    except OSError as error:
        raise disk_error(error, str(path), 0) from error
    if stored:
        checkpoint.queues = checkpoint.index = stored
    checkpoint.save(root / CHECKPOINT)
