"""C{rmqha status}."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from rich.console import Console
from treq.testing import StubTreq
from twisted.internet.defer import CancelledError, Deferred, ensureDeferred, succeed
from twisted.internet.error import ConnectionRefusedError, DNSLookupError
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.web.client import ResponseNeverReceived
from twisted.web.resource import Resource
from twisted.web.server import Request

from rmqha.admin.http import AdminSite
from rmqha.cli.nodes.status import Copying, View, watch
from rmqha.health import HealthReason
from rmqha.nodes.poll import NodeClient, PollResult
from tests.cli.command import CommandTestCase
from tests.support.commands import nobody, rmqha
from tests.support.effort import slow


class Node:
    """A node as its admin port sees it."""

    reason = ""
    jobs: tuple[str, ...] = ("flushing the log",)

    def status(self) -> dict[str, Any]:
        return {
            "role": "master",
            "maxOffset": 12345,
            "reason": self.reason,
            "upstream": {"address": "a:1", "probes": 2},
            "closedConnections": {},
            "remoting": {
                "port": 10911,
                "requests": {"PULL_MESSAGE": 7},
                "delayed": {"levels": {"3": {"offset": 4, "pending": 1}}},
            },
            "replicas": [
                {"address": "10.0.0.1:5", "lagBytes": 0},
                {"address": "10.0.0.2:6", "lagBytes": None, "state": "[odd]"},
            ],
            "readers": [{"name": "lake", "state": "stale", "behindBytes": 77}],
            "periodicJobs": [{"name": name, "failures": n} for n, name in enumerate(self.jobs)],
        }

    def drop_slot(self, address: str) -> bool:
        """No files are kept for anybody."""
        return False

    def happened(self) -> list[dict[str, Any]]:
        return [{"time": 1_700_000_000_000, "kind": "state", "text": "serving"}]

    def metrics(self) -> Deferred[bytes]:
        return succeed(b"")

    def looked(self) -> Deferred[None]:
        return succeed(None)

    def health(self) -> Iterator[HealthReason]:
        if self.reason:
            name, _, text = self.reason.partition(": ")
            yield HealthReason(name, text)


class Page(Resource):
    """A page with fixed content."""

    isLeaf = True

    def __init__(self, content: str, code: int = 200) -> None:
        super().__init__()
        self.content = content.encode("latin-1")
        self.code = code

    def render(self, request: Request) -> bytes:
        request.setResponseCode(self.code)
        return self.content


class Broken:
    """A client whose requests fail."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def get(self, url: str, **more: object) -> None:
        raise self.error


class LookTests(CommandTestCase):
    def setUp(self) -> None:
        self.node = Node()
        self.clock = Clock()

    def look(self, client: Any = None) -> NodeClient:
        """A look at the node, or whatever a client says."""
        return NodeClient(client or StubTreq(AdminSite(self.node)), "127.0.0.1:10914", self.clock)

    async def found(self) -> list[NodeClient]:
        return [self.look()]

    def once(self, client: Any = None) -> PollResult:
        seen: PollResult = self.successResultOf(ensureDeferred(self.look(client).once()))
        return seen

    def printed(
        self, *seen: PollResult, as_json: bool = False, everything: bool = True
    ) -> tuple[str, str]:
        """What is shown on stdout and on stderr."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            console = Console(file=out, width=200)
            view = View(console=console, as_json=as_json, everything=everything)
            view.show([(f"node-{n}:1", each) for n, each in enumerate(seen)], 0.0)
        return out.getvalue(), err.getvalue()

    def test_well(self) -> None:
        """A node that is well has no problem, and all of its status is shown."""
        seen = self.once()
        self.assertEqual(seen, PollResult("", self.node.status()))
        out, err = self.printed(seen)
        self.assertEqual(err, "")
        for text in ("12345", "address a:1, probes 2", "10.0.0.1:5", "10.0.0.2:6", "[odd]"):
            self.assertIn(text, out)

    def test_nested(self) -> None:
        """Parts of parts have rows of their own, and what is alike is one table."""
        lines = self.printed(self.once())[0].splitlines()
        said = [" ".join(line.split()) for line in lines]
        for line in ("remoting port 10911", "remoting requests PULL_MESSAGE 7"):
            self.assertIn(line, said)
        readers = said.index("readers")
        self.assertEqual(["name state behindBytes", "lake stale 77"], said[readers + 1 :][:2])
        levels = said.index("remoting delayed levels offset pending")
        self.assertEqual(said[levels + 1], "3 4 1")

    def test_jobs(self) -> None:
        """Of periodic jobs only those that failed are shown."""
        self.assertNotIn("flushing the log", self.printed(self.once())[0])
        self.node.jobs = ("flushing the log", "writing topics.json")
        out, _ = self.printed(self.once())
        self.assertIn("writing topics.json", out)
        self.assertNotIn("flushing the log", out)

    def test_json(self) -> None:
        """As JSON it is one line."""
        out, _ = self.printed(self.once(), as_json=True)
        self.assertEqual(json.loads(out), self.node.status())
        self.assertEqual(out.count("\n"), 1)

    def test_not_well(self) -> None:
        """An unhealthy node shows its status, and why."""
        self.node.reason = "disk-full: no room"
        seen = self.once()
        self.assertIn("is unhealthy: disk-full: no room", seen.problem)
        out, err = self.printed(seen)
        self.assertIn("12345", out)
        self.assertIn("rmqha: 127.0.0.1:10914 is unhealthy", err)

    def test_unreachable(self) -> None:
        """Each way not to be reached is said in words."""
        cases = [
            (ConnectionRefusedError("refused"), "cannot be reached"),
            (DNSLookupError("no such host"), "no such host"),
            (CancelledError(), "did not answer within 5 seconds"),
            (ResponseNeverReceived([Failure(OSError("cut off"))]), "cannot be reached: cut off"),
        ]
        for error, text in cases:
            seen = self.once(Broken(error))
            self.assertIn(text, seen.problem)
            self.assertIsNone(seen.status)
            self.assertEqual(self.printed(seen)[0], "")

    def test_something_else(self) -> None:
        """A port that is not an admin port is reported as such."""
        for health, status in (("<html>", "[]"), ("{}", "[]"), ("\xff", "{}")):
            root = Resource()
            root.putChild(b"healthz", Page(health))
            root.putChild(b"status", Page(status))
            self.assertIn("not an admin port", self.once(StubTreq(root)).problem)

    def test_strange_codes(self) -> None:
        """A status that is refused is a problem, and so is bad health without a reason."""
        root = Resource()
        root.putChild(b"healthz", Page("{}", 503))
        root.putChild(b"status", Page("{}", 500))
        self.assertIn("/status with 500", self.once(StubTreq(root)).problem)
        root.putChild(b"status", Page("{}"))
        self.assertIn("/healthz answers 503", self.once(StubTreq(root)).problem)

    def test_watch(self) -> None:
        """It looks again after the interval, and as often as it was told."""
        out = io.StringIO()
        view = View(console=Console(file=out), as_json=True)
        with redirect_stdout(out):
            done: Deferred[list[tuple[str, PollResult]]] = ensureDeferred(
                watch(self.found, view, self.clock, interval=2.0, times=3)
            )
            for looks in (1, 2):
                self.assertNoResult(done)
                self.assertEqual(out.getvalue().count("\n"), looks)
                self.clock.advance(1.9)
                self.assertEqual(out.getvalue().count("\n"), looks)
                self.clock.advance(0.1)
        ((address, seen),) = self.successResultOf(done)
        self.assertEqual((address, seen.problem), ("127.0.0.1:10914", ""))
        self.assertEqual(out.getvalue().count("\n"), 3)

    def test_watch_on_a_terminal(self) -> None:
        """There what is shown is replaced, and does not scroll."""
        out = io.StringIO()
        view = View(console=Console(file=out, force_terminal=True, width=100, height=20))
        done: Deferred[list[tuple[str, PollResult]]] = ensureDeferred(
            watch(self.found, view, self.clock, interval=2.0, times=2)
        )
        self.clock.advance(2.0)
        self.successResultOf(done)
        self.assertGreaterEqual(out.getvalue().count("\x1b[2K"), 6, "lines were erased")

    def test_six_lines(self) -> None:
        """By default a node is six lines, and several are a table."""
        seen = self.once()
        out, _ = self.printed(seen, everything=False)
        self.assertEqual(len(out.splitlines()), 6)
        out, err = self.printed(seen, PollResult("it is away", None), everything=False)
        self.assertEqual((len(out.splitlines()), err), (3, ""))
        self.assertIn("it is away", out)


class CopyingTests(CommandTestCase):
    def test_first_copy(self) -> None:
        """While a slave copies from nothing, its bytes and their rate are shown."""
        copying = Copying()
        console = Console(file=io.StringIO(), width=100)
        for now, received in ((0.0, 1_000_000), (2.0, 5_000_000)):
            bar = copying.bar({"upstream": {"bootstrapping": True, "received": received}}, now)
            console.print(bar)
        said = console.file.getvalue()  # type: ignore[attr-defined]
        self.assertIn("1.0 MB", said)
        self.assertIn("5.0 MB", said)
        self.assertIn("2.0 MB/s", said)

    def test_nothing_to_copy(self) -> None:
        """A slave that follows, and a master, have no such line."""
        self.assertIsNone(Copying().bar({"upstream": {"bootstrapping": False}}, 0.0))
        self.assertIsNone(Copying().bar({"replicas": []}, 0.0))


class StatusTests(CommandTestCase):
    def test_addresses(self) -> None:
        """An address is a host and a port; anything else is a usage error."""
        for address in ("a b", "a b:1", ":1", "h:", "h:0", "h:65536", "h:x", "http://h:1"):
            self.assertIn("is not HOST:PORT", self.fails(2, "status", address))

    def test_two_ways_to_name(self) -> None:
        """Nodes are named, or a name server that knows them."""
        said = self.fails(2, "status", "--name-server", "h:9876", "h:10914")
        self.assertIn("--name-server", said)
        self.assertIn("is not HOST:PORT", self.fails(2, "status", "--name-server", "h:"))

    def test_interval(self) -> None:
        """The interval has bounds."""
        for interval in ("0", "0.1", "3601", "-5", "nan"):
            self.assertIn("--watch", self.fails(2, "status", "--watch", interval))

    @slow
    def test_refused(self) -> None:
        """With nobody listening the whole command ends in one line and exit code 3."""
        with nobody() as address:
            done = rmqha("status", address)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(f"rmqha: {address} cannot be reached: Connection was refused", done.stderr)
