"""Where acknowledged messages are: in logs, and in all that was ever taken from a log.

A store's log is asked first, at the byte that the client was told.  Only for what is missing there
everything else is read: the rest of the log, quarantine, a log that was put aside, and what a
repair has fetched and not written.  Source: docs/operations.rst, Doctor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from attrs import define, field, frozen

from rmqha.errors import NotAStore
from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.listing import STRAY, Finding, root_of
from rmqha.logfiles.log_end import why_torn
from rmqha.logfiles.offline_log import Progress
from rmqha.logfiles.quarantine_file import QUARANTINE_NAME
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.scan import data_end, judge
from rmqha.store.log.truncate import aside_of
from rmqha.store.offline.client_ledger import Acknowledged, Identity, identities, place_of
from rmqha.wire.log.layout import MIN_BLANK
from rmqha.wire.log.record import Fault, Record, decode
from rmqha.wire.store_layout import FETCHED, OWN_FOLDER, QUARANTINE

LOG, ARCHIVED, KEPT, SET_ASIDE, BROUGHT = "log", "archive", "quarantine", "aside", "fetched"
"""What a place is called: a log, that of an archive, a quarantine file, a log that was put aside
for a new copy, a replica's bytes that no repair has written yet."""


@frozen(kw_only=True)
class Sighting:
    """A place where a message was found.

    @ivar place: What that is called.
    @ivar path: The folder of a log, or a file of quarantine.
    @ivar offset: Where its record begins there, a physical offset.
    @ivar queue: Topic, queue and place in that.
    @ivar differs: What is not as it was acknowledged, though it has its id.
    """

    place: str
    path: str
    offset: int
    queue: str
    differs: str = ""


@define(kw_only=True, eq=False)
class Searched:
    """A log, or a part of one, in which messages are looked for.

    @ivar place: What it is called.
    @ivar unsure: What could not be read, or told, in it.
    """

    place: str
    raw: RawLog
    unsure: list[Finding] = field(factory=list)

    def why_not(self, message: Acknowledged) -> str:
        """Why a message is not at its byte; C{""} if it is."""
        raw, offset = self.raw, message.offset
        if offset is None:
            return "nowhere in its log"
        if offset < raw.min_offset:
            return f"the log begins at byte {raw.min_offset}"
        if not raw.has(offset):
            return "no file that can be read holds this byte"
        verdict = judge(raw, offset)
        if isinstance(verdict, Fault):
            return verdict.value
        if verdict < 0:
            return "the blank at a file's end is there"
        record = self.record_at(offset)
        torn = None
        end = offset + verdict
        if not raw.has(end) or judge(raw, end, crc=False) is Fault.NOTHING:
            torn = why_torn(raw, offset, end, raw.writer.nul_is_torn_from)
        return torn.value if torn is not None else message.other(record)

    def record_at(self, offset: int) -> Record:
        """What was found whole there."""
        size = int.from_bytes(self.raw.read(offset, MIN_BLANK)[:4], "big")
        return decode(self.raw.read(offset, size), 0, offset)

    def search(self, wanted: LookedFor, progress: Progress | None = None) -> None:
        """Read all of it, and note each message that is there."""
        raw = self.raw
        for event in follow(raw, raw.min_offset) if raw.pieces else ():
            if isinstance(event, Corruption):
                self._bad(event)
                continue
            view, block = event
            for offset in block.start.tolist():
                wanted.look(decode(view, offset - block.base, offset), self)
            if progress is not None:
                progress(block.end - raw.min_offset, raw.end - raw.min_offset)
        raw.close()

    def findings(self) -> list[Finding]:
        """What could not be looked at."""
        return self.raw.findings + self.unsure

    def _bad(self, bad: Corruption) -> None:
        """A message may be where no record can be read."""
        behind = data_end(self.raw, bad.offset) if bad.next_valid is None else bad.next_valid
        if behind > bad.offset:
            reason = f"{bad.fault.value}; {behind - bad.offset} bytes are no records"
            self.unsure.append(Finding(str(self.raw.at(bad.offset).path), bad.offset, reason))


class LookedFor:
    """Messages that are looked for, by what tells them from others.

    @ivar found: Where each was, by its number.
    """

    def __init__(self, messages: Sequence[Acknowledged], numbers: Iterable[int]) -> None:
        """@param numbers: Which of the messages are looked for."""
        self._messages = messages
        self.found: dict[int, list[Sighting]] = {}
        self._by: dict[Identity, list[int]] = {}
        for number in numbers:
            self.found[number] = []
            self._by.setdefault(messages[number].identity, []).append(number)
        self._kinds = tuple(sorted({kind for kind, _ in self._by}))

    def look(self, record: Record, where: Searched) -> None:
        """Take a record, if it is one of them."""
        for identity in identities(record, self._kinds):
            for number in self._by.get(identity, ()):
                message = self._messages[number]
                if identity[0] == "id" or message.topic in (None, record.topic):
                    self.saw(number, record, where, message.other_body(record))

    def saw(self, number: int, record: Record, where: Searched, differs: str = "") -> None:
        sighting = Sighting(
            place=where.place,
            path=str(where.raw.path),
            offset=record.offset,
            queue=place_of(record),
            differs=differs,
        )
        if sighting not in self.found[number]:
            self.found[number].append(sighting)


@define(kw_only=True, eq=False)
class StoreLook:
    """One store, and which messages it lacks.

    @ivar path: As it was named.
    @ivar lacks: Why a message is not there, by its number.
    @ivar others: What else was looked in.
    @ivar unsure: What could not be looked in.
    """

    path: Path
    log: Searched
    lacks: dict[int, str] = field(factory=dict)
    others: list[Searched] = field(factory=list)
    unsure: list[Finding] = field(factory=list)

    def findings(self) -> list[Finding]:
        searched = (self.log, *self.others)
        return [one for each in searched for one in each.findings()] + self.unsure

    def open_others(self) -> None:
        """Find all that was ever taken from this log, or put aside."""
        raw = self.log.raw
        own = (raw.root or root_of(raw.path)) / OWN_FOLDER
        for folder, place in ((own / QUARANTINE, KEPT), (own / FETCHED, BROUGHT)):
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                if QUARANTINE_NAME.fullmatch(path.name):
                    self._open(path, place)
                else:
                    self.unsure.append(Finding(str(path), 0, "not named like a quarantine file"))
        aside = aside_of(raw.path)
        if aside.is_dir():
            self._open(aside, SET_ASIDE)

    def _open(self, path: Path, place: str) -> None:
        try:
            raw = RawLog.open(path, self.log.raw.file_size if self.log.raw.pieces else None)
        except (NotAStore, OSError) as error:
            self.unsure.append(Finding(str(path), 0, f"not looked in: {error}"))
        else:
            self.others.append(Searched(place=place, raw=raw))


@define(kw_only=True, eq=False)
class Whereabouts:
    """Where all messages of a ledger are.

    @ivar parts: Quarantine files that were named, in which messages are only looked for.
    @ivar missing: Where each message was found that a store lacks, by its number.
    """

    messages: Sequence[Acknowledged]
    stores: list[StoreLook]
    parts: list[Searched]
    missing: dict[int, list[Sighting]] = field(factory=dict, init=False)

    def ask(self) -> None:
        """Look for each message at its byte."""
        for store in self.stores:
            for number, message in enumerate(self.messages):
                why = store.log.why_not(message)
                if why:
                    store.lacks[number] = why

    def search(self, progress: Progress | None = None) -> None:
        """Look everywhere else for what is missing."""
        unplaced = {n for n, each in enumerate(self.messages) if each.offset is None}
        lacking = sorted({number for store in self.stores for number in store.lacks})
        if not lacking:
            return
        wanted = LookedFor(self.messages, lacking)
        for store in self.stores:
            self._in_log(store, wanted, lacking, progress)
        for number in unplaced:
            for store in self.stores:
                log = str(store.log.raw.path)
                if any(each.path == log and not each.differs for each in wanted.found[number]):
                    store.lacks.pop(number, None)
        still = {number for store in self.stores for number in store.lacks}
        if still:
            for store in self.stores:
                store.open_others()
            for part in (*(each for store in self.stores for each in store.others), *self.parts):
                part.search(wanted, progress)
        self.missing = {number: wanted.found[number] for number in lacking if number in still}

    def _in_log(
        self, store: StoreLook, wanted: LookedFor, lacking: list[int], progress: Progress | None
    ) -> None:
        """Note what a store has at its byte, and look in all of its log for the others."""
        log = store.log
        for number in lacking:
            offset = self.messages[number].offset
            if number not in store.lacks and offset is not None:
                wanted.saw(number, log.record_at(offset), log)
        if store.lacks:
            log.search(wanted, progress)

    def findings(self) -> list[Finding]:
        """What could not be looked at, anywhere.  Where nothing is missing, a file that is none
        of a log's hides nothing.
        """
        found = [one for store in self.stores for one in store.findings()]
        found += [one for part in self.parts for one in part.findings()]
        return [one for one in found if self.missing or one.reason != STRAY]
