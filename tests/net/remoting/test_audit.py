"""Who changed what."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from rmqha.errors import RequestRefused
from rmqha.net.remoting.needs import LONGEST, audited
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command


class Peer:
    """Who asks."""

    address = "10.0.0.7:40000"


class AuditTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.lines: list[str] = []
        globalLogPublisher.addObserver(self.note)
        self.addCleanup(globalLogPublisher.removeObserver, self.note)

    def note(self, event: LogEvent) -> None:
        """Keep what is said by the audit."""
        if event.get("log_namespace") == "rmqha.audit":
            self.lines.append(formatEvent(event))

    def ask(self, outcome: Any, body: bytes = b"", *, with_body: bool = False, **ext: str) -> Any:
        def handler(connection: Any, command: Command) -> Any:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        peer: Any = Peer()
        command = Command(code=RequestCode.DELETE_TOPIC_IN_BROKER, ext=ext, body=body)
        return audited(handler, with_body=with_body)(peer, command)

    def test_done(self) -> None:
        """A change that was made is told with who asked for it and what it was."""
        self.ask(None, topic="T", cluster="C")
        self.assertEqual(
            self.lines, ["Audit: 10.0.0.7:40000: DELETE_TOPIC_IN_BROKER cluster=C topic=T: done"]
        )

    def test_signed(self) -> None:
        """Who signed is told, and nothing by which somebody else could."""
        self.ask(
            None,
            AccessKey="ops",
            Signature="abc=",
            SecurityToken="def",
            secretKey="mine",
            topic="T",
        )
        self.assertIn("DELETE_TOPIC_IN_BROKER AccessKey=ops topic=T: done", self.lines[0])

    def test_refused(self) -> None:
        """So is one that was refused, or failed, and it is refused all the same."""
        self.assertRaises(RequestRefused, self.ask, RequestRefused(16, "you may not"))
        self.assertRaises(ValueError, self.ask, ValueError("a bug"))
        self.ask(Command(code=1, remark="no such topic"))
        self.assertEqual(
            [line.split(": ", 2)[2] for line in self.lines],
            [
                "DELETE_TOPIC_IN_BROKER: refused with code 16: you may not",
                "DELETE_TOPIC_IN_BROKER: failed: a bug",
                "DELETE_TOPIC_IN_BROKER: refused with code 1: no such topic",
            ],
        )

    def test_later(self) -> None:
        """What takes a while is told when it is over."""
        answer: Deferred[Any] = Deferred()
        later = self.ask(answer)
        self.assertEqual(self.lines, [])
        answer.callback(None)
        self.assertIsNone(self.successResultOf(later))
        self.assertEqual(len(self.lines), 1)

    def test_text(self) -> None:
        """A configuration is told whole, anything else by its size; in one line."""
        self.ask(None, b"a=1\nb=2", with_body=True)
        self.ask(None, b"secret")
        self.ask(None, x="y" * 3 * LONGEST + "\n")
        self.assertIn("DELETE_TOPIC_IN_BROKER a=1 b=2: done", self.lines[0])
        self.assertIn("(6 bytes)", self.lines[1])
        self.assertNotIn("secret", self.lines[1])
        self.assertLess(len(self.lines[2]), LONGEST + 100)
        self.assertNotIn("\n", self.lines[2])
