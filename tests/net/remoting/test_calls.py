"""What the requests to a port came to."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import RequestRefused
from rmqha.net.remoting.calls import MOST_REFUSED, OTHERS, RefusedRequests, refused_rows
from rmqha.net.remoting.handlers import Registry
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command


class Peer:
    """As much of a connection as a registry asks for."""

    host = "10.0.0.9"


class CallsTests(SynchronousTestCase):
    def setUp(self) -> None:
        """A registry whose handler does what the test says, after some time."""
        self.clock = Clock()
        self.registry = Registry(seconds=self.clock.seconds)
        self.outcome: Any = None
        for code in (RequestCode.PULL_MESSAGE, RequestCode.SEND_MESSAGE):
            self.registry.register(code, self.handle)

    def handle(self, connection: Any, command: Command) -> Any:
        self.clock.advance(0.002)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def ask(self, code: int) -> Any:
        peer: Any = Peer()
        return self.registry.serve(peer, Command.request(RequestCode(code)))

    def took(self) -> dict[Any, tuple[int, float]]:
        """How many of each kind, and how long."""
        took = self.registry.calls.took
        return {kind: (each.up_to(())[-1], round(each.total, 6)) for kind, each in took.items()}

    def test_at_once(self) -> None:
        """An answer that is given at once is counted by its code, and so is a refusal."""
        self.ask(RequestCode.SEND_MESSAGE)
        self.outcome = RequestRefused(ResponseCode.TOPIC_NOT_EXIST)
        self.assertRaises(RequestRefused, self.ask, RequestCode.SEND_MESSAGE)
        self.outcome = ValueError("a bug")
        self.assertRaises(ValueError, self.ask, RequestCode.SEND_MESSAGE)
        self.assertEqual(
            self.took(),
            {(10, 0, False): (1, 0.002), (10, 17, False): (1, 0.002), (10, 1, False): (1, 0.002)},
        )

    def test_later(self) -> None:
        """An answer that comes later counts when it comes; a pull that is held is told apart."""
        for code in (RequestCode.SEND_MESSAGE, RequestCode.PULL_MESSAGE):
            self.outcome = Deferred()
            answer = self.ask(code)
            self.clock.advance(1)
            answer.callback(None)
            self.assertIsNone(self.successResultOf(answer))
        self.assertEqual(self.took(), {(10, 0, False): (1, 1.002), (11, 0, True): (1, 1.002)})

    def test_gone(self) -> None:
        """What a client did not wait for is no latency."""
        self.outcome = Deferred()
        answer = self.ask(RequestCode.PULL_MESSAGE)
        answer.cancel()
        self.failureResultOf(answer, CancelledError)
        self.assertEqual(self.took(), {})


class RefusedRequestsTests(SynchronousTestCase):
    def test_rows(self) -> None:
        """They are told by code and client, the commonest first, by name where there is one."""
        refused = RefusedRequests()
        for code, host in ((9999, "a"), (11, "b"), (11, "b")):
            refused.add(code, host)
        self.assertEqual(
            refused_rows(refused.counts),
            [
                {"code": 11, "name": "PULL_MESSAGE", "client": "b", "count": 2},
                {"code": 9999, "name": "9999", "client": "a", "count": 1},
            ],
        )

    def test_bounded(self) -> None:
        """Whoever sends all codes there are from everywhere costs no memory."""
        refused = RefusedRequests()
        for n in range(3 * MOST_REFUSED):
            refused.add(100_000 + n, f"10.0.{n // 256}.{n % 256}")
        self.assertLessEqual(len(refused.counts), MOST_REFUSED + 1)
        self.assertEqual(refused.counts[-1, OTHERS], 2 * MOST_REFUSED)
        self.assertEqual(refused.counts.total(), 3 * MOST_REFUSED)
