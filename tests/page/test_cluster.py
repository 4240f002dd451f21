"""The page of a whole cluster."""

from __future__ import annotations

import json
from typing import Any

from attrs import define, field
from treq.testing import StubTreq
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource

from rmqha.admin.http import AdminSite
from rmqha.errors import RemotingUnreachable
from rmqha.page.cluster import ALONE, FRESH, KEPT, PATIENCE
from rmqha.page.site import PageSite
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.route import BrokerData, ClusterInfo, KvTable
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from tests.cli.nodes.test_status import Page
from tests.nodes.test_summary import MASTER, NAMESRV, SLAVE
from tests.page.support import ToldNode, page_site

NAMES = "10.0.0.9:9876"
TABLE = ClusterInfo(
    broker_addr_table={
        "broker-a": BrokerData(
            broker_name="broker-a",
            cluster="C",
            broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
        ),
        "stock": BrokerData(broker_name="stock", cluster="C", broker_addrs={0: "10.0.0.5:10911"}),
    }
)


@define
class Others:
    """The other nodes, over HTTP and at their client ports; the slow ones wait for the test."""

    http: dict[str, Resource] = field(factory=dict)
    clients: dict[str, Any] = field(factory=dict)
    slow: dict[str, Deferred[Any]] = field(factory=dict)
    asked: list[str] = field(factory=list)
    closed: int = 0

    def get(self, url: str, **more: Any) -> Deferred[Any]:
        address, _, _ = url.removeprefix("http://").partition("/")
        self.asked.append(url)
        site = self.http.get(address)
        if site is None:
            return fail(ConnectionRefusedError())
        treq = StubTreq(site)
        answer: Deferred[Any] = treq.get(url, **more)
        treq.flush()
        return answer

    def request(self, address: str, command: Command, timeout: float = 0) -> Deferred[Command]:
        """Ask a client port, or a name server."""
        self.asked.append(address)
        if address in self.slow:
            return self.slow[address]
        body = self.clients.get(address)
        if body is None:
            return fail(RemotingUnreachable(address, "refused"))
        return succeed(command.answer(body=json_body.write(body)))

    def close(self) -> Deferred[None]:
        self.closed += 1
        return succeed(None)


class ClusterTests(SynchronousTestCase):
    """What a master's C{/page/cluster} tells of the others."""

    def setUp(self) -> None:
        """A master, its slave, a stock broker and a name server."""
        self.clock, self.others = Clock(), Others()
        self.slave = ToldNode(dict(SLAVE))
        names = ToldNode(dict(NAMESRV))
        self.others.http["10.0.0.2:10914"] = page_site(self.slave, self.clock)
        self.others.http["10.0.0.9:9879"] = page_site(names, self.clock)
        self.others.clients[NAMES] = TABLE
        self.others.clients["10.0.0.5:10911"] = KvTable(table={"brokerVersionDesc": "V4_9_7"})
        self.site = self.page(servers=(NAMES,))

    def page(self, **more: Any) -> PageSite:
        others: Any = self.others
        return page_site(ToldNode(), self.clock, http=others, connect=lambda: others, **more)

    def asks(self) -> tuple[StubTreq, Deferred[Any]]:
        treq = StubTreq(self.site)
        asked: Deferred[Any] = treq.get("http://127.0.0.1/page/cluster")
        treq.flush()
        return treq, asked

    def told(self) -> dict[str, Any]:
        treq, asked = self.asks()
        self.clock.pump([0.0] * 3)
        treq.flush()
        response = self.successResultOf(asked)
        self.assertEqual(response.code, 200)
        found: dict[str, Any] = self.successResultOf(treq.json_content(response))
        return found

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["name"]: node for node in self.told()["nodes"]}

    def facts(self, node: dict[str, Any]) -> dict[str, str]:
        return {fact["name"]: fact["text"] for fact in node["facts"]}

    def test_all(self) -> None:
        """A node tells of all that its name server knows: of ours what their own pages tell, of a
        stock broker what it tells any client; and asks itself over no connection.
        """
        found = self.nodes()
        self.assertEqual(
            set(found), {"broker-a/0", "broker-a/1", "stock/0", f"name server {NAMES}"}
        )
        self.assertEqual(self.facts(found["broker-a/1"])["state"], "serving, catching-up")
        stock = self.facts(found["stock/0"])
        self.assertEqual((stock["state"], stock["version"]), ("answers its clients", "V4_9_7"))
        self.assertIn("10.0.0.5:10914 cannot be reached", stock["admin port"])
        self.assertEqual(found["stock/0"]["problem"], "")
        self.assertEqual({node["problem"] for node in found.values()}, {""})
        self.assertFalse([url for url in self.others.asked if "10.0.0.1" in url])
        self.assertEqual(self.others.closed, 1)

    def test_of_a_name_server(self) -> None:
        """A name server asks nobody where its brokers are."""
        self.site = page_site(
            ToldNode(dict(NAMESRV)),
            self.clock,
            http=self.others,
            connect=lambda: self.others,  # type: ignore[arg-type,return-value]
            table=TABLE,
        )
        found = self.nodes()
        self.assertEqual(set(found), {"name server", "broker-a/0", "broker-a/1", "stock/0"})
        self.assertIn("its client port: ", found["broker-a/0"]["problem"])

    def test_nobody_answers(self) -> None:
        """Without a name server, or with one that is away, a node shows itself, and says why."""
        del self.others.clients[NAMES]
        found = self.told()
        self.assertEqual(found["note"], f"no name server answers ({NAMES}), so this is one node")
        self.assertEqual(len(found["nodes"]), 2)
        self.assertIn("refused", found["nodes"][1]["problem"])
        self.site = self.page()
        found = self.told()
        self.assertEqual((found["note"], len(found["nodes"])), (ALONE, 1))

    def test_gone(self) -> None:
        """A broker that was there keeps its place for an hour when no name server lists it any
        more, with how long that is; one that took another name does not, and where no name server
        answers nobody is gone.
        """
        self.told()
        left = ClusterInfo(broker_addr_table={"broker-a": TABLE.broker_addr_table["broker-a"]})
        self.others.clients[NAMES] = left
        del self.others.clients["10.0.0.5:10911"]
        self.clock.advance(100)
        found = self.nodes()
        self.assertRegex(found["stock/0"]["problem"], "^gone: .* for 1 min 40 s; 10.0.0.5:10914 ")
        self.assertEqual(found["broker-a/1"]["problem"], "")
        del self.others.clients[NAMES]
        self.clock.advance(100)
        found = self.nodes()
        self.assertIn("for 1 min 40 s; ", found["stock/0"]["problem"])
        self.assertEqual(found["broker-a/1"]["problem"], "")
        self.others.clients[NAMES] = left
        self.clock.advance(KEPT)
        self.assertNotIn("stock/0", self.nodes())
        promoted = BrokerData(
            broker_name="broker-a", cluster="C", broker_addrs={0: "10.0.0.2:10911"}
        )
        self.others.clients[NAMES] = ClusterInfo(broker_addr_table={"broker-a": promoted})
        self.clock.advance(FRESH)
        self.assertNotIn("broker-a/1", self.nodes())

    def test_asked_once(self) -> None:
        """However many look, others are asked every few seconds."""
        self.told()
        asked = len(self.others.asked)
        self.told()
        self.assertEqual(len(self.others.asked), asked)
        self.clock.advance(FRESH)
        self.told()
        self.assertEqual(len(self.others.asked), 2 * asked)

    def test_slow(self) -> None:
        """A node that does not answer does not keep the page: the others are as they were."""
        self.told()
        self.clock.advance(FRESH)
        self.others.slow["10.0.0.5:10911"] = Deferred()
        self.slave.described |= {"state": "recovering"}
        treq, asked = self.asks()
        self.assertNoResult(asked)
        self.clock.advance(PATIENCE)
        treq.flush()
        page = self.successResultOf(treq.json_content(self.successResultOf(asked)))
        self.assertEqual(len(page["nodes"]), 4)
        self.assertNotIn("recovering", json.dumps(page))
        self.others.slow["10.0.0.5:10911"].errback(RemotingUnreachable("x", "late"))
        self.assertEqual(self.facts(self.nodes()["broker-a/1"])["state"], "recovering, catching-up")

    def test_an_older_node(self) -> None:
        """One without a page of its own is told by its status."""
        self.others.http["10.0.0.2:10914"] = AdminSite(self.slave)
        self.assertIn("3.2 s behind", self.facts(self.nodes()["broker-a/1"])["replication"])

    def test_strangers(self) -> None:
        """What is not a page of that node is not shown for it."""
        stranger = page_site(ToldNode(MASTER | {"brokerName": "other"}), self.clock)
        for site in (
            {b"node": Page('{"name": 5}')},
            {b"node": Page('{"name": "broker-a/1", "facts": "<b>"}')},
            {b"node": Page("<html>")},
            {b"node": stranger.getStaticEntity(b"page").getStaticEntity(b"node")},
        ):
            root, below = Resource(), Resource()
            root.putChild(b"page", below)
            for name, page in site.items():
                below.putChild(name, page)
            self.others.http["10.0.0.2:10914"] = root
            self.assertIn("its client port: ", self.nodes()["broker-a/1"]["problem"])
            self.clock.advance(FRESH)

    def test_request(self) -> None:
        """A broker is asked nothing that changes anything."""
        codes: list[int] = []
        request = self.others.request

        def asked(address: str, command: Command, timeout: float = 0) -> Deferred[Command]:
            codes.append(command.code)
            return request(address, command, timeout)

        self.patch(Others, "request", lambda _, *given: asked(*given))
        self.told()
        self.assertEqual(
            set(codes), {RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.GET_BROKER_RUNTIME_INFO}
        )
