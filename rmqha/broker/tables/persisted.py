"""Tables that outlive the process: written soon after a change, many changes at once.

Stock brokers write the whole table at each change, in the thread that made it; a client
that makes a thousand topics then writes a thousand tables.

Source: docs/protocol/remoting.md, Tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.tables.offset_journal import OffsetJournal
from rmqha.errors import StoreError
from rmqha.logfiles import json_table
from rmqha.net.group_commit import GroupCommit
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.periodic import Job, NodePart, cancelled
from rmqha.store.files.allocate import InThread
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.store.tables.table_verdict import Source, TableRead
from rmqha.wire.remoting.json_body import to_json

RETRY = 5.0
"""Seconds until a table that could not be written is tried again."""


class Persisted(NodePart):
    """One table and its file.

    @ivar path: The file.
    @ivar job: How writing it goes.
    @ivar read: How it stood with the file when it was loaded; C{None} before.
    """

    _log = Logger()

    def __init__(
        self,
        path: Path,
        snapshot: Callable[[], Any],
        clock: IReactorTime,
        in_thread: InThread,
        interval: float = 0.0,
        *,
        tables: CheckedTables,
        journal: OffsetJournal | None = None,
    ) -> None:
        """@param snapshot: Gives the table as it is now, as a body class or a C{dict}.  It is read
            in a thread, so it must not change afterwards.
        @param interval: Most seconds from a change to its being written; what changes while
            one table is being written goes into the next, together.
        @param tables: The store's, with their checksums.
        @param journal: What keeps changes between two writes.
        """
        self.path = path
        self.job = Job(f"writing {path.name}", clock, vital=True)
        self.read: TableRead | None = None
        self._tables = tables
        self._journal = journal
        self._snapshot = snapshot
        self._clock = clock
        self._in_thread = in_thread
        self._interval = interval
        self._quiet = RateLimitedLog(self._log, clock)
        self._commits = GroupCommit(self._save)
        self._timer: IDelayedCall | None = None
        self._dirty = False
        self._stopped = False

    def load(self) -> json_table.Table | None:
        """Read the table; C{None} if there is none yet.  What is not as it was written is said.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If there is one, and it makes no sense.
        """
        self.loaded(self._tables.load(self.path))
        assert self.read is not None
        return self.read.table

    def loaded(self, read: TableRead) -> None:
        """The table was read.  One that is not what its file held is written again."""
        self.read = read
        if read.source is Source.BACKUP:
            self.dirty()

    def dirty(self) -> None:
        """The table was changed: write it within the interval."""
        self._dirty = True
        self._later(self._interval)

    def save_now(self) -> Deferred[None]:
        """Write what was changed so far.

        @return: Fires when that is durable.  Fails if it cannot be written; that is logged, and
            it is tried again later.
        """
        return self._commits.commit()

    def stop(self) -> Deferred[None]:
        """Write what is not yet written; for the last time, well or not."""
        self._stopped = True
        return self.save_now().addErrback(_told)

    def _later(self, delay: float) -> None:
        if self._timer is None and not self._stopped:
            self._timer = self._clock.callLater(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        self.save_now().addErrback(_told)

    def _save(self) -> Deferred[None]:
        self._timer = cancelled(self._timer)
        if not self._dirty:
            return succeed(None)
        self._dirty = False
        self.job.begun()
        follows = None if self._journal is None else self._journal.rotate()
        return self._in_thread(self._write, self._snapshot(), follows).addCallbacks(
            lambda _: self.job.succeeded(), self._not_written
        )

    def _write(self, table: Any, follows: int | None) -> None:
        needed = self._tables.replace(self.path, to_json(table), journal=follows)
        if self._journal is not None and needed is not None:
            self._journal.forget(needed)

    def _not_written(self, failure: Failure) -> Failure:
        self._dirty = True
        self.job.failed(failure)
        ours = {} if failure.check(StoreError, OSError) else {"log_failure": failure}
        self._quiet.warn(
            type(failure.value).__name__,
            self.path.name,
            "Cannot write {peer}, retrying in {s} s: {error}",
            s=RETRY,
            error=failure.getErrorMessage(),
            **ours,
        )
        self._later(RETRY)
        return failure


def _told(failure: Failure) -> None:
    """It is in the log already."""
