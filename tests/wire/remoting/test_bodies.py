"""Bodies: shapes from captured JSON and back, and what does not fit them."""

from __future__ import annotations

import zlib
from struct import pack
from typing import Any

from attrs import AttrsInstance, evolve, frozen
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import BodyInvalid
from rmqha.wire.remoting import fastjson, json_body
from rmqha.wire.remoting.bodies import (
    clients,
    later_slaves,
    offsets,
    register,
    request_modes,
    route,
    status,
    tables,
)
from rmqha.wire.remoting.bodies.common import DataVersion, MessageQueue
from rmqha.wire.remoting.codes import RequestCode as Code
from tests.support import captured_bodies
from tests.support.frames import every_frame

REQUEST_BODIES: dict[int, type[AttrsInstance]] = {
    Code.HEART_BEAT: clients.HeartbeatData,
    Code.LOCK_BATCH_MQ: clients.QueueLocks,
    Code.UNLOCK_BATCH_MQ: clients.QueueLocks,
    Code.CHECK_CLIENT_CONFIG: clients.CheckClientConfig,
    Code.REGISTER_BROKER: register.RegisterBody,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: tables.GroupConfig,
    Code.RESET_CONSUMER_CLIENT_OFFSET: offsets.ResetOffsets,
    Code.QUERY_DATA_VERSION: DataVersion,
    Code.SET_MESSAGE_REQUEST_MODE: request_modes.GroupMode,
}
ANSWER_BODIES: dict[int, type[AttrsInstance]] = {
    Code.GET_ALL_TOPIC_CONFIG: tables.TopicTable,
    Code.GET_BROKER_RUNTIME_INFO: route.KvTable,
    Code.GET_CONSUMER_LIST_BY_GROUP: clients.ConsumerIds,
    Code.LOCK_BATCH_MQ: clients.LockedQueues,
    Code.GET_ALL_CONSUMER_OFFSET: offsets.ConsumerOffsets,
    Code.GET_ALL_DELAY_OFFSET: offsets.DelayOffsets,
    Code.GET_TIMER_METRICS: later_slaves.TimerMetrics,
    Code.REGISTER_BROKER: route.KvTable,
    Code.GET_ROUTEINFO_BY_TOPIC: route.TopicRoute,
    Code.GET_BROKER_CLUSTER_INFO: route.ClusterInfo,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: tables.GroupTable,
    Code.GET_TOPIC_STATS_INFO: offsets.TopicStats,
    Code.GET_CONSUMER_CONNECTION_LIST: clients.ConsumerConnection,
    Code.GET_PRODUCER_CONNECTION_LIST: clients.ProducerConnection,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: tables.TopicList,
    Code.GET_CONSUME_STATS: offsets.ConsumeStats,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: offsets.ResetOffsets,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: tables.GroupList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: tables.TopicList,
    Code.GET_CONSUMER_RUNNING_INFO: captured_bodies.RunningInfo,
    Code.CONSUME_MESSAGE_DIRECTLY: captured_bodies.ConsumeDirectlyResult,
    Code.VIEW_BROKER_STATS_DATA: status.BrokerStats,
    Code.GET_BROKER_CONSUME_STATS: offsets.ConsumeStatsList,
    Code.QUERY_CONSUME_QUEUE: status.QueueUnits,
    Code.GET_TOPIC_CONFIG: tables.TopicConfig,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: request_modes.RequestModes,
    Code.GET_BROKER_MEMBER_GROUP: route.MemberGroupAnswer,
    Code.GET_BROKER_HA_STATUS: status.HaStatus,
}
#: Bodies that are messages, properties, or a check point, and no JSON.
OTHERS = {
    (Code.SEND_MESSAGE, False),
    (Code.SEND_MESSAGE_V2, False),
    (Code.SEND_BATCH_MESSAGE, False),
    (Code.SEND_REPLY_MESSAGE_V2, False),
    (Code.PUSH_REPLY_MESSAGE_TO_CLIENT, False),
    (Code.CHECK_TRANSACTION_STATE, False),
    (Code.CONSUME_MESSAGE_DIRECTLY, False),
    (Code.UPDATE_BROKER_CONFIG, False),
    (Code.UPDATE_NAMESRV_CONFIG, False),
    (Code.PULL_MESSAGE, True),
    (Code.LITE_PULL_MESSAGE, True),
    (Code.QUERY_MESSAGE, True),
    (Code.VIEW_MESSAGE_BY_ID, True),
    (Code.GET_BROKER_CONFIG, True),
    (Code.GET_NAMESRV_CONFIG, True),
    (Code.GET_TIMER_CHECK_POINT, True),
}


def kept(sent: Any, ours: Any) -> bool:
    """Whether everything a peer said is in what we would say, with what defaults add."""
    if isinstance(sent, dict):
        return isinstance(ours, dict) and all(
            str(key) in ours and kept(value, ours[str(key)]) for key, value in sent.items()
        )
    if isinstance(sent, list):
        return len(sent) == len(ours) and all(map(kept, sent, ours))
    # Go sends the hashes of tags as texts.
    return bool(sent == ours) or str(sent) == str(ours)


class CapturedBodies(SynchronousTestCase):
    def test_every_body(self) -> None:
        """Every captured body has its class, and nothing in it is lost on the way through."""
        for name, frame in every_frame():
            if not frame.body or (frame.request_code, frame.is_answer) in OTHERS:
                continue
            classes = ANSWER_BODIES if frame.is_answer else REQUEST_BODIES
            body = json_body.read(classes[frame.request_code], frame.body)
            for keys in ("bare", "quoted"):
                raw = json_body.write(body, numeric_keys=keys)
                self.assertEqual(body, json_body.read(type(body), raw), name)
                self.assertTrue(kept(fastjson.loads(frame.body), fastjson.loads(raw)), name)

    def test_java_bytes(self) -> None:
        """Where a reader is particular, ours are Java's bytes: offsets by queue for Go."""
        for name, frame in every_frame():
            if frame.request_code in (220, 222) and frame.body.startswith(b'{"offsetTable":{{'):
                body = json_body.read(offsets.ResetOffsets, frame.body)
                self.assertEqual(frame.body, json_body.write(body), name)


@frozen(kw_only=True)
class Shape:
    """A body with one of each."""

    name: str
    count: int = 0
    rate: float = 0.0
    on: bool = False
    model: clients.MessageModel = clients.MessageModel.CLUSTERING
    inner: tuple[DataVersion, ...] = ()
    by_number: dict[int, str] | None = None


class Shapes(SynchronousTestCase):
    def test_lenient(self) -> None:
        """Numbers in quotes, enums by number, null and unknown members are as in Java."""
        shape = json_body.read(
            Shape, b'{"name":5,"count":"7","rate":"1.5","on":"TRUE","model":0,"x":1,"inner":null}'
        )
        self.assertEqual(
            Shape(name="5", count=7, rate=1.5, on=True, model=clients.MessageModel.BROADCASTING),
            shape,
        )

    def test_misfits(self) -> None:
        """What does not fit is named with its place."""
        for text, reason in (
            ("[]", "[] is not an object"),
            ("{}", "name is missing"),
            ('{"name":null}', "name is missing"),
            ('{"name":[]}', "name: [] is not a string"),
            ('{"name":"a","count":"x"}', "count: 'x' is not an integer"),
            ('{"name":"a","count":1.5}', "count: 1.5 is not an integer"),
            ('{"name":"a","count":1e400}', "count: inf is not an integer"),
            ('{"name":"a","count":true}', "count: True is not an integer"),
            ('{"name":"a","count":9223372036854775808}', "more than 64 bits"),
            ('{"name":"a","rate":"x"}', "rate: 'x' is not a number"),
            ('{"name":"a","on":"maybe"}', "on: 'maybe' is neither"),
            ('{"name":"a","on":2}', "on: 2 is neither"),
            ('{"name":"a","model":"NONE"}', "model: 'NONE' is not a MessageModel"),
            ('{"name":"a","model":7}', "model: 7 is not a MessageModel"),
            ('{"name":"a","model":[]}', "model: [] is not a MessageModel"),
            ('{"name":"a","inner":{}}', "inner: {} is not an array"),
            ('{"name":"a","inner":[{},{"counter":"x"}]}', "inner.1.counter: 'x' is no"),
            ('{"name":"a","byNumber":{"x":"y"}}', "byNumber.x: 'x' is not an integer"),
            ('{"name":"a","byNumber":{1:[]}}', "byNumber.1: [] is not a string"),
            ("{name", "invalid JSON at character"),
        ):
            error = self.assertRaises(BodyInvalid, json_body.read, Shape, text.encode())
            self.assertEqual("Shape", error.kind)
            self.assertIn(reason, str(error))

    def test_queues_as_keys(self) -> None:
        """A queue is a key as an object and inside a text, and nothing else is one."""
        expected = offsets.ResetOffsets(offset_table={MessageQueue("b", 3, "T"): 7})
        for key in (
            '{"brokerName":"b","queueId":3,"topic":"T"}',
            '"{\\"topic\\":\\"T\\",\\"queueId\\":3,\\"brokerName\\":\\"b\\"}"',
        ):
            raw = f'{{"offsetTable":{{{key}:7}}}}'.encode()
            self.assertEqual(expected, json_body.read(offsets.ResetOffsets, raw))
        for key in ('"T"', '"7"', "{}"):
            raw = f'{{"offsetTable":{{{key}:7}}}}'.encode()
            self.assertRaises(BodyInvalid, json_body.read, offsets.ResetOffsets, raw)

    def test_reset_for_c(self) -> None:
        """Clients in C++ get the same offsets as a list."""
        body = offsets.ResetOffsets(offset_table={MessageQueue("b", 3, "T"): 7}).for_c()
        self.assertEqual(
            b'{"offsetTable":[{"brokerName":"b","offset":7,"queueId":3,"topic":"T"}]}',
            json_body.write(body),
        )

    def test_unknown_members_are_passed_on(self) -> None:
        """What a newer broker says of a topic or group reaches whoever asks us."""
        raw = b'{"topicConfigTable":{"T":{"topicName":"T","future":{"a":[1]}}},"mapping":{"b":2}}'
        table = json_body.read(tables.TopicTable, raw)
        table = evolve(table, data_version=table.data_version.changed(5))
        again = fastjson.loads(json_body.write(table))
        self.assertEqual({"a": [1]}, again["topicConfigTable"]["T"]["future"])
        self.assertEqual({"b": 2}, again["mapping"])
        self.assertEqual({"counter": 1, "timestamp": 5, "stateVersion": 0}, again["dataVersion"])

    def test_defaults(self) -> None:
        """A topic or a group of which only the name is known is Java's default."""
        topic = json_body.read(tables.TopicConfig, b'{"topicName":"T"}')
        self.assertEqual((16, 16, 6), (topic.read_queue_nums, topic.write_queue_nums, topic.perm))
        group = json_body.read(tables.GroupConfig, b'{"groupName":"g"}')
        self.assertEqual((1, 16, 1), _group(group))

    def test_what_cannot_be_kept(self) -> None:
        """Members of newer releases are refused if they could never be written again."""
        for value in ("[" * 300 + "]" * 300, '{"a":' * 300 + "1" + "}" * 300, "[NaN]", "Infinity"):
            raw = f'{{"groupName":"g","colours":{value}}}'.encode()
            error = self.assertRaises(BodyInvalid, json_body.read, tables.GroupConfig, raw)
            self.assertIn("colours: ", str(error))

    def test_place_under_a_number(self) -> None:
        """What is wrong in a table is told with its place, also below a key that is a number."""
        table = {"offsetTable": {"t@g": {3: "x"}}}
        error = self.assertRaises(BodyInvalid, json_body.from_json, offsets.ConsumerOffsets, table)
        self.assertIn("offsetTable.t@g.3: 'x' is not an integer", str(error))

    @given(st.binary())
    def test_garbage(self, raw: bytes) -> None:
        """Any bytes are a heartbeat or said to be none."""
        try:
            json_body.read(clients.HeartbeatData, raw)
        except BodyInvalid:
            pass


def _group(group: tables.GroupConfig) -> tuple[int, int, int]:
    return group.retry_queue_nums, group.retry_max_times, group.which_broker_when_consume_slowly


#: A compressed registration as brokers of 4.9.8 make it.
COMPRESSED = bytes.fromhex(
    "789c63606050af564ace2fcd2b492d52b232d4512ac9cc4d2d2e49cc2d00f2cc0d10a096818181118885430c154c80"
    "d04c21d8d3cfddc7353ec4d11d28cc141d0b00d39b1133"
)


def piece(raw: bytes) -> bytes:
    """Bytes behind their length."""
    return pack(">i", len(raw)) + raw


class Registrations(SynchronousTestCase):
    def test_golden(self) -> None:
        """A known compressed body is read, its checksum known, and ours reads the same."""
        self.assertEqual(101122503, register.checksum(COMPRESSED))
        body = register.read(COMPRESSED, version=409, compressed=True)
        table = body.topic_config_serialize_wrapper
        self.assertEqual(DataVersion(counter=1, timestamp=1700000000000), table.data_version)
        topic = tables.TopicConfig(topic_name="T1", read_queue_nums=4, write_queue_nums=4)
        self.assertEqual({"T1": topic}, table.topic_config_table)
        again = register.write(body, compressed=True)
        self.assertEqual(body, register.read(again, version=409, compressed=True))

    def test_forms(self) -> None:
        """The whole body, the topics alone of an old broker, and nothing."""
        body = register.read(COMPRESSED, version=409, compressed=True)
        raw = register.write(body)
        self.assertEqual(body, register.read(raw, version=409, compressed=False))
        topics = json_body.write(body.topic_config_serialize_wrapper)
        self.assertEqual(body, register.read(topics, version=36, compressed=False))
        self.assertEqual(register.RegisterBody(), register.read(b"", version=36, compressed=False))

    def test_lies(self) -> None:
        """Counts and lengths that are not true, and bombs, are refused."""
        version = piece(b"{}")
        topic = piece(b"T 4 4 6 SINGLE_TAG")
        for raw in (
            b"",
            b"\x00\x00",
            pack(">i", -1),
            pack(">i", 1 << 30),
            version + pack(">i", -1),
            version + pack(">i", 1 << 30),
            version + pack(">i", 2) + topic + piece(b"[]"),
            version + pack(">i", 1) + piece(b"T 4") + piece(b"[]"),
            version + pack(">i", 1) + piece(b"T a b c d") + piece(b"[]"),
            version + pack(">i", 1) + topic + piece(b"{}"),
            version + pack(">i", 1) + topic + piece(b"["),
            bytes(register.INFLATED_LIMIT + 1),
        ):
            self.assertRaises(
                BodyInvalid, register.read, zlib.compress(raw), version=409, compressed=True
            )
        for raw in (b"x", COMPRESSED[:-1]):
            self.assertRaises(BodyInvalid, register.read, raw, version=409, compressed=True)
