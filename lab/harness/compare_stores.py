"""Two stopped stores side by side: what must hold after every fault.

The slave's log is a byte-exact prefix of its master's, every write that was
acknowledged as replicated is on the slave, and what is derived from each log is what a
rebuild of that log makes (names of index files apart: those are times).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from lab.harness.nodes import SMALL, Folder
from lab.harness.writer import Write
from rmqha.config.store_settings import StoreSettings
from rmqha.store.derived.rebuild import compare, open_derived, rebuild
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import FolderReader, recover
from rmqha.wire.log.record import Fault, check, decode
from rmqha.wire.names import UNIQUE_KEY

PIECE = 1 << 20


def queue_files(root: Path) -> dict[str, bytes]:
    """Path below C{consumequeue} and content of every queue file."""
    folder = root / "consumequeue"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def index_files(root: Path) -> list[bytes]:
    """Contents of the index files, oldest first: names are times, which may differ."""
    return [path.read_bytes() for path in sorted((root / "index").glob("*"))]


def settings_of(root: Path, **more: int) -> StoreSettings:
    """The sizes of L{SMALL}, and a store's folder."""
    sizes = {
        "file_size": SMALL["mappedFileSizeCommitLog"],
        "queue_file_size": SMALL["mappedFileSizeConsumeQueue"],
        "index_slots": SMALL["maxHashSlotNum"],
        "index_entries": SMALL["maxIndexNum"],
    }
    return StoreSettings(root=root, **(sizes | more))  # type: ignore[arg-type]


def open_log(settings: StoreSettings) -> FolderReader:
    """The log of a stopped, sound store, up to its last whole record, or the blank behind that."""
    folder = LogFolder.load(settings.commitlog, settings.file_size)
    reader = FolderReader(folder)
    found = recover(folder, 0)
    if found.corrupt is not None:
        raise AssertionError(f"{settings.root}: {found.corrupt}")
    # A blank that no file follows is not counted by a start; a master that has begun the next file
    # counts it, and so does what its slave has reported.
    reader.end = reader.confirmed = found.end + found.blank
    return reader


@frozen
class FilePair:
    """One log file on both sides: bytes that both have, and the SHA-256 of each, if any."""

    name: str
    size: int
    master: str
    slave: str

    @property
    def same(self) -> bool:
        return self.master == self.slave


def digest(path: Path, size: int) -> str:
    """SHA-256 of a file's first bytes."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (piece := file.read(min(size, PIECE))):
            found.update(piece)
            size -= len(piece)
    return found.hexdigest()


def pairs(master: StoreSettings, slave: StoreSettings, end: int) -> list[FilePair]:
    """The log files of both, up to a common end."""
    found = []
    for path in sorted(slave.commitlog.iterdir()):
        size = min(end - int(path.name), slave.file_size)
        other = master.commitlog / path.name
        if size > 0:
            theirs = digest(other, size) if other.exists() else ""
            found.append(FilePair(path.name, size, theirs, digest(path, size)))
    return found


def derived_faults(settings: StoreSettings, *, exact: bool = True) -> list[str]:
    """Where queues and index of a stopped store are not what its log says; C{exact}, if they are
    not, byte for byte, what a rebuild makes either: a store that Java wrote is not.
    """
    log = open_log(settings)
    queues, index = open_derived(settings.root, settings, read_only=True)
    queues.start.offset = log.min_offset
    queues.load()
    queues.inspect(log.min_offset)
    ends = [(topic, *end) for topic, idle in queues.idle_ends().items() for end in idle.items()]
    if index is not None:
        index.load()
    faults = [str(fault) for fault in compare(log, queues, index, settings)]
    queues.close()
    if index is not None:
        index.close()
    if exact and not faults:
        fresh = Folder("rebuilt-")
        rebuild(log, fresh.path, settings, ends=ends)
        if queue_files(settings.root) != queue_files(fresh.path):
            faults.append(f"{settings.root}: queue files are not those of a rebuild")
        if index_files(settings.root) != index_files(fresh.path):
            faults.append(f"{settings.root}: index files are not those of a rebuild")
        fresh.remove()
    log.folder.close()
    return faults


def missing(log: FolderReader, writes: Iterable[Write]) -> list[str]:
    """The writes that a log does not hold."""
    found = []
    for write in writes:
        reason = _why_missing(log, write)
        if reason:
            found.append(f"write {write.n} at [{write.begin}, {write.end}): {reason}")
    return found


def lost(settings: StoreSettings, writes: Iterable[Write]) -> list[str]:
    """The writes that a dead node's files do not hold, whatever lies around them."""
    reader = FolderReader(LogFolder.load(settings.commitlog, settings.file_size))
    reader.end = reader.confirmed = reader.folder.files[-1].end
    found = missing(reader, writes)
    reader.folder.close()
    return found


def _why_missing(log: FolderReader, write: Write) -> str:
    if write.begin < log.min_offset:
        return ""  # deleted by retention
    if write.end > log.end:
        return f"the log ends at {log.end}"
    view = log.read(write.begin, write.end - write.begin)
    file_end = log.file_end(write.begin)
    verdict = check(view, 0, len(view), write.begin, file_end, max_size=log.file_size)
    if isinstance(verdict, Fault) or verdict != write.end - write.begin:
        return f"no such record there: {verdict}"
    record = decode(view, 0, write.begin)
    if record.properties.get(UNIQUE_KEY) != write.key:
        return f"another record is there: {record.properties.get(UNIQUE_KEY)}"
    if (record.topic, record.queue_id, record.queue_offset) != (
        write.topic,
        write.queue,
        write.queue_offset,
    ):
        return f"it is in {record.topic}/{record.queue_id} at {record.queue_offset}"
    return ""


def damage(
    master: StoreSettings,
    slave: StoreSettings,
    acked: Iterable[Write] = (),
    *,
    equal: bool = True,
    exact: bool = True,
) -> list[str]:
    """Everything that is wrong with a master and its slave, both stopped.

    @param acked: Writes that were promised to be on the slave.
    @param equal: Whether the slave must be complete, not just a prefix.
    """
    ours, theirs = open_log(master), open_log(slave)
    found = []
    if theirs.end > ours.end or (equal and theirs.end != ours.end):
        found.append(f"the master's log ends at {ours.end}, the slave's at {theirs.end}")
    common = min(ours.end, theirs.end)
    found += [
        f"{pair.name}: the first {pair.size} bytes differ"
        for pair in pairs(master, slave, common)
        if not pair.same
    ]
    found += [f"master: {line}" for line in missing(ours, acked)]
    found += [f"slave: {line}" for line in missing(theirs, acked)]
    for log in (ours, theirs):
        log.folder.close()
    for settings in (master, slave):
        if os.path.exists(settings.root):
            found += derived_faults(settings, exact=exact)
    return found
