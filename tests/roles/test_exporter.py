"""What rocketmq-exporter asks a cluster of ours for; other tests ask a stock one."""

from __future__ import annotations

from twisted.internet import reactor
from twisted.internet.defer import Deferred

from rmqha.net.remoting.client import RemotingClient
from tests.roles.test_metrics import ClusterCase
from tests.support.exporter import ExporterRounds


class ExporterTests(ClusterCase):
    async def begun(self) -> ExporterRounds:
        client = RemotingClient(reactor)
        self.addCleanup(client.close)
        namesrv, master, common = await self.cluster()
        await self.started(self.node("slave", brokerId=1, **common))
        await self.use_when_in_sync(master)
        await self.until(lambda: "T" in master.broker.topics.names())
        await self.until(lambda: "T" in namesrv.server.table.topics())
        return ExporterRounds(
            case=self,
            asking=client.request,
            names=f"127.0.0.1:{namesrv.settings.namesrv.listen_port}",
            broker=f"127.0.0.1:{master.settings.broker.listen_port}",
            cluster="DefaultCluster",
        )

    def test_runtime(self) -> Deferred[None]:
        """What a broker tells of itself."""

        async def steps() -> None:
            await (await self.begun()).check_runtime()

        return self.run_async(steps())

    def test_rounds(self) -> Deferred[None]:
        """The other rounds, from the list of topics to the statistics of a group."""

        async def steps() -> None:
            await (await self.begun()).check_cluster()

        return self.run_async(steps())
