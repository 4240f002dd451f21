"""What administrators do to topics, groups and the configuration, and what they may not."""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import Any

from attrs import evolve

from rmqha.broker.admin.permissions import SLAVE_REFUSES
from rmqha.broker.tables.current_settings import LISTS
from rmqha.config.settings import AdminSettings
from rmqha.wire.remoting.bodies.tables import GroupConfig
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import to_ext
from rmqha.wire.remoting.headers.admin import CreateTopicRequest
from rmqha.wire.remoting.json_body import write
from tests.broker.support import SEND_V2, BrokerTestCase, sending
from tests.support.log_lines import log_lines

NEW = CreateTopicRequest(
    topic="New",
    default_topic="TBW102",
    read_queue_nums=3,
    write_queue_nums=2,
    perm=6,
    topic_filter_type="SINGLE_TAG",
    topic_sys_flag=0,
)


class AdministrationTestCase(BrokerTestCase):
    def begin(self, **settings: Any) -> None:
        self.broker(**settings)
        self.admin = self.client()

    def ask(self, code: int, body: bytes = b"", **ext: str) -> Command:
        answer = self.admin.ask(code, ext, body)
        assert answer is not None, f"{code} is not answered"
        return answer

    def put_topic(self, **more: Any) -> Command:
        answer = self.admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, to_ext(evolve(NEW, **more)))
        assert answer is not None
        return answer

    def put_group(self, **more: Any) -> Command:
        config = GroupConfig(group_name="g1")
        return self.ask(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, write(evolve(config, **more))
        )

    def json(self, answer: Command) -> Any:
        self.assertEqual(answer.code, 0, answer.remark)
        return json.loads(bytes(answer.body))


class TopicTests(AdministrationTestCase):
    """Codes 17, 18, 215, 21, 351 and 305."""

    def test_make_and_change(self) -> None:
        """A topic is made, then changed; each time the table is another one."""
        self.begin()
        before = self.serving.topics.version.counter
        self.assertEqual(self.put_topic().code, 0)
        self.assertEqual(self.put_topic(perm=4, order=True).code, 0)
        topic = self.json(self.ask(RequestCode.GET_TOPIC_CONFIG, topic="New", lo="true"))
        self.assertEqual(
            topic,
            {
                "topicName": "New",
                "readQueueNums": 3,
                "writeQueueNums": 2,
                "perm": 4,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": True,
                "attributes": {},
            },
        )
        table = self.json(self.ask(RequestCode.GET_ALL_TOPIC_CONFIG))
        self.assertEqual(table["dataVersion"]["counter"], before + 2)
        self.assertNotIn("attributes", table["topicConfigTable"]["New"])

    def test_refused(self) -> None:
        """What makes no sense is refused, by name and with the value."""
        self.begin()
        for more, text in (
            ({"topic": " "}, "The specified topic is blank."),
            ({"topic": "a b"}, "illegal characters"),
            ({"topic": "x" * 128}, "longer than topic max length"),
            ({"topic": "TBW102"}, "The topic[TBW102] is conflict with system topic."),
            ({"topic": "rmq_sys_x"}, "The topic[rmq_sys_x] is conflict with system topic."),
            ({"read_queue_nums": -1}, "readQueueNums is -1"),
            ({"write_queue_nums": -1}, "writeQueueNums is -1"),
            ({"write_queue_nums": 1_000_000}, "writeQueueNums is 1000000"),
            ({"perm": 99}, "perm is 99"),
            ({"topic_filter_type": "X"}, "topicFilterType = [X] value invalid"),
        ):
            answer = self.put_topic(**more)
            self.assertEqual(answer.code, 29, more)
            self.assertIn(text, str(answer.remark))
        self.assertIsNone(self.serving.topics.get("New"))

    def attributes(self, topic: str) -> Any:
        """What 351 and 21 say of a topic's attributes, which is the same."""
        one = self.json(self.ask(RequestCode.GET_TOPIC_CONFIG, topic=topic))["attributes"]
        table = self.json(self.ask(RequestCode.GET_ALL_TOPIC_CONFIG))["topicConfigTable"]
        self.assertEqual(table[topic].get("attributes", {}), one)
        return one

    def test_attributes(self) -> None:
        """What 5.x says of a topic is kept by its plain name, changed and taken away."""
        self.begin()
        for attributes, kept in (
            ("+message.type=FIFO,+queue.type=SimpleCQ", {"message.type": "FIFO"}),
            (None, {"message.type": "FIFO"}),
            ("", {"message.type": "FIFO"}),
            ("+message.type=DELAY,+reserve.time=-1", {"message.type": "DELAY"}),
            ("-message.type", {}),
        ):
            self.assertEqual(self.put_topic(attributes=attributes).code, 0, attributes)
            found = self.attributes("New")
            rest = {name: found.pop(name) for name in ("queue.type", "reserve.time") & found.keys()}
            self.assertEqual((found, rest["queue.type"]), (kept, "SimpleCQ"))
        self.assertEqual(rest, {"queue.type": "SimpleCQ", "reserve.time": "-1"})

    def test_attributes_in_a_list(self) -> None:
        """18 says them the same way, in a map."""
        self.begin()

        def put(**attributes: str) -> Command:
            row = {"topicName": "L", "perm": 6, "attributes": attributes}
            body = json.dumps({"topicConfigList": [row]}).encode()
            return self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)

        self.assertEqual(put(**{"+message.type": "FIFO"}).code, 0)
        self.assertEqual((self.attributes("L"), put().code), ({"message.type": "FIFO"}, 0))
        self.assertEqual(self.attributes("L"), {"message.type": "FIFO"})
        self.assertEqual((put(**{"-message.type": ""}).code, self.attributes("L")), (0, {}))
        self.assertEqual(put(**{"message.type": "FIFO"}).code, 29)

    def test_attributes_refused(self) -> None:
        """An attribute that is unknown, or said wrongly, leaves the topic as it was."""
        self.begin()
        for attributes, text in (
            ("message.type=FIFO", "neither +name=value nor -name"),
            ("+message.type", "neither +name=value nor -name"),
            ("+message.type=", "neither +name=value nor -name"),
            ("-message.type=FIFO", "neither +name=value nor -name"),
            ("+message.type=FIFO,,", "neither +name=value nor -name"),
            ("+message.type=FIFO,+message.type=DELAY", "'+message.type' is there twice"),
            ("-message.type", "'-message.type' must begin with +"),
            ("+message.type=fifo", "'message.type' is 'fifo', must be one of"),
            ("+message.type=MIXED", "'message.type' is 'MIXED', must be one of"),
            ("+queue.type=BatchCQ", "'queue.type' is 'BatchCQ', must be one of SimpleCQ"),
            ("+reserve.time=-2", "'reserve.time' is '-2', must be a number from -1"),
            ("+reserve.time=\u0661", "must be a number from -1"),
            ("+colour=red", "'colour' is not one of cleanup.policy, message.type"),
        ):
            answer = self.put_topic(attributes=attributes)
            self.assertEqual(answer.code, 29, attributes)
            self.assertIn(text, str(answer.remark))
        self.assertIsNone(self.serving.topics.get("New"))
        self.put_topic(attributes="+message.type=FIFO")
        for attributes, text in (
            ("+queue.type=SimpleCQ", "'queue.type' cannot change once the topic is there"),
            ("-reserve.time", "'reserve.time' is not there and cannot be deleted"),
            ("+message.type=DELAY,-message.type", "'message.type' is there twice"),
        ):
            answer = self.put_topic(attributes=attributes, perm=4)
            self.assertEqual(answer.code, 29, attributes)
            self.assertIn(text, str(answer.remark))
        self.assertEqual(self.attributes("New"), {"message.type": "FIFO"})
        self.assertEqual(self.serving.topics.get("New").perm, 6)

    def test_several(self) -> None:
        """Of several topics all are made, or none."""
        self.begin()
        good = b'{"topicConfigList":[{"topicName":"A1","perm":6},{"topicName":"A2"}]}'
        bad = b'{"topicConfigList":[{"topicName":"B1"},{"topicName":"B2","perm":3}]}'
        self.assertEqual(self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, good).code, 0)
        self.assertEqual(self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, bad).code, 29)
        topics = self.serving.topics
        self.assertIsNotNone(topics.get("A2"))
        self.assertIsNone(topics.get("B1"))

    def test_numbers_of_queues(self) -> None:
        """A topic that is about to go has no queue to write to, and one may have very many."""
        self.begin()
        self.assertEqual(self.put_topic(write_queue_nums=0, read_queue_nums=2_000).code, 0)
        for queue_id in (-1, 0):
            sent = self.admin.ask(SEND_V2, sending("New", queue_id=queue_id), b"x")
            assert sent is not None
            self.assertEqual(sent.code, 29)
            self.assertIn("writeQueueNums=0", str(sent.remark))
        self.assertEqual(self.put_topic(write_queue_nums=2_000, read_queue_nums=0).code, 0)
        sent = self.admin.ask(SEND_V2, sending("New", queue_id=1_999), b"x")
        assert sent is not None
        self.assertEqual(sent.code, 0, sent.remark)

    def test_delete(self) -> None:
        """A deleted topic is gone, and so are the groups' offsets in it."""
        self.begin()
        self.put_topic()
        self.serving.offsets.commit("g1", "New", 0, 3, "test")
        self.assertEqual(self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="New").code, 0)
        self.assertIsNone(self.serving.topics.get("New"))
        self.assertIsNone(self.serving.offsets.get("g1", "New", 0))
        gone = self.ask(RequestCode.GET_TOPIC_CONFIG, topic="New")
        self.assertEqual((gone.code, gone.remark), (17, "No topic in this broker. topic: New"))
        self.assertEqual(self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="New").code, 0)
        for name, text in ((" ", "blank"), ("TBW102", "conflict")):
            answer = self.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=name)
            self.assertEqual(answer.code, 29)
            self.assertIn(text, str(answer.remark))

    def test_system_topics(self) -> None:
        """The list is that of a stock broker."""
        self.begin()
        names = self.json(self.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
        self.assertEqual(
            set(names),
            {
                "SCHEDULE_TOPIC_XXXX",
                "C_REPLY_TOPIC",
                "RMQ_SYS_TRANS_HALF_TOPIC",
                "RMQ_SYS_TRACE_TOPIC",
                "RMQ_SYS_TRANS_OP_HALF_TOPIC",
                "BenchmarkTest",
                "TRANS_CHECK_MAX_TIME_TOPIC",
                "OFFSET_MOVED_EVENT",
                "C",
                "TBW102",
                "broker-a",
                "SELF_TEST_TOPIC",
            },
        )


class GroupTests(AdministrationTestCase):
    """Codes 200, 225, 207, 201, 352, 300, 343 and 345."""

    def test_make(self) -> None:
        """A group is replaced as a whole."""
        self.begin()
        self.assertEqual(self.put_group(retry_max_times=5).code, 0)
        self.assertEqual(self.put_group(consume_enable=False).code, 0)
        group = self.json(self.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="g1"))
        self.assertEqual((group["retryMaxTimes"], group["consumeEnable"]), (16, False))
        table = self.json(self.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        self.assertEqual(table["subscriptionGroupTable"]["g1"], group)

    def test_asked_for(self) -> None:
        """One asked for by name is made, where clients may: so does 5.x, for its proxy."""
        self.begin()
        for name, code in (("new", 0), ("a@b", 26)):
            answer = self.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=name)
            self.assertEqual(answer.code, code)
        self.assertIsNotNone(self.serving.groups.get("new"))

    def test_asked_for_in_vain(self) -> None:
        """Where clients may not make one it is not there."""
        self.begin(auto_create_groups=False)
        answer = self.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group="new")
        self.assertEqual(answer.code, 26)

    def test_refused(self) -> None:
        """A group whose retries could never be stored, or would be lost, is refused."""
        self.begin()
        for more, text in (
            ({"group_name": ""}, "blank"),
            ({"group_name": "a@b"}, "illegal characters"),
            ({"group_name": "g" * 121}, "longer than"),
            ({"retry_queue_nums": 0}, "retryQueueNums is 0"),
            ({"retry_max_times": -2}, "retryMaxTimes is -2"),
            ({"broker_id": -1}, "brokerId is -1"),
        ):
            answer = self.put_group(**more)
            self.assertEqual(answer.code, 29, more)
            self.assertIn(text, str(answer.remark))
        for body in (b"", b"{}", b"[]", b"{broken"):
            answer = self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
            self.assertEqual(answer.code, 1, body)
            self.assertIn("GroupConfig", str(answer.remark))

    def put_json(self, **members: Any) -> Command:
        """200, as any tool may write it."""
        body = json.dumps({"groupName": "g1"} | members).encode()
        return self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)

    def test_members_of_5x(self) -> None:
        """What 5.x says of a group is kept as it was said; what no release says is not."""
        self.begin()
        members = {
            "consumeMessageOrderly": True,
            "consumeTimeoutMinute": 20,
            "groupSysFlag": 1,
            "attributes": {"a": "b"},
            "subscriptionDataSet": [
                {"topic": "T", "expressionType": "TAG", "expression": "*", "version": 3}
            ],
            "groupRetryPolicy": {
                "type": "EXPONENTIAL",
                "exponentialRetryPolicy": {"initial": 5000, "max": 7200000, "multiplier": 2},
                "customizedRetryPolicy": {"next": [1000, 5000]},
            },
        }
        self.assertEqual(self.put_json(**members, junk="x" * (1 << 20)).code, 0)
        table = self.json(self.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        found = table["subscriptionGroupTable"]["g1"]
        self.assertEqual({name: found[name] for name in members}, members)
        self.assertNotIn("junk", found)
        topic = json.dumps({"topicConfigList": [{"topicName": "T1", "junk": {"@type": "x"}}]})
        self.assertEqual(self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, topic.encode()).code, 0)
        self.assertNotIn(b"junk", bytes(self.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body))

    def test_wrong_kinds(self) -> None:
        """A member that a Java peer could not read is refused: it would fail each copy."""
        self.begin()
        for members in (
            {"subscriptionDataSet": -1.5},
            {"subscriptionDataSet": [1]},
            {"consumeMessageOrderly": "maybe"},
            {"consumeTimeoutMinute": 1 << 31},
            {"groupSysFlag": -(1 << 31) - 1},
            {"groupRetryPolicy": {"type": "SOMETIMES"}},
            {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": ["x"]}}},
            {"attributes": {"a": {}}},
            {"attributes": {"@type": "java.lang.Thread"}},
            {"attributes": {"$ref": "$"}},
            {"retryMaxTimes": 1 << 31},
            {"retryQueueNums": 1 << 31},
        ):
            answer = self.put_json(**members)
            self.assertNotEqual(answer.code, 0, members)
            self.assertIn(next(iter(members)), str(answer.remark))
        self.assertIsNone(self.serving.groups.get("g1"))
        for sys_flag in (1 << 31, -(1 << 31) - 1):
            row = {"topicName": "T1", "topicSysFlag": sys_flag}
            body = json.dumps({"topicConfigList": [row]}).encode()
            answer = self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
            self.assertNotEqual(answer.code, 0)
            self.assertIn("topicSysFlag", str(answer.remark))

    def test_several(self) -> None:
        """Of several groups all are made, or none."""
        self.begin()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        bad = b'{"groupConfigList":[{"groupName":"b1"},{"groupName":"b 2"}]}'
        self.assertEqual(self.ask(code, b'{"groupConfigList":[{"groupName":"a1"}]}').code, 0)
        self.assertEqual(self.ask(code, bad).code, 29)
        self.assertIsNotNone(self.serving.groups.get("a1"))
        self.assertIsNone(self.serving.groups.get("b1"))

    def test_delete(self) -> None:
        """A group's offsets go with it if that is asked for, by either release's name for it."""
        self.begin()
        for flag in ("removeOffset", "cleanOffset"):
            for value, left in (("false", 3), ("true", None)):
                self.put_group()
                self.serving.offsets.commit("g1", "T", 0, 3, "test")
                ext = {"groupName": "g1", flag: value}
                self.assertEqual(self.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, **ext).code, 0)
                self.assertIsNone(self.serving.groups.get("g1"))
                self.assertEqual(self.serving.offsets.get("g1", "T", 0), left)

    def test_who_consumes(self) -> None:
        """Offsets tell who consumed what."""
        self.begin()
        self.serving.offsets.commit("g1", "T", 0, 3, "test")
        groups = self.json(self.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T"))
        topics = self.json(self.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="g1"))
        self.assertEqual((groups, topics), ({"groupList": ["g1"]}, {"topicList": ["T"]}))
        found = self.json(
            self.ask(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g1", topic="T")
        )
        self.assertEqual(found, {"group": "g1", "topic": "T"})


class ConfigurationTests(AdministrationTestCase):
    def set(self, text: str) -> Command:
        return self.ask(RequestCode.UPDATE_BROKER_CONFIG, text.encode())

    def shown(self) -> dict[str, str]:
        answer = self.ask(RequestCode.GET_BROKER_CONFIG)
        self.assertEqual(set(json.loads(answer.ext["version"])) >= {"counter", "timestamp"}, True)
        lines = bytes(answer.body).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def test_for_tools(self) -> None:
        """What mqadmin's exports ask of a broker is there, with a meaning here or without."""
        self.begin()
        shown = self.shown()
        self.assertEqual((shown["useTLS"], shown["filterServerNums"]), ("false", "0"))
        self.assertGreater(int(shown["clientCallbackExecutorThreads"]), 0)
        self.assertEqual(shown["msgTraceTopicName"], "RMQ_SYS_TRACE_TOPIC")

    def test_change(self) -> None:
        """A key that may change does, and is shown with its new value."""
        self.begin()
        self.assertEqual(self.shown()["transactionCheckMax"], "15")
        self.assertEqual(self.set("transactionCheckMax=3\nslaveReadEnable=true\n").code, 0)
        shown = self.shown()
        self.assertEqual((shown["transactionCheckMax"], shown["slaveReadEnable"]), ("3", "true"))
        self.assertEqual(self.serving.current.settings.transactions.check_max, 3)

    def test_all_or_nothing(self) -> None:
        """One bad key spoils the request, and is named."""
        self.begin()
        for line, code, text in (
            ("slaveReadEnable=maybe", 1, "slaveReadEnable=maybe"),
            ("transactionCheckMax=many", 1, "transactionCheckMax=many"),
            ("noSuchKey=1", 1, "noSuchKey"),
            ("brokerRole=SLAVE", 16, "brokerRole"),
            ("namesrvAddr=10.0.0.1:1", 16, "namesrvAddr"),
            ("rocketmqHome=/", 16, "Can not update config in black list."),
        ):
            answer = self.set(f"transactionTimeOut=9000\n{line}\n")
            self.assertEqual(answer.code, code, line)
            self.assertIn(text, str(answer.remark))
            self.assertEqual(self.shown()["transactionTimeOut"], "6000")

    def test_what_means_nothing(self) -> None:
        """RocketMQ's keys for what is not there are taken, as is an empty request."""
        self.begin()
        self.assertEqual(self.set("sendMessageThreadPoolNums=4\n").code, 0)
        self.assertEqual(self.set("").code, 0)


class GuardTests(AdministrationTestCase):
    def test_slave(self) -> None:
        """A slave leaves changes to its master."""
        self.begin(slave=True)
        for code in (17, 18, 215, 200, 225, 207):
            answer = self.ask(code, topic="New")
            self.assertEqual((answer.code, answer.remark), (1, SLAVE_REFUSES))

    def test_peers(self) -> None:
        """With adminAllowedPeers others are refused, and everything else goes on."""
        network = ip_network("192.0.2.0/24")
        self.begin(admin=AdminSettings(allowed_peers=(network,)))
        listed = {code for code, need in self.serving.needs.items() if need.listed}
        self.assertTrue(listed)
        for code in sorted(listed):
            answer = self.ask(code)
            self.assertEqual(answer.code, 16, code)
            self.assertIn("10.1.2.3", str(answer.remark))
        self.assertEqual(self.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code, 0)
        sent = self.admin.ask(SEND_V2, sending("T"), b"x")
        assert sent is not None
        self.assertEqual(sent.code, 0)

    def test_lists(self) -> None:
        """Who may do what is changed by request only where somebody says who may administer."""
        self.begin()
        for name in sorted(LISTS):
            body = f"fileReservedTime=5\n{name}=10.0.0.0/24\n".encode()
            answer = self.ask(RequestCode.UPDATE_BROKER_CONFIG, body)
            self.assertEqual(answer.code, 16, name)
            self.assertIn(name, str(answer.remark))
        self.assertEqual(self.serving.store.retention.settings.file_reserved, 259200.0)

    def test_lists_of_administrators(self) -> None:
        """They change at once, for administrators too: who is none any more is logged."""
        self.begin(admin=AdminSettings(allowed_peers=(ip_network("10.1.0.0/16"),)))
        lines = log_lines(self)
        body = b"adminAllowedPeers=10.1.0.0/16,192.0.2.0/24\n"
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, body).code, 0)
        self.assertFalse(any("no longer names" in line for line in lines))
        body = b"adminAllowedPeers=192.0.2.0/24\nfileReservedTime=5\n"
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, body).code, 0)
        self.assertTrue(any("no longer names 10.1.2.3" in line for line in lines))
        self.assertEqual(self.ask(RequestCode.UPDATE_BROKER_CONFIG, body).code, 16)
        self.assertEqual(self.serving.store.retention.settings.file_reserved, 18000.0)

    def test_permitted(self) -> None:
        """Those in the list may."""
        self.begin(admin=AdminSettings(allowed_peers=(ip_network("10.1.0.0/16"),)))
        self.assertEqual(self.put_topic().code, 0)

    def test_cleaning(self) -> None:
        """Cleaning may be asked for at any time."""
        self.begin()
        for code in (306, 316, 329):
            self.assertEqual(self.ask(code).code, 0)
