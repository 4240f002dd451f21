"""The admin port, through a real HTTP client and server in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import define, field
from treq.testing import StubTreq
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.test.requesthelper import DummyChannel

from rmqha.admin.http import DEADLINE, MOST_CONNECTIONS, AdminPort, AdminSite, OwnNames
from rmqha.config.values import NETWORKS
from rmqha.errors import Refused
from rmqha.health import HealthProbe, HealthReason
from rmqha.net.allowed_peers import Allowed

NO_SLAVE = "only a slave that was started as one is promoted"


@define
class Slave:
    """What makes it the master."""

    asked: list[dict[str, Any]] = field(factory=list)

    def check(self, **wishes: Any) -> dict[str, Any]:
        self.asked.append(wishes)
        return {"conf": "/etc/rmqha/broker.conf"}

    def begin(self) -> None:
        raise Refused("promotion", "not now")

    def status(self) -> None:
        """Nothing is told."""


@define
class Node:
    """A node that says what the test wants."""

    wrong: list[HealthReason] = field(factory=list)
    described: dict[str, Any] = field(factory=lambda: {"role": "master", "replicas": []})
    looking: Deferred[None] = field(factory=lambda: succeed(None))
    scraping: list[Deferred[bytes]] = field(factory=list)
    kept: set[str] = field(factory=lambda: {"10.0.0.5", "fe80::1"})
    promotion: Slave | None = None

    def status(self) -> dict[str, Any]:
        return self.described

    def looked(self) -> Deferred[None]:
        """Looking takes as long as the test wants."""
        return self.looking

    def happened(self) -> list[dict[str, Any]]:
        return [{"time": 1_700_000_000_000, "kind": "state", "text": "serving"}]

    def metrics(self) -> Deferred[bytes]:
        answer: Deferred[bytes] = Deferred()
        self.scraping.append(answer)
        return answer

    def health(self) -> Iterator[HealthReason]:
        return iter(self.wrong)

    def drop_slot(self, address: str) -> bool:
        known = address in self.kept
        self.kept.discard(address)
        return known


class AdminTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.site: Resource = AdminSite(self.node)
        self.treq = StubTreq(self.site)

    def ask(self, path: str, method: str = "GET", host: str = "127.0.0.1") -> tuple[int, Any, Any]:
        """@return: Code, JSON content (C{None} without any) and headers."""
        response = self.successResultOf(self.treq.request(method, f"http://{host}{path}"))
        body = self.successResultOf(response.content())
        content = self.successResultOf(response.json()) if body else None
        self.assertEqual(
            response.headers.getRawHeaders(b"content-type"), [b"application/json"], path
        )
        return response.code, content, response.headers

    def test_healthy(self) -> None:
        """A node that does its work is 200."""
        code, content, _ = self.ask("/healthz")
        self.assertEqual((code, content), (200, {"healthy": True}))

    def test_unhealthy(self) -> None:
        """One that does not is 503 and says everything that is wrong."""
        self.node.wrong = [
            HealthReason("disk-full", "no space for 1048576 bytes"),
            HealthReason("no-master", "nothing heard for 61 s"),
        ]
        code, content, _ = self.ask("/healthz")
        self.assertEqual(code, 503)
        self.assertEqual(
            content,
            {
                "healthy": False,
                "reason": "disk-full: no space for 1048576 bytes; "
                "no-master: nothing heard for 61 s",
                "reasons": [
                    {"name": "disk-full", "text": "no space for 1048576 bytes"},
                    {"name": "no-master", "text": "nothing heard for 61 s"},
                ],
            },
        )

    def test_probes(self) -> None:
        """Each probe fails for what concerns it, and tells no more than that."""
        for path, probe in (
            ("/livez", HealthProbe.LIVE),
            ("/readyz", HealthProbe.READY),
            ("/healthz", HealthProbe.HEALTH),
        ):
            self.node.wrong = [HealthReason("other", "", fails=~probe)]
            self.assertEqual(self.ask(path)[:2], (200, {"healthy": True}), path)
            self.node.wrong.append(HealthReason("own", "", fails=probe))
            code, content, _ = self.ask(path)
            self.assertEqual((code, content["reason"]), (503, "own"), path)

    def test_status(self) -> None:
        """The status is what the node says at that moment, in any alphabet, and is not cached."""
        for role in ("master", "スレーブ"):
            self.node.described = {"role": role, "lagBytes": None, "replicas": [{"acked": 1 << 62}]}
            code, content, headers = self.ask("/status")
            self.assertEqual((code, content), (200, self.node.described))
            self.assertEqual(headers.getRawHeaders(b"cache-control"), [b"no-store"])

    def test_status_takes_a_moment(self) -> None:
        """What a node has to look at first is waited for, but not by a client that left."""
        self.node.looking = Deferred()
        asked = [self.treq.request("GET", "http://node/status") for _ in range(2)]
        self.treq.flush()
        self.assertNoResult(asked[0])
        self.assertEqual(self.ask("/healthz")[0], 200)
        asked[1].addErrback(lambda _: None)
        asked[1].cancel()
        self.treq.flush()
        self.node.described = {"role": "slave"}
        self.node.looking.callback(None)
        self.treq.flush()
        response = self.successResultOf(asked[0])
        self.assertEqual(self.successResultOf(response.json()), {"role": "slave"})

    def test_metrics(self) -> None:
        """Monitors get Prometheus' text, those that wait for it."""
        asked = [self.treq.request("GET", "http://node/metrics") for _ in range(2)]
        self.treq.flush()
        self.assertNoResult(asked[0])
        asked[1].addErrback(lambda _: None)
        asked[1].cancel()
        self.treq.flush()
        for scrape in self.node.scraping:
            scrape.callback(b"rmqha_up 1\n")
        self.treq.flush()
        response = self.successResultOf(asked[0])
        self.assertEqual(self.successResultOf(response.content()), b"rmqha_up 1\n")
        self.assertEqual(
            response.headers.getRawHeaders(b"content-type"),
            [b"text/plain; version=0.0.4; charset=utf-8"],
        )

    def test_no_metrics(self) -> None:
        """While a node's parts cannot be read a monitor is told so, and the node goes on."""
        asked = self.treq.request("GET", "http://node/metrics")
        self.node.scraping[0].errback(OSError("closed"))
        self.treq.flush()
        response = self.successResultOf(asked)
        self.assertEqual(response.code, 503)
        error = self.successResultOf(response.json())["error"]
        self.assertEqual(error, "the metrics cannot be read now: closed")

    def test_queries_and_slashes(self) -> None:
        """A query or a closing slash makes no difference."""
        for path in ("/status?pretty=1", "/status/", "/healthz?a=b&a=%00"):
            self.assertEqual(self.ask(path)[0], 200, path)

    def test_head(self) -> None:
        """C{HEAD} is C{GET} without the content."""
        code, content, _ = self.ask("/status", "HEAD")
        self.assertEqual((code, content), (200, None))

    def test_other_methods(self) -> None:
        """What is shown cannot be changed: other methods are 405 and told which there are."""
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"):
            for path in ("/status", "/healthz", "/readyz", "/livez", "/metrics"):
                code, content, headers = self.ask(path, method)
                self.assertEqual((code, headers.getRawHeaders(b"allow")), (405, [b"GET, HEAD"]))
                self.assertIn("error", content)

    def test_drop_a_slot(self) -> None:
        """A slot is dropped once; without one it is 404, and no other method does anything."""
        for address in ("10.0.0.5", "fe80::1"):
            for method in ("GET", "POST", "PUT", "HEAD"):
                self.assertEqual(self.ask(f"/slots/{address}", method)[0], 405)
            code, content, _ = self.ask(f"/slots/{address}", "DELETE")
            self.assertEqual((code, content), (200, {"dropped": address}))
            code, content, _ = self.ask(f"/slots/{address}", "DELETE")
            self.assertEqual(code, 404)
            self.assertIn("that is away: none is known", content["error"])
        for path in ("/slots", "/slots/"):
            self.assertEqual(self.ask(path, "DELETE")[0], 404)

    def test_drop_connected(self) -> None:
        """O8: of a replica that is connected that is said."""
        rows = [{"address": "10.0.0.7", "connected": True}]
        self.node.described["retentionSlots"] = rows
        code, content, _ = self.ask("/slots/10.0.0.7", "DELETE")
        self.assertEqual(code, 404)
        self.assertIn("that is away: it is connected", content["error"])

    def test_drop_from_elsewhere(self) -> None:
        """Only who is on the node's machine may, and was not sent by another host's web page."""
        for host in ("evil.example", "192.0.2.7", "127.0.0.1.evil.example"):
            self.assertEqual(self.ask("/slots/10.0.0.5", "DELETE", host)[0], 403, host)
        self.patch(
            Request, "getClientAddress", lambda request: IPv4Address("TCP", "192.0.2.7", 40000)
        )
        self.assertEqual(self.ask("/slots/10.0.0.5", "DELETE")[0], 403)
        self.patch(Request, "getClientAddress", lambda request: IPv6Address("TCP", "::1", 40000))
        self.assertEqual(self.ask("/slots/10.0.0.5", "DELETE", "localhost")[0], 200)

    def test_promotion(self) -> None:
        """By PUT from its own machine alone a slave is asked whether it may lead, and told to."""
        self.assertEqual(self.ask("/promotion", "PUT")[:2], (409, {"error": NO_SLAVE}))
        slave = self.node.promotion = Slave()
        for method in ("GET", "POST", "DELETE"):
            self.assertEqual(self.ask("/promotion", method)[0], 405)
        self.assertEqual(self.ask("/promotion?begin=true", "PUT", "evil.example")[0], 403)
        self.assertEqual(slave.asked, [])
        code, content, _ = self.ask("/promotion?epoch=7&verify=false&dryRun=true", "PUT")
        self.assertEqual((code, content), (202, {"conf": "/etc/rmqha/broker.conf"}))
        self.assertEqual(slave.asked, [{"epoch": 7, "verify": False, "dry_run": True}])
        self.ask("/promotion", "PUT")
        self.assertEqual(slave.asked[1:], [{"epoch": None, "verify": True, "dry_run": False}])
        self.assertEqual(self.ask("/promotion?epoch=seven", "PUT")[0], 400)
        code, content, _ = self.ask("/promotion?begin=true", "PUT")
        self.assertEqual((code, content), (409, {"error": "promotion refused: not now"}))

    def test_end(self) -> None:
        """Where another node of the process listens next, no connection stays with this one."""
        port = AdminPort(self.site, clock=Clock())
        idle, asking = self.connected(port), self.connected(port)
        asking[0].dataReceived(b"GET /status HTTP/1.1\r\nHost: localh")
        port.waiting.pop(asking[0])
        port.end()
        self.assertTrue(idle[1].disconnecting)
        self.assertFalse(asking[1].disconnecting)
        asking[0].dataReceived(b"ost\r\n\r\n")
        self.assertIn(b"200 OK", asking[1].value())
        self.assertTrue(asking[1].disconnecting)

    def connected(self, port: AdminPort) -> tuple[Any, StringTransport]:
        channel, transport = port.buildProtocol(None), StringTransport()
        channel.makeConnection(transport)
        return channel, transport

    def test_few_connections(self) -> None:
        """Where there are as many connections as there may be, the one that has waited longest for
        a request makes room; one that waits for an answer stays.
        """
        port = AdminPort(self.site, clock=Clock())
        busy, idle, *others = (self.connected(port) for _ in range(MOST_CONNECTIONS))
        for channel, path in ((busy[0], "metrics"), (others[0][0], "livez")):
            channel.dataReceived(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for gone in (idle, *others[1:], others[0]):
            asked, _ = self.connected(port)
            self.assertTrue(gone[1].disconnected)
            gone[0].connectionLost(Failure(ConnectionDone()))
            self.assertEqual(port.connections, MOST_CONNECTIONS)
            asked.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertIsNone(port.buildProtocol(None))
        self.assertFalse(busy[1].disconnected)
        self.node.scraping[0].callback(b"numbers\n")
        self.assertIn(b"numbers", busy[1].value())
        self.assertIsNotNone(port.buildProtocol(None))

    def test_a_crowd_makes_room_for_itself(self) -> None:
        """A10: a probe stays until its request, however many of one address come back meanwhile."""
        port = AdminPort(self.site, clock=Clock())

        def come(host: str) -> tuple[Any, StringTransport]:
            address = IPv4Address("TCP", host, 4000)
            channel, transport = port.buildProtocol(address), StringTransport(peerAddress=address)
            channel.makeConnection(transport)
            return channel, transport

        crowd = [come("10.0.0.1") for _ in range(MOST_CONNECTIONS)]
        probe, answer = come("10.0.0.2")
        gone = crowd.pop(0)
        for _ in range(2 * MOST_CONNECTIONS):
            self.assertTrue(gone[1].disconnected)
            gone[0].connectionLost(Failure(ConnectionDone()))
            crowd.append(come("10.0.0.1"))
            gone = crowd.pop(0)
        self.assertFalse(answer.disconnected)
        probe.dataReceived(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertTrue(answer.value().startswith(b"HTTP/1.1 200"))

    def test_slow_requests(self) -> None:
        """A request has to be whole in time, however often some comes; each has as long."""
        clock = Clock()
        channel, transport = self.connected(AdminPort(self.site, clock=clock))
        clock.advance(DEADLINE - 1)
        channel.dataReceived(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertTrue(transport.value().startswith(b"HTTP/1.1 200"))
        channel.dataReceived(b"GET /livez HTTP/1.1\r\n")
        for second in range(int(DEADLINE)):
            self.assertFalse(transport.disconnecting, second)
            channel.dataReceived(f"X-Header: {second}\r\n".encode())
            clock.advance(1)
        self.assertTrue(transport.disconnecting)

    def test_body(self) -> None:
        """Nothing of a request's body is read, and the answer says that it is not wanted."""
        for method, header in (
            ("GET", "Content-Length: 900000000"),
            ("POST", "Content-Length: 3"),
            ("DELETE", "Transfer-Encoding: chunked"),
        ):
            channel, transport = self.connected(AdminPort(self.site, clock=Clock()))
            head = f"{method} /slots/10.0.0.5 HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\nabc"
            channel.dataReceived(head.encode())
            self.assertTrue(transport.value().startswith(b"HTTP/1.1 413"), transport.value())
            self.assertTrue(transport.disconnecting)
            self.assertIn("10.0.0.5", self.node.kept)
            channel.connectionLost(Failure(ConnectionDone()))

    def test_allowed(self) -> None:
        """With a list only its peers are let in."""
        allowed = Allowed(NETWORKS.parse("10.0.0.0/24"))
        port = AdminPort(self.site, allowed=allowed, clock=Clock())
        self.assertIsNotNone(port.buildProtocol(IPv4Address("TCP", "10.0.0.7", 40000)))
        self.assertIsNone(port.buildProtocol(IPv4Address("TCP", "10.0.1.7", 40000)))

    def answered(self, host: str) -> int:
        """The code of an answer to who asks for a host."""
        names = OwnNames(frozenset({"node.example.com"}))
        port = AdminPort(self.site, names=names, clock=Clock())
        channel = port.buildProtocol(IPv4Address("TCP", "127.0.0.1", 40000))
        transport = StringTransport()
        channel.makeConnection(transport)
        channel.dataReceived(f"GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        code = int(transport.value().split()[1])
        channel.connectionLost(Failure(ConnectionDone()))
        return code

    def test_host(self) -> None:
        """It is asked by an address, by a name without a dot, or by a name of its own; the name of
        another one, which a web page may have given this address, gets nothing.
        """
        for host in (
            "127.0.0.1:10914",
            "[::1]:10914",
            "localhost",
            "node:10914",
            "node.example.com:10914",
            "NODE.example.com.",
        ):
            self.assertEqual(200, self.answered(host), host)
        for host in (
            "evil.example:10914",
            "127.0.0.1.evil.example",
            "node.example.com.evil.example",
            "localhost.evil.example",
        ):
            self.assertEqual(403, self.answered(host), host)

    def test_unknown_paths(self) -> None:
        """Other paths are 404, in JSON, wherever they are, and nothing of them is echoed."""
        for path in (
            "/",
            "",
            "/nothing",
            "/status/more",
            "/healthz/x/y",
            "/livez/disk",
            "/%3Cscript%3E",
            "/a/b/c",
        ):
            code, content, _ = self.ask(path)
            self.assertEqual(code, 404, path)
            self.assertNotIn("script", str(content))

    def test_no_access_log(self) -> None:
        """Polls leave no line in the log and failures no traceback for the client."""
        port = AdminPort(self.site)
        self.assertIsNone(port.log(Request(DummyChannel())))  # type: ignore[func-returns-value]
        self.assertFalse(port.displayTracebacks)
