"""What the tables of topics and of groups have in common: rows by name, a version that rises with
each change, and a file.

Source: docs/protocol/remoting.md, Tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, ClassVar, Generic, TypeVar

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmqha.broker.tables.persisted import Persisted
from rmqha.periodic import NodePart
from rmqha.store.files.allocate import InThread
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.common import DataVersion

Row = TypeVar("Row")
Body = TypeVar("Body", bound=Any)
Section = TypeVar("Section")

MOST_MADE = 20_000
"""Topics, or groups, from which on no more are made because a client asks for one; administrators
may go on.  With three times as many of usual names a registration is still a frame."""


class ConfigTable(NodePart, Generic[Row, Body, Section]):
    """Rows that administrators and clients make, and other brokers take over.

    @cvar NAME: The file's.
    @cvar BODY: What is in it, and in the answer to who asks for all.
    @cvar ROWS: The field of that with the rows.
    @ivar changed: Each is called after a change with the row; C{None} if it is gone, or if it is
        not one alone.
    """

    NAME: ClassVar[str]
    BODY: ClassVar[type[Any]]
    ROWS: ClassVar[str]

    def __init__(
        self,
        tables: CheckedTables,
        settings: Section,
        clock: IReactorTime,
        in_thread: InThread,
        now_ms: Callable[[], int],
    ) -> None:
        """@param tables: The store's.
        @param now_ms: Milliseconds since 1970, for the version.
        """
        self.changed: list[Callable[[Row | None], None]] = []
        self.file = Persisted(tables.path(self.NAME), self.table, clock, in_thread, tables=tables)
        self._tables, self._settings = tables, settings
        self._presets = self.presets()
        self._now_ms = now_ms
        self._table = dict(self._presets)
        self._version = DataVersion()
        self._rest: Body = self.BODY()
        self._text: bytes | None = None

    def presets(self) -> Mapping[str, Row]:
        """The rows that are there from the start."""
        return {}

    def load(self) -> None:
        """Read the file, whose rows win over those that are always there.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If there is one, and it makes no sense.
        @raise BodyInvalid: If it is no table of this kind.
        """
        found = self.file.load()
        if found is None:
            return
        table = self._tables.body(self.file.path, self.BODY, found)
        self._table |= getattr(table, self.ROWS)
        self._version, self._text = table.data_version, None
        self._rest = self._without_rows(table)

    def stop(self) -> Deferred[None]:
        """Write the file.

        @return: Fires when that is done, well or not.
        """
        return self.file.stop()

    # --- reading ------------------------------------------------------------------

    def get(self, name: str) -> Row | None:
        """A row, if there is one of that name."""
        return self._table.get(name)

    def has_all(self, names: Set[str]) -> bool:
        """Whether there is a row of each name."""
        return names <= self._table.keys()

    def names(self) -> tuple[str, ...]:
        """Of all rows, in the order in which they came."""
        return tuple(self._table)

    @property
    def version(self) -> DataVersion:
        """The version of the whole table, as slaves and name servers compare it."""
        return self._version

    @property
    def full(self) -> bool:
        """Whether no more are made for clients."""
        return len(self._table) >= MOST_MADE

    def table(self) -> Body:
        """The whole table as it is now; it is not changed any more."""
        rows = {self.ROWS: dict(self._table)}
        whole: Body = evolve(self._rest, **rows, data_version=self._version)
        return whole

    def text(self) -> bytes:
        """The whole table as it is told to who asks for all; it is written once for many that
        ask.
        """
        if self._text is None:
            self._text = json_body.write(self.table())
        return self._text

    # --- changing -------------------------------------------------------------------

    def set(self, name: str, row: Row) -> None:
        """Make a row, or change it."""
        self._table[name] = row
        self._bump(row)

    def delete(self, name: str) -> bool:
        """Forget a row.

        @return: Whether there was one.
        """
        if self._table.pop(name, None) is None:
            return False
        self._bump(None)
        return True

    def touch(self) -> None:
        """What is told of all rows is not what it was, though none has changed."""
        self._bump(None)

    def lead(self, epoch: int) -> None:
        """This broker is master in a set's epoch: its table is newer than any of an epoch
        before.
        """
        if self._version.state_version < epoch:
            self._version = evolve(self._version, state_version=epoch)
        self._bump(None)

    def adopt(self, table: Body) -> bool:
        """Take over another broker's table at once, all of it, with its version.

        @return: Whether that changed anything.
        """
        new = {**self._presets, **getattr(table, self.ROWS)}
        rest = self._without_rows(table)
        same = new == self._table and rest == self._rest
        self._version, self._text = table.data_version, None
        if same:
            return False
        self._table, self._rest = new, rest
        self._written(None)
        return True

    def _bump(self, row: Row | None) -> None:
        now = max(self._now_ms(), self._version.timestamp)
        self._version = self._version.changed(now)
        self._written(row)

    def _written(self, row: Row | None) -> None:
        self._text = None
        self.file.dirty()
        for listener in tuple(self.changed):
            listener(row)

    def _without_rows(self, table: Body) -> Body:
        """What else is in a table: what newer releases put there."""
        rest: Body = evolve(table, **{self.ROWS: {}}, data_version=DataVersion())
        return rest
