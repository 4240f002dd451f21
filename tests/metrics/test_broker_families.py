"""What a broker tells monitors of topics, groups and requests."""

from __future__ import annotations

from rmqha.metrics.broker_families import of_broker
from rmqha.metrics.family import Buckets
from rmqha.wire.remoting.bodies.clients import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.admin import CreateTopicRequest
from rmqha.wire.remoting.headers.clients import EndTransactionRequest
from rmqha.wire.remoting.headers.pull import PullMessageRequest
from rmqha.wire.remoting.json_body import write
from tests.broker.support import NOW, SEND_V2, BrokerTestCase, Client, sending

TICK = 10.0


def ending(half: Command | None, word: int) -> dict[str, str]:
    """Ends a half message of producer group C{pg}: word 8 to commit, 12 to roll back."""
    assert half is not None, "it was answered"
    header = EndTransactionRequest(
        producer_group="pg",
        tran_state_table_offset=int(half.ext["queueOffset"]),
        commit_log_offset=int(half.ext["msgId"][-16:], 16),
        commit_or_rollback=word,
        msg_id="U1",
    )
    return to_ext(header)


class BrokerFamiliesTests(BrokerTestCase):
    def begin(self, *, slave: bool = False) -> Client:
        broker = self.broker(slave=slave)
        broker.counts.start()
        broker.counts.watch(broker.store.queues)
        self.addCleanup(broker.counts.stop)
        config = TopicConfig(
            topic_name="T",
            read_queue_nums=2,
            write_queue_nums=2,
            attributes={"message.type": "FIFO"},
        )
        broker.topics.put(config)
        broker.groups.find("cg")
        return self.client()

    def send(self, client: Client, *queues: int, size: int = 10, **more: object) -> None:
        for queue_id in queues:
            answer = client.ask(SEND_V2, sending("T", queue_id=queue_id, **more), b"x" * size)
            self.assertEqual(getattr(answer, "code", None), 0)
            self.clock.advance(1)

    def online(self, model: MessageModel = MessageModel.CLUSTERING) -> Client:
        client = self.client()
        wishes = (SubscriptionData(topic="T", sub_string="*"),)
        consumer = ConsumerData(group_name="cg", message_model=model, subscription_data_set=wishes)
        body = HeartbeatData(
            client_id="c1",
            producer_data_set=(ProducerData(group_name="pg"),),
            consumer_data_set=(consumer,),
        )
        client.send(Command(code=RequestCode.HEART_BEAT, version=407, body=write(body)))
        client.heard()
        return client

    def told(self) -> dict[str, float | Buckets]:
        """All samples, by name and labels as they are written."""
        found: dict[str, float | Buckets] = {}
        for sample in of_broker(self.serving):
            if sample is not None:
                family, values, value = sample
                labels = ",".join(map("=".join, zip(family.labels, values, strict=True)))
                key = family.name + (f"{{{labels}}}" if labels else "")
                self.assertNotIn(key, found)
                found[key] = value
        return found

    def assert_told(self, wanted: dict[str, float]) -> None:
        found = self.told()
        self.assertEqual({name: found.get(name) for name in wanted}, wanted)

    def test_in(self) -> None:
        """Messages and their bytes in the log are told by topic, with its type."""
        client = self.begin()
        self.send(client, 0, 0, 1)
        self.send(client, 1, size=5000)
        self.clock.advance(TICK)
        log = self.serving.store.log
        labels = "{topic=T,message_type=fifo,is_system=false}"
        self.assert_told(
            {
                f"rocketmq_messages_in_total{labels}": 4,
                f"rocketmq_throughput_in_total{labels}": log.end,
            }
        )
        sizes = self.told()["rocketmq_message_size"]
        assert isinstance(sizes, Buckets)
        self.assertEqual((list(sizes.counts), sizes.total), ([3, 3, 4, 4, 4, 4, 4], log.end))

    def test_out(self) -> None:
        """What a group is sent is told by topic and group; what was pulled and not committed is in
        flight, what was not even pulled is ready, and both are its lag.
        """
        client = self.begin()
        self.send(client, 0, 0, 0, 1)
        pull = PullMessageRequest(
            consumer_group="cg",
            topic="T",
            queue_id=0,
            queue_offset=0,
            max_msg_nums=2,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        self.online().ask(RequestCode.PULL_MESSAGE, to_ext(pull))
        self.serving.offsets.commit("cg", "T", 0, 1, "test")
        labels = "{topic=T,consumer_group=cg,is_retry=false,is_system=false}"
        self.assert_told(
            {
                f"rocketmq_messages_out_total{labels}": 2,
                f"rocketmq_consumer_lag_messages{labels}": 3,
                f"rocketmq_consumer_inflight_messages{labels}": 1,
                f"rocketmq_consumer_ready_messages{labels}": 2,
                # The second of queue 0 was sent a second after the first, three ago.
                f"rocketmq_consumer_lag_latency{labels}": 3000,
            }
        )

    def test_current(self) -> None:
        """A group that has everything has no lag, however old its last message is."""
        self.send(self.begin(), 0)
        self.serving.offsets.commit("cg", "T", 0, 1, "test")
        self.clock.advance(500)
        labels = "{topic=T,consumer_group=cg,is_retry=false,is_system=false}"
        self.assert_told(
            {
                f"rocketmq_consumer_lag_messages{labels}": 0,
                f"rocketmq_consumer_lag_latency{labels}": 0,
            }
        )

    def test_broadcast(self) -> None:
        """Consumers that each get everything have no lag that a broker could know."""
        self.send(self.begin(), 0)
        self.serving.offsets.commit("cg", "T", 0, 0, "test")
        self.online(MessageModel.BROADCASTING)
        self.assertFalse([name for name in self.told() if "lag" in name])

    def test_clients(self) -> None:
        """Producers and consumers are told by kind, and how many topics and groups there are."""
        self.begin()
        self.online()
        found = self.told()
        self.assertEqual(found["rocketmq_producer_connections{language=python,version=407}"], 1)
        (row,) = [name for name in found if name.startswith("rocketmq_consumer_connections")]
        self.assertIn("consumer_group=cg,language=python,version=407", row)
        self.assertEqual(found["rocketmq_topic_number"], len(self.serving.topics.names()))
        self.assertEqual(found["rocketmq_broker_permission"], 6)

    def test_transactions(self) -> None:
        """Half messages are told while open, and how they ended by their topic."""
        client = self.begin()
        halves = []
        for _ in range(3):
            properties = {"UNIQ_KEY": "U1", "PGROUP": "pg", "TRAN_MSG": "true"}
            fields = sending("T", sys_flag=4, properties=properties)
            halves.append(client.ask(SEND_V2, fields, b"pay"))
            self.clock.advance(0.01)
        self.assert_told({"rocketmq_half_messages": 3})
        for half, word in zip(halves[:2], (8, 12), strict=True):
            client.ask(RequestCode.END_TRANSACTION, ending(half, word))
            self.clock.advance(0.01)
        self.assert_told(
            {
                "rocketmq_half_messages": 1,
                "rocketmq_commit_messages_total{topic=T}": 1,
                "rocketmq_rollback_messages_total{topic=T}": 1,
            }
        )

    def test_finished(self) -> None:
        """How long a transaction took is told by topic, in seconds since its half message was made;
        what is rolled back is not in it.
        """
        client = self.begin()
        for age, word in ((70, 8), (3, 8), (7000, 12)):
            fields = sending(
                "T",
                sys_flag=4,
                properties={"UNIQ_KEY": "U1", "PGROUP": "pg", "TRAN_MSG": "true"},
                born_timestamp=self.serving.store.now_ms() - age * 1000,
            )
            half = client.ask(SEND_V2, fields, b"pay")
            self.clock.advance(1)
            client.ask(RequestCode.END_TRANSACTION, ending(half, word))
            self.clock.advance(1)
        took = self.told()["rocketmq_finish_message_latency{topic=T}"]
        assert isinstance(took, Buckets)
        self.assertEqual(tuple(took.bounds), (5, 60, 600, 3600, 43200, 86400))
        self.assertEqual((list(took.counts), took.total), ([1, 1, 2, 2, 2, 2, 2], 75))

    def test_dead_letters(self) -> None:
        """What a group gave up is told by the group."""
        client = self.begin()
        self.send(client, 0)
        record = self.record("T")
        ext = {
            "group": "cg",
            "offset": str(record.offset),
            "delayLevel": "-1",
            "originMsgId": "x",
            "originTopic": "T",
            "unitMode": "false",
        }
        client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, ext)
        self.assert_told({"rocketmq_send_to_dlq_messages_total{consumer_group=cg}": 1})

    def test_storage(self) -> None:
        """The age of the oldest message, and what waits for the disk and for dispatch."""
        self.send(self.begin(), 0)
        self.clock.advance(2)
        labels = "{storage_type=local,storage_medium=disk}"
        store = self.serving.store
        self.assert_told(
            {
                f"rocketmq_storage_message_reserve_time{labels}": store.now_ms() - NOW,
                f"rocketmq_storage_flush_behind_bytes{labels}": store.log.end - store.log.flushed,
                f"rocketmq_storage_dispatch_behind_bytes{labels}": 0,
            }
        )
        self.assertGreater(self.told()[f"rocketmq_storage_size{labels}"], 0)

    def test_requests(self) -> None:
        """Requests are told by their names and their answers', those of the write lane too."""
        client = self.begin()
        self.send(client, 0, 0)
        client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "nope"})
        found = self.told()
        for request, answer, count in (
            ("send_message_v2", "success", 2),
            ("get_topic_stats_info", "topic_not_exist", 1),
        ):
            labels = f"protocol_type=remoting,request_code={request},response_code={answer}"
            took = found[f"rocketmq_rpc_latency{{{labels},is_long_polling=false}}"]
            assert isinstance(took, Buckets)
            self.assertEqual(took.counts[-1], count)

    def test_creations(self) -> None:
        """How long topics and groups took is told by whether they were made, in milliseconds."""
        client = self.begin()
        self.assertFalse([name for name in self.told() if "create_execution" in name])
        for name in ("One", "Two", "of/a/path"):
            header = CreateTopicRequest(
                topic=name,
                default_topic="TBW102",
                read_queue_nums=1,
                write_queue_nums=1,
                perm=6,
                topic_filter_type="SINGLE_TAG",
                topic_sys_flag=0,
            )
            client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, to_ext(header))
        body = write(GroupConfig(group_name="g1"))
        client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        found = self.told()
        for kind, status, count in (
            ("topic", "success", 2),
            ("topic", "failure", 1),
            ("consumer_group", "success", 1),
        ):
            labels = f"invocation_status={status}"
            took = found[f"rocketmq_{kind}_create_execution_time{{{labels}}}"]
            assert isinstance(took, Buckets)
            self.assertEqual(took.counts[-1], count)
            self.assertEqual(tuple(took.bounds), (10, 100, 1000, 3000, 5000))

    def test_slave(self) -> None:
        """A slave counts no messages in: they were sent to its master, which tells of them."""
        self.begin(slave=True)
        found = self.told()
        self.assertIn("rocketmq_topic_number", found)
        for name in ("messages_in", "message_size", "half_messages"):
            self.assertFalse([each for each in found if name in each], name)
