"""What a slave answers to each request, beside its master."""

from __future__ import annotations

from json import dumps
from typing import Any

from rmqha.broker.admin.permissions import SLAVE_REFUSES
from rmqha.wire.remoting.bodies.clients import CheckClientConfig, QueueLocks
from rmqha.wire.remoting.bodies.common import MessageQueue
from rmqha.wire.remoting.bodies.request_modes import AssignmentQuery, GroupMode
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.json_body import write
from tests.broker.consumer_side import GROUP, TOPIC, commit, heartbeat, wants
from tests.broker.support import BORN, SEND_V2, BrokerTestCase, Client, batch, sending
from tests.broker.test_bad_input import GOOD
from tests.support.bad_input import good_fields
from tests.support.request_headers import REQUESTS

FIELDS: dict[Code, dict[str, Any]] = {
    Code.SEND_BATCH_MESSAGE: {"batch": True},
    Code.PULL_MESSAGE: {"sys_flag": 4 | 2},
    Code.LITE_PULL_MESSAGE: {"sys_flag": 16 | 4},
    Code.QUERY_MESSAGE: {"end_timestamp": BORN * 2},
    Code.SEARCH_OFFSET_BY_TIMESTAMP: {"timestamp": BORN},
    Code.UPDATE_CONSUMER_OFFSET: {"commit_offset": 2},
    Code.UPDATE_AND_CREATE_TOPIC: {"attributes": "+message.type=FIFO"},
    Code.CONSUMER_SEND_MSG_BACK: {"offset": 0},
    Code.POP_MESSAGE: {"born_time": 0, "poll_time": 0, "expression": "*"},
    Code.ACK_MESSAGE: {"offset": 0, "handle": "0 1 1 0 0 broker-a 0 0"},
    Code.CHANGE_MESSAGE_INVISIBLETIME: {"offset": 0, "handle": "0 1 1 0 0 broker-a 0 0"},
    Code.NOTIFICATION: {"born_time": 0, "poll_time": 0},
}
"""What a request says that others do not."""

BODIES: dict[Code, bytes] = {
    Code.SEND_BATCH_MESSAGE: batch((b"x", "")),
    Code.UPDATE_BROKER_CONFIG: b"slaveReadEnable=true",
    Code.HEART_BEAT: bytes(heartbeat("c1", wants(), producer="pg").body),
    Code.LOCK_BATCH_MQ: write(
        QueueLocks(
            consumer_group=GROUP, client_id="c1", mq_set=(MessageQueue("broker-a", 1, TOPIC),)
        )
    ),
    Code.CHECK_CLIENT_CONFIG: write(
        CheckClientConfig(client_id="c1", group=GROUP, subscription_data=wants("A"))
    ),
}
A_GROUP = {"groupName": GROUP}
A_TOPIC = {"topicName": TOPIC, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
BODIES |= {
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: dumps(A_GROUP).encode(),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: dumps({"groupConfigList": [A_GROUP]}).encode(),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: dumps({"topicConfigList": [A_TOPIC]}).encode(),
    Code.BATCH_ACK_MESSAGE: dumps({"acks": [{"c": GROUP, "t": TOPIC}]}).encode(),
}
BODIES |= {
    Code.QUERY_ASSIGNMENT: write(
        AssignmentQuery(topic=TOPIC, consumer_group=GROUP, client_id="c1", strategy_name="AVG")
    ),
    Code.SET_MESSAGE_REQUEST_MODE: write(GroupMode(topic=TOPIC, consumer_group=GROUP)),
}
BODIES[Code.UNLOCK_BATCH_MQ] = BODIES[Code.LOCK_BATCH_MQ]

STORED = (14, "messages are put to the slave")
CHANGED = (1, SLAVE_REFUSES)
HANDED_OUT = (16, "is a slave: it cannot keep what was handed out")

REFUSED: dict[Code, tuple[int, str]] = {
    Code.POP_MESSAGE: HANDED_OUT,
    Code.ACK_MESSAGE: HANDED_OUT,
    Code.BATCH_ACK_MESSAGE: HANDED_OUT,
    Code.CHANGE_MESSAGE_INVISIBLETIME: HANDED_OUT,
    Code.SEND_MESSAGE: STORED,
    Code.SEND_MESSAGE_V2: STORED,
    Code.SEND_BATCH_MESSAGE: STORED,
    Code.CONSUMER_SEND_MSG_BACK: STORED,
    Code.END_TRANSACTION: (11, "a slave cannot end a transaction"),
    Code.RESUME_CHECK_HALF_MESSAGE: (1, "a slave does not check"),
    Code.UPDATE_AND_CREATE_TOPIC: CHANGED,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: CHANGED,
    Code.SET_MESSAGE_REQUEST_MODE: CHANGED,
    Code.DELETE_TOPIC_IN_BROKER: CHANGED,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: CHANGED,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: CHANGED,
    Code.DELETE_SUBSCRIPTIONGROUP: CHANGED,
}
"""What a slave leaves to its master; the answer's code, and words of its remark."""

NOT_THERE = (
    Code.END_TRANSACTION,
    Code.RESUME_CHECK_HALF_MESSAGE,
    Code.CHANGE_MESSAGE_INVISIBLETIME,
)
"""What names something that a master does not have either."""

OF_ITSELF = {
    Code.GET_BROKER_CONFIG,
    Code.GET_BROKER_RUNTIME_INFO,
    Code.GET_BROKER_HA_STATUS,
    Code.GET_ALL_TOPIC_CONFIG,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_ALL_PRODUCER_INFO,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_TIMER_CHECK_POINT,
    Code.QUERY_ASSIGNMENT,
    Code.EXCHANGE_BROKER_HA_INFO,
}
"""Answered well, with what is each broker's own."""

NOT_ITS_OWN = {Code.VIEW_BROKER_STATS_DATA: (1, "TOPIC_PUT_NUMS")}
"""What was counted since the start, and nothing was since this one's."""


class SlaveCodesTests(BrokerTestCase):
    """One store, served by a master first and by a slave then."""

    def begin(self, *, slave: bool) -> Client:
        """Serve; a consumer is there that answers nothing."""
        self.broker(slave=slave)
        told = heartbeat("c1", wants(), producer="pg")
        told.version = 407
        self.client().send(told)
        return self.client()

    def filled(self) -> None:
        """A store with a topic, some messages with keys, and a group that has got somewhere."""
        client = self.begin(slave=False)
        serve = self.serving
        serve.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        serve.groups.put(GroupConfig(group_name=GROUP))
        for number in range(5):
            said = {"UNIQ_KEY": f"U{number}", "KEYS": "k", "TAGS": "A"}
            answer = client.ask(SEND_V2, sending(TOPIC, properties=said), b"body %d" % number)
            assert answer is not None and answer.code == 0
            self.clock.advance(1)
        for queue_id in range(4):
            serve.offsets.commit(GROUP, TOPIC, queue_id, 0 if queue_id else 2, "test")

    def ask(self, client: Client, code: Code) -> Command:
        """Ask something sensible, and wait for the answer."""
        ext = good_fields(REQUESTS[code].request, GOOD | FIELDS.get(code, {}))
        client.send(Command(code=code, version=407, ext=ext, body=BODIES.get(code, b"")))
        for _ in range(20):
            for heard in client.heard():
                if heard.is_response:
                    return heard
            self.clock.advance(1)
        raise AssertionError(f"{code.name} is not answered")

    def codes(self) -> list[Code]:
        """All that is handled; a client's farewell comes last."""
        found = {Code(code) for code in self.serving.registry.codes()} - {Code.UNREGISTER_CLIENT}
        return [*sorted(found), Code.UNREGISTER_CLIENT]

    def test_each(self) -> None:
        """Changes are refused with RocketMQ's codes; all else is answered as its master does."""
        self.filled()
        client = self.client()
        leave = {*REFUSED, Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2}
        masters = {code: self.ask(client, code) for code in self.codes() if code not in leave}
        self.successResultOf(self.serving.stop())
        self.close_store(self.serving.store)
        client = self.begin(slave=True)
        end = self.serving.store.log.end
        for code in self.codes():
            answer = self.ask(client, code)
            if code in REFUSED or code in NOT_ITS_OWN:
                wanted, words = (REFUSED | NOT_ITS_OWN)[code]
                self.assertEqual(answer.code, wanted, code)
                self.assertIn(words, answer.remark or "", code)
            elif code in OF_ITSELF:
                self.assertEqual(answer.code, ResponseCode.SUCCESS, code)
            elif code in masters:
                said = masters[code]
                self.assertEqual(
                    (answer.code, answer.remark, answer.ext, bytes(answer.body)),
                    (said.code, said.remark, said.ext, bytes(said.body)),
                    code,
                )
        self.assertEqual(self.serving.store.log.end, end, "a slave writes nothing")

    def test_what_a_master_refuses(self) -> None:
        """The requests above are good ones: a master refuses none of those."""
        self.filled()
        client = self.client()
        self.serving.timers.start()
        self.addCleanup(self.serving.timers.stop)
        self.clock.advance(0.01)
        refused = {code: self.ask(client, code) for code in REFUSED}
        self.assertEqual(
            {},
            {
                code.name: answer.remark
                for code, answer in refused.items()
                if answer.code and code not in NOT_THERE
            },
        )

    def test_progress(self) -> None:
        """A slave learns how far a group is, and tells clients, administrators, and who copies."""
        self.filled()
        self.successResultOf(self.serving.stop())
        self.close_store(self.serving.store)
        client = self.begin(slave=True)
        self.assertEqual(self.ask(client, Code.QUERY_CONSUMER_OFFSET).ext, {"offset": "2"})
        client.send(commit(3))
        self.assertEqual([answer.code for answer in client.heard()], [0])
        self.assertEqual(self.ask(client, Code.QUERY_CONSUMER_OFFSET).ext, {"offset": "3"})
        table = bytes(self.ask(client, Code.GET_ALL_CONSUMER_OFFSET).body)
        self.assertIn(b'"TopicA@group-a":{0:3,', table)
        self.assertIn(b'"consumerOffset":3', bytes(self.ask(client, Code.GET_CONSUME_STATS).body))
