"""What rocketmq-exporter asks a cluster for, request by request, and read as it reads the answers:
it is not published as a jar that could be run here.

A key that is missing, or a text of another shape, ends its whole round there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import frozen
from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command

INTEGERS = """
    msgPutTotalTodayNow msgGetTotalTodayNow msgPutTotalTodayMorning msgGetTotalTodayMorning
    msgPutTotalYesterdayMorning msgGetTotalYesterdayMorning sendThreadPoolQueueHeadWaitTimeMills
    queryThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills
    queryThreadPoolQueueSize pullThreadPoolQueueSize sendThreadPoolQueueSize
    sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity queryThreadPoolQueueCapacity
    bootTimestamp commitLogMinOffset commitLogMaxOffset dispatchMaxBuffer brokerVersion
    pageCacheLockTimeMills getMessageEntireTimeMax putMessageTimesTotal putMessageEntireTimeMax
    startAcceptSendRequestTimeStamp earliestMessageTimeStamp remainTransientStoreBufferNumbs
    dispatchBehindBytes putMessageSizeTotal
"""
"""Keys of the table that 28 answers, read as Java's C{long}."""

FLOATS = (
    "consumeQueueDiskRatio",
    "commitLogDiskRatio",
    "putMessageAverageSize",
    "putLatency99",
    "putLatency999",
)

RATES = ["putTps", "getMissTps", "getTransferedTps", "getTotalTps", "getFoundTps"]
"""Three numbers each, with a blank between."""

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "KB", "MB", "GB", "TB")

Asking = Callable[[str, Command], Awaitable[Command]]
"""Asks an address."""


@frozen(kw_only=True)
class ExporterRounds:
    """The exporter's rounds in a cluster, after L{FewRequests<tests.support.few_requests>}.

    @ivar blanks: Whether rates may be blank, as a stock broker's are until it has run for as long
        as they are about: ten seconds, a minute, ten minutes.
    """

    case: SynchronousTestCase
    asking: Asking
    names: str
    broker: str
    cluster: str
    blanks: bool = False

    async def ask(self, address: str, code: int, **ext: str) -> Any:
        """Ask as the exporter's client does: the answer's body, as its JSON reader takes it."""
        answer = await self.asking(address, Command(code=code, version=397, ext=ext))
        self.case.assertEqual(answer.code, 0, f"{code} {ext}: {answer.remark}")
        return fastjson.loads(bytes(answer.body))

    async def check_runtime(self) -> None:
        """28: every key is there, and is of the shape in which it is taken apart."""
        case = self.case
        table = (await self.ask(self.broker, Code.GET_BROKER_RUNTIME_INFO))["table"]
        for name in INTEGERS.split():
            case.assertTrue(re.fullmatch(r"-?\d{1,19}", table[name]), f"{name} {table[name]}")
        for name in FLOATS:
            case.assertGreaterEqual(float(table[name]), 0, name)
        for name in RATES:
            rates = table[name].split(" ")
            case.assertEqual(len(rates), 3, name)
            for text in rates:
                case.assertTrue((self.blanks and not text) or float(text) >= 0, name)
        case.assertTrue(table["brokerVersionDesc"])
        case.assertTrue(table["runtime"])
        for row in table["putMessageDistributeTime"].strip().split(" "):
            name, count = row.split(":")
            case.assertTrue(name.startswith("[") and count.isdigit(), row)
        amount, unit = table["remainHowManyDataToFlush"].split(" ")
        case.assertTrue(float(amount) >= 0 and unit in UNITS)
        words = table["commitLogDirCapacity"].split(" ")
        for amount, unit in ((words[2], words[3][:-1]), (words[6], words[7][:-1])):
            case.assertTrue(float(amount) > 0 and unit in UNITS, words)
        levels = [text for name, text in table.items() if name.startswith("scheduleMessageOff")]
        case.assertEqual(len(levels), 1, levels)
        case.assertIn(levels[0].split(","), (["0", "1"], ["1", "1"]))

    async def check_cluster(self) -> None:
        """The other rounds, from the list of topics to the statistics of a group."""
        case, names, broker = self.case, self.names, self.broker
        clusters = await self.ask(names, Code.GET_BROKER_CLUSTER_INFO)
        case.assertEqual(clusters["clusterAddrTable"], {self.cluster: ["broker-a"]})
        row = clusters["brokerAddrTable"]["broker-a"]
        addresses = {int(number): where for number, where in row["brokerAddrs"].items()}
        case.assertEqual(addresses[0], broker)
        topics = (await self.ask(names, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]
        case.assertIn("T", topics)
        route = await self.ask(names, Code.GET_ROUTEINFO_BY_TOPIC, topic="T")
        case.assertEqual(route["brokerDatas"][0]["brokerName"], "broker-a")
        stats = await self.ask(broker, Code.GET_TOPIC_STATS_INFO, topic="T")
        case.assertEqual(_ends(stats["offsetTable"], "maxOffset"), 1)
        groups = await self.ask(broker, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
        case.assertEqual(groups["groupList"], ["cg"])
        consumed = await self.ask(broker, Code.GET_CONSUME_STATS, consumerGroup="cg", topic="T")
        table = consumed["offsetTable"]
        case.assertEqual(_ends(table, "brokerOffset") - _ends(table, "consumerOffset"), 1)
        case.assertEqual(consumed["consumeTps"] * 0, 0)
        await self.ask(broker, Code.GET_ALL_PRODUCER_INFO)
        for name, key in (
            ("TOPIC_PUT_NUMS", "T"),
            ("TOPIC_PUT_SIZE", "T"),
            ("GROUP_GET_NUMS", "T@cg"),
            ("GROUP_GET_SIZE", "T@cg"),
            ("SNDBCK_PUT_NUMS", "T@cg"),
            ("BROKER_PUT_NUMS", self.cluster),
            ("BROKER_GET_NUMS", self.cluster),
        ):
            told = await self.ask(broker, Code.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key)
            case.assertGreaterEqual(float(told["statsMinute"]["tps"]), 0, name)
            case.assertGreaterEqual(int(told["statsMinute"]["sum"]), 0, name)


def _ends(table: Any, name: str) -> int:
    """The sum of a field over all queues; their keys are JSON objects themselves."""
    rows = table.items() if isinstance(table, dict) else table
    for queue, _ in rows:
        assert json.loads(queue) if isinstance(queue, str) else dict(queue), "a queue"
    return sum(row[name] for _, row in rows)
