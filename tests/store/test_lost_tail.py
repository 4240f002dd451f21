"""Tests for L{rmqha.store.lost_tail}: what a start knows to be missing, and what it does then."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from errno import EMFILE
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent

from rmqha.errors import DiskFull, LogShortened
from rmqha.logfiles import json_table
from rmqha.logfiles.listing import file_name
from rmqha.store import lost_tail, opening
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.truncate import intend
from rmqha.store.lost_tail import LostTail
from rmqha.store.store import Store
from tests.support.ha_frames import append_frame
from tests.support.logs import FILE_SIZE, LogTestCase, content, message

SIZES = {"file_size": FILE_SIZE, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}
POINT = {
    "version": 1,
    "min_offset": 0,
    "broker_name": "a",
    "generation": "g",
    "closed": False,
    "tail": None,
    "cuts": [],
    "time": 0,
}


def now_ms() -> int:
    """It is always the same time."""
    return 1_800_000_000_000


class MarkTests(LogTestCase):
    """What proves that bytes are missing, file by file."""

    def setUp(self) -> None:
        self.root = self.folder()
        (self.root / "rmqha").mkdir()

    def write(self, name: str, table: dict[str | int, Any]) -> None:
        """Leave a file of ours."""
        json_table.replace(self.root / "rmqha" / name, table)

    def epoch(self, start: int, end: int, *, closed: bool = False, master: bool = True) -> None:
        self.write(
            "epoch.json",
            {
                "id": "x",
                "master": master,
                "start": start,
                "closed": closed,
                "end": end,
                "crc": 0,
                "marks": {},
            },
        )

    def test_nothing(self) -> None:
        """A store that says nothing lacks nothing."""
        self.assertIsNone(lost_tail.find(self.root, 0))
        shutil.rmtree(self.root / "rmqha")
        self.assertIsNone(lost_tail.find(self.root, 0))

    def test_published(self) -> None:
        """The published point was durable; what replicas had of it does not matter."""
        self.write("published.json", POINT | {"confirm": 500, "durable": 1000})
        self.assertEqual(lost_tail.find(self.root, 999), LostTail(999, 1000, "published.json"))
        self.assertIsNone(lost_tail.find(self.root, 1000))
        self.assertIsNone(lost_tail.find(self.root, 5000))

    def test_dispatched(self) -> None:
        """Queues that are on the disk prove nothing of the log: only what it says of the log."""
        self.write("dispatched.json", {"offset": 3000, "durable": 2000, "crc": 0})
        found = lost_tail.find(self.root, 1000)
        self.assertEqual(found, LostTail(1000, 2000, "dispatched.json"))
        self.assertIsNone(lost_tail.find(self.root, 2000))
        self.write("dispatched.json", {"offset": 3000, "crc": 0})
        self.assertIsNone(lost_tail.find(self.root, 1000))

    def test_epoch(self) -> None:
        """A master's run began on a durable log.  How it ended does not count when it ended well:
        it was told before the last fsync.
        """
        self.epoch(1000, 2000)
        self.assertEqual(lost_tail.find(self.root, 500), LostTail(500, 2000, "epoch.json"))
        self.epoch(1000, 2000, closed=True)
        self.assertEqual(lost_tail.find(self.root, 500), LostTail(500, 1000, "epoch.json"))
        self.assertIsNone(lost_tail.find(self.root, 1500))

    def test_epoch_of_a_slave(self) -> None:
        """A slave's begins on what may be in memory only."""
        self.epoch(1000, 2000, master=False)
        self.assertIsNone(lost_tail.find(self.root, 500))

    def test_highest(self) -> None:
        """The highest of them counts."""
        self.write("published.json", POINT | {"confirm": 1000, "durable": 1000})
        self.write("dispatched.json", {"offset": 900, "durable": 900, "crc": 0})
        self.epoch(1200, 1200)
        self.assertEqual(lost_tail.find(self.root, 0), LostTail(0, 1200, "epoch.json"))
        lost_tail.remember(self.root, LostTail(0, 1300, "epoch.json"))
        self.assertEqual(lost_tail.find(self.root, 700), LostTail(700, 1300, "lost-tail.json"))
        lost_tail.forget(self.root)
        lost_tail.forget(self.root)
        self.assertEqual(lost_tail.find(self.root, 0), LostTail(0, 1200, "epoch.json"))

    def test_unreadable(self) -> None:
        """What cannot be read proves nothing."""
        for name in ("published.json", "dispatched.json", "epoch.json", "lost-tail.json"):
            (self.root / "rmqha" / name).write_bytes(b"garbage")
        self.assertIsNone(lost_tail.find(self.root, 0))

    def test_lowered(self) -> None:
        """Who cuts on purpose lowers them all, and nothing that is lower already."""
        self.write("published.json", POINT | {"confirm": 1000, "durable": 1000})
        self.write("dispatched.json", {"offset": 900, "durable": 900, "crc": 0})
        self.write("dispatched.json", {"offset": 950, "durable": 950, "crc": 0})
        self.epoch(300, 1200)
        lost_tail.lower(self.root, 500, now_ms)
        self.assertIsNone(lost_tail.find(self.root, 500))
        known = json_table.read(self.root / "rmqha" / "epoch.json")
        assert known is not None
        self.assertEqual((known["start"], known["end"], known["id"]), (300, 500, "x"))
        before = {path: path.read_bytes() for path in (self.root / "rmqha").iterdir()}
        lost_tail.lower(self.root, 500, now_ms)
        self.assertEqual(before, {p: p.read_bytes() for p in (self.root / "rmqha").iterdir()})
        lost_tail.begin_anew(self.root, now_ms)
        self.assertIsNone(lost_tail.find(self.root, 0))


@frozen
class Loss:
    """One way to lose a log's tail."""

    name: str
    inflict: Callable[[Path, int], None]


def zeroed(commitlog: Path, end: int) -> None:
    """The last bytes of the last file become zeros."""
    last = max(commitlog.iterdir())
    held = end - int(last.name)
    raw = bytearray(last.read_bytes())
    raw[max(0, held - 1200) : held] = bytes(min(1200, held))
    last.write_bytes(raw)


def flipped(commitlog: Path, end: int) -> None:
    """One bit of the last record's body is another."""
    last = max(commitlog.iterdir())
    raw = bytearray(last.read_bytes())
    raw[end - int(last.name) - 100] ^= 1
    last.write_bytes(raw)


def deleted(commitlog: Path, end: int) -> None:
    """The last file is gone."""
    max(commitlog.iterdir()).unlink()


LOSSES = (Loss("zeroed", zeroed), Loss("flipped", flipped), Loss("deleted", deleted))


class LossTests(LogTestCase):
    """A log that lost bytes which an fsync had covered."""

    def crashed(self, *, flushed: int = 20, more: int = 0) -> tuple[Path, int, bytes]:
        """A master's store after a kill, with records on the disk, and published, and more behind
        them: its
        folder, where the flushed ones end, and the log.
        """
        clock = Clock()
        store = self.opened(self.folder() / "store", settings=SIZES, clock=clock)
        for _ in range(flushed):
            store.put(message(500))
        self.successResultOf(store.flusher.flush())
        clock.advance(1)
        end = store.log.end
        for _ in range(more):
            store.put(message(500))
        return self.crash(store), end, content(store.log)

    def files(self, root: Path) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def copied(self, root: Path) -> Path:
        copy = self.folder() / "store"
        shutil.copytree(root, copy)
        return copy

    def refused(self, root: Path) -> LogShortened:
        service = self.service(root, settings=SIZES)
        service.startService()
        error: LogShortened = self.failureResultOf(service.ready, LogShortened).value
        self.successResultOf(service.stopService())
        return error

    def told(self, root: Path, **how: Any) -> tuple[Store, str]:
        """Open a store, and return it, and what was said at C{critical}."""
        with capturedLogs() as events:
            store = self.opened(root, settings=SIZES, **how)
        lines = [formatEvent(event) for event in events if event["log_level"].name == "critical"]
        return store, "\n".join(lines)

    def test_master_refuses(self) -> None:
        """However the tail was lost, a master does not start after the crash, says from where to
        where it is missing, and touches nothing.
        """
        for loss in LOSSES:
            root, end, _ = self.crashed()
            loss.inflict(root / "commitlog", end)
            before = self.files(root)
            for _ in range(2):
                error = self.refused(root)
                self.assertEqual((error.known, error.mark), (end, "published.json"), loss.name)
                self.assertLess(error.end, end)
                self.assertIn(f"{end - error.end} bytes are missing", str(error))
            self.assertEqual(before, self.files(root), loss.name)

    def test_repair(self) -> None:
        """With C{--repair} it goes on without them, loudly, and is an ordinary log from then on."""
        for loss in LOSSES:
            root, end, _ = self.crashed()
            loss.inflict(root / "commitlog", end)
            store, said = self.told(root, repair=True)
            self.assertIn("going on without them (--repair)", said)
            self.assertEqual((store.lost.to, store.lost.start), (end, store.log.end))
            store = self.opened(self.crash(store), settings=SIZES)
            self.assertIsNone(store.lost)

    def test_slave(self) -> None:
        """A slave says so at C{critical} and goes on; as long as the bytes are missing it says so
        again at each start, and it is no master's store.
        """
        for loss in LOSSES:
            root, end, data = self.crashed()
            loss.inflict(root / "commitlog", end)
            store, said = self.told(root, master=False)
            self.assertIn("the master has to send them again", said)
            start = store.log.end
            self.assertEqual(store.lost, LostTail(start, end, "published.json"))
            again = self.crash(store)
            self.assertEqual(self.refused(self.copied(again)).mark, "lost-tail.json")
            store, said = self.told(again, master=False)
            self.assertIn("the master has to send them again", said)
            room = store.log.reserve(start, min(end - start, 500))
            room[:] = data[start : start + len(room)]
            store.log.staged(len(room))
            store.log.accept()
            store.log.verify()
            while store.log.end < end:
                store.put(message(500))
            self.close_store(store)
            store, said = self.told(again, master=False)
            self.assertEqual((store.lost, said), (None, ""))
            self.assertFalse((again / "rmqha" / "lost-tail.json").exists())

    def test_fetching_master(self) -> None:
        """A master that will ask its replicas opens, and does not forget: one that may not ask is
        refused afterwards, though the log was cut.
        """
        for loss in LOSSES:
            root, end, _ = self.crashed()
            loss.inflict(root / "commitlog", end)
            store, said = self.told(root, fetches=True)
            self.assertIn("asking the replicas for them", said)
            start = store.log.end
            crashed = self.crash(store)
            self.close_store(store)
            for left in (crashed, root):
                error = self.refused(left)
                self.assertEqual(
                    (error.end, error.known, error.mark), (start, end, "lost-tail.json")
                )

    def test_what_no_fsync_covered(self) -> None:
        """A power cut that takes what was not flushed is no loss that anybody could know of."""
        root, end, data = self.crashed(more=10)
        cut = bytearray(b"".join(p.read_bytes() for p in sorted((root / "commitlog").iterdir())))
        self.assertGreater(len(data), end)
        for path in (root / "commitlog").iterdir():
            start = int(path.name)
            kept = bytes(cut[start : min(end, start + FILE_SIZE)])
            path.write_bytes(kept.ljust(FILE_SIZE, b"\0"))
        store, said = self.told(root)
        self.assertEqual((store.log.end, store.lost, said), (end, None, ""))

    def test_queues_before_the_log(self) -> None:
        """Queues and index that were flushed when the log was not prove nothing."""
        clock = Clock()
        store = self.opened(self.folder() / "store", settings=SIZES, clock=clock)
        for _ in range(5):
            store.put(message(500))
        self.successResultOf(store.flusher.flush())
        for _ in range(2):
            store.put(message(500))
        store.dispatcher.run(10.0)
        self.successResultOf(store._flush_derived())
        root = self.crash(store)
        mark = json_table.read(root / "rmqha" / "dispatched.json")
        assert mark is not None
        self.assertEqual((mark["offset"], mark["durable"]), (3500, 2500))
        path = root / "commitlog" / file_name(0)
        path.write_bytes(path.read_bytes()[:2500].ljust(FILE_SIZE, b"\0"))
        store, said = self.told(root)
        self.assertEqual((store.log.end, store.lost, said), (2500, None, ""))

    def test_our_own_cut(self) -> None:
        """A cut that was decided and interrupted anywhere is no loss, nor is anything behind it."""
        root, end, data = self.crashed()
        at = 4096 + 500
        folder = LogFolder.load(root / "commitlog", FILE_SIZE)
        intend(root, folder, at, end)
        folder.close()
        for later in (False, True):
            copy = self.copied(root)
            if later:
                deleted(copy / "commitlog", end)
            store, said = self.told(copy)
            self.assertEqual((store.lost, said, content(store.log)), (None, "", data[:at]))
            store, said = self.told(self.crash(store))
            self.assertEqual((store.lost, said, content(store.log)), (None, "", data[:at]))

    def test_end_of_a_file(self) -> None:
        """A slave's log that ends with its file's blank has lost nothing, though a blank that no
        file follows is cut: after a crash, and after a clean stop.
        """
        clock = Clock()
        store = self.opened(self.folder() / "store", settings=SIZES, clock=clock, master=False)
        whole = self.filled(*[500] * 9)
        append_frame(store.log, 0, content(whole, 0, FILE_SIZE))
        store.log.verify()
        store.log.progress()
        self.successResultOf(store.flusher.flush())
        clock.advance(1)
        self.assertEqual((store.log.confirmed, store.publisher.point.durable), (4096, 4096))
        crashed = self.crash(store)
        self.close_store(store)
        for root in (crashed, store.settings.root):
            store, said = self.told(root, master=False)
            self.assertEqual((store.log.end, store.lost, said), (4000, None, ""))

    def test_clean_stop(self) -> None:
        """After a clean stop it is the same."""
        root, _, _ = self.crashed()
        store = self.opened(root, settings=SIZES)
        for _ in range(3):
            store.put(message(500))
        end = store.log.end
        self.close_store(store)
        (root / "rmqha" / "published.json").unlink()
        flipped(root / "commitlog", end)
        error = self.refused(root)
        self.assertEqual((error.known, error.mark), (end, "dispatched.json"))


class TornTests(LogTestCase):
    """A tail that holds no whole record."""

    def torn(self, tail: bytes) -> tuple[Path, int]:
        """A store after a crash, with bytes behind its last record."""
        store = self.opened(self.folder() / "store", settings=SIZES)
        for _ in range(3):
            store.put(message(500))
        root, end = self.crash(store), store.log.end
        path = root / "commitlog" / file_name(0)
        raw = bytearray(path.read_bytes())
        raw[end : end + len(tail)] = tail
        path.write_bytes(raw)
        return root, end

    def kept(self, root: Path) -> dict[str, bytes]:
        folder = root / "rmqha" / "quarantine"
        return {p.name: p.read_bytes() for p in folder.iterdir()} if folder.exists() else {}

    def test_kept(self) -> None:
        """It is in quarantine, on a master and on a slave, and gone from the log."""
        for how in ({}, {"master": False, "repair": True}):
            root, end = self.torn(b"\0\0half a record\0\0\0")
            cut: list[int] = []
            store = self.opened(root, settings=SIZES, truncated=cut.append, **how)
            self.assertEqual(cut, [15])
            self.assertEqual(
                self.kept(root), {f"{end:020d}-{end + 15:020d}.log": b"\0\0half a record"}
            )
            self.assertEqual((store.log.end, store.kept), (end, None))
            rest = (root / "commitlog" / file_name(0)).read_bytes()[end:]
            self.assertEqual(rest.strip(b"\0"), b"")

    def test_zeros(self) -> None:
        """Zeros are nothing."""
        root, end = self.torn(bytes(300))
        cut: list[int] = []
        store = self.opened(root, settings=SIZES, truncated=cut.append)
        self.assertEqual((store.log.end, self.kept(root), cut), (end, {}, []))

    def test_bounded(self) -> None:
        """Only the first part of a long one is kept, and the log says how much."""
        self.patch(opening, "MOST_TORN", 100)
        root, end = self.torn(b"x" * 250)
        cut: list[int] = []
        with capturedLogs() as events:
            self.opened(root, settings=SIZES, truncated=cut.append)
        self.assertEqual(cut, [250])
        self.assertEqual(self.kept(root), {f"{end:020d}-{end + 100:020d}.log": b"x" * 100})
        said = "\n".join(formatEvent(event) or "" for event in events)
        self.assertIn("cutting the 250 bytes behind it, of which the first 100 are kept", said)

    def test_told_once(self) -> None:
        """A cut is told of once, though the store cannot be opened at the first try."""
        root, end = self.torn(b"")
        folder = LogFolder.load(root / "commitlog", FILE_SIZE)
        intend(root, folder, end - 500, end)
        folder.close()
        clock, cut, failed = Clock(), list[int](), list[str]()

        def step(name: str) -> None:
            if name == "cut" and not failed:
                failed.append(name)
                raise OSError(EMFILE, "Too many open files")

        service = self.service(
            root,
            settings=SIZES,
            clock=clock,
            master=False,
            patient=True,
            step=step,
            truncated=cut.append,
        )
        service.startService()
        self.addCleanup(service.stopService)
        self.assertNoResult(service.ready)
        clock.advance(1)
        self.assertEqual(self.opened_by(service).log.end, end - 500)
        self.assertEqual((failed, cut), (["cut"], [500]))

    def test_no_room(self) -> None:
        """Without room a master does not start, untouched; a slave, whose master has it, does."""

        def full(*args: object) -> Path:
            raise DiskFull("quarantine", 15)

        root, end = self.torn(b"half a record")
        self.patch(opening, "quarantine", full)
        path = root / "commitlog" / file_name(0)
        before = path.read_bytes()
        service = self.service(root, settings=SIZES)
        service.startService()
        self.failureResultOf(service.ready, DiskFull)
        self.successResultOf(service.stopService())
        self.assertEqual(path.read_bytes(), before)
        with capturedLogs() as events:
            store = self.opened(root, settings=SIZES, master=False, repair=True)
        self.assertEqual(store.log.end, end)
        said = [formatEvent(event) for event in events if event["log_level"].name == "error"]
        self.assertIn("Not keeping the log's torn tail", said[0])
