"""The page on the admin port, what a node tells of itself, and the last quarter of an hour."""

from __future__ import annotations

import re
from typing import Any

from treq.testing import StubTreq
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.health import HealthProbe, HealthReason
from rmqha.page.history import SPAN, STEP, History
from rmqha.page.own import GROUPS_FOR, MOST_EVENTS, MOST_GROUPS
from rmqha.page.site import FILES, content
from rmqha.page.told import GroupRow, NodePage
from rmqha.wire.remoting import json_body
from tests.nodes.test_summary import NAMESRV
from tests.page.support import NOW, ToldNode, own_page, page_site

MASTER: dict[str, Any] = {
    "replicas": [
        {"lagSeconds": 0.0, "lagBytes": 0},
        {"lagSeconds": 2.5, "lagBytes": 700},
        {"lagSeconds": None, "lagBytes": None},
    ],
    "writes": {"PUT_OK": 100, "FLUSH_SLAVE_TIMEOUT": 1},
}
SLAVE: dict[str, Any] = {
    "replicas": [],
    "upstream": {"lagSeconds": 1.0, "lagBytes": None, "received": 1000},
}


class HistoryTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.now: dict[str, Any] = MASTER
        self.history = History(lambda: self.now, self.clock, lambda: int(self.clock.rightNow * 1e3))
        self.history.start()

    def seen(self) -> dict[tuple[str, str], list[Any]]:
        found = self.history.series()
        return {(series.name, series.unit): list(series.values) for series in found}

    def test_master(self) -> None:
        """A master shows how far its last replica is, and how many writes came in a second."""
        self.now = {**MASTER, "writes": {"PUT_OK": 151}}
        self.clock.advance(STEP)
        self.assertEqual(self.history.times(), (0, 5000))
        self.assertEqual(
            self.seen(),
            {
                ("lag", "s"): [2.5, 2.5],
                ("lag", "bytes"): [700, 700],
                ("writes", "/s"): [None, 10.0],
            },
        )

    def test_slave(self) -> None:
        """A slave shows how far it is itself, and what it received; not what it does not know."""
        for received in (1000, 6000, 0):
            self.now = {**SLAVE, "upstream": {**SLAVE["upstream"], "received": received}}
            self.clock.advance(STEP)
        self.assertEqual(self.seen()["lag", "s"], [2.5, 1.0, 1.0, 1.0])
        self.assertEqual(self.seen()["lag", "bytes"], [700, None, None, None])
        # Before it was a slave, and where it counted anew, nothing is known.
        self.assertEqual(self.seen()["received", "bytes/s"], [None, None, 1000.0, None])

    def test_bounded(self) -> None:
        """A quarter of an hour is kept, however long the node runs."""
        for _ in range(1000):
            self.clock.advance(STEP)
        times = self.history.times()
        self.assertEqual(times[-1] - times[0], SPAN * 1000)
        self.assertEqual({len(values) for values in self.seen().values()}, {len(times)})

    def test_nothing(self) -> None:
        """A name server has no lag; a stop ends the looks."""
        other = History(lambda: {"role": "namesrv"}, self.clock)
        other.look()
        self.assertEqual(other.series(), ())
        self.history.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])


DAY = 86_400_000


class OwnPageTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.node, self.clock = ToldNode(), Clock()
        self.own = own_page(self.node, self.clock)

    def told(self) -> NodePage:
        asked = ensureDeferred(self.own.told())
        self.clock.pump([0.0] * 10)
        return self.successResultOf(asked)

    def test_who(self) -> None:
        """It says who it is, and what is wrong; its own word comes through JSON unchanged."""
        self.node.wrong = [
            HealthReason("disk-full", "no space"),
            HealthReason("first-copy", "", fails=HealthProbe.READY),
        ]
        self.own.history.look()
        page = self.told()
        self.assertEqual(
            (page.name, page.broker_name, page.role), ("broker-a/0", "broker-a", "master")
        )
        self.assertEqual(page.problem, "disk-full: no space")
        self.assertEqual({each.name for each in page.series}, {"lag", "writes"})
        self.assertEqual(json_body.read(NodePage, json_body.write(page)), page)

    def test_name_server(self) -> None:
        """A name server has a page too."""
        self.node.described = NAMESRV
        page = self.told()
        self.assertEqual((page.name, page.broker_name), ("name server", ""))

    def test_events(self) -> None:
        """Events of a day are told, the latest first, and not more than some."""
        ages = [DAY + 1, DAY - 1, *range(MOST_EVENTS, 0, -1)]
        self.node.events = [{"time": NOW - age, "kind": "state", "text": "x"} for age in ages]
        self.assertEqual(
            [NOW - event.time for event in self.told().events], list(range(1, MOST_EVENTS + 1))
        )
        del self.node.events[2:]
        self.assertEqual([NOW - event.time for event in self.told().events], [DAY - 1])

    def test_groups(self) -> None:
        """The groups that are furthest behind are told, and not looked up with each question."""
        self.node.groups = [
            None,
            *(GroupRow(group=f"g{n}", topic="T", messages=n) for n in range(1, MOST_GROUPS + 10)),
        ]
        for times in (1, 1, 2):
            rows = self.told().groups
            self.assertEqual((len(rows), rows[0].messages), (MOST_GROUPS, MOST_GROUPS + 9))
            self.assertEqual(self.node.looked_up, times)
            self.clock.advance(GROUPS_FOR / 2)

    def test_refused(self) -> None:
        """What was refused is told by reason, the commonest first; what ends every day is not."""
        self.node.described |= {
            "closedConnections": {"peer": 100, "not-allowed": 3},
            "remoting": {
                "closed": {"idle": 9, "tls-handshake": 2},
                "refusedRequests": [{"code": 9999, "name": None, "client": "10.0.0.7", "count": 7}],
            },
        }
        self.assertEqual(
            [(row.port, row.reason, row.client, row.count) for row in self.told().refused],
            [
                ("clients", "request 9999", "10.0.0.7", 7),
                ("HA", "not-allowed", "", 3),
                ("clients", "tls-handshake", "", 2),
            ],
        )


PAGES = ("/", *(f"/page/{name}" for name in FILES))
NUMBERS = ("/page/node", "/page/cluster")


class PageSiteTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A master that knows no other node."""
        self.node = ToldNode()
        self.treq = StubTreq(page_site(self.node, Clock()))

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[Any, bytes]:
        """@return: The response and its body."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        response = self.successResultOf(
            self.treq.request(method, f"http://127.0.0.1{path}", headers=given)
        )
        return response, self.successResultOf(response.content())

    def test_page(self) -> None:
        """The page and what it is made of are served; all it names is on this port."""
        for path in PAGES:
            response, body = self.ask(path)
            self.assertEqual(response.code, 200, path)
            self.assertGreater(len(body), 500, path)
        _, index = self.ask("/")
        named = re.findall(rb'(?:src|href)="([^"]+)"', index)
        self.assertEqual(len(named), 4)
        for path in named:
            self.assertEqual(self.ask(path.decode())[0].code, 200, path)

    def test_nobody_else(self) -> None:
        """A browser is told to ask nobody else, and to run nothing that the page has."""
        for path in PAGES:
            policy = self.ask(path)[0].headers.getRawHeaders(b"content-security-policy")[0]
            self.assertIn(b"default-src 'self'", policy)
            self.assertNotIn(b"unsafe", policy)
        for name in ("index.html", "page.js", "page.css"):
            text, _ = content("rmqha.page", f"static/{name}")
            self.assertNotIn(b"://", text, name)
            self.assertNotRegex(text, rb"innerHTML|<style|<script>|onclick|\.html\(", name)

    def test_known_already(self) -> None:
        """A browser that has a file does not get it again."""
        response, _ = self.ask("/page/d3.js")
        tag = response.headers.getRawHeaders(b"etag")[0].decode()
        response, body = self.ask("/page/d3.js", if_none_match=tag)
        self.assertEqual((response.code, body), (304, b""))

    def test_numbers(self) -> None:
        """Its numbers are JSON, and not kept anywhere."""
        for path in NUMBERS:
            response, body = self.ask(path)
            self.assertEqual(response.code, 200, path)
            self.assertEqual(response.headers.getRawHeaders(b"content-type"), [b"application/json"])
            self.assertEqual(response.headers.getRawHeaders(b"cache-control"), [b"no-store"])
            self.assertIn(b'"broker-a/0"', body)

    def test_not_now(self) -> None:
        """While a node cannot be read the page is told so."""

        def closed() -> dict[str, Any]:
            raise OSError("the store is closed")

        self.patch(ToldNode, "status", lambda _: closed())
        response, body = self.ask("/page/node")
        self.assertEqual(response.code, 503)
        self.assertIn(b"the store is closed", body)

    def test_reading(self) -> None:
        """Nothing can be changed here, and there is nothing else."""
        for path in (*PAGES, *NUMBERS):
            self.assertEqual(self.ask(path, "POST")[0].code, 405, path)
            response, body = self.ask(path, "HEAD")
            self.assertEqual((response.code, body), (200, b""), path)
        for path in ("/page", "/page/", "/page/x", "/page/../../setup.py", "/page/x/y", "/x"):
            self.assertEqual(self.ask(path)[0].code, 404, path)
