"""
What rocketmq-exporter asks a cluster for, request by request, and read as it reads the answers:
it is not published as a jar that could be run here.

A key that is missing, or a text of another shape, ends its whole round there.
"""

from __future__ import annotations

import json
import re
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from rmqha.net.remoting.client import RemotingClient
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from tests.roles.test_metrics import ClusterCase

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


class ExporterTests(ClusterCase):
    """
    The exporter's rounds.
    """

    async def ask(self, port: int, code: int, **ext: str) -> Any:
        """
        Ask as the exporter's client does.

        @return: The answer's body, as its JSON reader takes it.
        """
        request = Command(code=code, version=397, ext=ext)
        answer: Command = await self.asking.request(f"127.0.0.1:{port}", request)
        self.assertEqual(answer.code, 0, f"{code} {ext}: {answer.remark}")
        return fastjson.loads(answer.body)

    async def begun(self) -> tuple[int, int]:
        """
        A cluster, and a round of its clients.

        @return: The ports of its name server and its master.
        """
        self.asking = RemotingClient(reactor)
        self.addCleanup(self.asking.close)
        namesrv, master, common = await self.cluster()
        await self.started(self.node("slave", brokerId=1, **common))
        await self.use_when_in_sync(master)
        await self.until(lambda: "T" in master.broker.topics.names())
        port = namesrv.settings.namesrv.listen_port
        await self.until(lambda: "T" in namesrv.server.table.topics())
        return port, master.settings.broker.listen_port

    def test_runtime(self) -> Deferred[None]:
        """
        28: every key is there, and is of the shape in which it is taken apart.
        """

        async def steps() -> None:
            _, port = await self.begun()
            table = (await self.ask(port, Code.GET_BROKER_RUNTIME_INFO))["table"]
            for name in INTEGERS.split():
                self.assertTrue(re.fullmatch(r"-?\d{1,19}", table[name]), f"{name} {table[name]}")
            for name in FLOATS:
                self.assertGreaterEqual(float(table[name]), 0, name)
            for name in RATES:
                self.assertEqual(len([float(text) for text in table[name].split(" ")]), 3, name)
            self.assertTrue(table["brokerVersionDesc"])
            self.assertTrue(table["runtime"])
            for row in table["putMessageDistributeTime"].strip().split(" "):
                name, count = row.split(":")
                self.assertTrue(name.startswith("[") and count.isdigit(), row)
            amount, unit = table["remainHowManyDataToFlush"].split(" ")
            self.assertTrue(float(amount) >= 0 and unit in UNITS)
            words = table["commitLogDirCapacity"].split(" ")
            for amount, unit in ((words[2], words[3][:-1]), (words[6], words[7][:-1])):
                self.assertTrue(float(amount) > 0 and unit in UNITS, words)
            levels = [text for name, text in table.items() if name.startswith("scheduleMessageOff")]
            self.assertEqual([text.split(",") for text in levels], [["0", "1"]])

        return self.run_async(steps())

    def test_rounds(self) -> Deferred[None]:
        """
        The other rounds, from the list of topics to the statistics of a group.
        """

        async def steps() -> None:
            names, port = await self.begun()
            clusters = await self.ask(names, Code.GET_BROKER_CLUSTER_INFO)
            self.assertEqual(clusters["clusterAddrTable"], {"DefaultCluster": ["broker-a"]})
            row = clusters["brokerAddrTable"]["broker-a"]
            addresses = {int(number): where for number, where in row["brokerAddrs"].items()}
            self.assertEqual(addresses[0], f"127.0.0.1:{port}")
            topics = (await self.ask(names, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]
            self.assertIn("T", topics)
            route = await self.ask(names, Code.GET_ROUTEINFO_BY_TOPIC, topic="T")
            self.assertEqual(route["brokerDatas"][0]["brokerName"], "broker-a")
            stats = await self.ask(port, Code.GET_TOPIC_STATS_INFO, topic="T")
            self.assertEqual(_ends(stats["offsetTable"], "maxOffset"), 1)
            groups = await self.ask(port, Code.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
            self.assertEqual(groups["groupList"], ["cg"])
            consumed = await self.ask(port, Code.GET_CONSUME_STATS, consumerGroup="cg", topic="T")
            table = consumed["offsetTable"]
            self.assertEqual(_ends(table, "brokerOffset") - _ends(table, "consumerOffset"), 1)
            self.assertEqual(consumed["consumeTps"] * 0, 0)
            await self.ask(port, Code.GET_ALL_PRODUCER_INFO)
            for name, key in (
                ("TOPIC_PUT_NUMS", "T"),
                ("TOPIC_PUT_SIZE", "T"),
                ("GROUP_GET_NUMS", "T@cg"),
                ("GROUP_GET_SIZE", "T@cg"),
                ("SNDBCK_PUT_NUMS", "T@cg"),
                ("BROKER_PUT_NUMS", "DefaultCluster"),
                ("BROKER_GET_NUMS", "DefaultCluster"),
            ):
                told = await self.ask(
                    port, Code.VIEW_BROKER_STATS_DATA, statsName=name, statsKey=key
                )
                self.assertGreaterEqual(float(told["statsMinute"]["tps"]), 0, name)
                self.assertGreaterEqual(int(told["statsMinute"]["sum"]), 0, name)

        return self.run_async(steps())


def _ends(table: Any, name: str) -> int:
    """
    The sum of a field over all queues; their keys are JSON objects themselves.
    """
    rows = table.items() if isinstance(table, dict) else table
    for queue, _ in rows:
        assert json.loads(queue) if isinstance(queue, str) else dict(queue), "a queue"
    return sum(row[name] for _, row in rows)
