"""Topics that were deleted: they stay so, and begin empty when they are made again."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock, patch

from twisted.internet.defer import Deferred

from lab.harness.compare_stores import derived_faults
from rmqha.broker.ports import ClientPorts
from rmqha.errors import DiskFull
from rmqha.logfiles import json_table
from rmqha.store.log.flush import Flusher
from rmqha.wire.names import SCHEDULE_TOPIC
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.admin import TopicRequest
from rmqha.wire.remoting.headers.slave import SlaveTablesRequest
from tests.broker.cluster.test_slave_sync import MetadataTestCase
from tests.broker.delay.test_schedule import ScheduleTestCase
from tests.broker.metadata_master import topic
from tests.broker.sending.test_transactions import TransactionsTestCase
from tests.broker.support import SEND_V2, BrokerTestCase, sending


class DeletedTestCase(BrokerTestCase):
    def delete(self, name: str = "T") -> Command:
        self.clock.advance(0.01)
        client = self.client()
        ext = to_ext(TopicRequest(topic=name))
        answer = client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ext)
        if answer is None:
            self.clock.advance(0)
            (answer,) = client.heard()
        return answer


class MasterTests(DeletedTestCase):
    """On a master, whose topic had five messages, all of which a group has read."""

    def setUp(self) -> None:
        super().setUp()
        self.serve()
        self.make()
        self.send(*[b"old"] * 5)
        self.serving.offsets.commit("g", "T", 0, 5, "test")

    def serve(self) -> None:
        self.successResultOf(self.broker().prepare())

    def restart(self, *, killed: bool = False) -> None:
        if killed:
            self.root = self.crash(self.serving.store)
        else:
            self.successResultOf(self.serving.stop())
        self.close_store(self.serving.store)
        self.serve()

    def make(self) -> None:
        self.serving.topics.put(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))

    def send(self, *bodies: bytes) -> None:
        for body in bodies:
            answer = self.client().ask(SEND_V2, sending("T"), body)
            assert answer is not None
            self.assertEqual(answer.code, 0, answer.remark)
        self.clock.advance(0.01)

    def bodies(self) -> list[bytes]:
        """What a consumer finds in the topic from its first message on."""
        lookup = self.serving.lookup
        records = [lookup.by_queue_offset("T", 0, at) for at in range(*lookup.bounds("T", 0) or ())]
        return [record.body for record in records if record is not None]

    def test_stays(self) -> None:
        """It stays deleted over a kill at once, a clean stop and another kill."""
        self.assertEqual(self.delete().code, 0)
        for killed in (True, False, True):
            self.restart(killed=killed)
            self.assertIsNone(self.serving.topics.get("T"))
            self.assertIsNone(self.serving.lookup.bounds("T", 0))

    def test_in_no_queue_yet(self) -> None:
        """It stays so where its last messages come to their queue while it is being deleted."""
        self.serving.start(Mock(ClientPorts))
        client, late = self.client(), Deferred[None]()
        sent = client.ask(SEND_V2, sending("T"), b"late")
        assert sent is not None
        self.assertEqual(sent.code, 0, sent.remark)
        ext = to_ext(TopicRequest(topic="T"))
        with patch.object(Flusher, "flush", return_value=late):
            self.assertIsNone(client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ext))
        self.clock.advance(0.01)
        late.callback(None)
        self.clock.advance(0.01)
        (answer,) = client.heard()
        self.assertEqual(answer.code, 0, answer.remark)
        self.assertIsNone(self.serving.topics.get("T"))
        self.assertIsNone(self.serving.lookup.bounds("T", 0))

    def test_made_again(self) -> None:
        """Made again, at once or after restarts, it has its new messages alone; its group, which is
        told where they begin, reads all of them; a check of the store agrees.
        """
        for restarts in (0, 1, 2):
            self.assertEqual(self.delete().code, 0)
            for _ in range(restarts):
                self.restart(killed=True)
            self.make()
            self.assertEqual(self.asked(), 5 + restarts)
            self.send(b"new %d" % restarts)
            self.assertEqual(self.bodies(), [b"new %d" % restarts])
            self.assertEqual(self.asked(), 5 + restarts)
            self.serving.offsets.commit("g", "T", 0, 6 + restarts, "test")
        self.restart(killed=True)
        self.assertEqual(self.bodies(), [b"new 2"])
        self.close_store(self.serving.store)
        self.assertEqual(derived_faults(self.serving.store.settings, exact=False), [])

    def asked(self) -> int:
        """Where a group that has no offset is told to begin."""
        ext = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
        answer = self.client().ask(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)
        return int(answer.ext["offset"])

    def test_not_kept(self) -> None:
        """Where that cannot be written down the answer says so, and asking again makes it good."""
        with patch.object(json_table, "replace", side_effect=DiskFull("deleted.json", 9)):
            answer = self.delete()
        self.assertEqual(answer.code, 1)
        self.assertIn("may be there again after a restart", str(answer.remark))
        self.assertEqual(self.delete().code, 0)
        self.restart(killed=True)
        self.assertIsNone(self.serving.topics.get("T"))
        self.assertIsNone(self.serving.lookup.bounds("T", 0))

    def test_told(self) -> None:
        """Slaves of ours are told up to where, and nobody else is."""
        self.delete()
        end = self.serving.store.log.confirmed
        for header, told in (
            ({}, {}),
            (
                to_ext(SlaveTablesRequest(ha_listen_port=10912)),
                {"deletedTopics": {"T": {"end": end, "queues": {"0": 5}}}},
            ),
        ):
            answer = self.client().ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            assert answer is not None
            table = json_table.parse(bytes(answer.body)) or {}
            self.assertIn("topicConfigTable", table)
            self.assertEqual({name: table[name] for name in table if "del" in str(name)}, told)


class SlaveTests(MetadataTestCase):
    """On a slave of a master of ours."""

    def setUp(self) -> None:
        """The topic has five messages."""
        super().setUp()
        self.master.topics["T"] = topic("T")
        self.slave()
        self.copied(5)

    def copied(self, count: int) -> int:
        """Messages come from the master; where the log ends then."""
        from tests.support.logs import message

        store = self.serving.store
        for _ in range(count):
            store.put(message(200, topic="T"))
        self.turns(0.01)
        return store.log.confirmed

    def tells(self, end: int, *, gone: bool) -> None:
        """The master says that the topic was deleted."""
        self.master.change_topics(topic("More"), gone=("T",) if gone else ())
        body = cast(Any, self.master).body(RequestCode.GET_ALL_TOPIC_CONFIG)
        rows = {"T": {"end": end, "queues": {"0": 5, "3": 9}}}
        answer = (json_table.parse(body) or {}) | {"deletedTopics": rows}
        text = json_table.render_plain(answer)
        self.master.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = text
        self.round()

    def bounds(self) -> tuple[int, int] | None:
        """What is left of the topic."""
        return self.serving.lookup.bounds("T", 0)

    def test_exactly(self) -> None:
        """It deletes what the topic had on the master, also if the topic was made again before the
        slave heard of it; and knows where its queues go on.
        """
        end = self.serving.store.log.confirmed
        self.copied(2)
        self.tells(end, gone=False)
        self.assertEqual(self.bounds(), (5, 7))
        self.assertEqual(self.serving.store.queues.next_offsets({})["T", 3], 9)
        self.turns(6)
        self.assertNotIn("deletedTopics", self.table("topics.json").read_text())

    def test_behind(self) -> None:
        """One whose log is behind deletes at once what there is, and the rest when it is there."""
        self.tells(self.serving.store.log.confirmed + 400, gone=True)
        self.assertIsNone(self.bounds())
        self.copied(2)
        self.assertEqual(self.bounds(), (5, 7))
        self.round()
        self.assertIsNone(self.bounds())

    def test_senseless(self) -> None:
        """A table that tells nonsense of it is refused."""
        self.master.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = json_table.render_plain(
            (json_table.parse(cast(Any, self.master).body(RequestCode.GET_ALL_TOPIC_CONFIG)) or {})
            | {"deletedTopics": {"T": 5}}
        )
        self.round()
        self.assertEqual(self.part("topics")["state"], "refused")
        self.assertIn("deletedTopics", self.part("topics")["reason"])


class DelayedTests(ScheduleTestCase, DeletedTestCase):
    def test_sent_before(self) -> None:
        """One that was sent before its topic was deleted never comes, not even to a topic that was
        made again; the count of those says so.  One that is sent then does.
        """
        self.begin()
        self.later(b"old")
        self.assertEqual(self.delete().code, 0)
        self.skips(1.1)
        self.assertIsNone(self.serving.topics.get("T"))
        self.later(b"new")
        self.skips(1.2)
        self.assertEqual(self.got(), [b"new"])
        self.assertEqual(self.serving.schedule.status()["undeliverable"], 1)

    def test_meanwhile(self) -> None:
        """Nor does one come that is due while its topic is being deleted."""
        self.begin()
        self.later(b"old")
        client, late = self.client(), Deferred[None]()
        with patch.object(Flusher, "flush", return_value=late):
            ext = to_ext(TopicRequest(topic="T"))
            self.assertIsNone(client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, ext))
        self.skips(1.1)
        late.callback(None)
        self.clock.advance(0.01)
        self.assertIsNone(self.serving.topics.get("T"))
        self.assertEqual((self.got(), self.serving.schedule.status()["undeliverable"]), ([], 1))

    def test_after_a_restart(self) -> None:
        """Nor does it come after a restart."""
        self.begin()
        self.later(b"old")
        self.delete()
        self.again()
        self.skips(1.2)
        self.assertIsNone(self.serving.topics.get("T"))
        self.assertEqual((self.got(), self.offsets()[1]), ([], 1))
        self.assertEqual(len(self.got(SCHEDULE_TOPIC)), 1)


class HalfTests(TransactionsTestCase, DeletedTestCase):
    def test_committed(self) -> None:
        """A commit of one sent before its topic was deleted stores nothing, and says why."""
        client = self.begin()
        half = self.half(client)
        self.delete()
        answer = self.end(client, half)
        self.assertEqual(answer.code, 17)
        self.assertIn("topic T was deleted", str(answer.remark))
        self.assertEqual(self.length("T", 2), 0)
        self.assertFalse(self.serving.transactions.halves.is_open(0))
        self.assertEqual(dict(self.serving.transactions.ended), {(12, "T"): 1})
        again = self.half(client)
        self.assertEqual((self.end(client, again).code, self.record("T", 2).body), (0, b"pay"))

    def test_asked_about(self) -> None:
        """Nobody is asked about one: it is rolled back."""
        client = self.begin()
        self.half(client)
        self.delete()
        client.heard()
        self.clock.advance(60)
        self.assertEqual(client.heard(), [])
        self.assertFalse(self.serving.transactions.halves.is_open(0))
