"""Transactions: what ends them, and what becomes of those nobody ends."""

from __future__ import annotations

from typing import Any

from rmqha.config.broker_settings import TransactionSettings
from rmqha.errors import DiskFull
from rmqha.wire.log.record import decode
from rmqha.wire.names import (
    HALF_DONE_TOPIC,
    HALF_GIVEN_UP_TOPIC,
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
)
from rmqha.wire.remoting.bodies.clients import HeartbeatData, ProducerData
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext, to_ext
from rmqha.wire.remoting.headers.clients import CheckTransactionRequest, EndTransactionRequest
from rmqha.wire.remoting.json_body import write
from tests.broker.support import SEND_V2, BrokerTestCase, Client, sending
from tests.support.log_lines import log_events

HALF_PROPERTIES = {"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "U1", "TAGS": "A"}


class TransactionsTestCase(BrokerTestCase):
    """A master whose producer sends half messages."""

    def begin(self, **settings: Any) -> Client:
        """Serve, and have a producer."""
        limits = {"timeout": 6.0, "check_max": 2, "check_interval": 60.0} | settings
        self.broker(transactions=TransactionSettings(**limits)).transactions.start()
        return self.producer()

    def producer(self) -> Client:
        """Another connection of the producer group."""
        client = self.client()
        body = HeartbeatData(client_id="p1", producer_data_set=(ProducerData(group_name="pg"),))
        client.ask(RequestCode.HEART_BEAT, body=write(body))
        return client

    def half(self, client: Client, **more: str) -> Command:
        ext = sending("T", queue_id=2, sys_flag=4, properties=HALF_PROPERTIES | more)
        answer = client.ask(SEND_V2, ext, b"pay")
        assert answer is not None
        self.assertEqual(answer.code, 0, answer.remark)
        self.clock.advance(0.01)
        return answer

    def end(self, client: Client, half: Command, word: int = 8, **more: Any) -> Command:
        """Say what became of it."""
        fields = {
            "producer_group": "pg",
            "tran_state_table_offset": int(half.ext["queueOffset"]),
            "commit_log_offset": int(half.ext["msgId"][-16:], 16),
            "commit_or_rollback": word,
            "msg_id": "U1",
        } | more
        header = EndTransactionRequest(**fields)
        answer = client.ask(RequestCode.END_TRANSACTION, to_ext(header))
        assert answer is not None
        self.clock.advance(0.01)
        return answer

    def length(self, topic: str, queue_id: int = 0) -> int:
        """How many messages a queue has."""
        self.clock.advance(0.01)
        return (self.serving.lookup.bounds(topic, queue_id) or (0, 0))[1]


class EndTests(TransactionsTestCase):
    """Request 37."""

    def test_commit(self) -> None:
        """A committed message comes to its own queue, with the half's properties."""
        client = self.begin()
        half = self.half(client)
        self.assertEqual((half.ext["queueId"], half.ext["queueOffset"]), ("2", "0"))
        self.assertEqual((self.length("T", 2), self.end(client, half).code), (0, 0))
        record = self.record("T", 2)
        self.assertEqual((record.body, record.sys_flag & 12), (b"pay", 8))
        self.assertEqual(record.prepared_transaction_offset, int(half.ext["msgId"][-16:], 16))
        for name, value in (HALF_PROPERTIES | {"REAL_TOPIC": "T", "REAL_QID": "2"}).items():
            self.assertEqual(record.properties[name], value)
        op = self.record(HALF_DONE_TOPIC)
        self.assertEqual((op.body, op.properties["TAGS"]), (b"0", "d"))

    def test_delayed(self) -> None:
        """A delay counts from the commit: until then nobody knows whether there is a message."""
        client = self.begin()
        half = self.half(client, DELAY="2")
        self.assertEqual(self.length(SCHEDULE_TOPIC, 1), 0)
        self.end(client, half)
        record = self.record(SCHEDULE_TOPIC, 1)
        self.assertEqual((record.body, record.sys_flag & 12), (b"pay", 8))
        told = record.properties
        self.assertEqual((told["REAL_TOPIC"], told["REAL_QID"], told["DELAY"]), ("T", "2", "2"))
        self.assertEqual(self.length("T", 2), 0)

    def test_at_once(self) -> None:
        """A producer may be faster than dispatch."""
        client = self.begin()
        ext = sending("T", queue_id=2, sys_flag=4, properties=HALF_PROPERTIES)
        half = client.ask(SEND_V2, ext, b"pay")
        assert half is not None
        self.assertEqual(self.end(client, half).code, 0)
        self.assertEqual((self.length("T", 2), self.length(HALF_DONE_TOPIC)), (1, 1))

    def test_progress_beyond_the_log(self) -> None:
        """Where a crash has cost the log its last records, what comes to their places is open."""
        client = self.begin()
        self.end(client, self.half(client))
        self.serving.offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 100, "test")
        self.serving.offsets.commit(TRANSACTION_GROUP, HALF_DONE_TOPIC, 0, 100, "test")
        for _ in range(2):
            self.successResultOf(self.serving.stop())
            self.close_store(self.serving.store)
            client = self.begin()
            before = self.length("T", 2)
            self.assertEqual(self.end(client, self.half(client)).code, 0)
            self.assertEqual(self.length("T", 2), before + 1)
        self.assertLess(self.serving.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0) or 0, 3)

    def test_rollback(self) -> None:
        """A message rolled back never comes."""
        client = self.begin()
        half = self.half(client)
        self.assertEqual(self.end(client, half, 12).code, 0)
        self.assertEqual((self.length("T", 2), self.length(HALF_DONE_TOPIC)), (0, 1))

    def test_twice(self) -> None:
        """A second word, of whatever kind, changes nothing and is answered well."""
        client = self.begin()
        half = self.half(client)
        for word in (8, 8, 12):
            self.assertEqual(self.end(client, half, word).code, 0)
        self.assertEqual((self.length("T", 2), self.length(HALF_DONE_TOPIC)), (1, 1))

    def test_twice_over_a_restart(self) -> None:
        """Nor does a second word after the broker was started again."""
        client = self.begin()
        first, second = self.half(client), self.half(client)
        self.end(client, first)
        self.successResultOf(self.serving.stop())
        self.close_store(self.serving.store)
        client = self.begin()
        self.assertEqual((self.end(client, first).code, self.length("T", 2)), (0, 1))
        self.assertEqual((self.end(client, second).code, self.length("T", 2)), (0, 2))

    def test_unknown(self) -> None:
        """A producer that does not know yet is answered, and leaves it open."""
        client = self.begin()
        half = self.half(client)
        self.assertEqual((self.end(client, half, 0).code, self.length(HALF_DONE_TOPIC)), (0, 0))

    def test_wrong(self) -> None:
        """Whoever names the wrong message is told what does not fit."""
        client = self.begin()
        half = self.half(client)
        plain = client.ask(SEND_V2, sending("T"), b"x")
        assert plain is not None
        at = int(plain.ext["msgId"][-16:], 16)
        for more, remark in (
            ({"producer_group": "other"}, "The producer group wrong"),
            ({"tran_state_table_offset": 7}, "The transaction state table offset wrong"),
            ({"commit_log_offset": 5}, "Find prepared transaction message failed"),
            ({"commit_log_offset": -1}, "Find prepared transaction message failed"),
            ({"commit_log_offset": at}, "Find prepared transaction message failed"),
        ):
            answer = self.end(client, half, **more)
            self.assertEqual((answer.code, answer.remark), (1, remark))
        answer = self.end(client, half, 9)
        self.assertIn("commitOrRollback is 9", str(answer.remark))
        self.assertEqual(self.length("T", 2), 0)

    def test_store_is_full(self) -> None:
        """A commit that cannot be stored is refused, and can be said again."""
        client = self.begin()
        half = self.half(client)

        self.serving.store.disk_full(DiskFull("/log", 1 << 60))
        self.assertEqual(self.end(client, half).code, 14)
        self.clock.advance(2)
        self.assertEqual((self.end(client, half).code, self.length("T", 2)), (0, 1))

    def test_slave(self) -> None:
        """A slave ends nothing."""
        self.broker(slave=True)
        header = EndTransactionRequest(
            producer_group="pg",
            tran_state_table_offset=0,
            commit_log_offset=0,
            commit_or_rollback=8,
            msg_id="U1",
        )
        answer = self.client().ask(RequestCode.END_TRANSACTION, to_ext(header))
        assert answer is not None
        self.assertEqual(answer.code, 11)


class CheckTests(TransactionsTestCase):
    """Request 39, and what comes after it."""

    def asked(self, client: Client) -> list[Command]:
        """What the producer was asked."""
        return [
            command
            for command in client.heard()
            if command.code == RequestCode.CHECK_TRANSACTION_STATE
        ]

    def test_question(self) -> None:
        """The producer is shown its message, at the place of the half one."""
        client = self.begin()
        half = self.half(client)
        self.clock.advance(60)
        (question,) = self.asked(client)
        header = from_ext(CheckTransactionRequest, question.ext)
        at = int(half.ext["msgId"][-16:], 16)
        self.assertTrue(question.is_oneway)
        self.assertEqual((header.tran_state_table_offset, header.commit_log_offset), (0, at))
        self.assertEqual((header.msg_id, header.transaction_id), ("U1", "U1"))
        self.assertEqual(header.offset_msg_id, half.ext["msgId"])
        shown = decode(bytes(question.body), 0, at)
        self.assertEqual((shown.topic, shown.queue_id, shown.body), ("T", 2, b"pay"))
        self.assertEqual((shown.queue_offset, shown.stored_offset), (0, at))
        self.assertEqual(shown.properties["TRANSACTION_CHECK_TIMES"], "1")
        self.assertEqual(self.end(client, half, from_transaction_check=True).code, 0)
        self.clock.advance(60)
        self.assertEqual((self.asked(client), self.length("T", 2)), ([], 1))

    def test_too_young(self) -> None:
        """A producer has its time before it is asked."""
        client = self.begin()
        self.clock.advance(55)
        self.half(client)
        self.half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        self.clock.advance(5)
        self.assertEqual(self.asked(client), [])
        self.clock.advance(60)
        self.assertEqual(len(self.asked(client)), 1)
        self.clock.advance(60)
        self.assertEqual(len(self.asked(client)), 2)

    def test_clock_was_ahead(self) -> None:
        """A half message of a moment when the clock was a day ahead keeps no other one from being
        asked about, and is asked about itself once it has been here for as long as others.
        """
        client = self.begin()
        jump, real = 86_400_000, self.serving.store.now_ms
        self.serving.store.now_ms = lambda: real() + jump
        self.half(client)
        jump = 0
        self.half(client, UNIQ_KEY="U2")
        self.clock.advance(60)
        self.assertEqual([one.ext["msgId"] for one in self.asked(client)], ["U2"])
        self.clock.advance(60)
        self.assertEqual([one.ext["msgId"] for one in self.asked(client)], ["U1", "U2"])

    def test_given_up(self) -> None:
        """Asked often enough in vain, a message is put aside and is open no more."""
        client = self.begin()
        half = self.half(client)
        for _ in range(2):
            self.clock.advance(60)
            self.assertEqual(len(self.asked(client)), 1)
        self.clock.advance(60)
        self.assertEqual(self.asked(client), [])
        self.assertEqual(self.record(HALF_GIVEN_UP_TOPIC).properties["REAL_TOPIC"], "T")
        self.assertEqual((self.end(client, half).code, self.length("T", 2)), (0, 0))

    def test_strange_properties(self) -> None:
        """What a client writes into its properties is no reason to ask nobody any more."""
        client = self.begin()
        self.half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="\u00b2")
        self.half(client, TRANSACTION_CHECK_TIMES="9" * 5000)
        # No room to write in how often it was asked.
        self.half(client, FILL="x" * 32_670)
        self.half(client, UNIQ_KEY="last")
        for _ in range(2):
            self.clock.advance(60)
            asked = [command.ext["tranStateTableOffset"] for command in self.asked(client)]
            self.assertEqual(asked, ["0", "1", "3"])
        self.clock.advance(60)
        self.assertEqual(self.length(HALF_GIVEN_UP_TOPIC), 4)

    def test_never_to_be_asked(self) -> None:
        """A half message that nobody is to be asked about ends with the log's files."""
        client = self.begin()
        self.half(client, CHECK_IMMUNITY_TIME_IN_SECONDS="999999999")
        self.clock.advance(self.serving.store.settings.file_reserved - 30)
        self.assertEqual(self.length(HALF_GIVEN_UP_TOPIC), 0)
        self.clock.advance(90)
        self.assertEqual((self.length(HALF_GIVEN_UP_TOPIC), self.asked(client)), (1, []))

    def test_resumed(self) -> None:
        """An administrator can have the counting begin anew."""
        client = self.begin()
        half = self.half(client)
        for _ in range(3):
            self.clock.advance(60)
            self.assertEqual(len(self.asked(client)), 1)
            answer = client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": half.ext["msgId"]})
            assert answer is not None
            self.assertEqual(answer.code, 0)
        refused = client.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "zz"})
        assert refused is not None
        self.assertEqual(refused.code, 1)

    def test_progress(self) -> None:
        """How far queues are done with is a group's offsets, not beyond the oldest open one."""
        client = self.begin()
        first, second, third = (self.half(client) for _ in range(3))
        self.end(client, first)
        self.end(client, third)
        self.clock.advance(60)
        offsets = self.serving.offsets
        self.assertEqual(offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0), 1)
        self.assertEqual(offsets.get(TRANSACTION_GROUP, HALF_DONE_TOPIC, 0), 1)
        self.assertEqual(len(self.asked(client)), 1)
        self.end(client, second, 12)
        self.clock.advance(60)
        self.assertEqual(offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0), 3)
        self.assertEqual(offsets.get(TRANSACTION_GROUP, HALF_DONE_TOPIC, 0), 3)

    def test_restart(self) -> None:
        """A broker that is started again asks about what is open, and about nothing else."""
        client = self.begin()
        first, second = self.half(client), self.half(client)
        self.end(client, second)
        self.successResultOf(self.serving.stop())
        self.close_store(self.serving.store)
        client = self.begin()
        self.clock.advance(60)
        (question,) = self.asked(client)
        self.assertEqual(question.ext["tranStateTableOffset"], first.ext["queueOffset"])

    def test_table_newer_than_the_log(self) -> None:
        """A half message is asked about if its end is not in the log, whatever a table says that is
        newer: of another node that had more, or because the log lost its last records.
        """
        client = self.begin()
        ended, half = self.half(client), self.half(client)
        self.end(client, ended)
        early = self.crash(self.serving.store)
        self.end(client, half)
        self.clock.advance(60)
        self.assertEqual(self.serving.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0), 2)
        self.successResultOf(self.serving.stop())
        table = self.table("consumerOffset.json").read_bytes()
        self.close_store(self.serving.store)
        self.root = early
        self.table("consumerOffset.json").write_bytes(table)
        client = self.begin()
        self.assertEqual(self.serving.offsets.get(TRANSACTION_GROUP, HALF_TOPIC, 0), 1)
        self.clock.advance(60)
        (question,) = self.asked(client)
        self.assertEqual(question.ext["tranStateTableOffset"], half.ext["queueOffset"])

    def test_no_op(self) -> None:
        """Without an op in the log all its half messages are open, wherever the ops' queue is."""
        client = self.begin()
        half = self.half(client)
        early = self.crash(self.serving.store)
        self.end(client, half)
        self.clock.advance(60)
        self.successResultOf(self.serving.stop())
        table = self.table("consumerOffset.json").read_bytes()
        self.close_store(self.serving.store)
        self.root = early
        self.table("consumerOffset.json").parent.mkdir(exist_ok=True)
        self.table("consumerOffset.json").write_bytes(table)
        store = self.broker(slave=True).store
        store.queues.begin(HALF_DONE_TOPIC, 0, 1)
        self.close_store(store)
        client = self.begin()
        self.clock.advance(60)
        self.assertEqual(len(self.asked(client)), 1)

    def test_op_tells(self) -> None:
        """The record that ends a half message says before which one all are ended."""
        client = self.begin()
        halves = [self.half(client) for _ in range(4)]
        for place, (number, told) in enumerate(((1, 1), (0, 1), (3, 3), (2, 3))):
            self.end(client, halves[number])
            op = self.record(HALF_DONE_TOPIC, 0, place)
            self.assertEqual((op.body, op.prepared_transaction_offset), (b"%d" % number, told))

    def test_interval_changes(self) -> None:
        """The interval may change while the broker runs."""
        client = self.begin()
        self.half(client)
        self.serving.current.change({"transactionCheckInterval": "10000"})
        self.clock.advance(0)
        self.clock.advance(10)
        self.assertEqual(len(self.asked(client)), 1)
        self.serving.current.change({"transactionCheckMax": "7"})
        self.successResultOf(self.serving.transactions.stop())
        self.clock.advance(100)
        self.assertEqual(self.asked(client), [])

    def test_nobody_there(self) -> None:
        """While no producer is there nobody is asked, and that does not count as asking."""
        client = self.begin()
        self.half(client)
        client.connection.connectionLost()
        self.serving._heartbeats.lost(client.connection)
        events = log_events(self)
        for _ in range(10):
            self.clock.advance(60)
        told = [event for event in events if event.get("cause") == "not asked"]
        self.assertEqual(("pg", "T"), (told[0]["group"], told[0]["topic"]))
        client = self.producer()
        for _ in range(2):
            self.clock.advance(60)
            self.assertEqual(1, len(self.asked(client)))
        self.assertEqual(0, self.length(HALF_GIVEN_UP_TOPIC))

    def test_never_back(self) -> None:
        """A half message whose producer never comes back ends with the log's files."""
        client = self.begin()
        self.half(client)
        client.connection.connectionLost()
        self.serving._heartbeats.lost(client.connection)
        self.clock.advance(self.serving.store.settings.file_reserved - 30)
        self.assertEqual(0, self.length(HALF_GIVEN_UP_TOPIC))
        self.clock.advance(90)
        self.assertEqual(1, self.length(HALF_GIVEN_UP_TOPIC))
