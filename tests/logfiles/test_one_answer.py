"""One log put before everybody who reads logs: all say that it ends at the same byte.

What they say must be what a node says that starts on the store, as the role it had.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.task import Clock

from rmqha.errors import LogCorrupt, Refused
from rmqha.ha.promotion import plan
from rmqha.logfiles import json_table
from rmqha.logfiles.follow import Corruption, follow
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.store.offline.compare import parting
from rmqha.store.offline.rebuild_in_place import exclusively, remake
from rmqha.store.offline.verify import LogCheck
from rmqha.wire.log.encode import blank, place
from tests.support.derived import settings
from tests.support.logs import FILE_SIZE, PROPERTIES, STORED, LogTestCase, encoded

try:
    from rmqha.pipeline.jobs.verify.copies import copy_of, options_of
    from rmqha.pipeline.log.stores import StoreView
except ImportError as missing:  # without the extra
    no_pipeline = f"the extra pipeline is not installed: {missing}"
else:
    no_pipeline = ""


@frozen
class Writer:
    """Who wrote a log, and what that one left beside it.

    @ivar master: The role in which the node starts again.
    @ivar ours_from: Where it began, when it is a master of ours that was killed.
    @ivar torn: Whether properties that end in NUL are torn.
    """

    master: bool
    ours_from: int | None
    torn: bool
    beside: dict[str, dict[str | int, Any]]


def epoch(end: int, *, master: bool = True, closed: bool = False) -> dict[str | int, Any]:
    """What a run of a node leaves."""
    return {
        "id": "1",
        "master": master,
        "start": 0,
        "closed": closed,
        "end": end,
        "crc": 0,
        "marks": {},
    }


WRITERS = {
    "nobody knows": Writer(False, None, True, {}),
    "a slave": Writer(False, None, True, {"metadata.json": {"versions": 1}}),
    "a slave that copies": Writer(False, None, True, {"bootstrapping.json": {"master": "a"}}),
    "a slave with slaves": Writer(False, None, True, {"epoch.json": epoch(0, master=False)}),
    "a slave, once a master": Writer(
        False, None, True, {"epoch.json": epoch(0, closed=True), "metadata.json": {"versions": 1}}
    ),
    "a master, killed": Writer(True, 0, True, {"epoch.json": epoch(0)}),
    "a master, killed before it wrote": Writer(True, 5000, False, {"epoch.json": epoch(5000)}),
    "a master, stopped": Writer(True, None, False, {"epoch.json": epoch(0, closed=True)}),
}

NUL = PROPERTIES[:-2] + bytes(2)

NEXT = FILE_SIZE


@frozen
class Log:
    """A log's files, and where it ends.

    @ivar end: If properties that end in NUL are torn; C{kept} if they are not.
    @ivar records: Before L{end}.
    """

    files: dict[int, bytes]
    end: int
    kept: int
    records: int
    damaged: bool = False


def written(*sizes: int, start: int = 0, **last: Any) -> bytearray:
    """Records that follow each other, the last of which is special."""
    data = bytearray()
    for number, size in enumerate(sizes):
        record = encoded(size, **(last if number + 1 == len(sizes) else {}))
        offset = start + len(data)
        place(record, queue_offset=number, offset=offset, store_timestamp=STORED + number)
        data += record
    return data


def full(data: bytes) -> bytes:
    """A file of full size."""
    return bytes(data).ljust(FILE_SIZE, b"\0")


def logs() -> Iterator[tuple[str, Log]]:
    """Logs as clean stops, crashes and bad disks leave them."""
    three = written(200, 300, 400)
    yield "no file", Log({}, 0, 0, 0)
    yield "nothing written", Log({0: full(b"")}, 0, 0, 0)
    yield "clean", Log({0: full(three)}, 900, 900, 3)
    for kept in (1, 4, 8, 60, 100, 398):
        torn = full(three[: 500 + kept])
        behind = 500 if kept < 398 else 900
        yield f"torn after {kept} bytes", Log({0: torn}, 500, behind, 2)
    yield "NUL in properties", Log({0: full(written(200, 300, properties=NUL))}, 200, 500, 1)
    topic = written(200, 300, topic="Topi\0\0", properties=b"")
    yield "NUL in a topic", Log({0: full(topic)}, 200, 200, 1)
    yield "rubbish behind", Log({0: full(three + b"rubbish")}, 900, 900, 3)
    flipped = written(200, 300, 400)
    flipped[300] ^= 1
    yield "a flipped bit", Log({0: full(flipped)}, 200, 200, 1, damaged=True)
    first = full(written(2000, 2000) + blank(96))
    yield "a blank, no file follows", Log({0: first}, 4000, 4000, 2)
    yield "a blank, an empty file follows", Log({0: first, NEXT: b""}, 4000, 4000, 2)
    yield "a blank, zeros follow", Log({0: first, NEXT: full(b"")}, NEXT, NEXT, 2)
    more = written(200, 300, start=NEXT)
    yield "two files", Log({0: first, NEXT: full(more)}, NEXT + 500, NEXT + 500, 4)
    nul = written(200, 300, start=NEXT, properties=NUL)
    both = {0: first, NEXT: full(nul)}
    yield "NUL in the second file", Log(both, NEXT + 200, NEXT + 500, 3)
    before = full(written(2000, 2000, properties=NUL) + blank(96))
    yield "NUL before a blank", Log({0: before, NEXT: full(b"")}, NEXT, NEXT, 2)


def short() -> Iterator[tuple[str, Log]]:
    """Logs whose last file was cut, which no node opens."""
    first = full(written(2000, 2000) + blank(96))
    second = bytes(written(200, 300, 400, start=NEXT))
    for kept in (1, 8, 200, 510, 800):
        ends = [end for end in (0, 200, 500, 900) if end <= kept]
        log = Log({0: first, NEXT: second[:kept]}, NEXT + ends[-1], NEXT + ends[-1], 1 + len(ends))
        yield f"cut after {kept} bytes", log
    yield "cut in properties", Log({0: first, NEXT: second[:898]}, NEXT + 500, NEXT + 900, 4)


class AnswerTestCase(LogTestCase):
    def everywhere(
        self, made: Iterator[tuple[str, Log]], ask: Callable[[Path, Log, Writer, int], None]
    ) -> None:
        """Write each log by each writer, and ask somebody."""
        for name, log in made:
            for who, writer in WRITERS.items():
                root = self.folder()
                (root / "commitlog").mkdir()
                (root / "rmqha").mkdir()
                (root / "abort").touch()
                for start, data in log.files.items():
                    (root / "commitlog" / file_name(start)).write_bytes(data)
                for beside, table in writer.beside.items():
                    json_table.replace(root / "rmqha" / beside, table)
                wanted = log.end if writer.torn else log.kept
                try:
                    ask(root, log, writer, wanted)
                except BaseException as error:
                    error.add_note(f"{name}, written by {who}: it ends at {wanted}")
                    raise
                shutil.rmtree(root)


class NodeTests(AnswerTestCase):
    """What a node does decides what everybody else has to say."""

    def ask(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        """Start one, as what it was, and let it cut."""
        store = self.opened(
            root,
            master=writer.master,
            repair=True,
            ours_from=writer.ours_from,
            settings={"file_size": FILE_SIZE},
        )
        assert store.recovery is not None
        self.assertEqual(store.log.end, wanted)
        self.assertEqual(store.recovery.corrupt is not None, log.damaged)
        self.close_store(store)

    def test_recovery(self) -> None:
        """A slave ends its log before a record that ends in NUL, a master where it is its own."""
        self.everywhere(logs(), self.ask)


class OfflineTests(AnswerTestCase):
    """The commands that look at a stopped store."""

    def offline_log(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        self.assertEqual(OfflineLog(root, FILE_SIZE).end, wanted)

    def verify(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        check = LogCheck(RawLog.open(root, FILE_SIZE))
        list(check.findings())
        self.assertEqual(check.log().end, wanted)
        self.assertEqual(check.damaged, log.damaged or (check.raw.first_finding is not None))
        if not check.damaged:
            self.assertEqual(check.records, log.records + (wanted != log.end))

    def dump(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        """C{rmqha dump}, up to the first place that it complains about."""
        raw, end, records = RawLog.open(root, FILE_SIZE), 0, 0
        for event in follow(raw, 0):
            if isinstance(event, Corruption):
                end = event.offset
                break
            block = event[1]
            end = block.end - (block.blank if block.end == raw.end else 0)
            records += len(block.start)
        self.assertEqual((end, records), (wanted, log.records + (wanted != log.end)))

    def rebuild(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        """C{rmqha rebuild}, which refuses a damaged log, and one with a file that is not whole."""
        raw = RawLog.open(root, FILE_SIZE)
        with exclusively(root, root / "commitlog"):
            taken = OfflineLog.of(raw)
            if raw.first_finding is not None:
                self.assertRaises(Refused, remake, taken, settings(root))
            elif log.damaged:
                error = self.assertRaises(LogCorrupt, remake, taken, settings(root))
                self.assertEqual(error.offset, wanted)
            else:
                made = remake(taken, settings(root, file_size=FILE_SIZE))
                self.assertEqual(made.records, log.records + (wanted != log.end))

    def diverge(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        """C{rmqha diverge}, which goes on behind damage."""
        if not log.damaged:
            raw = RawLog.open(root, FILE_SIZE)
            self.assertEqual(parting(raw, RawLog.open(root, FILE_SIZE)).first.end, wanted)

    def promote(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        """C{rmqha promote}, which takes neither an empty log nor an unfinished copy."""
        if wanted and "bootstrapping.json" not in writer.beside:
            planned = plan(settings(root, file_size=FILE_SIZE), repair=True)
            self.assertEqual(planned.end, wanted)

    def test_offline_log(self) -> None:
        """The log that tools read."""
        self.everywhere(logs(), self.offline_log)
        self.everywhere(short(), self.offline_log)

    def test_verify(self) -> None:
        """C{rmqha verify} ends the log there, and counts the records before."""
        self.everywhere(logs(), self.verify)

    def test_dump(self) -> None:
        """C{rmqha dump} shows the records up to there."""
        self.everywhere(logs(), self.dump)
        self.everywhere(short(), self.dump)

    def test_rebuild(self) -> None:
        """C{rmqha rebuild} makes queues of the records up to there."""
        self.everywhere(logs(), self.rebuild)

    def test_diverge(self) -> None:
        """C{rmqha diverge} says that each log ends there."""
        self.everywhere(logs(), self.diverge)
        self.everywhere(short(), self.diverge)

    def test_promote(self) -> None:
        """C{rmqha promote} begins the new master's log there."""
        self.everywhere(logs(), self.promote)


class SparkTests(AnswerTestCase):
    skip = no_pipeline or None

    def scan(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        """A read, which fails at damage or goes on; and what C{rmqha spark verify} calls whole."""
        options = options_of({"a": root}, "use")
        self.assertEqual(StoreView.open("a", root, options).end, 900 if log.damaged else wanted)
        self.assertEqual(copy_of("a", root, options).whole, wanted)

    def published(self, root: Path, log: Log, writer: Writer, wanted: int) -> None:
        """The same after a node was there, by what that published and without."""
        clock = Clock()
        store = self.opened(
            root,
            clock=clock,
            master=writer.master,
            repair=True,
            ours_from=writer.ours_from,
            settings={"file_size": FILE_SIZE},
        )
        for _ in range(5):
            clock.advance(1)
        self.close_store(store)
        for point_file in ("use", "ignore"):
            options = options_of({"a": root}, point_file)
            view = StoreView.open("a", root, options)
            self.assertEqual((view.point is not None, view.end), (point_file == "use", wanted))

    def test_scan(self) -> None:
        """A store whose node publishes nothing is read up to there."""
        self.everywhere(logs(), self.scan)
        self.everywhere(short(), self.scan)

    def test_published(self) -> None:
        """A node publishes the end that it found."""
        self.everywhere(logs(), self.published)
