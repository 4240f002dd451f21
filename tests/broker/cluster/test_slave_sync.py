"""A slave that copies its master's tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast
from unittest.mock import patch

from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionLost

from rmqha.broker.broker import Broker
from rmqha.errors import DiskFull
from rmqha.logfiles import json_table
from rmqha.logfiles.published import DeletedTopic
from rmqha.store.derived.consume_queues import ConsumeQueues
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.request_modes import GroupMode, RequestMode
from rmqha.wire.remoting.bodies.tables import TopicConfig
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command
from tests.broker.metadata_master import ADDRESS, PlayedMaster, group, mode, offsets_body, topic
from tests.broker.support import BrokerTestCase
from tests.support.frames import frames
from tests.support.health import unhealthy
from tests.support.logs import message

TABLES = {Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG} | {
    Code.GET_ALL_DELAY_OFFSET,
    Code.GET_ALL_CONSUMER_OFFSET,
    Code.GET_ALL_MESSAGE_REQUEST_MODE,
}

NAMES = ("topics", "groups", "requestModes", "consumerOffsets", "delayOffsets")


class MetadataTestCase(BrokerTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.master = PlayedMaster(self.clock)
        self.master.topics["Orders"] = topic("Orders")
        self.master.groups["g"] = group("g")

    def slave(self, address: str = ADDRESS, **settings: Any) -> Broker:
        slave = self.broker(slave=True, id=1, **settings)
        slave.metadata.connect = cast(Any, lambda: self.master)
        slave.metadata.start()
        slave.metadata.follow(address)
        self.turns()
        return slave

    def turns(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        for _ in range(20):
            self.clock.advance(0)

    def round(self) -> None:
        """Let the slave ask again."""
        self.turns(10.0)

    def orders(self) -> TopicConfig:
        found = self.serving.topics.get("Orders")
        assert found is not None
        return found

    def part(self, name: str) -> dict[str, Any]:
        part: dict[str, Any] = self.serving.metadata.status()[name]
        return part

    def states(self) -> list[str]:
        return [self.part(name)["state"] for name in NAMES]

    def end(self, slave: Broker) -> None:
        stopped = slave.stop()
        self.turns(0.1)
        self.successResultOf(stopped)
        self.close_store(slave.store)


class TablesTests(MetadataTestCase):
    """Topics, groups, and what they have in common."""

    def test_all(self) -> None:
        """At once after the start all tables are the master's, and a moment later on the disk."""
        self.master.offsets["Orders@g"] = {0: 12}
        self.master.delays[3] = 7
        slave = self.slave()
        self.assertEqual(["adopted"] * 5, self.states())
        self.assertEqual(topic("Orders")["readQueueNums"], self.orders().read_queue_nums)
        self.assertIsNotNone(slave.groups.get("g"))
        self.assertEqual(12, slave.offsets.get("g", "Orders", 0))
        self.assertEqual(7, slave.levels.table().offset_table[3])
        self.assertEqual(1, slave.topics.version.counter)
        self.turns(6)
        for name, member in (
            ("topics", "topicConfigTable"),
            ("subscriptionGroup", "subscriptionGroupTable"),
            ("consumerOffset", "offsetTable"),
        ):
            table = json_table.read(self.table(f"{name}.json"))
            assert table is not None
            self.assertTrue({"Orders", "g", "Orders@g"} & set(table[member]), name)

    def test_period(self) -> None:
        """It asks every ten seconds, and when the master let it in; at most once a second."""
        slave = self.slave()
        del self.master.asked[:]
        self.turns(9.9)
        self.assertEqual([], self.master.asked)
        self.turns(0.2)
        self.assertEqual(TABLES | {Code.GET_BROKER_RUNTIME_INFO}, set(self.master.asked))
        self.assertEqual(6, len(self.master.asked))
        for _ in range(10):
            slave.metadata.hurry()
        self.turns(1.0)
        self.assertEqual(12, len(self.master.asked))

    def test_goes_on_after_an_error(self) -> None:
        """A round that fails is a failure of the job, and not the last one."""
        slave = self.slave()
        job = slave.metadata._timed
        patched = self.patch(PlayedMaster, "connect", lambda *_: 1 / 0)
        for _ in range(3):
            self.round()
        self.assertIn("failed 3 times in a row: ZeroDivisionError", unhealthy(job))
        patched.restore()
        self.master.topics["More"] = topic("More")
        self.round()
        self.assertEqual(unhealthy(job), "")
        self.assertIsNotNone(slave.topics.get("More"))
        self.flushLoggedErrors(ZeroDivisionError)

    def test_nothing_new(self) -> None:
        """What did not change is not written again."""
        self.master.offsets["Orders@g"] = {0: 12}
        self.slave()
        self.turns(8)
        with patch.object(json_table, "replace") as replaced:
            for _ in range(5):
                self.round()
            self.assertEqual([], replaced.mock_calls)
        self.assertEqual(["adopted"] * 5, self.states())

    def test_changes(self) -> None:
        """New topics come, changed ones change, deleted ones go, with their offsets."""
        self.master.topics |= {"Old": topic("Old")}
        self.master.offsets |= {"Old@g": {0: 3}, "Orders@g": {0: 4}}
        slave = self.slave()
        self.master.change_topics(topic("New"), topic("Orders", perm=4), gone=("Old",))
        del self.master.offsets["Old@g"]
        self.round()
        self.assertIsNone(slave.topics.get("Old"))
        self.assertIsNotNone(slave.topics.get("New"))
        self.assertEqual(4, self.orders().perm)
        self.assertIsNone(slave.offsets.get("g", "Old", 0))
        self.assertEqual(4, slave.offsets.get("g", "Orders", 0))

    def test_newer_release(self) -> None:
        """What 5.x has more is kept as it is."""
        self.master.topics["Orders"] = topic("Orders", attributes={"+a": "b"}, later={"x": [1]})
        self.master.groups["g"] = group("g", groupRetryPolicy={"type": "CUSTOMIZED"})
        self.slave()
        self.turns(2)
        table: Any = json_table.read(self.table("topics.json"))
        self.assertEqual({"x": [1]}, table["topicConfigTable"]["Orders"]["later"])
        table = json_table.read(self.table("subscriptionGroup.json"))
        self.assertEqual(
            {"type": "CUSTOMIZED"}, table["subscriptionGroupTable"]["g"]["groupRetryPolicy"]
        )

    def test_one_fails(self) -> None:
        """F40: each table can fail to come, in any way; others come, and what is here stays."""
        self.master.offsets["Orders@g"] = {0: 12}
        slave = self.slave()
        names = {
            Code.GET_ALL_TOPIC_CONFIG: "topics",
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "groups",
            Code.GET_ALL_CONSUMER_OFFSET: "consumerOffsets",
            Code.GET_ALL_DELAY_OFFSET: "delayOffsets",
            Code.GET_ALL_MESSAGE_REQUEST_MODE: "requestModes",
        }
        for code, name in names.items():
            whole = self.master.body(code)
            for bad, state in (
                (b"{}", "refused"),
                (whole[: len(whole) // 2], "refused"),
                (b"\xff\xfe", "refused"),
                (1, "refused"),
                (None, "unreachable"),
                (ConnectionLost(), "unreachable"),
            ):
                self.master.answers = {code: bad}
                self.round()
                self.turns(3.1)
                self.turns(6.9)
                self.turns(3.1)
                expected = dict.fromkeys(names.values(), "adopted") | {name: state}
                found = {each: self.part(each)["state"] for each in names.values()}
                self.assertEqual(expected, found, (name, bad))
                self.assertTrue(self.part(name)["reason"])
                self.assertIsNotNone(slave.topics.get("Orders"))
                self.assertIsNotNone(slave.groups.get("g"))
                self.assertEqual(12, slave.offsets.get("g", "Orders", 0))
        self.master.answers = {}
        self.round()
        self.assertEqual(["adopted"] * 5, self.states())

    def test_older(self) -> None:
        """A table older than this master gave is refused, after restarts too; its next is taken."""
        self.slave()
        self.master.change_topics(topic("New"))
        self.round()
        self.assertEqual(2, self.part("topics")["dataVersion"]["counter"])
        stopped = self.serving.stop()
        self.turns(0.1)
        self.successResultOf(stopped)
        self.master.topics = {"Orders": topic("Orders")}
        self.master.topics_version = {"counter": 1, "timestamp": 1000}
        self.close_store(self.serving.store)
        slave = self.slave()
        self.assertEqual("refused", self.part("topics")["state"])
        self.assertIn("version 1 of 1000 is older", self.part("topics")["reason"])
        self.assertIsNotNone(slave.topics.get("New"))
        self.assertEqual("adopted", self.part("groups")["state"])
        self.master.topics_version = {"counter": 3, "timestamp": 3000}
        self.round()
        self.assertEqual("adopted", self.part("topics")["state"])

    def test_another_cluster(self) -> None:
        """Of a master that is another broker's nothing is taken, and status and health say so."""
        self.master.name = "broker-z"
        self.master.offsets["Orders@g"] = {0: 12}
        slave = self.slave()
        self.assertEqual(["refused"] * 5, self.states())
        for name in NAMES:
            self.assertIn("no topic broker-a", self.part(name)["reason"])
        (reason,) = slave.metadata.health()
        self.assertIn(f"master {ADDRESS}: the table is not one of brokerName=broker-a", reason.text)
        self.assertIsNone(slave.topics.get("Orders"))
        self.assertIsNone(slave.offsets.get("g", "Orders", 0))
        self.master.name = "broker-a"
        self.round()
        self.assertEqual(list(slave.metadata.health()), [])

    def test_unrecognized(self) -> None:
        """Before a master's topics are known nothing of it is taken: it may be anybody.  That stays
        so when another broker, once recognized as such, does not tell its topics any more.
        """
        self.master.answers = {Code.GET_ALL_TOPIC_CONFIG: 1}
        slave = self.slave()
        self.assertEqual(["refused"] * 5, self.states())
        self.assertIsNone(slave.groups.get("g"))
        self.master.answers, self.master.name = {}, "broker-z"
        self.round()
        self.master.answers = {Code.GET_ALL_TOPIC_CONFIG: 1}
        self.round()
        self.assertEqual(["refused"] * 5, self.states())
        self.assertIn("broker-a", self.part("groups")["reason"])
        self.master.answers, self.master.name = {}, "broker-a"
        self.round()
        self.assertEqual(["adopted"] * 5, self.states())

    def test_became_another(self) -> None:
        """A known address that is another broker's now: nothing of that is taken."""
        slave = self.slave()
        self.master.name = "broker-z"
        self.master.offsets["Orders@g"] = {0: 12}
        self.round()
        self.assertEqual(["refused"] * 5, self.states())
        self.master.answers = {Code.GET_ALL_TOPIC_CONFIG: 1}
        self.round()
        self.assertEqual(["refused"] * 5, self.states())
        self.assertIsNone(slave.offsets.get("g", "Orders", 0))

    def test_unreadable(self) -> None:
        """A slave whose notes are damaged starts without them."""
        path = self.root / "rmqha" / "metadata.json"
        for bad in (b'{"topics":[1]}', b"{"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bad)
            slave = self.slave()
            self.assertEqual(["adopted"] * 5, self.states())
            self.end(slave)

    def test_another_master(self) -> None:
        """What one master gave last says nothing of the next one's versions."""
        self.master.topics_version = {"counter": 50, "timestamp": 5000}
        slave = self.slave()
        first = self.master
        self.master = PlayedMaster(self.clock)
        self.master.topics["Orders"] = topic("Orders", perm=4)
        self.master.groups["g"] = group("g")
        with patch("tests.broker.metadata_master.ADDRESS", "10.0.0.2:10911"):
            slave.metadata._client = cast(Any, self.master)
            slave.metadata.follow("10.0.0.2:10911")
            self.turns(1.0)
            self.assertEqual(["adopted"] * 5, self.states())
        self.assertEqual(4, self.orders().perm)
        self.assertEqual(6, len(first.asked))

    def test_away(self) -> None:
        """A master that is away is told of once; when it is back all comes at once."""
        self.master.here = False
        slave = self.slave()
        self.assertEqual(["unreachable"] * 5, self.states())
        self.round()
        self.master.here = True
        slave.metadata.hurry()
        self.turns(1.0)
        self.assertEqual(["adopted"] * 5, self.states())

    def test_silent(self) -> None:
        """A connection on which nothing is answered is not used again, and a round ends in time."""
        self.master.answers = dict.fromkeys((*TABLES, Code.GET_BROKER_RUNTIME_INFO))
        self.slave()
        self.turns(3.1)
        self.assertEqual(["unreachable"] * 5, self.states())
        self.assertEqual(1, self.master.closed)
        self.master.answers = {}
        self.round()
        self.assertEqual(["adopted"] * 5, self.states())

    def test_stopped(self) -> None:
        """A round that is under way when the slave stops changes nothing any more."""
        self.master.answers = {Code.GET_ALL_TOPIC_CONFIG: None}
        slave = self.slave()
        stopped = slave.metadata.stop()
        self.turns(5.0)
        self.successResultOf(stopped)
        self.assertIsNone(slave.groups.get("g"))

    def test_local(self) -> None:
        """Topics and groups made here while the master was away stay until it has others."""
        slave = self.slave()
        slave.groups.find("local")
        slave.topics.ensure("%RETRY%local", 1)
        self.round()
        self.assertIsNotNone(slave.groups.get("local"))
        self.master.change_topics(topic("New"))
        self.round()
        self.assertIsNone(slave.topics.get("%RETRY%local"))
        self.assertEqual("adopted", self.part("topics")["state"])


class IdleQueuesTests(MetadataTestCase):
    """Queues of which the log has no message left."""

    def tells(self, ends: Any) -> None:
        """The master says where they go on."""
        self.master.answers[Code.GET_ALL_CONSUMER_OFFSET] = offsets_body(
            {"Orders@g": {0: 15}}, queueEnds=ends
        )

    def test_begin(self) -> None:
        """They begin where the master's go on, those of topics that there are."""
        self.tells({"Orders": {"0": 20, "1": 7}, "Nowhere": {"0": 9}})
        slave = self.slave()
        ends = {(queue.topic, queue.queue_id): queue.next_offset for queue in slave.store.queues}
        self.assertEqual(ends, {("Orders", 0): 20, ("Orders", 1): 7})
        self.turns(6)
        self.assertNotIn("queueEnds", self.table("consumerOffset.json").read_text())

    def test_senseless(self) -> None:
        """Nonsense is refused."""
        self.tells({"Orders": 5})
        self.slave()
        self.assertEqual("refused", self.part("consumerOffsets")["state"])
        self.assertIn("queueEnds", self.part("consumerOffsets")["reason"])


class QueuesTests(MetadataTestCase):
    def setUp(self) -> None:
        """Which topics' queues were deleted, and up to where."""
        super().setUp()
        self.deleted: list[tuple[str, int]] = []
        self.full = False

    async def forget(self, topics: Mapping[str, DeletedTopic]) -> None:
        self.deleted += [(name, topic.end) for name, topic in topics.items()]
        if topics and self.full:
            raise DiskFull("deleted.json", 100)

    def test_deleted(self) -> None:
        """Those of a deleted topic go, again where the disk was full; an empty table takes none."""
        self.master.topics |= {"Old": topic("Old")}
        slave = self.slave()
        slave.metadata.copies.forget = self.forget
        self.master.answers = {Code.GET_ALL_TOPIC_CONFIG: b'{"topicConfigTable":{}}'}
        self.round()
        self.assertEqual([], self.deleted)
        self.master.answers = {}
        self.master.change_topics(gone=("Old",))
        self.full = True
        self.round()
        self.round()
        self.full = False
        self.round()
        self.round()
        self.assertEqual([("Old", slave.store.log.end)] * 3, self.deleted)

    def test_deleted_ahead(self) -> None:
        """Of one deleted beyond our log all there is goes at once, or a promotion would keep it."""
        slave = self.slave()
        slave.metadata.copies.forget = self.forget
        slave.store.put(message(200))
        end = slave.store.log.confirmed
        table = fastjson.loads(self.master.body(Code.GET_ALL_TOPIC_CONFIG))
        table["deletedTopics"] = {"Old": {"end": end + 1, "queues": {}}}
        self.master.answers[Code.GET_ALL_TOPIC_CONFIG] = fastjson.dumps(table)
        self.round()
        self.assertEqual([("Old", end)], self.deleted)
        slave.store.put(message(200))
        self.deleted.clear()
        self.round()
        self.assertEqual([("Old", end + 1)], self.deleted)

    def test_made_again(self) -> None:
        """A topic that is there again keeps what is left."""
        self.master.topics |= {"Old": topic("Old")}
        slave = self.slave()
        slave.metadata.copies.forget = self.forget
        self.full = True
        self.master.change_topics(gone=("Old",))
        self.round()
        self.master.change_topics(topic("Old"))
        self.round()
        self.round()
        self.assertEqual(1, len(self.deleted))

    def test_deleted_meanwhile(self) -> None:
        """A topic deleted while the slave was away goes at its start, if it was the master's."""
        self.master.topics |= {"Old": topic("Old")}
        slave = self.slave()
        self.end(slave)
        self.master.change_topics(gone=("Old",))
        with patch(
            "rmqha.store.derived.deleted_topics.Deletion.forget",
            lambda _, *args: self.forget(*args),
        ):
            self.slave()
        self.assertEqual(["Old"], [name for name, _ in self.deleted])

    def test_replaced_meanwhile(self) -> None:
        """A member that was replaced as the master goes on to answer, with the tables of its own
        master: what is missing there was not deleted, also when it leads again.
        """
        epochs: list[int | None] = [7]
        self.master.topics |= {name: topic(name) for name in ("Old", "Older", "Oldest")}
        slave = self.slave()
        slave.metadata.copies.forget = self.forget
        slave.metadata.follow(ADDRESS, lambda: succeed(epochs[0]))
        self.master.change_topics(topic("New"))
        self.round()
        epochs[0] = None
        self.master.change_topics(gone=("Old",))
        self.round()
        epochs[0] = 9
        self.master.change_topics(gone=("Older",))
        self.round()
        self.assertEqual([], self.deleted)
        self.master.change_topics(gone=("Oldest",))
        self.round()
        self.assertEqual(["Oldest"], [name for name, _ in self.deleted])

    def test_nothing_changed(self) -> None:
        """The coordinator is asked about a table that is another one, not again each second."""
        asked: list[int] = []
        slave = self.slave()

        def epoch() -> Deferred[int]:
            asked.append(7)
            return succeed(7)

        slave.metadata.follow(ADDRESS, epoch)
        self.round()
        self.round()
        before = len(asked)
        for _ in range(3):
            self.round()
        self.assertEqual(len(asked), before)
        self.master.change_topics(topic("New"))
        self.round()
        self.assertEqual(len(asked), before + 1)

    def test_made_out_of_the_log(self) -> None:
        """A topic that was made here since the master gave its table, out of the log at a start or
        by us as the master, was never the master's: it keeps its queues.
        """
        slave = self.slave()
        self.end(slave)
        slave = self.broker(slave=True, id=1)
        slave.topics.bring_back("Late", [0, 1])
        slave.metadata.copies.forget = self.forget
        slave.metadata.connect = cast(Any, lambda: self.master)
        slave.metadata.start()
        slave.metadata.follow(ADDRESS)
        self.turns()
        self.assertEqual("adopted", self.part("topics")["state"])
        self.assertIsNone(slave.topics.get("Late"))
        self.assertEqual([], self.deleted)

    def test_first(self) -> None:
        """The first table ever takes no queues with it."""
        with patch(
            "rmqha.store.derived.deleted_topics.Deletion.forget",
            lambda _, *args: self.forget(*args),
        ):
            slave = self.broker(slave=True, id=1)
            slave.topics.put(TopicConfig(topic_name="Local"))
            slave.topics.put(TopicConfig(topic_name="Orders"))
            slave.metadata.connect = cast(Any, lambda: self.master)
            slave.metadata.start()
            slave.metadata.follow(ADDRESS)
            self.turns()
        self.assertIsNone(slave.topics.get("Local"))
        self.assertEqual([], self.deleted)


class ModesTests(MetadataTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.master.modes = {"Orders": {"g": mode("Orders", "g"), "h": mode("Orders", "h")}}

    def modes(self) -> set[tuple[str, str]]:
        table = self.serving.modes.table().message_request_mode_map
        return {(topic, group) for topic, groups in table.items() for group in groups}

    def assigned(self) -> Any:
        """What the slave says to a client of the group."""
        client = self.client()
        beat = {"clientID": "c1", "consumerDataSet": [{"groupName": "g"}]}
        client.send(Command(code=Code.HEART_BEAT, body=json.dumps(beat).encode()))
        client.heard()
        asked = {"topic": "Orders", "consumerGroup": "g", "clientId": "c1", "strategyName": "AVG"}
        answer = client.ask(Code.QUERY_ASSIGNMENT, body=json.dumps(asked).encode())
        assert answer is not None
        rows = json.loads(bytes(answer.body)).get("messageQueueAssignments")
        return None if rows is None else {row["mode"] for row in rows}

    def test_copied(self) -> None:
        """They come with the rest, also of a stock master, which tells no version; the slave
        answers by them, and has them after a restart without its master.
        """
        slave = self.slave()
        self.assertEqual(self.modes(), {("Orders", "g"), ("Orders", "h")})
        self.assertEqual(self.assigned(), {"POP"})
        refused = self.client().ask(
            Code.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode("Orders", "g")).encode()
        )
        assert refused is not None
        self.assertIn("slave", refused.remark or "")
        self.end(slave)
        self.master.here = False
        self.slave()
        self.assertEqual(self.assigned(), {"POP"})

    def test_unheard(self) -> None:
        """A slave that has not heard of its master's modes does not say that a group pulls."""
        self.master.answers = {Code.GET_ALL_MESSAGE_REQUEST_MODE: 1}
        self.slave()
        self.assertIsNone(self.assigned())

    def test_changed(self) -> None:
        """What a master took back is gone; what only is not there, or in an old table, stays."""
        self.master.modes_version = {"counter": 5, "timestamp": 1000}
        self.slave()
        del self.master.modes["Orders"]["h"]
        self.master.modes_version = {"counter": 6, "timestamp": 1001}
        self.round()
        self.assertEqual(self.modes(), {("Orders", "g")})
        self.master.modes = {}
        for counter in (6, 5):
            self.master.modes_version = {"counter": counter, "timestamp": 1001}
            self.round()
            self.assertEqual("refused", self.part("requestModes")["state"])
        self.assertEqual(self.modes(), {("Orders", "g")})
        self.master.modes_version = {"counter": 7, "timestamp": 1002}
        self.round()
        self.assertEqual(self.modes(), set())

    def test_another_row(self) -> None:
        """A table in which a row is of another group is none."""
        self.master.modes["Orders"]["x"] = mode("Orders", "y")
        self.slave()
        self.assertIn("'x' is of 'Orders', 'y'", self.part("requestModes")["reason"])

    def test_old_release(self) -> None:
        """Releases before 5 do not know the request: that is nothing to complain of."""
        self.master.answers = {Code.GET_ALL_MESSAGE_REQUEST_MODE: 3}
        slave = self.slave()
        self.assertEqual("unknown", self.part("requestModes")["state"])
        self.assertEqual([], [each.name for each in slave.metadata.health()])

    def test_promoted(self) -> None:
        """A slave that becomes a master changes what it copied, and its version goes on."""
        self.master.modes_version = {"counter": 5, "timestamp": 1000}
        slave = self.slave()
        self.end(slave)
        master = self.broker()
        self.successResultOf(
            master.modes.put(GroupMode(topic="Orders", consumer_group="g", mode=RequestMode.PULL))
        )
        self.assertEqual(6, master.modes.version.counter)
        self.assertEqual(self.modes(), {("Orders", "g"), ("Orders", "h")})


class LikeStockTests(MetadataTestCase):
    """What a stock master gave its slave, a broker that took it over gives its own."""

    def test_captured(self) -> None:
        """All tables of 4.9.7 and 5.3.3 go through as they are, with what only the newer has."""
        for version in ("4.9.7", "5.3.3"):
            tables_of = {
                frame.request_code: frame.body
                for frame in frames(f"slave-master-{version}")
                if frame.is_answer and frame.note["code"] == 0 and frame.request_code in TABLES
            }
            old = version == "4.9.7"
            self.assertEqual(4 if old else 5, len(tables_of))
            self.root = self.folder() / "store"
            self.master = PlayedMaster(self.clock)
            self.master.answers = {Code.GET_ALL_MESSAGE_REQUEST_MODE: 3} | tables_of
            slave = self.slave(name="rem-a", cluster="RemCluster")
            expected = ["adopted", "adopted", "unknown" if old else "adopted"] + ["adopted"] * 2
            self.assertEqual(expected, self.states(), version)
            client = self.client()
            for code, theirs in tables_of.items():
                answer = client.ask(code)
                assert answer is not None
                ours, expected = fastjson.loads(answer.body), fastjson.loads(theirs)
                if code == Code.GET_ALL_DELAY_OFFSET:
                    # Delays are counted here by ourselves, and stock slaves do not ask.
                    expected.pop("dataVersion", None)
                self.assertLessEqual(set(expected), set(ours), code)
                for member, value in expected.items():
                    if isinstance(value, dict):
                        value = {**ours[member], **value}
                    self.assertEqual(value, ours[member], (version, code, member))
                if code == Code.GET_ALL_CONSUMER_OFFSET:
                    self.assertIn(b'@G_push":{0:', bytes(answer.body))
            stopped = slave.stop()
            self.turns(0.1)
            self.successResultOf(stopped)


class OffsetsTests(MetadataTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.master.offsets["Orders@g"] = {0: 100, 1: 50}

    def queues_end(self, offset: int) -> None:
        """Let the slave have that many messages in each queue."""
        self.patch(ConsumeQueues, "end", lambda *_: offset)

    def offsets(self) -> dict[int, int]:
        return self.serving.offsets.queues("g", "Orders")

    def test_higher(self) -> None:
        """The higher one wins, whoever has it."""
        self.slave().offsets.advance("g", "Orders", 0, 120)
        self.master.offsets["Orders@g"] = {0: 110, 1: 60}
        self.round()
        self.assertEqual({0: 120, 1: 60}, self.offsets())

    def test_reset(self) -> None:
        """A master that goes back without having been restarted was told to: so is the slave."""
        self.slave()
        self.master.offsets["Orders@g"] = {0: 20, 1: 50}
        self.round()
        self.assertEqual({0: 20, 1: 50}, self.offsets())
        self.assertEqual(1, self.serving.metadata.status()["resets"])

    def test_replaced_meanwhile(self) -> None:
        """A replaced master that took over lower offsets was not told to go back."""
        epochs: list[int | None] = [7]
        self.slave().metadata.follow(ADDRESS, lambda: succeed(epochs[0]))
        self.round()
        for epoch, offset in ((None, 20), (9, 30)):
            epochs[0] = epoch
            self.master.offsets["Orders@g"] = {0: offset, 1: 50}
            self.round()
            self.assertEqual({0: 100, 1: 50}, self.offsets())
        self.master.offsets["Orders@g"] = {0: 10, 1: 50}
        self.round()
        self.assertEqual({0: 10, 1: 50}, self.offsets(), "a reset by the master of epoch 9")

    def test_regression(self) -> None:
        """F39: a restarted master that knows less lost something: the slave keeps what it had."""
        self.slave()
        self.master.boot = 600
        self.master.offsets["Orders@g"] = {0: 20, 1: 70}
        self.round()
        self.assertEqual({0: 100, 1: 70}, self.offsets())
        self.assertEqual(1, self.serving.metadata.status()["regressions"])
        self.master.offsets["Orders@g"] = {0: 30, 1: 70}
        self.round()
        self.assertEqual({0: 100, 1: 70}, self.offsets())
        self.master.offsets["Orders@g"] = {0: 25, 1: 70}
        self.round()
        self.assertEqual({0: 25, 1: 70}, self.offsets(), "a reset in its new life")

    def test_unknown_life(self) -> None:
        """Who does not say when it started may have lost something; later a reset is known."""
        self.slave()
        self.master.answers = {Code.GET_BROKER_RUNTIME_INFO: 1}
        self.master.offsets["Orders@g"] = {0: 20, 1: 50}
        self.round()
        self.assertEqual({0: 100, 1: 50}, self.offsets())
        self.master.answers = {}
        self.master.offsets["Orders@g"] = {0: 21, 1: 50}
        self.round()
        self.assertEqual({0: 21, 1: 50}, self.offsets())

    def test_restarted_unchanged(self) -> None:
        """A restart after which the master gives the same is known as well."""
        self.slave()
        self.master.boot = 600
        self.round()
        self.master.offsets["Orders@g"] = {0: 20, 1: 50}
        self.round()
        self.assertEqual({0: 20, 1: 50}, self.offsets())

    def test_older_table(self) -> None:
        """A 5.x master whose table says that it is an older one was not told to go back."""
        code = Code.GET_ALL_CONSUMER_OFFSET
        for counter, offset in ((5, 100), (4, 20)):
            version = {"counter": counter, "timestamp": 1, "stateVersion": 0}
            self.master.answers = {
                code: offsets_body({"Orders@g": {0: offset}}, dataVersion=version)
            }
            if counter == 5:
                self.slave()
            else:
                self.round()
        self.assertEqual(100, self.offsets()[0])

    def test_removed(self) -> None:
        """A group deleted with its offsets is deleted here; without them, they stay."""
        self.master.groups["h"] = group("h")
        self.master.offsets["Orders@h"] = {0: 9}
        slave = self.slave()
        del self.master.offsets["Orders@h"]
        self.round()
        self.assertEqual(9, slave.offsets.get("h", "Orders", 0), "the group is still there")
        self.master.offsets["Orders@h"] = {0: 9}
        self.round()
        del self.master.offsets["Orders@h"], self.master.groups["h"]
        self.master.groups_version = {"counter": 2, "timestamp": 1001}
        self.round()
        self.assertIsNone(slave.offsets.get("h", "Orders", 0))

    def test_given_back(self) -> None:
        """What was committed here while the master was away it is told once, where it is higher."""
        slave = self.slave()
        self.queues_end(130)
        slave.offsets.commit("g", "Orders", 0, 130, "c")
        slave.offsets.commit("g", "Orders", 1, 40, "c")
        slave.offsets.advance("g", "Orders", 3, 5)
        self.assertEqual(2, slave.metadata.status()["owed"])
        self.round()
        self.assertEqual(
            [{"consumerGroup": "g", "topic": "Orders", "queueId": "0", "commitOffset": "130"}],
            self.master.told,
        )
        self.assertEqual(0, slave.metadata.status()["owed"])
        self.master.offsets["Orders@g"] = {0: 130, 1: 50}
        self.round()
        self.assertEqual(1, len(self.master.told))

    def test_beyond(self) -> None:
        """What is beyond the queue as it is here waits for it."""
        slave = self.slave()
        slave.offsets.commit("g", "Orders", 0, 130, "c")
        self.round()
        self.assertEqual([], self.master.told)
        self.assertEqual(1, slave.metadata.status()["owed"])
        self.queues_end(130)
        self.round()
        self.assertEqual(1, len(self.master.told))

    def test_refused_back(self) -> None:
        """What the master does not want is not brought again."""
        slave = self.slave()
        self.master.refuses = 1
        slave.offsets.commit("g", "Orders", 0, 130, "c")
        self.queues_end(130)
        self.round()
        self.round()
        self.assertEqual(1, len(self.master.told))
        self.assertEqual(130, self.offsets()[0])

    def test_unknown_group(self) -> None:
        """A master that does not know the group is told again, until it does; not for ever."""
        slave = self.slave()
        self.master.refuses = ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        slave.offsets.commit("g", "Orders", 0, 130, "c")
        self.queues_end(130)
        for _ in range(40):
            self.round()
        self.assertEqual(31, len(self.master.told))
        slave.offsets.commit("g", "Orders", 0, 131, "c")
        self.queues_end(131)
        self.round()
        self.master.refuses = 0
        self.round()
        self.round()
        self.assertEqual("131", self.master.told[-1]["commitOffset"])
        self.assertEqual(33, len(self.master.told))

    def test_owed_for_long(self) -> None:
        """What the master is owed outlives the slave's process."""
        self.master.here = False
        slave = self.slave()
        slave.offsets.commit("g", "Orders", 0, 130, "c")
        self.end(slave)
        self.master.here = True
        slave = self.slave()
        self.queues_end(130)
        self.round()
        self.assertEqual("130", self.master.told[0]["commitOffset"])
