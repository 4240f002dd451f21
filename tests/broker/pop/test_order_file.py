"""What is popped in order, kept over a crash, and known to slaves."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any, cast

from twisted.internet.task import Clock

from rmqha.broker.tables.consumer_offsets import INTERVAL, ConsumerOffsetTable
from rmqha.broker.tables.pop_order import PopOrder
from rmqha.broker.tables.pop_order_file import OrderFile
from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.store.tables import offset_segments
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.json_body import to_json
from tests.broker.cluster.test_slave_sync import MetadataTestCase
from tests.broker.metadata_master import group, topic
from tests.broker.support import NOW, BrokerTestCase
from tests.broker.tables.journal_power_cuts import assert_kept
from tests.support.logs import LogTestCase, now

PAUSE = 0.15

FILE = "consumerOrderInfo.json"


def pop(order: PopOrder, at: int, *offsets: int, name: str = "T", group: str = "g") -> None:
    """Somebody pops of a topic's first queue, at some time."""
    order.on_pop(
        name, group, 0, now=at, pop_time=at, invisible=60_000, attempt=f"at {at}", offsets=offsets
    )


class FileTestCase(LogTestCase):
    """A table in a folder."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.root = self.folder()
        self.order = self.begin(self.root)

    def begin(self, root: Path, pause: float = PAUSE) -> PopOrder:
        """The table as a new process has it."""
        files = CheckedTables(root)
        self.offsets = ConsumerOffsetTable(files, self.clock, now, pause)
        self.offsets.load()
        order = PopOrder()
        self.kept = OrderFile(order, self.offsets, files)
        self.kept.load()
        self.addCleanup(self.offsets.journal.stop)
        return order


class FileTests(FileTestCase):
    """The file, and the journal that it shares with offsets."""

    def crashed(self) -> PopOrder:
        """The table after a crash at this moment."""
        root = self.folder()
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        return self.begin(root)

    def written(self) -> Any:
        found = json_table.read(self.root / "config" / FILE)
        return None if found is None else found["table"]

    @property
    def segments(self) -> list[int]:
        return offset_segments.numbers_in(self.root / "rmqha" / "offsets")

    def test_journal(self) -> None:
        """A pop, an acknowledgement with the offset that it moved, and what is forgotten are
        durable as soon as offsets are, before there is any file.
        """
        pop(self.order, 1000, 0, 1, 2)
        self.order.ack("T", "g", 0, 0, 1000)
        self.offsets.advance("g", "T", 0, 1)
        pop(self.order, 1000, 5, name="U")
        self.clock.advance(PAUSE)
        self.assertIsNone(self.written())
        found = self.crashed()
        self.assertEqual(found.batches, self.order.batches)
        self.assertEqual(self.offsets.get("g", "T", 0), 1)
        self.assertTrue(found.blocked("T", "g", 0, 2000, "x"))
        self.assertEqual(found.ack("T", "g", 0, 1, 1000), 2)

    def test_file(self) -> None:
        """The file is written with the offsets', and what follows is in the journal."""
        pop(self.order, 1000, 0, 1)
        self.clock.advance(PAUSE)
        self.clock.advance(INTERVAL)
        self.assertEqual(self.written()["T@g"][0]["o"], [0, 1])
        self.order.forget_topic("T")
        pop(self.order, 2000, 7, name="U")
        self.clock.advance(PAUSE)
        self.assertEqual(set(self.written()), {"T@g"})
        self.assertEqual(set(self.crashed().batches), {"U@g"})

    def test_segments(self) -> None:
        """Files of the journal go when neither table needs them, also where only offsets move on;
        the table that does not change is not written again.
        """
        pop(self.order, 1000, 0)
        for offset in range(6):
            self.offsets.commit("g", "T", 1, offset + 1, "c")
            self.clock.advance(PAUSE)
            self.clock.advance(INTERVAL)
            self.assertEqual(set(self.crashed().batches), {"T@g"})
            self.begin_again()
        self.assertLessEqual(len(self.segments), 3)
        before = (self.root / "config" / FILE).stat().st_mtime_ns
        for offset in range(6, 9):
            self.offsets.commit("g", "T", 1, offset + 1, "c")
            self.clock.advance(PAUSE)
            self.clock.advance(INTERVAL)
        self.assertEqual((self.root / "config" / FILE).stat().st_mtime_ns, before)
        self.assertLessEqual(len(self.segments), 3)
        self.assertEqual(set(self.crashed().batches), {"T@g"})

    def begin_again(self) -> None:
        """Go on with the object that writes here; C{crashed} has made another."""
        self.offsets = cast(Any, self.order.changed[0]).__self__.offsets

    def test_without_journal(self) -> None:
        """Where there is no journal the file is written with the offsets'."""
        order = self.begin(self.root, 0.0)
        pop(order, 1000, 3)
        self.clock.advance(INTERVAL)
        self.assertEqual(set(self.written()), {"T@g"})
        self.assertEqual(self.begin(self.root, 0.0).batches, order.batches)

    def test_not_written(self) -> None:
        """While the file cannot be written the journal is kept."""
        real = CheckedTables.replace

        def full(tables: CheckedTables, path: Path, *args: Any, **more: Any) -> Any:
            if path.name == FILE:
                raise OSError(28, "No space left on device")
            return real(tables, path, *args, **more)

        broken = self.patch(CheckedTables, "replace", full)
        pop(self.order, 1000, 0)
        self.clock.advance(PAUSE)
        for _ in range(3):
            self.offsets.commit("g", "T", 1, 5, "c")
            self.clock.advance(INTERVAL)
        self.assertEqual(set(self.crashed().batches), {"T@g"})
        self.begin_again()
        broken.restore()
        self.clock.advance(INTERVAL)
        self.clock.advance(INTERVAL)
        self.assertEqual(set(self.written()), {"T@g"})

    def test_stock(self) -> None:
        """A stock broker's file is taken as it is, without the journal, and kept with what it has
        more.
        """
        pop(self.order, 1000, 0)
        self.clock.advance(PAUSE)
        self.clock.advance(INTERVAL)
        path = self.root / "config" / FILE
        path.with_name(f"{FILE}.bak").write_bytes(path.read_bytes())
        path.write_bytes(
            b'{"table":{"O@GO":{0:{"a":"a1","cm":5,"i":6000,"l":7,"o":[0,1,2],"oc":{},'
            b'"ot":{1:9},"popTime":5,"x":1}}},"later":2}'
        )
        found = self.crashed()
        self.assertEqual(set(found.batches), {"O@GO"})
        found.ack("O", "GO", 0, 1, 5)
        kept = self.kept.generation(9)
        kept()
        table: Any = json_table.read(self.kept.path)
        self.assertEqual((table["later"], table["table"]["O@GO"][0]["x"]), (2, 1))
        self.assertEqual(table["table"]["O@GO"][0]["cm"], 7)

    def test_nonsense(self) -> None:
        """A file that is no such table ends the start."""
        path = self.root / "config" / FILE
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"{")
        with self.assertRaises(TableUnreadable):
            self.begin(self.root)


class PowerCutTests(FileTestCase):
    """A loss of power at any system call."""

    def held(self, order: PopOrder, offsets: ConsumerOffsetTable) -> tuple[Any, Any]:
        """What is known of queues, and the offsets."""
        found = {key: queues for key, queues in offsets.table().offset_table.items() if queues}
        return order.table().table, found

    def test_any_call(self) -> None:
        """Whatever the disk has of what was not synced, neither batches nor offsets are older than
        the last batch of the journal that was durable.
        """
        mine, order = self.offsets, self.order

        def change(choice: random.Random, step: int) -> None:
            name, what = choice.choice("TU"), choice.randrange(6)
            if what == 0:
                order.forget_topic(name)
            elif what < 3 and (batch := order.get(name, "g", 0)) is not None:
                offset = order.ack(name, "g", 0, choice.choice(batch.offsets), batch.pop_time)
                assert isinstance(offset, int)
                mine.advance("g", name, 0, offset)
            else:
                pop(order, 1000 * step, step, step + 1, step + 3, name=name)

        def restored(root: Path) -> tuple[Any, Any]:
            return self.held(self.begin(root), self.offsets)

        assert_kept(self, mine, change, restored, lambda: self.held(order, mine))


class MasterTests(BrokerTestCase):
    """What a master tells."""

    def setUp(self) -> None:
        super().setUp()
        self.master = self.broker()
        self.master.topics.put(TopicConfig(topic_name="T"))

    def asked(self, **ext: str) -> Any:
        answer = self.client().ask(RequestCode.GET_ALL_CONSUMER_OFFSET, ext)
        assert answer is not None
        return fastjson.loads(bytes(answer.body)), answer.ext.get("offsetsVersion")

    def test_told(self) -> None:
        """A slave of ours is told all of it, and then what changes, as it is durable; a stock slave
        is not.
        """
        pop(self.master.order, NOW, 0, 1)
        self.clock.advance(PAUSE)
        table, version = self.asked(offsetsSince="")
        self.assertEqual(table["orderedPops"]["T@g"]["0"]["o"], [0, 1])
        self.assertNotIn("orderedPops", self.asked()[0])
        self.master.order.ack("T", "g", 0, 0, NOW)
        pop(self.master.order, NOW, 4, group="h")
        self.clock.advance(PAUSE)
        self.master.order.forget_group("h")
        self.master.offsets.advance("g", "T", 0, 1)
        self.clock.advance(PAUSE)
        table, _ = self.asked(offsetsSince=version)
        rows = table["orderedPops"]
        self.assertEqual((rows["T@g"]["0"]["cm"], rows["T@h"]), (1, {"0": None}))
        self.assertEqual(table["offsetTable"], {"T@g": {"0": 1}})

    def test_deleted(self) -> None:
        """A topic or a group that is deleted takes it with it."""
        for name in ("g", "h"):
            pop(self.master.order, NOW, 4, group=name)
        client = self.client()
        client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
        self.assertEqual(set(self.master.order.batches), {"T@h"})
        client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        self.assertEqual(self.master.order.batches, {})

    def test_lost_messages(self) -> None:
        """After a crash that cost the log its end nothing waits for messages that are not there."""
        pop(self.master.order, NOW, 4)
        self.clock.advance(PAUSE)
        self.close_store(self.master.store)
        again = self.broker()
        self.assertEqual(set(again.order.batches), {"T@g"})
        prepared = again.prepare()
        for _ in range(50):
            self.clock.advance(0.1)
        self.successResultOf(prepared)
        self.assertEqual(again.order.batches, {})


class SlaveTests(MetadataTestCase):
    """A slave takes over what its master tells."""

    def setUp(self) -> None:
        super().setUp()
        self.told = PopOrder()
        pop(self.told, 1000, 0, 1, name="Orders")
        self.master.offsets["Orders@g"] = {0: 1}
        self.master.groups["h"] = group("h")
        self.master.topics["Orders"] = topic("Orders")
        self.tell()

    def tell(self) -> None:
        body = {"offsetTable": self.master.offsets, "orderedPops": to_json(self.told.table().table)}
        self.master.answers = {RequestCode.GET_ALL_CONSUMER_OFFSET: json.dumps(body).encode()}

    def again(self) -> None:
        self.tell()
        self.round()

    def test_copied(self) -> None:
        """It has the same, and follows what is forgotten."""
        slave = self.slave()
        self.assertEqual(slave.order.batches, self.told.batches)
        self.told.ack("Orders", "g", 0, 0, 1000)
        pop(self.told, 1500, 3, name="Orders", group="h")
        self.again()
        self.assertEqual(slave.order.batches, self.told.batches)
        self.told.forget_group("g")
        self.again()
        self.assertEqual(set(slave.order.batches), {"Orders@h"})

    def test_promoted(self) -> None:
        """When it becomes the master, the queue is blocked still."""
        slave = self.slave()
        self.turns(PAUSE)
        self.close_store(slave.store)
        master = self.broker()
        self.assertEqual(master.order.batches, self.told.batches)
        self.assertTrue(master.order.blocked("Orders", "g", 0, 2000, "x"))

    def test_older(self) -> None:
        """What a master that was started anew does not know any more is kept; what is later is
        taken, with what either knows to be acknowledged.
        """
        slave = self.slave()
        slave.order.ack("Orders", "g", 0, 1, 1000)
        self.told.ack("Orders", "g", 0, 0, 1000)
        self.master.boot += 1
        self.again()
        found = slave.order.get("Orders", "g", 0)
        assert found is not None
        self.assertEqual(found.acked, 3)
        self.told.forget_group("g")
        pop(self.told, 900, 0, name="Orders")
        self.master.boot += 1
        self.again()
        self.assertEqual(slave.order.get("Orders", "g", 0), found)
        self.told.forget_group("g")
        self.master.boot += 1
        self.again()
        self.assertEqual(slave.order.get("Orders", "g", 0), found)

    def test_nonsense(self) -> None:
        """A table in which this makes no sense is refused."""
        for rows in (7, {"Orders@g": {"x": None}}, {"Orders@g": {"0": {"i": 1}}}):
            body = {"offsetTable": {}, "orderedPops": rows}
            self.master.answers = {RequestCode.GET_ALL_CONSUMER_OFFSET: json.dumps(body).encode()}
            slave = self.slave()
            self.assertIn("orderedPops makes no sense", self.part("consumerOffsets")["reason"])
            self.assertEqual(slave.order.batches, {})
            self.close_store(slave.store)
