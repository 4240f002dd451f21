"""Requests that fill a broker's tables with whatever it lets by."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from attrs import define

from rmqha.wire.remoting.codes import RequestCode
from tests.support import client

#: What a member may be that should be something else.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 7, -1, -1.5, 1e300, 1 << 31, 1 << 40, 1 << 63, -(1 << 63), 1 << 70,
    "", "x", "1", "true", "FIFO", "\u0000\u2028\ud800", "x" * 3000,
    [], [[]], [1, "a"], {}, {"a": 1}, {"a": {"b": []}}, {"@type": "java.lang.Thread"},
    {"$ref": "$"}, [{"topic": "T", "expression": "*", "version": 1}], {"type": "CUSTOMIZED"},
    {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1}}, {"+message.type": "FIFO"},
    {"next": [1, 2]}, float("nan"), float("inf"),
)  # fmt: skip

ANY = ("junk", "@type", "$ref", "attributes", "", "\u00e9")

TOPIC = (
    "readQueueNums", "writeQueueNums", "perm", "topicFilterType", "topicSysFlag", "order", *ANY,
)  # fmt: skip

GROUP = (
    "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable", "consumeMessageOrderly",
    "retryQueueNums", "retryMaxTimes", "groupRetryPolicy", "brokerId", "groupSysFlag",
    "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable", "consumeTimeoutMinute",
    "subscriptionDataSet", *ANY,
)  # fmt: skip

ATTRIBUTES = (
    "",
    "+message.type=FIFO",
    "-message.type",
    "+junk=1",
    "+reserve.time=5",
    "+queue.type=x",
)


@define
class Nonsense:
    """Makes requests that are half right."""

    random: Random

    def send(self, address: str, count: int) -> int:
        """Send some, and return how many a broker has taken."""
        kinds = (self._topic, self._topics, self._group, self._groups, self._offset)
        taken = 0
        for _ in range(count):
            code, body, ext = self.random.choice(kinds)()
            taken += client.ask(address, code, body, **ext).code == 0
        return taken

    def _row(self, name: str, members: tuple[str, ...]) -> dict[str, Any]:
        chosen = self.random.sample(members, self.random.randint(0, 3))
        row = {member: self.random.choice(VALUES) for member in chosen}
        return {name: f"nonsense-{self.random.randint(0, 40)}", **row}

    def _topic(self) -> tuple[int, bytes, dict[str, Any]]:
        ext = {
            "topic": f"nonsense-{self.random.randint(0, 40)}",
            "defaultTopic": "TBW102",
            "readQueueNums": self.random.choice((0, 1, 4, 2000, 1 << 31, -1)),
            "writeQueueNums": self.random.choice((0, 1, 4, 1 << 40)),
            "perm": self.random.choice((6, 4, 99)),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": self.random.choice((0, 3, 1 << 31)),
            "order": "false",
            "attributes": self.random.choice(ATTRIBUTES),
        }
        return RequestCode.UPDATE_AND_CREATE_TOPIC, b"", ext

    def _topics(self) -> tuple[int, bytes, dict[str, Any]]:
        rows = {"topicConfigList": [self._row("topicName", TOPIC)]}
        return RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, json.dumps(rows).encode(), {}

    def _group(self) -> tuple[int, bytes, dict[str, Any]]:
        row = self._row("groupName", GROUP)
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, json.dumps(row).encode(), {}

    def _groups(self) -> tuple[int, bytes, dict[str, Any]]:
        rows = {"groupConfigList": [self._row("groupName", GROUP)]}
        return RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, json.dumps(rows).encode(), {}

    def _offset(self) -> tuple[int, bytes, dict[str, Any]]:
        ext = {
            "consumerGroup": f"nonsense-{self.random.randint(0, 40)}",
            "topic": f"nonsense-{self.random.randint(0, 40)}",
            "queueId": self.random.choice((0, 1, -1, 1 << 31, 1 << 40)),
            "commitOffset": self.random.choice((0, 1, -1, 1 << 62, 1 << 70)),
        }
        return RequestCode.UPDATE_CONSUMER_OFFSET, b"", ext
