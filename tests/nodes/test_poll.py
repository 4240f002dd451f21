"""Asking a node over HTTP."""

from __future__ import annotations

from typing import Any

from treq.testing import StubTreq
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from rmqha.nodes.poll import TIMEOUT, NodeClient, PollResult
from tests.cli.nodes.test_status import Page


class Piecemeal(Resource):
    """Answers with what it was given, and does not end."""

    isLeaf = True

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body

    def render(self, request: Request) -> int:
        request.write(self.body)
        return NOT_DONE_YET


class SlowAnswerTests(SynchronousTestCase):
    """Peers that answer in no way that a node should bear."""

    def asked(self, body: bytes, most: int = 1000) -> tuple[Any, StubTreq, Clock]:
        """What a look at such a peer has come to."""
        root, clock = Resource(), Clock()
        root.putChild(b"healthz", Piecemeal(body))
        treq = StubTreq(root)
        found = ensureDeferred(NodeClient(treq, "10.0.0.1:10914", clock, most).once())
        treq.flush()
        return found, treq, clock

    def test_endless(self) -> None:
        """An answer that begins and does not end is given up like one that does not begin."""
        found, _, clock = self.asked(b"{")
        self.assertNoResult(found)
        clock.advance(TIMEOUT)
        seen: PollResult = self.successResultOf(found)
        self.assertEqual(seen.problem, "10.0.0.1:10914 did not answer within 5 seconds")

    def test_large(self) -> None:
        """One that is larger than any status is not read to its end."""
        found, _, _ = self.asked(b"{" + b" " * 1000)
        seen: PollResult = self.successResultOf(found)
        self.assertIn("/healthz has more than 1000 bytes", seen.problem)

    def test_deep(self) -> None:
        """One that is nested without end is no answer."""
        root = Resource()
        root.putChild(b"healthz", Page("[" * 100_000))
        found = ensureDeferred(NodeClient(StubTreq(root), "10.0.0.1:10914", Clock()).once())
        seen: PollResult = self.successResultOf(found)
        self.assertIn("is not an admin port of rmqha", seen.problem)
