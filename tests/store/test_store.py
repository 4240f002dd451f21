"""Tests for L{rmqha.store.store} and L{rmqha.store.opening}: a store's whole life."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from twisted.internet.defer import fail
from twisted.internet.task import Clock

from lab.harness import golden
from rmqha.config.store_settings import FlushDisk
from rmqha.errors import (
    DiskFull,
    FlushFailed,
    MessageIllegal,
    NotWritable,
    RecordCorrupt,
    ShutdownFailed,
    StoreLocked,
)
from rmqha.store.files import mapped
from rmqha.store.files.fsync import FsyncInThread
from rmqha.store.files.lock import StoreLock
from rmqha.store.files.mapped import FileSizeMismatch
from rmqha.store.log.checkpoint import Checkpoint
from rmqha.store.log.flush import Flusher
from rmqha.store.log.retention import Retention
from rmqha.store.opening import StoreParts
from rmqha.store.paced_dispatch import LIVE_PAUSE
from rmqha.store.published.publish import Publisher
from rmqha.store.store import Store
from rmqha.wire.log.record import MAGIC_BLANK, Fault, decode, magic_at
from tests.support.commands import ended
from tests.support.derived import DerivedTestCase
from tests.support.ha_frames import append_frame
from tests.support.logs import STORED, Disk, Held, LogTestCase, content, message, now

SIZES = {"file_size": 4096, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}
ROOT = Path(__file__).resolve().parents[2]


class StoreTestCase(LogTestCase, DerivedTestCase):
    def small(self, root: Path | None = None, **more: Any) -> Store:
        more.setdefault("settings", SIZES)
        return self.opened(root if root is not None else self.folder() / "store", **more)

    def assert_derived(self, store: Store) -> None:
        """Queues and index are what the log says."""
        self.successResultOf(store._flush_derived())
        self.assert_like_rebuild(store.log, store.settings.root, **SIZES)


class GoldenTests(LogTestCase):
    """Every store a stock broker left opens as it is."""

    def open(self, version: str, name: str) -> Store:
        """Open a copy as the role that wrote it."""
        master = not name.startswith("slave")
        return self.opened(golden.store(version, name), master=master)

    def end_of(self, version: str, name: str) -> int:
        """Where the log ends for a stock broker."""
        lines = list(golden.jsonl(version, golden.truth(name, "expected.jsonl")))
        end = max(line["physicalOffset"] + line["size"] for line in lines if "torn" not in line)
        truth = golden.truth(name, "recovery.json")
        if golden.has(version, truth):
            return int(golden.document(version, truth)["brokerAfterRestart"]["commitLogMaxOffset"])
        return int(end)

    def test_ends(self) -> None:
        """The log ends where the broker ends it, but for one record that is torn."""
        for version, name in golden.ARCHIVES:
            store = self.open(version, name)
            end, reason = self.end_of(version, name), store.recovery.reason
            if name == "slave-torn-props":
                last = list(golden.jsonl(version, golden.truth(name, "expected.jsonl")))[-1]
                self.assertEqual(last["physicalOffset"] + last["size"], end)
                self.assertEqual(
                    (store.log.end, reason), (last["physicalOffset"], Fault.PROPERTIES)
                )
            else:
                self.assertEqual(store.log.end, end, (version, name))
                self.assertIsNot(reason, Fault.PROPERTIES)
            self.assertIsNone(store.recovery.corrupt)
            self.assertEqual((store.state, store.log.confirmed), ("", store.log.end))
            self.assertEqual(store.dispatcher.position, store.log.end)
            self.assertEqual(store.dispatcher.faults, [])
            self.close_store(store)

    def test_queues_and_index(self) -> None:
        """Bounds and units of every queue, and every lookup, are the broker's."""
        for version, name in golden.ARCHIVES:
            store = self.open(version, name)
            torn = store.log.end if name == "slave-torn-props" else 1 << 62
            for line in golden.jsonl(version, golden.truth(name, "expected-cq.jsonl")):
                units = [tuple(unit) for unit in line["units"] if unit[0] < torn]
                if not units:
                    continue
                queue = store.queues.get(line["topic"], line["queueId"])
                assert queue is not None
                end = line["maxOffset"] - (len(line["units"]) - len(units))
                self.assertEqual((queue.min_offset, queue.max_offset), (line["minOffset"], end))
                self.assertEqual([queue.unit(at) for at in range(queue.min_offset, end)], units)
            truth = golden.truth(name, "recovery.json")
            if golden.has(version, truth) and torn == 1 << 62:
                for line in golden.document(version, truth)["brokerAfterRestart"]["queues"]:
                    queue = store.queues.get(line["topic"], line["queueId"])
                    assert queue is not None
                    self.assertEqual(
                        (queue.min_offset, queue.max_offset), (line["minOffset"], line["maxOffset"])
                    )
            index = golden.document(version, golden.truth(name, "expected-index.json"))
            assert store.index is not None
            for look in index["lookups"]:
                found = store.index.query(
                    look["topic"], look["key"], index["maxNum"], index["begin"], index["end"]
                )
                wanted = [offset for offset in look["physicalOffsets"] if offset < torn]
                self.assertEqual(found, wanted, (version, name, look["key"]))
            self.close_store(store)

    def test_go_on(self) -> None:
        """Writes continue the broker's log and queues, and are there after a restart."""
        for version, name in golden.ARCHIVES:
            root = golden.store(version, name)
            store = self.opened(root, master=True, ours_from=0)
            before, end = content(store.log), store.log.end
            queue = next(iter(store.queues))
            topic, queue_id, next_offset = queue.topic, queue.queue_id, queue.next_offset
            self.assertGreater(store.last_stored, 1_600_000_000_000)
            receipts = [
                store.put(message(1000, topic=topic, queue_id=queue_id)) for _ in range(300)
            ]
            self.assertEqual(receipts[0].begin in (end, end - end % 262144 + 262144), True)
            self.assertEqual(receipts[0].queue_offset, next_offset)
            store = self.reopened(store)
            self.assertEqual(content(store.log)[: len(before)] == before, True)
            self.assertEqual(store.log.end, receipts[-1].end)
            again = store.queues.get(topic, queue_id)
            assert again is not None
            self.assertEqual(again.max_offset, next_offset + 300)
            unit = again.unit(next_offset + 299)
            assert unit is not None
            self.assertEqual(unit[:2], (receipts[-1].begin, 1000))
            self.assertEqual(store.dispatcher.fault_count, 0)
            self.close_store(store)


class LifeTests(StoreTestCase):
    def test_abort_and_checkpoint(self) -> None:
        """C{abort} is there while the store is open; a clean stop leaves its times."""
        root = self.folder() / "deep" / "store"
        store = self.small(root, now_ms=lambda: STORED)
        self.assertEqual((root / "abort").read_text(), str(os.getpid()))
        for _ in range(20):
            store.put(message(500))
        self.close_store(store)
        self.assertFalse((root / "abort").exists())
        self.assertEqual(Checkpoint.load(root / "checkpoint"), Checkpoint(STORED, STORED, STORED))
        self.assertEqual(store.state, "stopped")
        self.assertRaises(NotWritable, store.put, message(500))
        self.close_store(store)

    def test_crash(self) -> None:
        """What was put is there after a kill, derived files and next offsets too."""
        store = self.small()
        for number in range(50):
            store.put(message(500, queue_id=number % 3))
        killed = self.small(self.crash(store))
        self.assertEqual(content(killed.log), content(store.log))
        self.assertEqual(killed.log.flushed, killed.log.end)
        self.assertEqual(killed.put(message(500, queue_id=2)).queue_offset, 16)
        killed.dispatcher.run(1.0)
        self.assert_derived(killed)

    def test_crash_while_opening(self) -> None:
        """C{abort} is back before anything is changed."""
        store = self.small()
        store.put(message(500))
        self.close_store(store)
        seen = []
        root = store.settings.root

        def cut(*args: Any, **more: Any) -> None:
            seen.append((root / "abort").exists())
            raise KeyboardInterrupt

        self.patch(sys.modules["rmqha.store.opening"], "cut", cut)
        again = self.service(root, settings=SIZES)
        again.startService()
        self.failureResultOf(again.ready, KeyboardInterrupt)
        self.assertEqual((seen, (root / "abort").exists()), ([True], True))

    def test_many_times(self) -> None:
        """Nothing grows however often a store is opened and closed, or fails to open."""
        store = self.small()
        for _ in range(30):
            store.put(message(500))
        root = store.settings.root
        self.close_store(store)
        before = len(os.listdir("/proc/self/fd"))
        data = None
        for _ in range(8):
            store = self.small(root)
            data = data or content(store.log)
            self.assertEqual(content(store.log), data)
            self.close_store(store)
            bad = self.service(root, settings=SIZES | {"file_size": 8192})
            bad.startService()
            self.failureResultOf(bad.ready, FileSizeMismatch)
            self.successResultOf(bad.stopService())
        self._services.clear()
        self._cleanups.clear()
        del store, bad
        self.assertLessEqual(len(os.listdir("/proc/self/fd")), before)

    def test_clocks_are_left_alone(self) -> None:
        """After a stop nothing is scheduled any more, whatever was under way."""
        clock = Clock()
        for disk in FlushDisk:
            store = self.small(clock=clock, settings=SIZES | {"flush_disk": disk})
            for _ in range(30):
                store.put(message(500))
            if disk is FlushDisk.SYNC_FLUSH:
                self.assertEqual(store.log.flushed, store.log.end)
            self.close_store(store)
            self.assertEqual(clock.getDelayedCalls(), [])

    def test_stop_while_opening(self) -> None:
        """The lock is kept until the thread has ended; then the store is closed."""
        root = self.folder() / "store"
        store = self.small(root)
        store.put(message(500))
        self.close_store(store)
        thread, clock = Held(), Clock()
        service = self.service(root, settings=SIZES, in_thread=thread, clock=clock)
        service.startService()
        self.assertEqual(service.state, "recovering")
        stopped = service.stopService()
        self.assertNoResult(stopped)
        self.assertRaises(StoreLocked, self.service(root, settings=SIZES).startService)
        before = len(os.listdir("/proc/self/fd"))
        thread.work()
        self.successResultOf(stopped)
        self.failureResultOf(service.ready, NotWritable)
        self.assertEqual((service.state, clock.getDelayedCalls()), ("stopped", []))
        self.assertLess(len(os.listdir("/proc/self/fd")), before)
        self.assertEqual(self.small(root).log.end, 500)

    def test_stop_waits_for_the_thread(self) -> None:
        """What threads do for queues and for readers ends before the files are closed."""
        thread = Held()
        clock = Clock()
        root = self.folder() / "store"
        sizes = SIZES | {"scrub_rate": 0}
        service = self.service(root, settings=sizes, in_thread=thread, clock=clock)
        service.startService()
        thread.work()
        store = self.opened_by(service)
        store.put(message(500))
        thread.calls.clear()  # blocks ahead
        clock.advance(60.0)
        publishing, flushing = thread.calls
        thread.calls.clear()
        stopped = service.stopService()
        self.assertEqual(thread.calls, [])
        publishing()
        self.assertEqual(thread.calls, [])
        flushing()
        thread.work()
        self.successResultOf(stopped)
        self.assertFalse((store.settings.root / "abort").exists())

    def test_failing_step_of_a_stop(self) -> None:
        """A stop whose retention, publisher or last flush fails flushes and closes all the same,
        gives the lock back last, and tells; the next start makes it good.
        """
        steps = [(Retention, "retention"), (Publisher, "publishing"), (Flusher, "flushing the log")]
        for part, name in steps:
            for how in (lambda: 1 // 0, lambda: fail(ZeroDivisionError())):
                store = self.small()
                store.put(message(500))
                order: list[str] = []
                self.trace(order, StoreParts, "close")
                self.trace(order, StoreLock, "release")
                for other, other_name in steps:
                    self.trace(order, other, "stop", other_name)
                broken = self.patch(part, "stop", lambda _, how=how: how())
                before = len(os.listdir("/proc/self/fd"))
                stopped = self.service_of(store).stopService()
                error = self.failureResultOf(stopped, ShutdownFailed).value
                broken.restore()
                self.assertEqual(error.steps, (name,))
                wanted = [other for _, other in steps if other != name]
                self.assertEqual(order, [*wanted, "close", "release"])
                self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
                self.assertLess(len(os.listdir("/proc/self/fd")), before)
                self.assertTrue((store.settings.root / "abort").exists())
                self.assertEqual(self.small(store.settings.root).log.end, 500)

    def trace(self, order: list[str], owner: type, method: str, name: str = "") -> None:
        real = getattr(owner, method)

        def traced(part: Any) -> Any:
            order.append(name or method)
            return real(part)

        self.patch(owner, method, traced)

    def test_failing_close(self) -> None:
        """A stop that cannot write everything leaves C{abort} and gives the lock back."""
        store = self.small()
        store.put(message(500))

        def save(*args: object) -> None:
            raise OSError(errno.EIO, "I/O error")

        patched = self.patch(Checkpoint, "save", save)
        stopped = self.service_of(store).stopService()
        self.assertEqual(self.failureResultOf(stopped, ShutdownFailed).value.steps, ("closing",))
        patched.restore()
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)
        self.assertTrue((store.settings.root / "abort").exists())
        self.assertEqual(self.small(store.settings.root).log.end, 500)


class LockedTests(StoreTestCase):
    """One node a store."""

    def test_same_process(self) -> None:
        """A second store fails at once and changes nothing."""
        store = self.small()
        other = self.service(store.settings.root, settings=SIZES)
        self.assertRaises(StoreLocked, other.startService)
        self.successResultOf(other.stopService())
        self.assertTrue((store.settings.root / "abort").exists())
        store.put(message(500))

    def test_another_process(self) -> None:
        """So does one of another process."""
        store = self.small()
        program = (
            "import sys\n"
            "from pathlib import Path\n"
            "from twisted.internet.task import Clock\n"
            "from twisted.trial.unittest import SynchronousTestCase\n"
            "from rmqha.errors import StoreLocked\n"
            "from tests.support.logs import LogTestCase\n"
            "class T(LogTestCase):\n"
            "    def runTest(self): pass\n"
            "try:\n"
            "    T().service(Path(sys.argv[1])).startService()\n"
            "except StoreLocked as error:\n"
            "    print(error)\n"
        )
        done = ended(sys.executable, "-c", program, store.settings.root, cwd=ROOT, check=True)
        self.assertIn("is held by a running node", done.stdout)


class PutTests(StoreTestCase):
    def test_receipts(self) -> None:
        """A receipt says where a message went, by physical and by queue offset."""
        store = self.small()
        first = store.put(message(500))
        second = store.put(message(500, queue_id=1))
        third = store.put(message(600))
        self.assertEqual((first.begin, first.end, first.queue_offset), (0, 500, 0))
        self.assertEqual((second.begin, second.queue_offset), (500, 0))
        self.assertEqual((third.begin, third.end, third.queue_offset), (1000, 1600, 1))
        record = decode(store.log.read(1000, 600), 0, 1000)
        self.assertEqual((record.offset_msg_id, record.queue_offset), (third.message_id, 1))

    def test_without_a_place_in_the_queue(self) -> None:
        """A half message or a rollback takes no queue offset; a commit does."""
        store = self.small()
        offsets = [store.put(message(300, sys_flag=flag)).queue_offset for flag in (4, 0, 12, 8, 0)]
        self.assertEqual(offsets, [0, 0, 0, 1, 2])
        self.assertEqual(self.small(self.crash(store)).put(message(300)).queue_offset, 3)

    def test_batch(self) -> None:
        """A batch has one receipt with all ids, and consecutive queue offsets."""
        store = self.small()
        store.put(message(300))
        body = b"".join(
            b"\0" * 12 + (7).to_bytes(4, "big") + (20).to_bytes(4, "big") + b"x" * 20 + b"\0\0"
            for _ in range(3)
        )
        receipt = store.put(message(300, body=body), batch=True)
        self.assertEqual((receipt.begin, receipt.queue_offset), (300, 1))
        ids = receipt.message_id.split(",")
        self.assertEqual(int(ids[0][-16:], 16), 300)
        self.assertEqual((len(ids), store.put(message(300)).queue_offset), (3, 4))

    def test_illegal(self) -> None:
        """A message that cannot be stored takes no queue offset and no byte."""
        store = self.small()
        store.put(message(300))
        for bad in (message(5000), message(300, topic="t" * 256, body=b"x")):
            self.assertRaises(MessageIllegal, store.put, bad)
        receipt = store.put(message(300))
        self.assertEqual((receipt.begin, receipt.queue_offset), (300, 1))

    def test_wall_clock_steps_back(self) -> None:
        """Store times do not fall when a clock is set by seconds, over a restart either."""
        clock = Clock()
        store = self.small(now_ms=lambda: STORED + int(clock.seconds()))
        for step in (0, 50, -9050, 9060):
            clock.rightNow += step
            store.put(message(300))
        store = self.reopened(store, settings=SIZES, now_ms=lambda: STORED + int(clock.seconds()))
        for step in (-65, 66):
            clock.rightNow += step
            store.put(message(300))
        stored = [
            decode(store.log.read(at, 300), 0, at).store_timestamp for at in range(0, 1800, 300)
        ]
        self.assertEqual([t - STORED for t in stored], [0, 50, 50, 60, 60, 61])

    def test_clock_was_ahead(self) -> None:
        """A message of a moment when the clock was a day ahead does not give its time to those that
        follow, nor to what the checkpoint says; the node tells until that record is deleted.
        """
        self.now = STORED
        store = self.small(now_ms=lambda: self.now)

        def told() -> list[str]:
            return [reason.text for reason in store.health() if reason.name == "clock-behind-log"]

        store.put(message(300))
        self.now += 86_400_000
        store.put(message(300))
        self.assertEqual(told(), [])
        self.now -= 86_400_000
        self.assertEqual(len(told()), 1)
        self.assertIn("86400 s behind the store time of the record at byte 300", told()[0])
        self.now += 1000
        store.put(message(300))
        self.assertEqual(store.last_record_stored(), self.now)
        self.assertEqual(len(told()), 1, "a later record has not set the clock right")
        store.flusher.flush()
        root, settings = store.settings.root, SIZES
        store = self.reopened(store, settings=settings, now_ms=lambda: self.now)
        self.assertEqual((Checkpoint.load(root / "checkpoint").log, told()), (self.now, []))

    def test_clock_was_never_set(self) -> None:
        """A clock that began at 1970 with the machine gives its time to no message."""
        self.now = STORED
        store = self.small(now_ms=lambda: self.now)
        store.put(message(300))
        self.now = 3_600_000
        store.put(message(300))
        self.assertEqual(store.last_record_stored(), STORED)
        self.assertEqual([reason.name for reason in store.health()], ["clock-behind-log"])

    def test_rolls(self) -> None:
        """Files are closed by blanks and dispatch goes over them."""
        clock = Clock()
        store = self.small(clock=clock)
        for _ in range(40):
            store.put(message(700))
        self.assertEqual(len(store.log.folder.files), 8)
        for _ in range(50):
            clock.advance(LIVE_PAUSE)
        self.assertEqual(store.dispatcher.position, store.log.end)
        queue = store.queues.get("TopicA", 0)
        assert queue is not None
        self.assertEqual(queue.max_offset, 40)
        self.assertEqual(magic_at(store.log.read(3500, 8), 0), MAGIC_BLANK)
        self.assert_derived(store)


class TroubleTests(StoreTestCase):
    """States in which nothing is written, and the way back."""

    def test_disk_full(self) -> None:
        """A write without room is refused; the state is named and passes by itself."""
        clock = Clock()
        changes: list[str] = []
        service = self.service(
            self.folder() / "store",
            settings=SIZES,
            clock=clock,
            changed=lambda: changes.append(service.state),
        )
        service.startService()
        self.addCleanup(service.stopService)
        store = self.opened_by(service)
        for _ in range(7):
            store.put(message(550))
        self.assertEqual(changes, [""])
        changes.clear()
        disk = Disk().install(self)
        disk.full = True
        before = content(store.log)
        error = self.assertRaises(NotWritable, store.put, message(550))
        self.assertEqual(error.state, "disk-full")
        self.assertIn("no space", store.reason)
        clock.advance(5.0)
        self.assertRaises(NotWritable, store.put, message(550))
        self.assertEqual(content(store.log), before)
        disk.full = False
        clock.advance(1.0)
        receipt = store.put(message(550))
        self.assertEqual((receipt.begin, receipt.queue_offset), (4096, 7))
        # The reason may change meanwhile: queues and index need room too.
        self.assertEqual((store.state, list(dict.fromkeys(changes))), ("", ["disk-full", ""]))
        self.assertEqual(self.small(self.crash(store)).log.end, receipt.end)

    def test_no_room_for_queues(self) -> None:
        """Dispatch without room waits and goes on; until then writes are refused."""
        clock = Clock()
        store = self.small(clock=clock)
        real = store.dispatcher.run
        full = True

        def run(budget: float) -> bool:
            if full:
                raise DiskFull("index", 10)
            return real(budget)

        self.patch(type(store.dispatcher), "run", lambda self, budget: run(budget))
        store.put(message(300))
        clock.advance(LIVE_PAUSE)
        for _ in range(3):
            self.assertEqual(store.state, "disk-full")
            clock.advance(1.0)
        full = False
        clock.advance(1.0)
        clock.advance(1.0)
        self.assertEqual((store.state, store.dispatcher.position), ("", 300))

    def test_opened_without_room_for_queues(self) -> None:
        """A node starts on a full disk, and takes writes when all queues are known."""
        store = self.small()
        for _ in range(20):
            store.put(message(500))
        root, clock = self.crash(store), Clock()
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
        shutil.rmtree(root / "index", ignore_errors=True)
        disk = Disk().install(self)
        disk.full = True
        again = self.small(root, clock=clock)
        self.assertEqual(again.state, "disk-full")
        self.assertLess(again.dispatcher.position, again.log.end)
        clock.advance(3.0)
        self.assertRaises(NotWritable, again.put, message(500))
        disk.full = False
        for _ in range(4):
            clock.advance(1.0)
        self.assertEqual((again.state, again.put(message(500)).queue_offset), ("", 20))

    def test_fsync_fails(self) -> None:
        """That is the end of this store: no write, no clean stop."""
        store = self.small(settings=SIZES | {"flush_disk": FlushDisk.SYNC_FLUSH})
        store.put(message(300))

        def broken(fd: int) -> None:
            raise OSError(errno.EIO, "I/O error")

        store.flusher.fsync = FsyncInThread(now, broken)
        store.put(message(300))
        self.failureResultOf(store.flusher.wait(600), FlushFailed)
        self.assertEqual(store.state, "failed")
        self.assertIn("I/O error", store.reason)
        store.flusher.fsync = FsyncInThread(now)
        self.assertRaises(NotWritable, store.put, message(300))
        self.failureResultOf(store.flusher.wait(600), FlushFailed)
        self.assertEqual(store.log.flushed, 300)
        self.close_store(store)
        self.assertTrue((store.settings.root / "abort").exists())
        self.assertEqual(self.small(store.settings.root).state, "")

    def test_new_name_not_durable(self) -> None:
        """A file whose name cannot be synced is such a failure too."""
        store = self.small()
        for _ in range(7):
            store.put(message(550))

        def broken(folder: Path) -> None:
            raise OSError(errno.EIO, "I/O error")

        self.patch(mapped, "fsync_folder", broken)
        error = self.assertRaises(NotWritable, store.put, message(550))
        self.assertEqual((error.state, store.log.end), ("failed", 3850))

    def test_several_causes(self) -> None:
        """The gravest is told, and writes go on only when all are gone."""
        store = self.small()
        store._disk_nearly_full("91 % full")
        store._refuse("disk-full", "no space")
        self.assertEqual((store.state, store.reason), ("disk-full", "no space"))
        store._allow("disk-full")
        self.assertEqual((store.state, store.reason), ("read-only", "91 % full"))
        self.assertRaises(NotWritable, store.put, message(300))
        store._disk_nearly_full("")
        store.put(message(300))

    def test_nearly_full(self) -> None:
        """A disk above the warning level makes the store read-only at once, and it returns."""
        use, clock = [0.91], Clock()
        store = self.small(clock=clock, disk_use=lambda folder: use[0])
        self.assertEqual(store.state, "read-only")
        self.assertIn("91%", store.reason)
        use[0] = 0.90
        clock.advance(10.0)
        self.assertEqual(store.state, "")


class SlaveTests(StoreTestCase):
    """A store that frames are appended to."""

    def test_torn_tail_is_cut(self) -> None:
        """A record that had not arrived whole is gone after a restart, clean or not."""
        source = self.filled(500, 600, 700)
        store = self.small(master=False)
        append_frame(store.log, 0, content(source, 0, 1500))
        store.log.verify()
        store.log.progress()
        self.assertEqual(self.small(self.crash(store), master=False).log.end, 1100)
        stopped = self.reopened(store, settings=SIZES, master=False)
        self.assertEqual(stopped.log.end, 1100)
        append_frame(stopped.log, 1100, content(source, 1100))
        stopped.log.verify()
        stopped.dispatcher.run(1.0)
        self.assertEqual(content(stopped.log), content(source))
        self.assert_derived(stopped)

    def test_staged_bytes(self) -> None:
        """Bytes of a frame that was not finished are judged like any others after a kill."""
        source = self.filled(500, 600, 700)
        store = self.small(master=False)
        store.log.reserve(0, 1200)[:] = content(source, 0, 1200)
        store.log.staged(1200)
        crashed = self.small(self.crash(store), master=False)
        self.assertEqual(content(crashed.log), content(source, 0, 1100))
        store.log.discard()
        crashed = self.small(self.crash(store), master=False)
        self.assertEqual(crashed.log.end, 0)

    def test_bad_record_found_by_dispatch(self) -> None:
        """With checks left to dispatch a bad record stops it and is told."""
        source = self.filled(500, 600, 700)
        data = bytearray(content(source))
        data[800] ^= 1
        clock, told = Clock(), []
        store = self.small(master=False, clock=clock, bad_record=told.append)
        append_frame(store.log, 0, data)
        store.log.progress()
        clock.advance(LIVE_PAUSE)
        (error,) = told
        self.assertIsInstance(error, RecordCorrupt)
        self.assertEqual((error.offset, store.dispatcher.position), (500, 0))
        store.log.rewind()
        append_frame(store.log, 500, bytes(content(source, 500)))
        store.log.progress()
        clock.advance(LIVE_PAUSE)
        self.assertEqual(store.dispatcher.position, store.log.end)

    def test_many_unchecked_bytes(self) -> None:
        """What was accepted in one go is checked and dispatched to its end, in steps."""
        size = 1 << 24
        source = self.filled(*[60_000] * 200, file_size=size)
        clock = Clock()
        store = self.opened(
            self.folder() / "store", master=False, clock=clock, settings={"file_size": size}
        )
        append_frame(store.log, 0, content(source))
        store.log.progress()
        for _ in range(200):
            clock.advance(0.02)
        self.assertEqual(store.log.confirmed, source.end)
        self.assertEqual(store.dispatcher.position, source.end)

    def test_topic_torn(self) -> None:
        """A record without properties whose topic is torn is no log for a master either."""
        store = self.small()
        store.put(message(500))
        store.put(message(300, properties=b""))
        root = self.crash(store)
        with open(next((root / "commitlog").iterdir()), "rb+") as file:
            file.seek(797)
            file.write(b"\0")
        again = self.small(root)
        self.assertEqual(
            (again.log.end, again.recovery.reason, again.log.last_record), (500, Fault.TOPIC, 0)
        )
        self.assertEqual(again.put(message(300)).queue_offset, 1)


class FlushedTimeTests(StoreTestCase):
    def test_behind_the_flush(self) -> None:
        """It moves over flushed records only, and moves although writes never pause."""
        thread = Held()
        clock = Clock()
        now = [STORED]
        store = self.small(
            clock=clock,
            fsync=FsyncInThread(thread, lambda fd: None),
            now_ms=lambda: now[0],
            settings=SIZES | {"flush_disk": FlushDisk.SYNC_FLUSH},
        )
        seen = []
        for _ in range(5):
            store.put(message(300))
            now[0] += 10
            store.put(message(300))
            now[0] += 10
            thread.work()
            seen.append(store.checkpoint.log)
            flushed = store.log.flushed
            last = max(at for at in range(0, flushed, 300) if at + 300 <= flushed)
            stored = decode(store.log.read(last, 300), 0, last).store_timestamp
            self.assertLessEqual(store.checkpoint.log, stored)
        self.assertEqual(seen, sorted(set(seen)))
        while thread.calls:
            thread.work()
        self.assertEqual(store.checkpoint.log, now[0] - 10)
        store.flusher.fsync = FsyncInThread(now)
