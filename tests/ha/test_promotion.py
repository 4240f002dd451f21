"""Tests for L{rmqha.ha.promotion}."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import LogCorrupt, LogShortened, Refused, StoreLocked
from rmqha.event_file import event_path, read
from rmqha.ha.epoch import Epoch
from rmqha.ha.master_epoch import EpochJournal, EpochStart, HigherMaster
from rmqha.ha.promotion import Promotion, finish, forget_intent, intend, plan, promote, replaced
from rmqha.ha.slave.followed import FollowedMaster
from rmqha.logfiles import json_table
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.log_writer import EPOCH_FILE
from rmqha.logfiles.offline_log import OfflineLog
from rmqha.logfiles.raw_log import RawLog
from rmqha.logfiles.tail_crc import tail_crc
from rmqha.store.files.lock import StoreLock
from rmqha.store.log.bootstrap_marker import UnfinishedCopy, marker
from rmqha.store.tables import epoch_file
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.names import HALF_TOPIC, SCHEDULE_TOPIC, TRANSACTION_GROUP
from rmqha.wire.store_layout import (
    ARRIVED,
    BROKER_IDENTITY,
    EPOCH_FILE_CHECKPOINT,
    HELD,
    METADATA,
    OWN_FOLDER,
)
from tests.store.log.test_truncate import CALLS, Killed, Mortal
from tests.support.derived import DerivedTestCase, settings
from tests.support.effort import slow
from tests.support.logs import LogTestCase, content, files_of, message

SIZES = {"file_size": 4096, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}
COUNT = 30


def everything(root: Path) -> dict[str, bytes]:
    """All files of a store, but for the mark of dispatch, which names queues in any order."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and not path.name.startswith("dispatched.json")
    }


class PromotionTestCase(LogTestCase, DerivedTestCase):
    """Tests with the store of a slave."""

    def setUp(self) -> None:
        """A clean store with thirty messages, five that wait, and higher, older offsets."""
        self.root = self.folder() / "store"
        # A slave's store is a master's bytes; what wrote them does not matter here.
        store = self.opened(self.root, settings=SIZES)
        for _ in range(COUNT):
            self.last = store.put(message(500)).begin
        for _ in range(5):
            self.end = store.put(message(400, topic=SCHEDULE_TOPIC, queue_id=2)).end
        self.data = content(store.log)
        self.close_store(store)
        self.table("consumerOffset.json", {"TopicA@g": {0: COUNT + 4}, "TopicA@h": {0: 3}})
        self.table("delayOffset.json", {3: 8})

    def table(self, name: str, offsets: dict[Any, Any]) -> None:
        """Write one of the tables."""
        path = self.root / "config" / name
        path.parent.mkdir(exist_ok=True)
        json_table.replace(path, {"offsetTable": offsets})

    def offsets(self, name: str) -> Any:
        """What one of the tables says."""
        table = json_table.read(self.root / "config" / name)
        assert table is not None
        return table["offsetTable"]

    def epoch(self) -> dict[str | int, Any]:
        """What the next start will find."""
        found = json_table.read(self.root / EPOCH_FILE)
        assert found is not None
        return found

    @property
    def settings(self) -> StoreSettings:
        return settings(self.root, **SIZES)

    def tear(self, size: int = 300) -> bytes:
        """Half a record behind the end, as a frame that was cut off leaves it: its bytes."""
        at = self.end
        half = bytearray(self.data[self.last : self.last + size])
        half[28:36] = at.to_bytes(8, "big")
        start = at - at % 4096
        path = self.root / "commitlog" / file_name(start)
        with open(path, "rb+") as file:
            file.seek(at - start)
            file.write(half)
        return bytes(half)


class PromoteTests(PromotionTestCase):
    def test_clean(self) -> None:
        """A whole store keeps every byte; what is behind its queues comes back; the epoch
        that the next start takes up begins at the end.
        """
        done = promote(self.settings)
        self.assertEqual((done.end, done.cut, done.quarantine), (self.end, 0, ""))
        self.assertEqual((done.queues, done.levels, done.was_master), (2, 1, False))
        self.assertEqual([one.after for one in done.consumers], [COUNT])
        self.assertEqual([(one.after, one.waiting) for one in done.delays], [(0, 5)])
        self.assertEqual(done.moved, done.delays + done.consumers)
        self.assertEqual(done.ended_by, "nothing written")
        arrived = json_table.read(self.root / OWN_FOLDER / ARRIVED) or {}
        self.assertLess(abs(arrived["millis"] - 1000 * time.time()), 600_000)
        self.assertEqual(
            self.offsets("consumerOffset.json"), {"TopicA@g": {0: COUNT}, "TopicA@h": {0: 3}}
        )
        self.assertEqual(self.offsets("delayOffset.json"), {3: 0})
        store = self.opened(self.root, settings=SIZES)
        begun = Epoch.begin(self.root, store.log)
        self.assertTrue(begun.continued)
        self.assertEqual((begun.start, begun.marks), (self.end, {}))
        receipt = store.put(message(500))
        self.assertEqual((receipt.begin, receipt.queue_offset), (self.end, COUNT))
        self.assertEqual(content(store.log, 0, self.end), self.data)

    def test_newer_tables(self) -> None:
        """What the old master's tables call done waits again if that is not in this log."""
        half = f"{HALF_TOPIC}@{TRANSACTION_GROUP}"
        store = self.opened(self.root, settings=SIZES)
        for _ in range(3):
            store.put(message(300, topic=HALF_TOPIC))
        self.end = store.log.end
        self.close_store(store)
        self.table("delayOffset.json", {3: 0})
        other = self.folder()
        for name, offsets in (("delayOffset", {3: 5}), ("consumerOffset", {half: {0: 2}})):
            table: Any = {"offsetTable": offsets, "maxPhyOffset": self.end}
            json_table.replace(other / f"{name}.json", table)
        for done in (plan(self.settings, tables=other), promote(self.settings, tables=other)):
            waiting = [(one.before, one.after, one.waiting) for one in done.delays + done.consumers]
            self.assertEqual(waiting, [(5, 0, 5), (COUNT + 4, COUNT, 0), (2, 0, 2)])
        self.assertEqual(self.offsets("delayOffset.json"), {3: 0})
        self.assertEqual(self.offsets("consumerOffset.json")[half], {0: 0})

    def test_idle_topic(self) -> None:
        """Where a queue has nothing left no offset moves: it goes on at its furthest group."""
        self.table("consumerOffset.json", {"Idle@g": {1: 20}, "Idle@h": {1: 12}})
        planned = plan(self.settings)
        self.assertFalse((self.root / "consumequeue" / "Idle").exists())
        done = promote(self.settings)
        for each in (planned, done):
            self.assertEqual((each.consumers, each.queues, each.levels), ((), 3, 1))
        self.assertEqual(
            self.offsets("consumerOffset.json"), {"Idle@g": {1: 20}, "Idle@h": {1: 12}}
        )
        store = self.opened(self.root, settings=SIZES)
        self.assertEqual(store.put(message(500, topic="Idle", queue_id=1)).queue_offset, 20)

    def other_with(self, deleted: dict[str, int], *listed: str) -> Path:
        """The old master's store, as far as it tells of topics, and where some were deleted."""
        other = self.folder() / "store"
        (other / "config").mkdir(parents=True)
        rows = {name: {"topicName": name} for name in listed}
        json_table.replace(other / "config" / "topics.json", {"topicConfigTable": rows})
        log = OfflineLog.of(RawLog.open(self.root), self.end)
        topics = {
            name: {"offset": end, "crc": tail_crc(log, min(end, self.end)), "queues": {0: COUNT}}
            for name, end in deleted.items()
        }
        (other / "rmqha").mkdir()
        json_table.replace(other / "rmqha" / "deleted.json", {"topics": topics})
        return other

    def test_deleted_there(self) -> None:
        """A topic deleted on the old master stays so, with its offsets; made again it is empty."""
        row = {"topicName": "TopicA", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        topics = self.root / "config" / "topics.json"
        json_table.replace(topics, {"topicConfigTable": {"TopicA": row, "Other": row}})
        other = self.other_with({"TopicA": self.end}, "Other")
        before = everything(self.root)
        planned = plan(self.settings, tables=other)
        self.assertEqual(everything(self.root), before)
        done = promote(self.settings, tables=other)
        for each in (planned, done):
            assert each.merged is not None
            self.assertEqual((each.queues, list(each.merged.deleted)), (1, ["TopicA"]))
            self.assertEqual((each.unlisted, each.consumers), ((), ()))
        self.assertEqual(self.offsets("consumerOffset.json"), {})
        table = json_table.read(topics)
        assert table is not None
        self.assertEqual(list(table["topicConfigTable"]), ["Other"])
        for _ in range(2):
            store = self.opened(self.root, settings=SIZES)
            self.assertIsNone(store.queues.get("TopicA", 0))
            self.close_store(store)
        store = self.opened(self.root, settings=SIZES)
        self.assertEqual(store.put(message(500)).queue_offset, COUNT)
        self.close_store(store)
        queue = self.opened(self.root, settings=SIZES).queues.get("TopicA", 0)
        assert queue is not None
        self.assertEqual((queue.min_offset, queue.max_offset), (COUNT, COUNT + 1))

    def test_deleted_there_and_made_again(self) -> None:
        """One that the old master has again keeps what came after, and its row."""
        other = self.other_with({"TopicA": self.last}, "TopicA")
        for done in (plan(self.settings, tables=other), promote(self.settings, tables=other)):
            self.assertEqual((done.queues, done.unlisted), (2, ()))
        queue = self.opened(self.root, settings=SIZES).queues.get("TopicA", 0)
        assert queue is not None
        self.assertEqual((queue.min_offset, queue.max_offset), (COUNT - 1, COUNT))

    def test_deleted_behind_the_end(self) -> None:
        """One deleted behind this log's end stays, for nobody knows in which log; that is told."""
        other = self.other_with({"TopicA": self.end + 1}, "Other")
        for done in (plan(self.settings, tables=other), promote(self.settings, tables=other)):
            assert done.merged is not None
            self.assertEqual((done.merged.deleted, done.merged.not_deleted), ({}, ("TopicA",)))
            self.assertEqual(done.queues, 2)

    def test_unknown_topics(self) -> None:
        """Topics that have messages and no configuration are told; a broker's own are none."""
        self.assertEqual(promote(self.settings).unlisted, ("TopicA",))
        topic = {"topicName": "TopicA", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        json_table.replace(
            self.root / "config" / "topics.json", {"topicConfigTable": {"TopicA": topic}}
        )
        self.assertEqual(promote(self.settings).unlisted, ())

    def test_again(self) -> None:
        """What was promoted stays as it is."""
        promote(self.settings)
        (event,) = read(event_path(self.root))
        self.assertIn("made a master's store: bytes ", event.text)
        before = everything(self.root)
        done = promote(self.settings)
        self.assertTrue(done.was_master)
        self.assertEqual((done.delays, done.consumers), ((), ()))
        after = everything(self.root)
        self.assertEqual([], [name for name in before if before[name] != after.get(name)])
        self.assertEqual(len(read(event_path(self.root))), 1)

    def test_events(self) -> None:
        """A new master epoch is an event, and so are bytes that were cut off."""
        first = promote(self.settings)
        done = promote(self.settings, epoch=first.epoch + 3)
        half = self.tear().rstrip(b"\0")
        promote(self.settings)
        _, raised, cut = (event.text for event in read(event_path(self.root)))
        self.assertTrue(raised.endswith(f"{self.end}, master epoch {first.epoch} -> {done.epoch}"))
        self.assertIn(f"bytes 0 to {self.end}, {len(half)} bytes cut after it, master epoch", cut)

    def test_torn(self) -> None:
        """What a cut-off frame left is kept and cut, and the first own record goes there."""
        half = self.tear()
        done = promote(self.settings)
        self.assertEqual((done.end, done.cut), (self.end, len(half.rstrip(b"\0"))))
        self.assertEqual((self.root / done.quarantine).read_bytes(), half.rstrip(b"\0"))
        self.assertEqual(files_of(self.root / "commitlog")[self.end :].strip(b"\0"), b"")
        store = self.opened(self.root, settings=SIZES)
        self.assertEqual(store.put(message(500)).begin, self.end)

    def test_queues_from_the_log(self) -> None:
        """Queues that are not there are made, and go on where the log says."""
        shutil.rmtree(self.root / "consumequeue")
        done = promote(self.settings)
        self.assertEqual((done.queues, done.consumers[0].after), (2, COUNT))
        store = self.opened(self.root, settings=SIZES)
        self.assert_like_rebuild(store.log, self.root, **SIZES)
        self.assertEqual(store.put(message(500)).queue_offset, COUNT)

    def test_after_a_crash(self) -> None:
        """A slave that was killed is recovered, and its store closed as after a clean stop."""
        (self.root / "abort").write_text("1")
        shutil.rmtree(self.root / "rmqha", ignore_errors=True)
        self.assertEqual(promote(self.settings).end, self.end)
        self.assertFalse((self.root / "abort").exists())

    def test_forgets_its_master(self) -> None:
        """What a slave knew of its master's tables, and owed it, is of no use to the next one."""
        for number in range(2):
            json_table.replace(self.root / OWN_FOLDER / METADATA, {"number": number})
        promote(self.settings)
        self.assertEqual([], list((self.root / "rmqha").glob("metadata*")))

    def test_once_a_master(self) -> None:
        """A store that was a master's before it was a slave's begins a new epoch."""
        store = self.opened(self.root, settings=SIZES)
        Epoch.begin(self.root, store.log).close(store.log, {"10.0.0.9": self.end})
        end = store.put(message(500)).end  # it was a slave meanwhile, and got more
        self.close_store(store)
        self.assertFalse(promote(self.settings).was_master)
        found = self.epoch()
        self.assertEqual((found["start"], found["end"], found["marks"]), (end, end, {}))
        self.assertTrue(found["master"])

    def test_number(self) -> None:
        """The master epoch is raised above what the slave followed and met, once."""
        self.assertEqual(promote(self.settings).epoch, 1)
        self.assertEqual(EpochJournal.read(self.root).starts, (EpochStart(1, self.end),))
        done = promote(self.settings)
        self.assertEqual((done.epoch_before, done.epoch, done.was_master), (1, 1, True))

    def test_number_of_a_fenced_master(self) -> None:
        """A master that met a higher epoch is promoted above it, and keeps its epoch's marks."""
        promote(self.settings)
        fenced = EpochJournal.read(self.root).met(HigherMaster(7, "10.0.0.5:10911", "a slave"))
        fenced.write(self.root)
        done = promote(self.settings)
        self.assertEqual((done.epoch_before, done.epoch, done.was_master), (1, 8, True))
        self.assertIsNone(EpochJournal.read(self.root).fenced_by)

    def test_chosen_number(self) -> None:
        """An operator may choose it, and repeat the command; a lower one is refused."""
        for _ in range(2):
            self.assertEqual(promote(self.settings, epoch=5).epoch, 5)
        before = everything(self.root)
        self.assertRaises(Refused, promote, self.settings, epoch=4)
        self.assertRaises(Refused, plan, self.settings, epoch=4)
        self.assertEqual(everything(self.root), before)

    def test_cascade(self) -> None:
        """What a slave knew of slaves behind it is a slave's: a master begins anew."""
        store = self.opened(self.root, settings=SIZES)
        Epoch.begin(self.root, store.log, master=False).close(store.log, {"a": 5})
        self.close_store(store)
        self.assertFalse(promote(self.settings).was_master)
        self.assertEqual(self.epoch()["marks"], {})


class RefusedTests(PromotionTestCase):
    """Nothing is changed where it may not be."""

    def refused(self, error: type[Exception], **how: Any) -> Any:
        """Promotion and plan are refused alike, and no byte of the store is another: the error."""
        before = everything(self.root)
        self.assertRaises(error, plan, self.settings, **how)
        found = self.assertRaises(error, promote, self.settings, **how)
        after = everything(self.root)
        self.assertEqual(set(before), set(after))
        self.assertEqual(before, after)
        return found

    def test_locked(self) -> None:
        """A node runs on it."""
        running = self.opened(self.root, settings=SIZES)
        self.refused(StoreLocked)
        self.assertEqual(running.state, "")

    def test_unfinished(self) -> None:
        """A copy that its master has not finished would lose what it lacks."""
        path = marker(self.root)
        path.parent.mkdir(exist_ok=True)
        json_table.replace(path, {"master": "x"})
        error = self.refused(UnfinishedCopy)
        self.assertEqual(
            (error.path, error.held), (str(path), len(files_of(self.root / "commitlog")))
        )
        self.refused(UnfinishedCopy, repair=True)

    def test_damaged(self) -> None:
        """Damage is no torn tail: it is cut on demand only, and what follows is kept."""
        at = self.last
        start = at - at % 4096
        with open(self.root / "commitlog" / file_name(start), "rb+") as file:
            file.seek(at - start + 200)
            byte = file.read(1)[0]
            file.seek(at - start + 200)
            file.write(bytes([byte ^ 1]))
        self.assertEqual(self.refused(LogCorrupt).offset, at)
        self.assertEqual(plan(self.settings, repair=True).end, at)
        done = promote(self.settings, repair=True)
        self.assertEqual((done.end, done.cut), (at, self.end - at))
        self.assertEqual(self.offsets("consumerOffset.json")["TopicA@g"], {0: COUNT - 1})

    def test_shortened(self) -> None:
        """A cleanly stopped store that lost its last file is another store."""
        max((self.root / "commitlog").iterdir()).unlink()
        self.assertEqual(self.refused(LogShortened).known, self.end)

    def test_empty(self) -> None:
        """There is nothing to be a master of."""
        shutil.rmtree(self.root / "commitlog")
        shutil.rmtree(self.root / "rmqha")
        self.assertRaises(Refused, plan, self.settings)
        self.assertRaises(Refused, promote, self.settings)
        self.assertFalse((self.root / EPOCH_FILE).exists())


class PlanTests(PromotionTestCase):
    def agree(self, planned: Promotion, done: Promotion) -> None:
        """A plan says what is done, but for the name of a file that is not there yet."""
        names = [name for name in Promotion.__slots__ if not name.startswith("__")]
        for name in names:
            if name != "quarantine":
                self.assertEqual(getattr(planned, name), getattr(done, name), name)

    def test_says_what_will_be(self) -> None:
        """A dry run changes nothing, and is right, before and after, torn tail or empty file."""
        unbegun = self.root / "commitlog" / file_name(self.end - self.end % 4096 + 4096)
        for tear in (False, True, False):
            unbegun.write_bytes(b"")
            if tear:
                shutil.rmtree(self.root / "rmqha" / "quarantine", ignore_errors=True)
                self.tear()
            before = everything(self.root)
            planned = plan(self.settings)
            self.assertEqual(everything(self.root), before)
            self.agree(planned, promote(self.settings))

    def test_unfinished_cut(self) -> None:
        """A cut that was decided and not made says what comes first."""
        self.tear()

        def step(name: str) -> None:
            if name == "intended":
                raise Killed

        self.assertRaises(Killed, promote, self.settings, step=step)
        error = self.assertRaises(Refused, plan, self.settings)
        self.assertIn(str(self.end), str(error))
        self.assertEqual(promote(self.settings).end, self.end)


class IntentTests(PromotionTestCase):
    """What a running slave notes before it becomes the master."""

    def test_nothing_noted(self) -> None:
        """A store for which nothing was noted, or no more, stays as it is."""
        before = everything(self.root)
        self.assertIsNone(finish(self.settings))
        intend(self.root, None, "10.0.0.1:10911")
        forget_intent(self.root)
        self.assertIsNone(finish(self.settings))
        self.assertEqual(before, everything(self.root))

    def test_steps(self) -> None:
        """Whatever step it dies after, the next start finishes it, once."""
        steps: list[str] = []
        locks, take = [], StoreLock.take
        self.patch(StoreLock, "take", lambda lock: (locks.append(lock), take(lock)))
        for number in range(50):

            def step(name: str, number: int = number) -> None:
                steps.append(name)
                if len(steps) > number:
                    raise Killed

            steps.clear()
            root = self.folder() / "store"
            shutil.copytree(self.root, root)
            intend(root, 7, "10.0.0.1:10911")
            try:
                done = finish(settings(root, **SIZES), step)
            except Killed:
                for lock in locks:
                    lock.release()  # as the end of a process does
                done = finish(settings(root, **SIZES))
            assert done is not None
            self.assertEqual(self.end, done.end)
            self.assertEqual((EpochStart(7, self.end),), EpochJournal.read(root).starts)
            self.assertIsNone(finish(settings(root, **SIZES)))
            if len(steps) <= number:
                break
        else:
            self.fail("it has no end")
        self.assertIn("epoch", steps)

    def test_promoted_by_hand(self) -> None:
        """What was noted and never begun is forgotten when others promote: their epoch counts."""
        intend(self.root, None, "10.0.0.1:10911")
        promote(self.settings, epoch=7)
        self.assertEqual(("", None), (replaced(self.root), finish(self.settings)))
        self.assertEqual(7, EpochJournal.read(self.root).number)

    def test_followed_since(self) -> None:
        """What was noted before it followed a master of a higher epoch is above that one."""
        intend(self.root, None, "")
        EpochJournal(number=7).write(self.root)
        FollowedMaster(address="10.0.0.1:10912", following=True).write(self.root)
        done = finish(self.settings)
        assert done is not None
        self.assertEqual((7, 8), (done.epoch_before, done.epoch))

    def test_low_epoch(self) -> None:
        """An epoch that is too low is refused before anything is noted."""
        EpochJournal(number=7).write(self.root)
        before = everything(self.root)
        self.assertRaises(Refused, intend, self.root, 7, "")
        self.assertEqual(before, everything(self.root))


@slow
class KilledTests(PromotionTestCase):
    """A crash at every call that changes the disk."""

    def killed_at(self, number: int, root: Path) -> bool:
        """Promote and die at one call: whether it died; if not, all was done before."""
        mortal, locks, take = Mortal(number), [], StoreLock.take

        def taken(lock: StoreLock) -> None:
            locks.append(lock)
            take(lock)

        patches = [self.patch(os, name, mortal.wrap(getattr(os, name))) for name in CALLS]
        patches.append(self.patch(StoreLock, "take", taken))
        try:
            promote(settings(root, **SIZES))
        except Killed:
            return True
        except (Refused, OSError):
            # Its last words could not be written either.
            return True
        finally:
            for patched in patches:
                patched.restore()
            for lock in locks:
                lock.release()  # as the end of a process does
            self.flushLoggedErrors()
        return False

    def joined(self) -> dict[str, bytes]:
        """Make the store one of a set's member, with three epochs that others led, the last of
        which has not
        a byte here; and return what the set alone has to say of it.
        """
        starts = EpochStart(3, 0, 2, 5), EpochStart(6, 500, 1), EpochStart(7, self.end, 2)
        EpochJournal(number=7, starts=starts).write(self.root)
        of_set = {
            BROKER_IDENTITY: b"DefaultCluster#broker-a#1",
            EPOCH_FILE_CHECKPOINT: epoch_file.render([EpochLabel(5, 0), EpochLabel(6, 500)]),
            f"{OWN_FOLDER}/{HELD}": b'{"held": 1}',
        }
        for name, data in of_set.items():
            (self.root / name).write_bytes(data)
        return of_set

    def test_every_call(self) -> None:
        """However far it came, the next run ends with the same store; the torn tail is kept, and
        what a set knows of a member's store: no epoch is lost or there twice.
        """
        half = self.tear().rstrip(b"\0")
        of_set = self.joined()
        number, died = 0, True
        while died:
            number += 1
            copy = self.folder() / "store"
            shutil.copytree(self.root, copy)
            died = self.killed_at(number, copy)
            done = promote(settings(copy, **SIZES))
            self.assertEqual(done.end, self.end, number)
            self.assertIn(half, [p.read_bytes() for p in (copy / "rmqha/quarantine").iterdir()])
            consumers = json_table.read(copy / "config" / "consumerOffset.json")
            self.assertEqual(consumers["offsetTable"]["TopicA@g"], {0: COUNT}, number)
            delays = json_table.read(copy / "config" / "delayOffset.json")
            self.assertEqual(delays["offsetTable"], {3: 0}, number)
            found = json_table.read(copy / EPOCH_FILE)
            self.assertEqual(
                (found["closed"], found["master"], found["start"]), (True, True, self.end), number
            )
            journal = EpochJournal.read(copy)
            self.assertIn(journal.number, (8, 9), number)
            new = EpochStart(journal.number, self.end)
            told = EpochStart(3, 0, 2, 5), EpochStart(6, 500, 1), new
            self.assertEqual((journal.starts, done.epoch), (told, journal.number), number)
            for name, data in of_set.items():
                self.assertEqual((copy / name).read_bytes(), data, (name, number))
            store = self.opened(copy, settings=SIZES)
            self.assertEqual(content(store.log), self.data)
            receipt = store.put(message(500))
            self.assertEqual((receipt.begin, receipt.queue_offset), (self.end, COUNT))
            self.close_store(store)
        self.assertGreater(number, 20)
