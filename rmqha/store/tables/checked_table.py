"""Reads and writes the tables of one store, with their checksums.

Source: docs/protocol/store.rst, Checksums of tables; docs/states.rst, Damaged tables.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from attrs import AttrsInstance
from twisted.logger import Logger

from rmqha.errors import BodyInvalid, StoreError, TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import Table, fsync_folder, make_folder
from rmqha.store.tables import checksums
from rmqha.store.tables.checksums import Fingerprint, Known
from rmqha.store.tables.table_verdict import (
    Content,
    Source,
    TableFiles,
    TableRead,
    TableVerdict,
    content_of,
    look_at,
)
from rmqha.wire.remoting.json_body import from_json
from rmqha.wire.store_layout import ASIDE, CONFIG, METADATA, OWN_FOLDER, TABLE_CHECKSUMS

Body = TypeVar("Body", bound=AttrsInstance)


class CheckedTables:
    """The tables of a store.

    All methods block.  Several threads may write, each a table of its own.

    @ivar root: The store's root.
    """

    _log = Logger()

    def __init__(self, root: Path) -> None:
        """@raise FileUnreadable: If the system does not let the checksums be read."""
        self.root = root
        self._path = root / OWN_FOLDER / TABLE_CHECKSUMS
        self._lock = threading.Lock()
        self._settled = True
        self._known: dict[str, Known] = {}
        self._ahead: dict[Path, TableFiles] = {}
        self._bodies: dict[Path, tuple[Table, Any]] = {}
        try:
            self._known = checksums.load(self._path)
        except ValueError as error:
            self._log.warn(
                "The checksums of tables in {path} are damaged, taking the tables as they are: "
                "{error}",
                path=self._path,
                error=error,
            )

    def path(self, name: str) -> Path:
        """Where one of RocketMQ's tables is."""
        return self.root / CONFIG / name

    # --- reading ------------------------------------------------------------------

    @classmethod
    def read_ahead(cls, root: Path, kinds: Mapping[str, type[AttrsInstance]]) -> Self:
        """Read some of RocketMQ's tables of a store for those who will ask for them: large ones
        take long to parse, and who asks may have to go on at once.

        @param kinds: What is in each, by its name.
        @raise FileUnreadable: If the system does not let one be read.
        """
        tables = cls(root)
        for name, kind in kinds.items():
            path = tables.path(name)
            look = tables._look(path)
            tables._ahead[path] = look
            try:
                found = look.read().table
                if found is not None:
                    tables._bodies[path] = found, from_json(kind, found, table=True)
            except (TableUnreadable, BodyInvalid):
                continue  # whoever asks for it is told
        return tables

    def body(self, path: Path, kind: type[Body], table: Table) -> Body:
        """What is in a table that was read.

        @raise BodyInvalid: If it is of another kind.
        """
        found, body = self._bodies.pop(path, (None, None))
        return cast(Body, body) if found is table else from_json(kind, table, table=True)

    def read(self, path: Path) -> TableRead:
        """Read a table, or the generation before it where its own file is damaged or gone.

        @raise FileUnreadable: If the system does not let a file be read that is needed for that.
        @raise TableUnreadable: If something is there and nothing of it makes sense.
        """
        return self._look(path).read()

    def load(self, path: Path) -> TableRead:
        """Read a table to go on from it: who does writes it next.  Says in the log what is not as
        it was written.

        A file that was not taken is moved aside, so that it does not become the next C{.bak}.

        @raise FileUnreadable: As L{read} does.
        @raise TableUnreadable: As L{read} does.
        """
        look = self._look(path)
        read = look.read()
        self._tell(path, look.verdict)
        if read.source is Source.BACKUP and look.present.data is not None:
            self._set_aside(path, look.present.data)
        known = look.going_on()
        if known.present:
            self._known[path.name] = known
        else:
            self._known.pop(path.name, None)
        return read

    def accept(self, path: Path) -> bool:
        """Take a table's own file for right as it is, because the operator says so.

        @return: Whether it was not taken for that before.
        @raise FileUnreadable: If the system does not let it, or what came before it, be read.
        @raise TableUnreadable: If it makes no sense.
        """
        look = self._look(path)
        look.check()
        if look.present.table is None:
            raise TableUnreadable(str(path), look.present.fault)
        if look.verdict.generation is not None and look.verdict.source is Source.PRESENT:
            return False
        with self._lock:
            self._known[path.name] = look.accepted()
            self._save()
        return True

    def _look(self, path: Path) -> TableFiles:
        return self._ahead.pop(path, None) or look_at(path, self._known.get(path.name))

    def _tell(self, path: Path, found: TableVerdict) -> None:
        if found.source is Source.FOREIGN:
            self._log.info(
                "{path} was written by another program since, such as a RocketMQ broker, and is "
                "taken as it is: {fault}",
                path=path,
                fault=found.fault,
            )
        elif found.source is Source.CHANGED:
            self._log.warn(
                "{path} was changed since it was written and is taken as it is, as there is no "
                "generation before it: {fault}",
                path=path,
                fault=found.fault,
            )
        elif found.source is Source.BACKUP:
            self._log.warn(
                "{path} is damaged or was changed by hand ({fault}): going on with the generation "
                "before it, {path}.bak; rmqha tables --accept takes one that was changed on "
                "purpose",
                path=path,
                fault=found.fault,
            )
        elif found.fault and path.name in self._known:
            self._log.warn("{path} is gone, and its .bak too: going on without it", path=path)

    def _set_aside(self, path: Path, data: bytes) -> None:
        folder = self.root / OWN_FOLDER / ASIDE
        make_folder(folder)
        target = folder / f"{path.name}-{zlib.crc32(data):08x}"
        os.replace(path, target)
        fsync_folder(folder)
        fsync_folder(path.parent)
        self._log.warn("What {path} held is kept in {target}", path=path, target=target)

    # --- writing ------------------------------------------------------------------

    def replace(
        self,
        path: Path,
        table: Table,
        *,
        journal: int | None = None,
        step: Callable[[str], None] | None = None,
    ) -> int | None:
        """Write a table's next generation, durable on return.  A crash at any moment leaves the old
        or the new one, each with its checksum.

        @param journal: From which file of the offset journal on changes follow it.
        @param step: Called with a name before each change on the disk; for tests of just that.
        @return: The oldest file of the journal that is still needed.
        @raise DiskFull: If there is no room; the old generation stays.
        """
        data = json_table.render(table)
        new = Fingerprint.of(data, table, journal)
        known = self._known.get(path.name, Known())
        writing = known.writing(new)
        self._now(path, writing)
        try:
            with self._lock:
                self._save(step)
            make_folder(path.parent)
            json_table.replace_text(path, data, step)
        except (OSError, StoreError):
            self._now(path, _after_failure(content_of(path), new, known, writing))
            raise
        self._now(path, writing.written())
        return self._known[path.name].journal

    def _now(self, path: Path, known: Known) -> None:
        """Keep in mind how a write went; it is written down with the next table's, or by
        L{settle}.
        """
        with self._lock:
            self._known[path.name] = known
            self._settled = False

    def forget(self, name: str) -> None:
        """A table is deleted on purpose."""
        with self._lock:
            if self._known.pop(name, None) is not None:
                self._save()

    def settle(self) -> None:
        """Write down that all tables are what they were to become."""
        with self._lock:
            if not self._settled:
                self._save()

    def _save(self, step: Callable[[str], None] | None = None) -> None:
        make_folder(self._path.parent)
        json_table.replace(self._path, checksums.text_of(self._known), step)
        self._settled = True

    # --- for people ---------------------------------------------------------------

    def verdicts(self) -> Iterator[tuple[Path, TableVerdict]]:
        """How it stands with each table there are checksums of."""
        for name in sorted(self._known):
            path = self.root / OWN_FOLDER / name if name == METADATA else self.path(name)
            yield path, self._look(path).verdict


def _after_failure(there: Content, new: Fingerprint, known: Known, writing: Known) -> Known:
    """What is known after a write that failed somewhere.

    @param there: The table's own file.
    """
    if there.is_unknown:
        return writing
    replaced = there.data is not None and new.fits(there.data)
    return writing.written(whole=False) if replaced else known
