"""Tests for L{rmqha.store.derived.clamp_offsets}, and for the cut that calls it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rmqha.config.store_settings import StoreSettings
from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.store.derived.clamp_offsets import clamp_consumers, clamp_delays
from rmqha.store.derived.lookup import Lookup
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.truncate import intend
from rmqha.wire.names import SCHEDULE_TOPIC
from tests.store.derived.test_outcomes import opened_lookup
from tests.support.logs import LogTestCase, message

SIZES = {"file_size": 4096, "queue_file_size": 200, "index_slots": 20, "index_entries": 30}


class ClampTestCase(LogTestCase):
    """Tests with a store of a topic with two queues and one delay level."""

    def setUp(self) -> None:
        """Ten messages in queue 0, none in queue 1, five that wait for level 3."""
        self.root = self.folder() / "store"
        store = self.opened(self.root, settings=SIZES)
        self.starts = [store.put(message(500)).begin for _ in range(10)]
        for _ in range(5):
            store.put(message(400, topic=SCHEDULE_TOPIC, queue_id=2))
        store.dispatcher.run(10.0)
        self.opened_store = store
        (self.root / "config").mkdir()

    @property
    def lookup(self) -> Lookup:
        """Of the store as it is now."""
        return opened_lookup(self.opened_store)

    def write(self, name: str, table: dict[Any, Any], log_end: int | None = None) -> Path:
        """A table as a broker keeps it, which may say where the log has to end for it."""
        path = self.root / "config" / name
        told = {} if log_end is None else {"maxPhyOffset": log_end}
        json_table.replace(path, {"offsetTable": table, "more": 7, **told})  # type: ignore[dict-item]
        return path


class ConsumerTests(ClampTestCase):
    def test_above(self) -> None:
        """An offset above the queue's next one becomes that; all others stay, and what else is
        in the file: a queue of which nothing is left begins where its furthest group is.
        """
        path = self.write(
            "consumerOffset.json",
            {"TopicA@g": {0: 11, 1: 3}, "TopicA@h": {0: 10, 1: 7}, "TopicA@i": {0: 4}},
        )
        moved = clamp_consumers(self.root, self.lookup)
        self.assertEqual(
            [(one.who, one.topic, one.queue_id, one.before, one.after) for one in moved],
            [("group g", "TopicA", 0, 11, 10)],
        )
        self.assertEqual(self.opened_store.queues.next_offsets({})["TopicA", 1], 7)
        self.assertEqual(
            json_table.read(path),
            {
                "offsetTable": {
                    "TopicA@g": {0: 10, 1: 3},
                    "TopicA@h": {0: 10, 1: 7},
                    "TopicA@i": {0: 4},
                },
                "more": 7,
            },
        )
        self.assertIn("group g in queue 0 of TopicA: offset 11 is now 10", str(moved[0]))
        self.assertEqual(clamp_consumers(self.root, self.lookup), ())

    def test_unchanged(self) -> None:
        """Without anything to move, or when only asked, the file is not touched."""
        path = self.write("consumerOffset.json", {"TopicA@g": {0: 10}})
        before = path.stat().st_mtime_ns
        self.assertEqual(clamp_consumers(self.root, self.lookup), ())
        self.assertEqual(path.stat().st_mtime_ns, before)
        path = self.write("consumerOffset.json", {"TopicA@g": {0: 12}})
        data = path.read_bytes()
        self.assertEqual(len(clamp_consumers(self.root, self.lookup, change=False)), 1)
        self.assertEqual(path.read_bytes(), data)

    def test_nothing(self) -> None:
        """A store without tables has nothing to move; a garbled table is not guessed at."""
        self.assertEqual(clamp_consumers(self.root, self.lookup), ())
        self.assertEqual(clamp_delays(self.root, self.lookup), ())
        (self.root / "config" / "consumerOffset.json").write_bytes(b"{\0\0\0")
        self.assertRaises(TableUnreadable, clamp_consumers, self.root, self.lookup)


class HalfTests(ClampTestCase):
    def test_newer_than_the_log(self) -> None:
        """Half messages called ended are open if no op names them, and counted; others stay."""
        half, op = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
        for _ in range(4):
            self.opened_store.put(message(300, topic=half))
        for number in (b"1", b"0"):
            self.opened_store.put(message(300, topic=op, body=number))
        group = "CID_RMQ_SYS_TRANS"
        path = self.write(
            "consumerOffset.json",
            {f"{half}@{group}": {0: 9}, f"{op}@{group}": {0: 7}, f"{half}@g": {0: 4}},
        )
        moved = clamp_consumers(self.root, self.lookup)
        self.assertEqual(
            [(one.topic, one.before, one.after, one.waiting) for one in moved],
            [(half, 9, 2, 2), (op, 7, 0, 0)],
        )
        self.assertIn("offset 9 is now 2: 2 half messages wait again", str(moved[0]))
        found = json_table.read(path)
        assert found is not None
        self.assertEqual(
            found["offsetTable"],
            {f"{half}@{group}": {0: 2}, f"{op}@{group}": {0: 0}, f"{half}@g": {0: 4}},
        )
        self.assertEqual(clamp_consumers(self.root, self.lookup), ())


class DelayTests(ClampTestCase):
    def test_newer_than_the_log(self) -> None:
        """Of a table that is newer than the log each level goes on inside its queue; what it calls
        delivered waits again if the log has no copy of it, and that is counted.
        """
        end = self.opened_store.log.end
        for told in (None, end + 1):
            path = self.write("delayOffset.json", {3: 9, 4: 2, 5: -1}, told)
            moved = clamp_delays(self.root, self.lookup)
            self.assertEqual(
                [(one.who, one.queue_id, one.before, one.after, one.waiting) for one in moved],
                [
                    ("delay level 3", 2, 9, 0, 5),
                    ("delay level 4", 3, 2, 0, 0),
                    ("delay level 5", 4, -1, 0, 0),
                ],
            )
            self.assertIn("offset 9 is now 0: 5 delayed messages wait again", str(moved[0]))
            table = {"offsetTable": {3: 0, 4: 0, 5: 0}, "more": 7, "maxPhyOffset": end}
            self.assertEqual(json_table.read(path), table)
            self.assertEqual(clamp_delays(self.root, self.lookup), ())

    def test_as_old_as_the_log(self) -> None:
        """A table that says that all it needs is in the log is not touched."""
        path = self.write("delayOffset.json", {3: 4}, self.opened_store.log.end)
        before = path.stat().st_mtime_ns
        self.assertEqual(clamp_delays(self.root, self.lookup), ())
        self.assertEqual(path.stat().st_mtime_ns, before)


class CutTests(ClampTestCase):
    def test_truncation(self) -> None:
        """A log that is cut takes the offsets behind the cut back with it, before anybody may
        write again where they pointed; also when the first try dies.
        """
        self.write("consumerOffset.json", {"TopicA@g": {0: 10}, "TopicA@h": {0: 6}})
        self.write("delayOffset.json", {3: 5})
        end = self.opened_store.log.end
        self.close_store(self.opened_store)
        at = self.starts[7]

        def before(settings: StoreSettings) -> None:
            folder = LogFolder.load(settings.commitlog, settings.file_size)
            intend(settings.root, folder, at, end)
            folder.close()

        died = self.folder() / "store"
        shutil.copytree(self.root, died)

        def step(name: str) -> None:
            if name == "derived":
                raise ValueError("died")

        dying = self.service(died, settings=SIZES, master=False, before=before, step=step)
        dying.startService()
        self.failureResultOf(dying.ready, ValueError)
        for root, more in ((self.root, {"before": before}), (died, {})):
            store = self.opened(root, settings=SIZES, master=False, **more)
            self.assertEqual(store.log.end, at)
            offsets = json_table.read(root / "config" / "consumerOffset.json")
            self.assertEqual(offsets["offsetTable"], {"TopicA@g": {0: 7}, "TopicA@h": {0: 6}})
            delays = json_table.read(root / "config" / "delayOffset.json")
            self.assertEqual(delays["offsetTable"], {3: 0})
        self.flushLoggedErrors()
