"""What rocketmq-exporter asks for, asked of a stock broker: its answers pass the same checks as
ours do, so that they are checks of what it gets there.
"""

from __future__ import annotations

from functools import partial

from twisted.internet.defer import Deferred

from lab.harness.nodes import until
from lab.harness.remote import Remote
from lab.stock.brokers import BOOT, SMALL
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import RequestCode as Code
from rmqha.wire.remoting.command import Command
from tests.interop.cases import InteropTestCase
from tests.support import client
from tests.support.exporter import ExporterRounds
from tests.support.few_requests import FewRequests


async def ask(address: str, command: Command) -> Command:
    """Ask and wait, over a connection of its own."""
    with Remote(int(address.rpartition(":")[2])) as remote:
        return remote.ask(command)


class StockExporterTests(InteropTestCase):
    """A stock master that registers with a stock name server."""

    version = "4.9.7"
    roles = "Java master"

    def test_rounds(self) -> None:
        """All rounds, after the requests that ours are asked before."""
        with self.scenario("a stock broker answers the exporter's requests as ours does"):
            broker = self.broker().start()
            steps = Deferred.fromCoroutine(self.rounds(broker.client_address))
            # All of it waits where it asks.
            self.successResultOf(steps)
        broker.stop()

    async def rounds(self, address: str) -> None:
        """Let a client do a little of everything, and then the exporter what it does."""
        requests = FewRequests(partial(ask, address))
        client.make_group(address, "cg")
        await requests.send(UNIQ_KEY="A")
        await requests.send("U", UNIQ_KEY="B", DELAY="1")
        names = self.tool.names
        until(lambda: self.end(address) == 1, "the first is in its queue", BOOT)
        until(
            lambda: client.ask(names, Code.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 0,
            "the name server knows the topic",
            BOOT,
        )
        client.commit(address, "cg", "T", 0, 0)
        await requests.pull()
        await requests.send_back()
        # What it counts by the minute, it tells of after the first; of a level, once it is used.
        until(lambda: self.told(address), "all is counted", 2 * BOOT, pause=1.0)
        exporter = ExporterRounds(
            case=self,
            asking=ask,
            names=names,
            broker=address,
            cluster=str(SMALL["brokerClusterName"]),
            blanks=True,
        )
        await exporter.check_runtime()
        await exporter.check_cluster()

    def end(self, address: str) -> int:
        """The end of the topic's first queue."""
        answer = client.must(address, Code.GET_MAX_OFFSET, topic="T", queueId=0)
        return int(answer.ext["offset"])

    def told(self, address: str) -> bool:
        """Whether the broker tells of the times of its writes, and of the delay level."""
        body = client.must(address, Code.GET_BROKER_RUNTIME_INFO).body
        table = fastjson.loads(bytes(body))["table"]
        return "scheduleMessageOffset_1" in table and table["putMessageDistributeTime"] != "null"
