"""What stock tools asked stock brokers, asked here: codes, remarks and shapes are the same."""

from __future__ import annotations

from typing import Any

from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.bodies.tables import GroupTable, TopicTable
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from rmqha.wire.remoting.json_body import read
from tests.broker.support import SEND_V2, BrokerTestCase, sending
from tests.support.frames import CapturedFrame, frames

ASKED = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_TOPIC_CONFIG,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.UPDATE_BROKER_CONFIG,
        Code.GET_BROKER_CONFIG,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.GET_TOPIC_STATS_INFO,
        Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_CONSUME_STATS,
        Code.GET_BROKER_CONSUME_STATS,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.QUERY_CONSUME_QUEUE,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.GET_BROKER_HA_STATUS,
    }
)
"""Requests whose answers do not depend on what happened before these recordings."""

MAPS = frozenset({"table", "offsetTable", "topicConfigTable", "subscriptionGroupTable"})
MAPS_TOO = frozenset({"subscriptionTable", "consumeStatsList"})
"""Members whose own members have no fixed names."""

NOTHING_SAID = "not set any response code"
"""What stock brokers say when they say nothing."""

ONLY_5X = frozenset(
    {
        "stateVersion",
        "attributes",
        "consumeMessageOrderly",
        "consumeTimeoutMinute",
        "groupRetryPolicy",
        "groupSysFlag",
        "subscriptionDataSet",
        "forbiddenTable",
        "mappingDataVersion",
        "topicQueueMappingDetailMap",
        "topicQueueMappingInfoMap",
        "pullOffset",
        "topicPutTps",
        "totalInflightDiff",
        "namespace",
        "topicName",
    }
)
"""Members one release has and the other does not miss."""


def shape(value: Any) -> Any:
    """The names of a JSON value's members, all the way down."""
    if isinstance(value, dict):
        found = {}
        for name, member in value.items():
            if name in ONLY_5X:
                continue
            if name in MAPS or name in MAPS_TOO:
                members = list(member.values()) if isinstance(member, dict) else member
                found[name] = shape(members[0]) if members and name in MAPS else None
            else:
                found[name] = shape(member)
        return found
    return type(value).__name__ if isinstance(value, bool | str) else None


def agrees(ours: Any, theirs: Any) -> bool:
    """Whether one shape has what the other one has; what is empty in either says nothing."""
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return ours is None or theirs is None or ours == theirs
    return ours.keys() == theirs.keys() and all(agrees(ours[n], theirs[n]) for n in ours)


class AdminTests(BrokerTestCase):
    def begin(self, version: str) -> None:
        recording = frames(f"mqadmin-{version}")
        self.broker(name="rem-a", cluster="RemCluster", trace_topic=True)
        serving = self.serving
        for table, code in ((TopicTable, 21), (GroupTable, 201)):
            body = next(
                frame.body for frame in recording if frame.is_answer and frame.request_code == code
            )
            found: Any = read(table, body)
            if isinstance(found, TopicTable):
                for topic in found.topic_config_table.values():
                    serving.topics.put(topic)
            else:
                for group in found.subscription_group_table.values():
                    serving.groups.put(group)
        for queue_id in range(4):
            self.client().ask(SEND_V2, sending("CapTopic", queue_id=queue_id), b"x")
            for group in ("G_hold", "G_lite"):
                serving.offsets.commit(group, "CapTopic", queue_id, 1, "test")
        self.clock.advance(1)
        clients = frames(f"client-under-mqadmin-{version}")
        for frame in clients:
            if frame.request_code == Code.HEART_BEAT and not frame.is_answer:
                client = self.client()
                client.connection.dataReceived(frame.raw)
                client.heard()

    def replay(self, version: str) -> int:
        """Ask all that was asked, and return how many requests that was."""
        self.begin(version)
        asked: dict[tuple[int, int], CapturedFrame] = {}
        count = 0
        for frame in frames(f"mqadmin-{version}"):
            note = frame.note
            key = (note["conn"], note["opaque"])
            if not frame.is_answer:
                if note["to"] == "master" and frame.request_code in ASKED:
                    asked[key] = frame
                continue
            request = asked.pop(key, None)
            if request is not None:
                self.compare(request, frame)
                count += 1
        return count

    def compare(self, request: CapturedFrame, stock: CapturedFrame) -> None:
        """Ask, and hold the answer against the stock one."""
        client = self.client()
        client.connection.dataReceived(request.raw)
        (ours,) = client.heard()
        theirs: Command = FrameDecoder().receive(stock.raw)[0]
        place = f"{request.request_code} {request.ext}: {ours.remark}"
        if ours.code != theirs.code and request.request_code in (203, 204, 321):
            # Depends on who was connected, or what was stored, at that time.
            return
        self.assertEqual((ours.code, ours.opaque), (theirs.code, theirs.opaque), place)
        if theirs.remark != NOTHING_SAID:
            self.assertEqual(ours.remark, theirs.remark, place)
        self.assertEqual(ours.ext.keys(), theirs.ext.keys(), place)
        if theirs.body and request.request_code != Code.GET_BROKER_CONFIG:
            mine, stocks = fastjson.loads(ours.body), fastjson.loads(theirs.body)
            if request.request_code == Code.GET_BROKER_RUNTIME_INFO:
                return  # key by key in another test
            self.assertTrue(agrees(shape(mine), shape(stocks)), f"{place}\n{mine}\n{stocks}")

    def test_4(self) -> None:
        """Tools of 4.9.7."""
        self.assertGreater(self.replay("4.9.7"), 130)

    def test_5(self) -> None:
        """Tools of 5.3.3."""
        self.assertGreater(self.replay("5.3.3"), 190)
