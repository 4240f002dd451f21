"""How far groups are, also after a loss of power and damage on the disk."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from twisted.internet.task import Clock
from twisted.logger import formatEvent

from rmqha.broker.consuming.consumer_progress import NONE_YET
from rmqha.broker.tables.consumer_offsets import INTERVAL, ConsumerOffsetTable
from rmqha.logfiles import json_table
from rmqha.store.tables import offset_segments
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.store_layout import CONSUMER_OFFSETS
from tests.broker.consumer_side import GROUP, TOPIC, ConsumingTestCase, commit, progress
from tests.broker.support import BrokerTestCase, sending
from tests.broker.tables.journal_power_cuts import assert_kept
from tests.broker.tables.test_offset_journal import PAUSE, JournalTestCase, Offsets
from tests.support.effort import tries
from tests.support.log_lines import log_events
from tests.support.logs import now


class ProgressTests(ConsumingTestCase):
    """Asking and saying how far a group is."""

    def setUp(self) -> None:
        self.broker = self.consuming()
        self.peer = self.broker.peer()
        for _ in range(5):
            self.broker.put()
        self.broker.dispatch()

    def test_commit(self) -> None:
        """What is committed is what is answered."""
        answer = self.assert_answer(self.ask(self.peer, commit(3)), ResponseCode.SUCCESS)
        self.assertEqual(answer.ext, {})
        answer = self.assert_answer(self.ask(self.peer, progress()), ResponseCode.SUCCESS)
        self.assertEqual(answer.ext, {"offset": "3"})

    def test_oneway(self) -> None:
        """A commit nobody waits for counts as well."""
        command = commit(3)
        command.flag = 2
        self.peer.send(command)
        self.assertEqual((self.peer.sent(), self.broker.offsets.get(GROUP, TOPIC, 0)), ([], 3))

    def test_back(self) -> None:
        """A client may go back, and the log says who did."""
        events = log_events(self)
        self.ask(self.peer, commit(4))
        self.ask(self.peer, commit(1))
        self.assertEqual(self.broker.offsets.get(GROUP, TOPIC, 0), 1)
        (line,) = [formatEvent(event) for event in events if "before" in event]
        self.assertIn(
            f"moved the offset of group {GROUP} in queue 0 of {TOPIC} back from 4 to 1", line
        )
        self.assertIn(self.peer.connection.address, line)

    def test_impossible(self) -> None:
        """What no consumer can have reached is refused, by a text that names it."""
        for more, code, text in (
            ({"commit_offset": 6}, ResponseCode.INVALID_PARAMETER, "commitOffset[6]"),
            ({"commit_offset": -1}, ResponseCode.INVALID_PARAMETER, "commitOffset[-1]"),
            ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "queueId[4]"),
            ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1]"),
            ({"topic": "nope"}, ResponseCode.TOPIC_NOT_EXIST, "topic[nope]"),
            ({"consumer_group": "g@x"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "[g@x]"),
        ):
            answer = self.ask(self.peer, commit(2, **more))
            self.assertEqual(answer.code, code)
            self.assertIn(text, answer.remark or "")
        self.assertEqual(self.broker.offsets.table().offset_table, {})

    def test_slave_takes_what_it_has_not_yet(self) -> None:
        """A consumer may be further than a slave is."""
        self.broker = self.consuming(slave=True)
        self.assert_answer(self.ask(self.broker.peer(), commit(100)), ResponseCode.SUCCESS)

    def test_new_group(self) -> None:
        """Without an offset a group starts at 0 if the queue has all, and not too many messages."""
        self.assertEqual(self.ask(self.peer, progress()).ext, {"offset": "0"})
        self.assertEqual(self.ask(self.peer, progress(queue_id=3)).ext, {"offset": "0"})
        self.assert_answer(
            self.ask(self.peer, progress(set_zero_if_not_found=False)),
            ResponseCode.QUERY_NOT_FOUND,
            NONE_YET,
        )
        self.broker = self.consuming(memory=100)
        for _ in range(5):
            self.broker.put()
        self.broker.dispatch()
        answer = self.ask(self.broker.peer(), progress())
        self.assert_answer(answer, ResponseCode.QUERY_NOT_FOUND, NONE_YET)

    def test_all(self) -> None:
        """A slave gets the whole table, as stock slaves read it."""
        self.ask(self.peer, commit(3))
        self.ask(self.peer, commit(0, queue_id=2))
        answer = self.ask(self.peer, Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET))
        self.assertIn(b'"offsetTable":{"TopicA@group-a":{0:3,2:0}}', bytes(answer.body))
        answer = self.ask(self.peer, Command.request(RequestCode.GET_ALL_DELAY_OFFSET))
        self.assertEqual(bytes(answer.body), b'{"offsetTable":{}}')


class TableTests(ConsumingTestCase):
    def setUp(self) -> None:
        self.broker = self.consuming()
        self.offsets = self.broker.offsets
        self.path = self.broker.store.settings.root / "config" / "consumerOffset.json"

    def test_written(self) -> None:
        """It is written some seconds after a change, and read again."""
        self.offsets.commit(GROUP, TOPIC, 0, 3, "127.0.0.1:1")
        self.offsets.commit(GROUP, TOPIC, 1, 4, "127.0.0.1:1")
        self.broker.clock.advance(INTERVAL)
        self.assertEqual(
            json_table.read(self.path), {"offsetTable": {"TopicA@group-a": {0: 3, 1: 4}}}
        )
        files = CheckedTables(self.path.parent.parent)
        again = ConsumerOffsetTable(files, self.broker.clock, now)
        again.load()
        self.assertEqual(again.queues(GROUP, TOPIC), {0: 3, 1: 4})

    def test_unknown_members(self) -> None:
        """What newer releases write into it stays there."""
        table = {"offsetTable": {"T@g": {0: 1}}, "dataVersion": {"counter": 7}, "new": [1]}
        self.path.parent.mkdir(exist_ok=True)
        json_table.replace(self.path, table)
        self.offsets.load()
        self.offsets.commit(GROUP, TOPIC, 0, 3, "127.0.0.1:1")
        self.successResultOf(self.offsets.stop())
        found = json_table.read(self.path) or {}
        self.assertEqual(found["new"], [1])
        self.assertEqual(found["offsetTable"], {"T@g": {0: 1}, "TopicA@group-a": {0: 3}})

    def test_removed(self) -> None:
        """Nothing stays of a group or a topic that is deleted."""
        for group, topic in (("g1", "T1"), ("g1", "T2"), ("g2", "T1")):
            self.offsets.commit(group, topic, 0, 1, "127.0.0.1:1")
        self.assertEqual(self.offsets.topics_of("g1"), {"T1", "T2"})
        self.assertEqual(self.offsets.groups_of("T1"), {"g1", "g2"})
        self.offsets.remove_group("g1")
        self.assertEqual(self.offsets.table().offset_table, {"T1@g2": {0: 1}})
        self.offsets.remove_topic("T1")
        self.assertEqual(self.offsets.table().offset_table, {})

    def test_merged(self) -> None:
        """Another broker's table only moves offsets forward."""
        self.offsets.commit("g", "T", 0, 5, "127.0.0.1:1")
        moved = self.offsets.merge_max(OffsetTable(offset_table={"T@g": {0: 4, 1: 2}}))
        self.assertEqual((moved, self.offsets.queues("g", "T")), (1, {0: 5, 1: 2}))


class StartTests(BrokerTestCase):
    """A start with offsets that the log does not reach."""

    def test_above_its_queue(self) -> None:
        """A master brings a group back to its queue's end, or it would pass over the messages that
        get those places; a slave, which may be behind, leaves it.
        """
        master = self.broker()
        master.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        client = self.client()
        for _ in range(5):
            client.ask(RequestCode.SEND_MESSAGE_V2, sending("T"), b"x")
        self.clock.advance(0.1)
        master.offsets.commit("g", "T", 0, 9, "10.0.0.1:1")
        master.offsets.commit("h", "T", 0, 3, "10.0.0.1:1")
        self.clock.advance(INTERVAL + 1)
        for slave, expected in ((True, 9), (False, 5)):
            self.close_store(self.serving.store)
            broker = self.broker(slave=slave, id=int(slave))
            self.successResultOf(broker.prepare())
            offsets = broker.offsets
            self.assertEqual((offsets.get("g", "T", 0), offsets.get("h", "T", 0)), (expected, 3))


class PowerCutTests(JournalTestCase):
    """Which offsets there are after a loss of power."""

    def test_any_call(self) -> None:
        """Whatever the disk has of what was not synced, names of files too, no offset is older than
        the last batch that was durable, and nothing is damaged.
        """

        def change(choice: random.Random, step: int) -> None:
            what = choice.randrange(8)
            if what == 0:
                self.offsets.remove_topic("T")
            elif what == 1:
                self.offsets.reset("g", "T", 0, choice.randrange(step))
            else:
                self.commit(step, choice.randrange(2), choice.choice("TU"))

        def restored(root: Path) -> tuple[Offsets, bool]:
            found = ConsumerOffsetTable(CheckedTables(root), Clock(), now, PAUSE)
            found.load()
            assert found.read is not None
            return self.held(found), bool(found.read.damaged)

        assert_kept(self, self.offsets, change, restored, lambda: (self.held(self.offsets), False))


class JournalDamageTests(JournalTestCase):
    """A journal in which the disk has changed something that was durable."""

    def setUp(self) -> None:
        """A table, and a journal of three batches since."""
        super().setUp()
        self.commit(1)
        self.clock.advance(INTERVAL + 1)
        self.ends: list[int] = []
        for offset in (10, 20, 30):
            self.commit(offset)
            self.commit(offset, queue_id=offset)
            self.clock.advance(PAUSE)
            self.ends.append(self.journal.stat().st_size)

    @property
    def journal(self) -> Path:
        return offset_segments.path_of(self.root / "rmqha" / "offsets", self.segments[-1])

    def test_any_byte(self) -> None:
        """A byte that is not what it was costs the batch in which it is and no other; it is named,
        in the log and in C{/healthz}, unless a loss of power may have left it.
        """
        whole = self.journal.read_bytes()
        batches = [{10: 10}, {20: 20}, {30: 30}]
        for place in range(0, len(whole), 1 + tries(2)):
            data = bytearray(whole)
            data[place] ^= 1 << place % 8
            self.journal.write_bytes(data)
            found = self.crashed()
            head, hit = place < 16, next(n for n, end in enumerate(self.ends) if place < end)
            expected = {0: 1 if head else 20 if hit == 2 else 30}
            for number, batch in enumerate(batches):
                if not head and number != hit:
                    expected |= batch
            self.assertEqual(self.held(found), {"T@g": expected}, place)
            assert found.read is not None
            self.assertEqual(bool(found.journal_damage()), hit < 2, place)
            self.assertEqual(bool(found.read.torn), hit == 2, place)

    def test_named(self) -> None:
        """The log says which file it is, and how much of it."""
        data = bytearray(self.journal.read_bytes())
        data[30] ^= 1
        self.journal.write_bytes(data)
        found = self.crashed()
        name = self.journal.name
        said = f"{name}: {self.ends[0] - 16} bytes before others are no whole records"
        self.assertEqual(found.journal_damage(), {name: said})


class TableDamageTests(JournalTestCase):
    """A file of the table, or of the checksums, that is not what was written."""

    def test_any_file(self) -> None:
        """A byte that is another, or an end that is gone, zeroed or nonsense, costs no offset; that
        a table is not what it was is in the log and in what C{/healthz} says.
        """
        for offset in (100, 200, 300):
            self.commit(offset)
            self.commit(offset + 5, group="h")
            self.clock.advance(INTERVAL + 1)
            self.commit(offset - 50)
            self.clock.advance(PAUSE)
        truth = self.held(self.offsets)
        for path in [*self.root.glob("config/*"), *self.root.glob("rmqha/tables.json*")]:
            whole = path.read_bytes()
            for what in _damaged(whole):
                path.write_bytes(what)
                found = self.crashed()
                self.assertEqual(self.held(found), truth, (path, what))
                assert found.read is not None
                own = path.name == CONSUMER_OFFSETS
                self.assertEqual(found.read.file.older, own, (path, what))
                self.assertIn(path.name if own else "", found.read.file.fault)
            path.write_bytes(whole)


def _damaged(whole: bytes) -> Iterator[bytes]:
    yield from (b"", b"{}", b"[]", b"null", b'{"offsetTable":null}', b'{"offsetTable":{"T@g":{}}}')
    for place in range(0, len(whole), 7 * tries(5)):
        end = len(whole) - place
        yield from (whole[:place], whole[:place] + bytes(end))
        yield whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
