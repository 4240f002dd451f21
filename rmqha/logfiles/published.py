"""Read what a node leaves beside its log for readers: how far it is final, whose it is, where
records begin and which topics they have, which topics were deleted.

Source: docs/protocol/store.rst, The published point, The split index and The topic index;
docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from pathlib import Path

from attrs import field, frozen

from rmqha.errors import FileUnreadable, PointInvalid, TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.blocks.open_file import opened, read_at
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.log_files import LogFiles, opened_log
from rmqha.logfiles.pread_log import PreadLog
from rmqha.logfiles.reader import LogReader
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.logfiles.typed_table import Natural, value_of
from rmqha.logfiles.walk_file import whole_from
from rmqha.wire.log.copied_damage import CopiedDamage, CopiedRecord
from rmqha.wire.log.layout import (
    BODY_AT,
    FIELDS,
    HEAD_MOST,
    HOSTS_BYTE_AT,
    MAGIC_BYTES,
    MIN_RECORD,
    born_extra,
    store_extra,
)
from rmqha.wire.log.log_identity import LogIdentity
from rmqha.wire.log.published import SPAN_SIZE, TAIL, Point, parse_point, parse_spans
from rmqha.wire.log.topic_runs import TopicSpan, parse_topic_spans
from rmqha.wire.store_layout import (
    CONFIG,
    COPIED_DAMAGE,
    DELETED_TOPICS,
    OWN_FOLDER,
    POINT,
    SPLITS,
    TOPIC_INDEX,
    TOPICS,
)

_SUM_DIGITS = 16

DELETED = Path(OWN_FOLDER) / DELETED_TOPICS
"""Where a node keeps which topics it has deleted, below the store's root."""


@frozen
class Split:
    """A place where a record begins.

    @ivar start: Physical offset.
    @ivar end: Up to where the store times are known, a physical offset.
    @ivar latest: The latest of them, in milliseconds since 1970.
    """

    start: int
    end: int = 0
    latest: int = 0


def read_point(root: Path) -> Point | None:
    """What was published for a store's readers, C{None} if nothing was.

    @raise PointInvalid: If the file is no point.
    """
    try:
        raw = (root / OWN_FOLDER / POINT).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return parse_point(raw)
    except PointInvalid as error:
        raise PointInvalid(f"{root / OWN_FOLDER / POINT}: {error.reason}") from error


def identity_of(files: LogFiles, point: Point | None) -> LogIdentity:
    """Whose log some files are.

    @param point: What its node has published, with the names.
    """
    total = fingerprint(files, files.first)
    return LogIdentity(
        cluster=point.cluster if point else "",
        broker=point.broker_name if point else "",
        first=files.first if total else -1,
        sum=total,
    )


def other_first(identity: LogIdentity, files: LogFiles) -> str:
    """The fingerprint of the record that a log has where another one began, if it is another
    record; C{""} if it is the same, or cannot be told.
    """
    found = fingerprint(files, identity.first) if identity.sum else ""
    return "" if found == identity.sum else found


def fingerprint(files: LogFiles, offset: int) -> str:
    """A record's fingerprint, of its head: its offset, its times, its hosts and its body's CRC.
    C{""} where no record can stand.
    """
    file = files.at(offset)
    if file is None:
        return ""
    try:
        with opened_log(file) as read:
            head = read_at(read, offset - file.start, HEAD_MOST)
    except FileNotFoundError:
        return ""
    return head_sum(head)


def first_record_sum(log: LogReader) -> str:
    """The fingerprint of an open log's first record, C{""} if it has none."""
    size = min(HEAD_MOST, log.confirmed - log.min_offset)
    return head_sum(bytes(log.read(log.min_offset, size))) if size > 0 else ""


def head_sum(head: bytes) -> str:
    """A record's fingerprint.

    @param head: Its first bytes, L{HEAD_MOST} at most.
    """
    if len(head) < MIN_RECORD or head[FIELDS["magic"].place] not in MAGIC_BYTES:
        return ""
    hosts = head[HOSTS_BYTE_AT]
    size = BODY_AT + born_extra(hosts) + store_extra(hosts)
    return hashlib.sha256(head[:size]).hexdigest()[:_SUM_DIGITS]


def read_splits(root: Path, start: int, end: int) -> tuple[Split, ...]:
    """The split index of a store's bytes C{[start, end)}, ascending; empty without one.

    Only what is asked for is read: the index of a long log has many entries.
    """
    try:
        with opened(root / OWN_FOLDER / SPLITS) as fd:
            rows = range(os.fstat(fd).st_size // SPAN_SIZE)
            first = bisect_left(rows, start, key=lambda row: _start(fd, row))
            last = bisect_left(rows, end, first, key=lambda row: _start(fd, row))
            raw = os.pread(fd, (last - first) * SPAN_SIZE, first * SPAN_SIZE)
    except FileNotFoundError:
        return ()
    # A damaged entry ends what is parsed, but before that it may have led the search astray.
    return tuple(
        Split(span.start, span.end, span.latest)
        for span in parse_spans(raw)
        if start <= span.start < end
    )


def _start(fd: int, row: int) -> int:
    return int.from_bytes(os.pread(fd, 8, row * SPAN_SIZE), "big")


def topic_index_of(root: Path, file_start: int) -> Path:
    """Where a store keeps the topic index of one file of its log.

    @param file_start: Physical offset of the file's first byte.
    """
    return root / OWN_FOLDER / TOPIC_INDEX / file_name(file_start)


def read_topic_spans(path: Path) -> list[TopicSpan]:
    """The entries of a topic index, as far as they are whole; none without one.

    @param path: As L{topic_index_of} says.
    """
    try:
        with opened(path) as fd:
            return list(parse_topic_spans(lambda place, size: os.pread(fd, size, place)))
    except FileNotFoundError:
        return []


def read_runs(path: Path, span: TopicSpan) -> bytes:
    """The runs of an entry of a topic index, for L{TopicSpan.runs}."""
    try:
        with opened(path) as fd:
            return os.pread(fd, span.size, span.place)
    except FileNotFoundError:
        return b""


def read_topic_names(root: Path) -> tuple[str, ...]:
    """The topics that a store's broker has in its table; none if the table cannot be read."""
    try:
        table = json_table.read(root / CONFIG / TOPICS)
        return tuple((table or {})["topicConfigTable"])
    except (FileUnreadable, TableUnreadable, KeyError, TypeError, ValueError):
        return ()


@frozen
class DeletedTopic:
    """A topic that was deleted, and may have been made again.

    @ivar end: Physical offset up to which its records have no queue.
    @ivar queues: Queue offsets just past what was deleted, by queue id.
    """

    end: int
    queues: dict[int, int] = field(factory=dict)


def read_deleted_topics(root: Path, log: LogReader, end: int) -> dict[str, DeletedTopic]:
    """The topics that a node has deleted, whose records are in the log for as long as its files,
    without those for which what was kept speaks of another log.

    @param end: Where the log ends.
    @raise FileUnreadable: If the system does not let that be read.
    """
    crcs: dict[int, int] = {}

    def holds(at: int, crc: object) -> bool:
        if not log.min_offset < at <= end:
            return False
        if at not in crcs:
            crcs[at] = tail_crc(log, at)
        return crcs[at] == crc

    found = {}
    try:
        table = json_table.read(root / DELETED) or {}
        for name, row in table["topics"].items():
            if not isinstance(row, dict):
                # As releases before wrote it: one check for all, and no queues.
                if holds(table["offset"], table["crc"]):
                    found[str(name)] = DeletedTopic(int(row))
            elif holds(row["offset"], row["crc"]):
                queues = value_of(row, "queues", dict[Natural, Natural])
                found[str(name)] = DeletedTopic(row["offset"], queues)
    except (TableUnreadable, AttributeError, KeyError, TypeError, ValueError):
        return {}
    return found


def deleted_behind(root: Path, end: int) -> tuple[str, ...]:
    """The names of the topics that a node has deleted when its log was longer than C{end}.

    @raise FileUnreadable: If the system does not let that be read.
    """
    try:
        rows = (json_table.read(root / DELETED) or {})["topics"].items()
        return tuple(sorted(str(name) for name, row in rows if row["offset"] > end))
    except (TableUnreadable, AttributeError, KeyError, TypeError):
        return ()


def read_copied_damage(root: Path | None) -> CopiedDamage:
    """Records that were copied damaged from the master.  Nothing, if what was kept makes no sense:
    they are damage then, and are found as such.

    @param root: C{None} for a log without its store.
    @raise FileUnreadable: If the system does not let that be read.
    """
    if root is None:
        return CopiedDamage()
    try:
        table = json_table.read(root / OWN_FOLDER / COPIED_DAMAGE)
        return CopiedDamage.of(value_of(table or {"records": []}, "records", list[CopiedRecord]))
    except (TableUnreadable, ValueError):
        return CopiedDamage()


def stale_end(files: LogFiles, point: Point) -> int | None:
    """How far a log goes that is not the one of which its node has published the point, or not as
    the node left it; C{None} if it is.
    """
    if other_first(point.identity, files):
        return point.durable
    if not point.closed:
        return None
    end = whole_from(files, point.durable)
    if end > point.durable:
        return end
    if point.tail is None or not files.first < end:
        return None
    if files.missing(max(files.first, end - TAIL), end):
        return end
    with PreadLog(files) as log:
        return None if tail_crc(log, end) == point.tail else end
