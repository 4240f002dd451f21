"""Tests for L{rmqha.store.derived.consume_queue} and L{rmqha.store.derived.consume_queues}."""

from __future__ import annotations

import os
from collections.abc import Callable
from unittest.mock import patch

from hypothesis import given
from hypothesis import settings as run_settings
from hypothesis import strategies as st

from lab.harness.compare_stores import queue_files
from rmqha.errors import DiskFull
from rmqha.logfiles.listing import Finding
from rmqha.logfiles.published import DeletedTopic
from rmqha.store.derived.consume_queue import ConsumeQueue, QueueCorrupt
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.store.derived.lookup import offset_by_time
from rmqha.store.derived.record_at import RecordReader
from rmqha.store.files.descriptors import Descriptors
from rmqha.wire.columnar.queue_units import BLANK_UNIT, UNIT, fileable
from rmqha.wire.log.delay_levels import DelayLevels
from tests.support.derived import DerivedTestCase
from tests.support.effort import tries
from tests.support.memorylog import MemoryLog

LEVELS = DelayLevels.parse("1s 5s")

# docs/protocol/store.rst, Consume queues: what RocketMQ's own classes wrote.
UPSTREAM = bytes.fromhex(
    "0000000000000000000000a4000000000027a807"
    "00000000000000a40000006d0000000000000000"
    "0000000000000400000002b90000000000000000"
    "0000000000000c00000000660000000000000000"
)


def units(first: int, count: int, size: int = 100) -> bytes:
    """Units of records that lie one behind the other."""
    return b"".join(UNIT.pack((first + i) * size, size, first + i) for i in range(count))


class QueueTestCase(DerivedTestCase):
    def setUp(self) -> None:
        self.root = self.folder()
        self.descriptors = Descriptors()
        self.addCleanup(self.descriptors.close)
        self.faults: list[Finding] = []

    def queue(self, file_size: int = 200) -> ConsumeQueue:
        folder = str(self.root / "consumequeue" / "TopicA" / "3")
        return ConsumeQueue(
            folder=folder,
            topic="TopicA",
            queue_id=3,
            file_size=file_size,
            descriptors=self.descriptors,
        )

    def mend(self, queue: ConsumeQueue, first: int, raw: bytes, log_min: int = 0) -> int:
        return queue.mend(first, raw, log_min, self.faults.append)


class AppendTests(QueueTestCase):
    def test_upstream_bytes(self) -> None:
        """The file is RocketMQ's, byte for byte."""
        queue = self.queue()
        queue.append(0, UPSTREAM)
        self.assertEqual(queue_files(self.root), {"TopicA/3/" + "0" * 20: UPSTREAM + bytes(120)})
        self.assertEqual((queue.max_offset, queue.end_physical), (4, 0xC00 + 0x66))
        self.assertEqual(queue.unit(1), (0xA4, 0x6D, 0))

    def test_files_roll(self) -> None:
        """Units go on in the next file, and are read across files."""
        queue = self.queue()
        self.assertEqual(queue.append(0, units(0, 35)), 35)
        names = [f"TopicA/3/{start:020d}" for start in (0, 200, 400, 600)]
        self.assertEqual(list(queue_files(self.root)), names)
        self.assertEqual(queue.units(5, 100), units(5, 30))
        self.assertEqual((queue.units(35, 1), queue.units(-1, 1)), (b"", b""))

    def test_repeated_units_are_passed_over(self) -> None:
        """Units that are there already are not written again."""
        queue = self.queue()
        queue.append(0, units(0, 10))
        self.assertEqual((queue.append(3, units(3, 5)), queue.append(8, units(8, 5))), (0, 3))
        self.assertEqual(queue.units(0, 100), units(0, 13))

    def test_gap_is_refused(self) -> None:
        """A unit is never written at another place than its own."""
        queue = self.queue()
        queue.append(0, units(0, 2))
        error = self.assertRaises(QueueCorrupt, queue.append, 5, units(5, 1))
        self.assertEqual((error.finding.offset, queue.max_offset), (2, 2))
        self.assertRaises(QueueCorrupt, self.queue().append, 1, units(1, 1))

    def test_another_unit_is_refused(self) -> None:
        """A unit that differs from the one there names the first place that differs."""
        queue = self.queue()
        queue.append(0, units(0, 10))
        error = self.assertRaises(QueueCorrupt, queue.append, 6, units(6, 1) + units(8, 3))
        self.assertEqual(error.finding.offset, 7)
        self.assertEqual(queue.units(0, 100), units(0, 10))

    def test_begins_anew(self) -> None:
        """A deleted topic's queue goes on as its broker's: at the first offset, or where it was."""
        for first in (0, 3, 12):
            folder = str(self.root / "consumequeue" / "TopicA" / "3")
            queue = ConsumeQueue(
                folder=folder,
                topic="TopicA",
                queue_id=3,
                file_size=200,
                descriptors=self.descriptors,
                anew=True,
            )
            queue.append(first, units(first, 2))
            self.assertEqual((first, first + 2), (queue.min_offset, queue.max_offset))
            self.assertEqual(units(first, 2), queue.units(first, 10))
            self.assertRaises(QueueCorrupt, queue.append, first + 5, units(first + 5, 1))
            queue.destroy()

    def test_next_offset_counts_what_was_seen(self) -> None:
        """A queue offset the log has given is never given again, unit or not."""
        queue = self.queue()
        queue.append(0, units(0, 2))
        self.assertRaises(QueueCorrupt, queue.append, 5, units(5, 1))
        self.assertEqual(queue.next_offset, 6)

    def test_full_disk_counts_nothing(self) -> None:
        """When the second file has no room, the queue ends where it did, and can go on later."""
        queue = self.queue()
        queue.append(0, units(0, 8))
        create = Descriptors.create

        def full(self: Descriptors, path: str, size: int) -> None:
            raise DiskFull(path, size)

        with patch.object(Descriptors, "create", full):
            self.assertRaises(DiskFull, queue.append, 8, units(8, 5))
        self.assertEqual(queue.max_offset, 8)
        self.assertIs(Descriptors.create, create)
        queue.append(8, units(8, 5))
        self.assertEqual(queue.units(0, 100), units(0, 13))


class MendTests(QueueTestCase):
    def test_starts_late(self) -> None:
        """A queue whose first messages were never here is blank before them."""
        queue = self.queue()
        self.mend(queue, 13, units(13, 2), 1300)
        self.assertEqual(
            queue_files(self.root),
            {f"TopicA/3/{200:020d}": BLANK_UNIT * 3 + units(13, 2) + bytes(100)},
        )
        self.assertEqual((queue.min_offset, queue.max_offset), (13, 15))
        self.assertEqual(self.faults, [])

    def test_wrong_units_are_replaced(self) -> None:
        """In a pass over the whole log the log is right."""
        queue = self.queue()
        queue.append(0, units(0, 25))
        queue.begin_pass()
        self.mend(queue, 0, units(0, 5))
        self.mend(queue, 5, units(105, 1) + units(106, 1))
        self.assertEqual(queue.units(0, 100), units(0, 5) + units(105, 2))
        self.assertEqual([fault.offset for fault in self.faults], [5])

    def test_gap_in_the_log_is_blank(self) -> None:
        """Queue offsets the log does not have are filled, so that later ones stay right."""
        queue = self.queue()
        self.mend(queue, 0, units(0, 5))
        self.mend(queue, 8, units(8, 3))
        self.assertEqual(queue.units(0, 100), units(0, 5) + BLANK_UNIT * 3 + units(8, 3))
        self.assertEqual(len(self.faults), 1)
        queue.begin_pass()
        self.mend(queue, 0, units(0, 5))
        self.assertEqual(self.mend(queue, 8, units(8, 3)), 0)

    def test_queue_begun_anew(self) -> None:
        """When queue offsets go back, the later record wins."""
        queue = self.queue()
        self.mend(queue, 0, units(0, 25))
        self.mend(queue, 0, units(50, 2))
        self.assertEqual(queue.units(0, 100), units(50, 2))
        self.assertEqual(queue.next_offset, 2)
        self.assertEqual(list(queue_files(self.root)), ["TopicA/3/" + "0" * 20])

    def test_units_nobody_wrote(self) -> None:
        """At the end of a pass, units behind the last record are dropped."""
        queue = self.queue()
        queue.append(0, units(0, 25))
        queue.begin_pass()
        self.mend(queue, 0, units(0, 12))
        queue.end_pass(0, self.faults.append)
        self.assertEqual(queue.units(0, 100), units(0, 12))

    def test_units_of_deleted_records_stay(self) -> None:
        """A pass that begins in the middle keeps the units below it."""
        queue = self.queue()
        queue.append(0, units(0, 25))
        queue.begin_pass()
        self.mend(queue, 13, units(13, 20), 1300)
        self.assertEqual(queue.units(0, 100), units(0, 33))
        self.assertEqual(self.faults, [])

    def test_a_queue_that_lacks_its_start(self) -> None:
        """Missing leading files are noticed by a pass, and the queue is made anew."""
        self.queue().append(0, units(0, 25))
        first = self.root / "consumequeue" / "TopicA" / "3" / ("0" * 20)
        self.descriptors.forget(str(first))
        first.unlink()
        again = self.queue()
        again.load()
        self.mend(again, 0, units(0, 25))
        self.assertEqual(again.units(0, 100), units(0, 25))


class CutTests(QueueTestCase):
    @given(st.integers(0, 40))
    @run_settings(max_examples=tries(41), deadline=None)
    def test_truncate(self, kept: int) -> None:
        """A queue cut to any record has the bytes of a queue that never had more."""
        root, self.root = self.root, self.folder()
        queue = self.queue()
        queue.append(0, units(0, 40))
        queue.truncate_to(kept * 100)
        found = queue_files(self.root)
        self.root = self.folder()
        fresh = self.queue()
        if kept:
            fresh.append(0, units(0, kept))
        self.assertEqual(found, queue_files(self.root))
        self.assertEqual((queue.next_offset, queue.end_physical), (kept, kept * 100))
        self.root = root

    def test_truncate_inside_a_record(self) -> None:
        """A record that is cut loses its unit."""
        queue = self.queue()
        queue.append(0, units(0, 10))
        queue.truncate_to(799)
        self.assertEqual(queue.max_offset, 7)

    def trim(self, queue: ConsumeQueue, log_min: int) -> int:
        """The log begins later, and files go; how many."""
        found = queue.deleted(log_min)
        count = 0 if found is None else queue.forget(found)
        files = len(os.listdir(queue.folder))
        self.descriptors.remove_doomed()
        self.assertEqual(len(os.listdir(queue.folder)), files - count)
        return count

    def test_deleted(self) -> None:
        """Leading files of deleted records go, the last file stays."""
        queue = self.queue()
        queue.append(0, units(0, 25))
        self.assertEqual((self.trim(queue, 900), queue.min_offset), (0, 9))
        self.assertIsNone(queue.deleted(900))
        self.assertEqual(self.trim(queue, 1250), 1)
        self.assertEqual((queue.min_offset, queue.first_offset), (13, 10))
        self.assertEqual(self.trim(queue, 99999), 1)
        self.assertEqual((queue.min_offset, queue.max_offset), (25, 25))
        self.assertEqual(queue.append(25, units(25, 1)), 1)
        self.assertEqual((queue.min_offset, queue.max_offset), (25, 26))
        self.assertIsNone(queue.deleted(2500))

    def test_min_offset_follows_the_log(self) -> None:
        """Where the log begins is known before any file has gone, and its files still go."""
        queue = self.queue()
        queue.append(0, units(0, 25))
        queue.start.offset = 1250
        self.assertEqual((queue.min_offset, queue.first_offset), (13, 0))
        self.assertEqual(self.trim(queue, 1250), 1)
        self.assertEqual((queue.min_offset, queue.first_offset), (13, 10))

    def test_deleted_while_it_changes(self) -> None:
        """What grows between the look and the deletion is kept; what was cut between is not deleted
        on the word of a look before, nor is a file that was made again.
        """
        queue = self.queue()
        queue.append(0, units(0, 20))
        found = queue.deleted(99999)
        assert found is not None
        queue.append(20, units(20, 15))
        self.assertEqual((queue.forget(found), queue.first_offset), (2, 20))
        self.descriptors.remove_doomed()
        self.assertEqual(queue.min_offset, 20)
        self.assertEqual(queue.units(20, 15), units(20, 15))
        found = queue.deleted(3300)
        assert found is not None
        queue.truncate_to(2800)
        self.assertEqual((queue.forget(found), queue.max_offset), (0, 28))
        queue.append(28, units(28, 12))
        found = queue.deleted(3200)
        assert found is not None
        self.assertEqual(queue.forget(found), 1)
        queue.destroy()
        queue.begin_pass()
        queue.mend(20, units(20, 5), 2000, self.fail)
        self.descriptors.remove_doomed()
        self.assertEqual(queue.units(20, 5), units(20, 5))

    def test_deleted_behind_blanks(self) -> None:
        """A queue whose first unit is blank begins behind it."""
        queue = self.queue()
        queue.begin_pass()
        queue.mend(3, units(3, 2), 0, self.fail)
        queue.append(5, BLANK_UNIT * 2 + units(7, 20))
        self.assertEqual(queue.min_offset, 3)
        queue.start.offset = 500
        self.assertEqual((queue.min_offset, self.trim(queue, 2200)), (7, 2))
        self.assertEqual(queue.min_offset, 22)

    def test_deleted_topic(self) -> None:
        """A thread that looks at a queue whose files are gone finds nothing."""
        queue = self.queue()
        queue.append(0, units(0, 25))
        for name in os.listdir(queue.folder):
            os.unlink(f"{queue.folder}/{name}")
        self.assertIsNotNone(queue.deleted(1250))


class TimeTests(QueueTestCase):
    def find(self, times: list[int | None], timestamp: int) -> int:
        queue = self.queue()
        queue.destroy()
        queue.append(0, units(0, len(times)))
        return offset_by_time(queue, timestamp, lambda offset: times[offset // 100])

    def test_by_time(self) -> None:
        """The message of that time, else the nearer neighbour, the earlier one on a tie."""
        times: list[int | None] = [10, 20, 20, 30, 41]
        found = [self.find(times, when) for when in (0, 10, 14, 15, 16, 20, 35, 36, 41, 99)]
        self.assertEqual(found, [0, 0, 0, 0, 1, 1, 3, 4, 4, 4])

    def test_unreadable_times_are_early(self) -> None:
        """A record whose time cannot be read is taken for too early."""
        self.assertEqual((self.find([None, None, 30], 5), self.find([None, None], 5)), (2, 0))
        self.assertEqual(offset_by_time(self.queue(), 5, lambda _: 1), 0)


class RecoverTests(QueueTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.log = MemoryLog()
        for _ in range(25):
            self.log.put("TopicA", 3, body=b"b" * 50)
        self.size = self.log.starts[1]
        self.raw = b"".join(UNIT.pack(start, self.size, 0) for start in self.log.starts)
        self.peek = RecordReader(self.log, LEVELS)
        self.queue().append(0, self.raw)

    def recovered(self) -> ConsumeQueue:
        queue = self.queue()
        queue.load()
        self.faults = queue.recover(self.peek)
        return queue

    def damage(self, unit: int, raw: bytes) -> None:
        self.descriptors.write(
            f"{self.queue().folder}/{unit // 10 * 200:020d}", raw, unit % 10 * 20
        )

    def test_whole(self) -> None:
        """A good queue is taken as it is."""
        queue = self.recovered()
        self.assertEqual((queue.min_offset, queue.max_offset), (0, 25))
        self.assertEqual((queue.end_physical, self.faults), (self.log.end, []))

    def test_torn_unit(self) -> None:
        """The queue ends before a unit of which only a part was written; the rest is zeroed."""
        self.damage(14, self.raw[14 * 20 : 14 * 20 + 7] + bytes(13))
        self.assertEqual(self.recovered().max_offset, 14)
        stored = b"".join(queue_files(self.root).values())
        self.assertEqual(stored, self.raw[: 14 * 20] + bytes(6 * 20))

    def test_a_unit_of_another_record(self) -> None:
        """The last unit has to point to this queue's record of that queue offset."""
        self.damage(24, self.raw[23 * 20 : 24 * 20])
        self.assertEqual(self.recovered().max_offset, 24)
        self.damage(23, UNIT.pack(self.log.starts[23] + 1, self.size, 0))
        self.assertEqual((self.recovered().max_offset, len(self.faults)), (23, 1))

    def test_units_above_the_log(self) -> None:
        """Units of records the log has lost go, and that is no fault of theirs."""
        self.log.cut(self.log.starts[17])
        self.assertEqual((self.recovered().max_offset, self.faults), (17, []))

    def test_nothing_right(self) -> None:
        """A queue of nothing but wrong units is dropped."""
        self.log = MemoryLog()
        for _ in range(25):
            self.log.put("TopicB", 3, body=b"b" * 50)
        self.peek = RecordReader(self.log, LEVELS)
        self.assertEqual((self.recovered().max_offset, queue_files(self.root)), (0, {}))

    def test_blanks_are_no_data(self) -> None:
        """A queue that holds blanks only has no message, and its next one comes behind them."""
        queue = self.queue()
        queue.destroy()
        self.mend(queue, 15, units(15, 1))
        self.damage(15, bytes(20))
        queue = self.recovered()
        self.assertEqual((queue.max_offset, queue.end_physical), (15, 0))
        self.assertEqual((queue.min_offset, queue.next_offset), (15, 15))

    def test_begins_where_it_is_counted_on(self) -> None:
        """One that has no message begins where it is told, and is there again after each start,
        also where a file ends; its first message may come elsewhere, and is no fault then.
        """
        for begin in (4, 10, 20, 23):
            for first in (begin, begin - 3, begin + 30):
                queue = self.queue()
                queue.destroy()
                queue.begin(begin)
                for _ in range(2):
                    self.assertEqual((queue.min_offset, queue.max_offset), (begin, begin))
                    queue = self.recovered()
                    self.assertEqual(queue.next_offset, begin)
                queue.start.marked = True
                for again in (queue.append, self.mend_with(queue)):
                    queue.begin(begin)
                    again(first, units(first, 2))
                    bounds = queue.min_offset, queue.max_offset, queue.next_offset
                    self.assertEqual(bounds, (first, first + 2, first + 2))
                    self.assertEqual(queue.units(first, 5), units(first, 2))
                self.assertEqual(self.faults, [])

    def mend_with(self, queue: ConsumeQueue) -> Callable[[int, bytes], int]:
        """Adds units in a pass over the whole log that begins."""
        queue.begin_pass()
        return lambda first, raw: self.mend(queue, first, raw)

    def test_cut_to_nothing(self) -> None:
        """One that a cut leaves empty goes on where its first message was, in any file."""
        for begin in (10, 15):
            queue = self.queue()
            queue.destroy()
            queue.begin(begin, lasting=False)
            queue.append(begin, units(begin, 8))
            queue.truncate_to(begin * 100 + 50)
            self.assertEqual((queue.next_offset, self.recovered().next_offset), (begin, begin))

    def test_wrong_file_size(self) -> None:
        """A queue with a file of another size is set aside, out of RocketMQ's folders."""
        queues = ConsumeQueues(self.root, 400, self.descriptors)
        queues.load()
        queues.recover(self.peek)
        self.assertEqual(queue_files(self.root), {})
        self.assertTrue((self.root / "rmqha" / "aside" / "consumequeue+TopicA+3").is_dir())
        self.assertIn("200 bytes, expected 400", str(queues.faults[0]))

    def test_missing_middle_file(self) -> None:
        """Files that do not follow one another are set aside."""
        (self.root / "consumequeue" / "TopicA" / "3" / f"{200:020d}").unlink()
        queues = ConsumeQueues(self.root, 200, self.descriptors)
        queues.load()
        self.assertIn("the file before ends at 200", str(queues.faults[0]))
        self.assertEqual(queue_files(self.root), {})

    def test_foreign_names(self) -> None:
        """Names that are not RocketMQ's are reported and left alone."""
        folder = self.root / "consumequeue"
        for name in ("lost+found", "TopicA/x", "TopicA/03"):
            (folder / name).mkdir()
        (folder / "TopicA" / "3" / "notes.txt").write_text("x")
        (folder / "file").write_text("x")
        queues = ConsumeQueues(self.root, 200, self.descriptors)
        queues.load()
        queues.recover(self.peek)
        self.assertEqual(len(queues.faults), 4)
        queue = queues.get("TopicA", 3)
        assert queue is not None
        self.assertEqual(queue.max_offset, 25)
        self.assertTrue((folder / "TopicA" / "3" / "notes.txt").exists())


class ForgetTests(QueueTestCase):
    def test_forget(self) -> None:
        """A topic's queues go, others stay; its records give no more, those behind them do."""
        queues = ConsumeQueues(self.root, 200, self.descriptors)
        for topic, queue_id, count in (("Old", 0, 5), ("Old", 1, 12), ("New", 0, 5)):
            queue = queues.create(topic, queue_id)
            assert queue is not None
            queue.append(0, units(0, count))
        queues.note_deleted({"Old": DeletedTopic(1200, {1: 12})})
        queues.forget_deleted("Old")
        self.assertEqual(["New/0/00000000000000000000"], list(queue_files(self.root)))
        self.assertEqual({("New", 0): 5, ("Old", 1): 12}, queues.next_offsets({}))
        self.assertEqual((0, units(0, 5)), queues.living("New", 0, units(0, 5)))
        self.assertEqual((12, b""), queues.living("Old", 0, units(0, 12)))
        self.assertEqual((12, units(12, 3)), queues.living("Old", 10, units(10, 5)))
        again = queues.create("Old", 0)
        assert again is not None
        again.append(12, units(12, 3))
        self.assertEqual((12, 15), (again.min_offset, again.max_offset))


class FileableTests(QueueTestCase):
    def test_names_that_can_be_no_folder(self) -> None:
        """A record's topic never leads out of its folder."""
        for topic in ("", ".", "..", "a/b", "../../x", "a\0b", "x" * 256):
            self.assertFalse(fileable(topic, 0), topic)
        self.assertFalse(fileable("a", -1))
        self.assertTrue(fileable("%RETRY%g", 0))
        self.assertIs(ConsumeQueues(self.root, 200).create("..", 0), None)
