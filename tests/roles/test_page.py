"""The page of whole nodes."""

from __future__ import annotations

from typing import Any

import treq
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.web.client import Agent, HTTPConnectionPool

from lab.harness.ports import free_port
from rmqha.page.told import ClusterPage, NodePage
from rmqha.wire.remoting.json_body import from_json
from tests.roles.test_metrics import ClusterCase


class NodePageTests(ClusterCase):
    """What nodes with real ports tell of each other."""

    async def told(self, node: Any) -> dict[str, NodePage]:
        """The nodes that one knows, itself among them."""
        url = f"http://127.0.0.1:{node.settings.admin.listen_port}/page/cluster"
        agent = Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False))
        answer = await treq.get(url, agent=agent)
        page = from_json(ClusterPage, await treq.json_content(answer))
        return {each.name: each for each in page.nodes}

    def facts(self, page: NodePage) -> dict[str, str]:
        return {fact.name: fact.text for fact in page.facts}

    def test_pair(self) -> Deferred[None]:
        """A master tells of itself and its slave, with writes, groups, refusals and events; a name
        server of both.  Where an admin port is not three above the client port, what a client
        port tells is shown.
        """

        async def steps() -> None:
            namesrv, master, common = await self.cluster()
            port = free_port(-2, 3)
            ports = {"listenPort": port, "adminListenPort": port + 3}
            slave = self.node("slave", brokerId=1, **common, **ports)
            await self.started(slave)
            await self.use_when_in_sync(master)
            await self.until(lambda: len(namesrv.status()["brokers"]) == 2)
            for node in (master, slave):
                node.history.look()
            found = await self.told(master)
            own = found["broker-a/0"]
            facts = self.facts(own)
            self.assertIn("PUT_OK", facts["writes"])
            self.assertRegex(facts["put p99"], r"^\d+\.\d ms$")
            self.assertIn("1 of 1 replicas in sync", facts["replication"])
            self.assertIn("registered", facts["registration"])
            self.assertIn(("cg", "T"), {(row.group, row.topic) for row in own.groups})
            self.assertIn(("clients", "request 9999"), {(r.port, r.reason) for r in own.refused})
            self.assertIn("start", {event.kind for event in own.events})
            self.assertEqual({"lag", "writes"}, {series.name for series in own.series})
            behind = found["broker-a/1"]
            self.assertTrue(self.facts(behind)["state"].startswith("serving, "))
            self.assertIn("received", {series.name for series in behind.series})
            server = found[f"name server {common['namesrvAddr']}"]
            self.assertEqual(self.facts(server)["state"], "answers")
            told = await self.told(namesrv)
            self.assertEqual(set(told), {"name server", "broker-a/0", "broker-a/1"})
            self.assertEqual(self.facts(told["broker-a/0"])["state"], "answers its clients")

        return self.run_async(steps())
