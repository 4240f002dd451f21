"""The index of a store: find messages by topic and key, newest first.

Its files follow one another; only the last one grows.  Between two runs the
index goes on after the last message it holds, so a crash costs no key (a stock
broker deletes its newest file then, and with it every key in it).

Source: docs/protocol/store.rst, Index files.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from attrs import define, field

from rmqha.logfiles.listing import Finding
from rmqha.store.derived.consume_queues import set_aside
from rmqha.store.derived.index_file import IndexFile, IndexShape, Ints
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.files.descriptors import Descriptors
from rmqha.wire.lane.compiled import COMPILED
from rmqha.wire.log.hashing import key_hash
from rmqha.wire.store_layout import INDEX

MOST_OPEN = 64
"""Most files kept open: an index writes one, and has few."""

DEFAULT_MAX_NUM = 64
"""C{maxMsgsNumBatch}: the most offsets of one query."""

Column = Sequence[int] | Ints
"""One field of some entries: of a few a list of numbers, of many an array."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The last time a name of 17 digits can say: the end of the year 9999.
_TIME_MAX = 253_402_300_799_999
# How many last messages may be wrong before nothing in the index is believed.
_WALK_BACK = 16


def file_name(milliseconds: int) -> str:
    """The name of a file whose first message was stored at that time: UTC, 17 digits."""
    time = _EPOCH + timedelta(milliseconds=max(0, min(milliseconds, _TIME_MAX)))
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def _name_time(name: str) -> int | None:
    """The time a name says, in milliseconds; C{None} when it is no time."""
    try:
        time = datetime.strptime(name + "000", "%Y%m%d%H%M%S%f").replace(tzinfo=UTC)
    except ValueError:
        return None
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _listed(column: Column) -> list[int]:
    return column.tolist() if isinstance(column, np.ndarray) else list(column)


@define(eq=False)
class Index:
    """All index files of a store, the oldest first.

    @ivar root: The store's folder; the files are in its C{index}.
    @ivar shape: The sizes of every file.
    @ivar max_num: Most offsets of one query.
    @ivar end_offset: Physical offset of the last message indexed, -1 for none.
    @ivar position: Messages below this physical offset need not be offered again.
    @ivar faults: What was wrong in the files when they were loaded and recovered.
    """

    root: Path
    shape: IndexShape
    max_num: int = DEFAULT_MAX_NUM
    descriptors: Descriptors = field(factory=Descriptors)
    end_offset: int = field(init=False, default=-1)
    position: int = field(init=False, default=0)
    faults: list[Finding] = field(init=False, factory=list)
    _files: list[IndexFile] = field(init=False, factory=list)
    # Entries the message at end_offset has, so that offering it again adds none twice.
    _tail: int = field(init=False, default=0)

    @property
    def folder(self) -> Path:
        return self.root / INDEX

    @property
    def files(self) -> Sequence[IndexFile]:
        """Oldest first."""
        return self._files

    @property
    def total(self) -> int:
        """Entries in all files, the last one's so far included."""
        return sum(file.count - 1 for file in self._files)

    @property
    def last_timestamp(self) -> int:
        """Store time of the last message indexed, milliseconds; 0 for none."""
        return self._files[-1].end_time if self._files else 0

    # --- adding ---

    def put(self, hashes: Column, offsets: Column, timestamps: Column) -> int:
        """Add keys, in the order of their messages and in RocketMQ's in each: unique key, then
        C{KEYS}.  Whether a few come or many, the bytes are the same; the header is written once.

        @param hashes: L{rmqha.wire.log.hashing.key_hash} of each.
        @param offsets: Physical offset of each key's message, not decreasing.
        @param timestamps: Store time of each key's message, milliseconds.
        @return: How many entries were added; none that are there already.
        @raise DiskFull: There is no room; offering the same again goes on.
        """
        start = bisect_left(offsets, self.end_offset)
        same = bisect_right(offsets, self.end_offset, start) - start
        start += min(same, self._tail)
        done = start
        while done < len(hashes):
            file = self._room(int(timestamps[done]))
            stop = min(len(hashes), done + self.shape.entries - file.count)
            columns = hashes[done:stop], offsets[done:stop], timestamps[done:stop]
            if COMPILED:
                file.put(*(_listed(column) for column in columns))
            else:
                file.put_block(*(np.asarray(column, np.int64) for column in columns))
            last = int(offsets[stop - 1])
            self._count(last, stop - max(done, bisect_left(offsets, last)))
            done = stop
        self._write_header()
        return max(0, len(hashes) - start)

    def _write_header(self) -> None:
        # Also when nothing was added: the disk may have been full the last time.
        if self._files and self._files[-1].header_due:
            self._files[-1].write_header()

    def _count(self, offset: int, added: int) -> None:
        self._tail = added + (self._tail if offset == self.end_offset else 0)
        self.end_offset = offset

    def _room(self, timestamp: int) -> IndexFile:
        last = self._files[-1] if self._files else None
        if last is not None and not last.full:
            return last
        self._write_header()
        path = str(self.folder / self._new_name(timestamp))
        made = IndexFile.create(path, self.shape, self.descriptors, last)
        if last is not None:
            last.seal()
        self._files.append(made)
        return made

    def _new_name(self, timestamp: int) -> str:
        """A free name that sorts behind all others: their order is the order of the files."""
        name = file_name(timestamp)
        if self._files:
            last = Path(self._files[-1].path).name
            if int(name) <= int(last):
                time = _name_time(last)
                in_range = time is not None and time < _TIME_MAX
                name = file_name(time + 1) if in_range and time else str(int(last) + 1)
        return name

    # --- asking ---

    def query(self, topic: str, key: str, max_num: int, begin: int, end: int) -> list[int]:
        """Give the physical offsets of messages that may have a key, newest first.

        Only hashes are compared: the caller must look at topic and keys of each.

        @param max_num: The most wanted; C{maxMsgsNumBatch} is the upper limit.
        @param begin: Earliest store time, milliseconds.
        @param end: Latest store time, milliseconds.
        """
        found: list[int] = []
        wanted = min(max_num, self.max_num)
        value = key_hash(topic, key)
        for file in reversed(self._files):
            if file.covers(begin, end):
                file.query(found, value, wanted, begin, end)
            if file.begin_time < begin or len(found) >= wanted:
                break
        return found

    # --- cutting ---

    def truncate_to(self, limit: int, peek: RecordReader) -> None:
        """Forget every message at or above a physical offset.

        @param peek: Reads the log; the last message that stays tells the new end time.
        """
        while self._files and self._files[-1].end_offset >= limit:
            file = self._files[-1]
            kept = file.lower_bound(limit)
            if kept <= 1:
                self._drop_last()
            else:
                last = int(file.entries(kept - 1, 1)["offset"][0])
                file.pop_to(kept, self._time(file, kept - 1, last, peek))
        while self._files and self._files[-1].empty:
            self._drop_last()
        self._find_tail()
        self.position = min(self.position, limit)

    @staticmethod
    def _time(file: IndexFile, number: int, offset: int, peek: RecordReader) -> int:
        found = peek.at(offset)
        if found is not None:
            return found.fields.store_timestamp
        return file.begin_time + int(file.entries(number, 1)["seconds"][0]) * 1000

    def _drop_last(self) -> None:
        file = self._files.pop()
        file.seal()
        self.descriptors.remove(file.path)

    def _find_tail(self) -> None:
        """Learn from the entries which message is the last, and how many keys it has here."""
        self.end_offset, self._tail = -1, 0
        for file in reversed(self._files):
            if file.empty:
                continue
            if self.end_offset >= 0 and file.end_offset != self.end_offset:
                break
            self.end_offset = file.end_offset
            first = file.lower_bound(self.end_offset)
            self._tail += file.count - first
            if first > 1:
                break

    def delete_before(self, log_min: int) -> int:
        """Do without files whose last message is deleted; the newest file always stays.

        @return: How many files are doomed, as they are no part of the index any more.
        """
        count = 0
        while len(self._files) > 1 and self._files[0].end_offset < log_min:
            file = self._files.pop(0)
            file.seal()
            self.descriptors.doom(file.path)
            count += 1
        return count

    def destroy(self) -> None:
        """Delete all its files: they are made anew from the log."""
        while self._files:
            self._drop_last()
        self._find_tail()
        self.position = 0

    # --- loading ---

    def load(self) -> None:
        """Take the files on disk.  A file that cannot be used is set aside with all later
        ones: their messages are indexed again.  With descriptors for reading only it is
        left where it is.
        """
        if not self.folder.is_dir():
            return
        paths = []
        for path in sorted(self.folder.iterdir()):
            if path.name.isascii() and path.name.isdigit() and path.is_file():
                paths.append(path)
            else:
                self.faults.append(Finding(str(path), 0, "ignored: not an index file"))
        paths.sort(key=lambda path: int(path.name))
        for number, path in enumerate(paths):
            file = IndexFile.load(str(path), self.shape, self.descriptors)
            if isinstance(file, Finding):
                self.faults.append(file)
                for later in () if self.descriptors.read_only else paths[number:]:
                    self.descriptors.forget(str(later))
                    set_aside(later)
                break
            self._files.append(file)
        self._find_tail()

    def recover(self, peek: RecordReader, *, clean: bool, trusted: int = 0) -> None:
        """Find out how far the index goes, and put right what a crash left.

        @param peek: Reads the log, which is recovered already.
        @param clean: The last stop was clean: headers and slots can be believed.
        @param trusted: Messages below this physical offset are surely indexed and on
            disk; files that end below it are believed as they are.
        """
        log = peek.log
        if not clean:
            self._repair(peek, trusted)
        while self._files and self._files[-1].empty:
            self._drop_last()
        self._find_tail()
        if self.end_offset >= log.confirmed:
            self.truncate_to(log.confirmed, peek)  # the log was cut, the index follows
        if clean and self.end_offset >= log.min_offset and peek.at(self.end_offset) is None:
            # Not what a clean stop leaves: believe nothing.
            self.recover(peek, clean=False, trusted=0)
            return
        self.position = min(max(log.min_offset, trusted, self.end_offset), log.confirmed)

    def _repair(self, peek: RecordReader, trusted: int) -> None:
        """Cut every file above C{trusted} to the entries that can be true, less those of the
        last message, which may be incomplete; nothing stays behind a file that was cut.
        """
        for number, file in enumerate(self._files):
            last = number == len(self._files) - 1
            # A header from before a crash may be behind: only one that says full counts.
            if not last and file.full and file.end_offset < trusted:
                continue
            count = file.sound_count()
            whole = count == file.shape.entries
            if not whole or last:
                for _ in self._files[number + 1 :]:
                    self.faults.append(
                        Finding(self._files[-1].path, 1, "dropped: it follows a cut index file")
                    )
                    self._drop_last()
                if not whole and count != file.count:
                    wrong = f"the header says {file.count} entries, {count} of them are sound"
                    self.faults.append(Finding(file.path, count, wrong))
            file.count = count
            self._restore(file, peek)
            if not whole:
                break
        self._drop_message(peek)

    def _restore(self, file: IndexFile, peek: RecordReader) -> None:
        if file.empty:
            return
        first = peek.at(int(file.entries(1, 1)["offset"][0]))
        last = peek.at(int(file.entries(file.count - 1, 1)["offset"][0]))
        file.restore(
            file.count,
            None if first is None else first.fields.store_timestamp,
            None if last is None else last.fields.store_timestamp,
        )

    def _drop_message(self, peek: RecordReader) -> None:
        """Pop the last message, then those whose offset is no record's."""
        while self._files and self._files[-1].empty:
            self._drop_last()
        self._find_tail()
        for _ in range(_WALK_BACK):
            if self.end_offset < peek.log.min_offset:
                return
            self.truncate_to(self.end_offset, peek)
            if peek.at(self.end_offset) is not None:
                return
        self.faults.append(
            Finding(str(self.folder), self.total, "dropped: no entry points to a record")
        )
        self.destroy()

    def flush(self) -> int:
        """Make all entries durable; may be called from any thread.

        @return: How many files were written out.
        """
        return self.descriptors.flush()

    def close(self) -> None:
        """Close the files; nothing is flushed by this."""
        for file in self._files:
            file.seal()
        self.descriptors.close()
