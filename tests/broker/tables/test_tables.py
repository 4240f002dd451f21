"""The tables of topics and groups: what is there from the start, and what stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.task import Clock

from rmqha.broker.tables import subscription_groups
from rmqha.broker.tables import topics as topic_names
from rmqha.broker.tables.subscription_groups import Groups
from rmqha.broker.tables.topics import Topics, perm_text
from rmqha.config.broker_settings import BrokerSettings
from rmqha.errors import BodyInvalid, RequestRefused
from rmqha.logfiles import json_table
from rmqha.store.tables.checked_table import CheckedTables
from rmqha.wire.names import PRESET_GROUPS
from rmqha.wire.remoting.bodies.tables import GroupConfig, TopicConfig
from tests.support.logs import LogTestCase, now

NOW = 1_700_000_000_000
SETTINGS = BrokerSettings(name="broker-a", cluster="C")

#: As a stock 5.x broker leaves it.
STOCK = """{
	"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1699999999999},
	"topicConfigTable":{
		"Orders":{"attributes":{"+message.type":"NORMAL"},"order":true,"perm":6,"readQueueNums":8,
			"topicFilterType":"MULTI_TAG","topicName":"Orders","topicSysFlag":1,"writeQueueNums":4},
		"BenchmarkTest":{"perm":6,"readQueueNums":2,"topicName":"BenchmarkTest","writeQueueNums":2},
		"TBW102":{"perm":7,"readQueueNums":8,"topicName":"TBW102","writeQueueNums":8}
	},
	"mappingDataVersion":{"counter":1}
}"""


class TableTestCase(LogTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.config = self.folder() / "config"
        self.config.mkdir()
        self.files = CheckedTables(self.config.parent)
        self.now = NOW

    def made(self, cls: Any, **settings: Any) -> Any:
        table = cls(self.files, evolve(SETTINGS, **settings), self.clock, now, lambda: self.now)
        table.load()
        return table

    def written(self, name: str) -> Any:
        """A table on disk, a second later."""
        self.clock.advance(1)
        return json_table.read(Path(self.config / name))


class TopicsTests(TableTestCase):
    def test_messages_without_a_topic(self) -> None:
        """What has messages and is in no table is a topic again, with as many queues as it used;
        what the table has stays, and system topics are no user's.
        """
        (self.config / "topics.json").write_text(STOCK, encoding="utf-8")
        topics = self.made(Topics)
        used = {"Late": [3, 11], "Orders": [60], "rmq_sys_x": [0], "%RETRY%g": [0], "None": []}
        for name, queue_ids in used.items():
            topics.bring_back(name, queue_ids)
        late, retry = topics.get("Late"), topics.get("%RETRY%g")
        self.assertEqual((late.read_queue_nums, late.write_queue_nums, late.perm), (12, 12, 6))
        self.assertEqual((retry.read_queue_nums, topics.get("Orders").write_queue_nums), (1, 4))
        self.assertIsNone(topics.get("rmq_sys_x"))
        self.assertIsNone(topics.get("None"))
        self.assertIn("Late", self.written("topics.json")["topicConfigTable"])

    def test_presets(self) -> None:
        """A new broker has the topics of a stock one."""
        topics = self.made(Topics)
        found = {
            name: (topics.get(name).write_queue_nums, topics.get(name).perm)
            for name in topics.names()
        }
        self.assertEqual(
            found,
            {
                "SELF_TEST_TOPIC": (1, 6),
                "TBW102": (8, 7),
                "BenchmarkTest": (1024, 6),
                "C": (16, 7),
                "broker-a": (1, 7),
                "OFFSET_MOVED_EVENT": (1, 6),
                "SCHEDULE_TOPIC_XXXX": (18, 6),
                "rmq_sys_wheel_timer": (1, 6),
                "C_REPLY_TOPIC": (1, 6),
                "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
                "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
            },
        )

    def test_other_presets(self) -> None:
        """The configuration decides about some of them."""
        topics = self.made(
            Topics,
            auto_create_topics=False,
            cluster_topic=False,
            broker_topic=False,
            trace_topic=True,
        )
        self.assertIsNone(topics.get("TBW102"))
        self.assertEqual((topics.get("C").perm, topics.get("broker-a").perm), (1, 1))
        self.assertIsNotNone(topics.get("RMQ_SYS_TRACE_TOPIC"))

    def test_stock_table(self) -> None:
        """A stock broker's table is read, wins over the presets, and comes back whole."""
        (self.config / "topics.json").write_text(STOCK, encoding="utf-8")
        topics = self.made(Topics)
        orders = topics.get("Orders")
        self.assertEqual((orders.read_queue_nums, orders.write_queue_nums), (8, 4))
        self.assertEqual((orders.order, orders.topic_filter_type), (True, "MULTI_TAG"))
        self.assertEqual(topics.get("BenchmarkTest").write_queue_nums, 2)
        self.assertEqual(topics.version.counter, 3)
        topics.put(TopicConfig(topic_name="New"))
        found = self.written("topics.json")
        self.assertEqual(found["dataVersion"]["counter"], 4)
        self.assertEqual(found["mappingDataVersion"], {"counter": 1})
        self.assertEqual(
            found["topicConfigTable"]["Orders"]["attributes"], {"+message.type": "NORMAL"}
        )
        self.assertEqual(
            found["topicConfigTable"]["New"],
            {
                "order": False,
                "perm": 6,
                "readQueueNums": 16,
                "topicFilterType": "SINGLE_TAG",
                "topicName": "New",
                "topicSysFlag": 0,
                "writeQueueNums": 16,
            },
        )

    def test_kept_template(self) -> None:
        """A template that an older configuration left makes no topics any more."""
        (self.config / "topics.json").write_text(STOCK, encoding="utf-8")
        topics = self.made(Topics, auto_create_topics=False)
        self.assertEqual(topics.get("TBW102").perm, 6)
        self.assertIsNone(topics.auto_create("T", "TBW102", 4))

    def test_garbled(self) -> None:
        """A table that is something else is not taken for an empty one."""
        (self.config / "topics.json").write_text(json.dumps({"topicConfigTable": 1}))
        with self.assertRaises(BodyInvalid):
            self.made(Topics)

    def test_version(self) -> None:
        """Each change has a higher number, also when the clock is set back."""
        topics = self.made(Topics)
        versions = []
        for self.now in (NOW, NOW - 5000, NOW + 1):
            topics.put(TopicConfig(topic_name="T"))
            versions.append((topics.version.counter, topics.version.timestamp))
        self.assertEqual(versions, [(1, NOW), (2, NOW), (3, NOW + 1)])

    def test_changed(self) -> None:
        """Whoever wants to know hears of each change."""
        topics = self.made(Topics)
        heard: list[TopicConfig | None] = []
        topics.changed.append(heard.append)
        made = topics.ensure("T", 2)
        self.assertIs(topics.ensure("T", 5), made)
        self.assertTrue(topics.delete("T"))
        self.assertFalse(topics.delete("T"))
        self.assertEqual(heard, [made, None])
        self.assertIsNone(topics.get("T"))

    def test_table_is_a_copy(self) -> None:
        """A table that is being written does not change."""
        topics = self.made(Topics)
        table = topics.table()
        topics.put(TopicConfig(topic_name="T"))
        self.assertNotIn("T", table.topic_config_table)

    def test_system(self) -> None:
        """A broker's own topics are told from users'."""
        topics = self.made(Topics)
        for name in ("TBW102", "C", "broker-a", "C_REPLY_TOPIC", "rmq_sys_x"):
            self.assertTrue(topics.is_system(name), name)
        for name in ("T", "%RETRY%g", "%DLQ%g"):
            self.assertFalse(topics.is_system(name), name)

    def test_permissions(self) -> None:
        """Permissions read as in RocketMQ."""
        self.assertEqual(
            [perm_text(n) for n in (0, 2, 4, 6, 7)], ["---", "-W-", "R--", "RW-", "RWX"]
        )


class GroupsTests(TableTestCase):
    def test_presets(self) -> None:
        """A new broker has the groups of a stock one."""
        self.assertEqual(set(self.made(Groups).names()), set(PRESET_GROUPS))

    def test_find(self) -> None:
        """A group is made when it is looked for, once."""
        groups = self.made(Groups)
        found = groups.find("g")
        self.assertIs(groups.find("g"), found)
        table = self.written("subscriptionGroup.json")
        self.assertEqual(table["dataVersion"]["counter"], 1)
        self.assertEqual(
            table["subscriptionGroupTable"]["g"],
            {
                "brokerId": 0,
                "consumeBroadcastEnable": True,
                "consumeEnable": True,
                "consumeFromMinEnable": True,
                "groupName": "g",
                "notifyConsumerIdsChangedEnable": True,
                "retryMaxTimes": 16,
                "retryQueueNums": 1,
                "whichBrokerWhenConsumeSlowly": 1,
            },
        )

    def test_not_made(self) -> None:
        """Where users make no groups only brokers' own are made, and nowhere impossible ones."""
        groups = self.made(Groups, auto_create_groups=False)
        self.assertIsNone(groups.find("g"))
        self.assertIsNotNone(groups.find("CID_RMQ_SYS_TRANS"))
        for name in ("", "a@b", "x" * 121):
            self.assertIsNone(self.made(Groups).find(name), name)

    def test_stock_table(self) -> None:
        """A stock broker's table is read, and what newer ones add comes back."""
        text = (
            '{"dataVersion":{"counter":1,"timestamp":1},"forbiddenTable":{},'
            '"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,'
            '"consumeTimeoutMinute":15}}}'
        )
        (self.config / "subscriptionGroup.json").write_text(text, encoding="utf-8")
        groups = self.made(Groups)
        self.assertEqual(groups.get("g").retry_max_times, 3)
        groups.put(GroupConfig(group_name="h"))
        found = self.written("subscriptionGroup.json")
        self.assertEqual(found["subscriptionGroupTable"]["g"]["consumeTimeoutMinute"], 15)
        self.assertEqual(found["forbiddenTable"], {})
        self.assertTrue(groups.delete("h"))
        self.assertFalse(groups.delete("h"))

    def test_a_member_no_java_peer_reads(self) -> None:
        """A misshapen member of 5.x in a table is left out: a client could put it there."""
        text = (
            '{"subscriptionGroupTable":{"g":{"groupName":"g","retryMaxTimes":3,'
            '"subscriptionDataSet":-1.5,"consumeTimeoutMinute":20}}}'
        )
        (self.config / "subscriptionGroup.json").write_text(text, encoding="utf-8")
        groups = self.made(Groups)
        group = groups.get("g")
        self.assertEqual((group.retry_max_times, group.consume_timeout_minute), (3, 20))
        self.assertNotIn(b"subscriptionDataSet", groups.text())


class NameTests(LogTestCase):
    def test_names(self) -> None:
        """A topic has at most 127 characters, and a group so many that its retry topic fits."""
        for check, most in ((topic_names.check_name, 127), (subscription_groups.check_name, 120)):
            check("x" * most)
            check("%RETRY%a|b_c-1")
            for wrong in ("", "  ", "x" * (most + 1), "a b", "a@b", "\u00e9", "a\n"):
                with self.assertRaises(RequestRefused) as caught:
                    check(wrong)
                self.assertEqual(caught.exception.code, 29)
