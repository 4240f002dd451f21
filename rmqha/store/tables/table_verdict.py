"""Which of a table's two files is taken: its own, or the C{.bak}.

What is not as it was written was changed by the disk, by an operator's editor, or by another
program that ran on the store, and the C{.bak} tells them apart.  RocketMQ's own brokers leave there
what they found; a disk and an editor leave there what we did.

Source: docs/protocol/store.rst, Checksums of tables.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache, partial
from pathlib import Path

from attrs import frozen

from rmqha.errors import FileUnreadable, TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.json_table import Table
from rmqha.store.tables.checksums import Fingerprint, Known
from rmqha.wire.store_layout import BACKUP_SUFFIX


class Source(StrEnum):
    """What a table is read from, and how sure that is."""

    PRESENT = "present"
    """Its own file, which is as we wrote it; or there are no checksums."""

    FOREIGN = "foreign"
    """Its own file, which another program has written since."""

    CHANGED = "changed"
    """Its own file, although it was changed: there is nothing else that is known."""

    BACKUP = "backup"
    """The C{.bak}, as the file itself is damaged, was changed or is gone."""

    NOTHING = "nothing"
    """There is no table."""

    UNREADABLE = "unreadable"
    """Neither file, as the system does not let one be read by which that is decided."""


@frozen(kw_only=True)
class Content:
    """One of a table's two files.

    @ivar data: What is in it; C{None} if there is no such file.
    @ivar table: What that means; C{None} if it is no table.
    @ivar fault: Why not.
    @ivar unreadable: Why what is in it is no table, or cannot be told; C{None} if nothing is.
    """

    path: Path
    data: bytes | None = None
    table: Table | None = None
    fault: str = ""
    unreadable: Exception | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the system does not let it be read."""
        return isinstance(self.unreadable, FileUnreadable)

    def among(self, known: tuple[Fingerprint, ...]) -> Fingerprint | None:
        """Which of some generations it is."""
        data = self.data
        return None if data is None else next((each for each in known if each.fits(data)), None)


@frozen(kw_only=True)
class TableVerdict:
    """What is taken for a table.

    @ivar fault: What is wrong with its own file; empty if nothing is.
    @ivar generation: Which generation is taken; C{None} if it is not known.
    """

    source: Source
    fault: str = ""
    generation: Fingerprint | None = None


def judge(present: Content, backup: Callable[[], Content], known: Known | None) -> TableVerdict:
    """Decide which of a table's files is taken.

    @param backup: Reads the C{.bak}, which is not needed as a rule.
    @param known: C{None} if there are no checksums of this table.
    """
    if present.is_unknown:
        return TableVerdict(source=Source.UNREADABLE, fault=present.fault)
    found = None if known is None else present.among(known.present)
    if present.table is not None and (found is not None or known is None):
        return TableVerdict(source=Source.PRESENT, generation=found)
    before = backup()
    if before.is_unknown:
        return TableVerdict(source=Source.UNREADABLE, fault=before.fault)
    return _unchecked(present, before) if known is None else _not_ours(present, before, known)


def _not_ours(present: Content, backup: Content, known: Known) -> TableVerdict:
    fault = _fault(present, known)
    ours = backup.among(known.before)
    if ours is not None and backup.table is not None:
        return TableVerdict(source=Source.BACKUP, fault=fault, generation=ours)
    if present.table is None:
        if backup.table is not None:
            return TableVerdict(source=Source.BACKUP, fault=fault)
        return TableVerdict(source=Source.NOTHING, fault=fault)
    # A broker of RocketMQ has left what it found there, which was ours, or its own by then.
    if backup.table is not None:
        return TableVerdict(source=Source.FOREIGN, fault=fault)
    return TableVerdict(source=Source.CHANGED, fault=fault)


def _unchecked(present: Content, backup: Content) -> TableVerdict:
    if backup.table is not None:
        return TableVerdict(source=Source.BACKUP, fault=present.fault)
    nothing = present.data is None and backup.data is None
    return TableVerdict(source=Source.NOTHING, fault="" if nothing else present.fault)


def _fault(present: Content, known: Known) -> str:
    """What is wrong with a table's own file, which is not what we wrote there."""
    if present.table is None:
        return present.fault
    newest = known.present[0] if known.present else None
    older = present.among(known.before)
    if older is not None:
        return f"{present.path.name} is an older generation than the one written last ({newest})"
    is_now = Fingerprint.of(present.data or b"", present.table)
    return f"{present.path.name} does not match its checksum: {is_now}, written were {newest}"


@frozen(kw_only=True)
class TableRead:
    """What was found where a table should be.

    @ivar table: The table; C{None} if there is none.
    @ivar source: What it was read from.
    @ivar fault: What is wrong with the table's own file; empty if nothing is.
    @ivar journal: From which file of the offset journal on changes follow what was read; C{None} if
        none does.
    """

    table: Table | None
    source: Source
    fault: str = ""
    journal: int | None = None

    @property
    def older(self) -> bool:
        """Whether something else was read than the table's own file, or nothing where one was."""
        return bool(self.fault) and self.source in (Source.BACKUP, Source.NOTHING)


@frozen(kw_only=True)
class TableFiles:
    """A table's two files, what is known of them, and which one is taken.

    @ivar backup: Reads the generation before, once, when that is wanted.
    """

    known: Known | None
    present: Content
    backup: Callable[[], Content]
    verdict: TableVerdict

    def check(self) -> None:
        """Go no further without knowing what is there.

        @raise FileUnreadable: If the system does not let a file be read by which it is decided
            what is taken.
        """
        if self.verdict.source is Source.UNREADABLE:
            unknown = self.present if self.present.is_unknown else self.backup()
            assert unknown.unreadable is not None, "it is the reason"
            raise unknown.unreadable

    def read(self) -> TableRead:
        """What is taken for the table.

        @raise FileUnreadable: As L{check} says.
        @raise TableUnreadable: If something is there and nothing of it makes sense.
        """
        self.check()
        source, generation = self.verdict.source, self.verdict.generation
        table = self.present.table
        if source is Source.BACKUP:
            table = self.backup().table
        elif source is Source.NOTHING and (
            cause := self.present.unreadable or self.backup().unreadable
        ):
            faults = f"{self.present.fault}; {self.backup().fault}"
            raise TableUnreadable(str(self.present.path), faults) from cause
        journal = None if generation is None else generation.journal
        if self.known is None or source is Source.NOTHING:
            # All of it: there may be a journal before its table is written for the first time.
            journal = 0
        elif source is Source.CHANGED and self.known.present:
            journal = self.known.present[0].journal
        return TableRead(table=table, source=source, fault=self.verdict.fault, journal=journal)

    def going_on(self) -> Known:
        """What is known when that was taken, and what was not is moved aside."""
        source, generation = self.verdict.source, self.verdict.generation
        before = self.known.before if self.known is not None else _of(self.backup())
        if source is Source.BACKUP:
            taken = _of(self.backup()) if generation is None else (generation,)
            return Known(taken, taken)
        if source is Source.FOREIGN:
            before = _of(self.backup())
        return Known(_of(self.present) if generation is None else (generation,), before)

    def accepted(self) -> Known:
        """What is known when the file is right as it is."""
        return Known(_of(self.present), _of(self.backup()))


def content_of(path: Path) -> Content:
    """Read one file."""
    try:
        data = json_table.read_file(path)
    except FileUnreadable as error:
        return Content(path=path, fault=str(error), unreadable=error)
    if data is None:
        return Content(path=path, fault=f"{path.name} is missing")
    try:
        table = json_table.parse(data)
    except ValueError as error:
        return Content(path=path, data=data, fault=f"{path.name}: {error}", unreadable=error)
    # Whoever writes a table writes its name, also where nothing is in it.
    fault = "" if table else f"{path.name} is empty"
    return Content(path=path, data=data, table=table or None, fault=fault)


def _of(content: Content) -> tuple[Fingerprint, ...]:
    return () if content.data is None else (Fingerprint.of(content.data, content.table),)


def look_at(path: Path, known: Known | None) -> TableFiles:
    """Read what is there."""
    backup = cache(partial(content_of, path.with_name(path.name + BACKUP_SUFFIX)))
    present = content_of(path)
    verdict = judge(present, backup, known)
    return TableFiles(known=known, present=present, backup=backup, verdict=verdict)
