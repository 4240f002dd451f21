"""What a broker tells of its configuration."""

from __future__ import annotations

from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from rmqha.archive.errors import FileSizeUnknown
from rmqha.archive.master_config import MasterConfig, ask_config, tell_no_port
from rmqha.errors import RemotingUnreachable
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command


class FakeClient:
    """A client that gets one answer."""

    def __init__(self, answer: Deferred[Command]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, int]] = []
        self.headers: list[object] = []

    def request(self, address: str, command: Command, timeout: float = 3.0) -> Deferred[Command]:
        self.asked.append((address, command.code))
        self.headers.append(command.ext)
        return self.answer


class TellTests(SynchronousTestCase):
    def test_no_port(self) -> None:
        """A master of ours learns that nothing listens here; who cannot be told is not."""
        for answer in (
            succeed(Command(code=ResponseCode.SUCCESS, body=b"{}")),
            fail(RemotingUnreachable("10.0.0.1:10911", "refused")),
        ):
            client = FakeClient(answer)
            self.successResultOf(ensureDeferred(tell_no_port(client, "10.0.0.1:10911")))
            self.assertEqual(client.asked, [("10.0.0.1:10911", 21)])
            self.assertEqual(client.headers, [{"haListenPort": "0"}])


class AskTests(SynchronousTestCase):
    def ask(self, body: bytes, code: int = ResponseCode.SUCCESS) -> Deferred[MasterConfig]:
        client = FakeClient(succeed(Command(code=code, body=body, remark="no permission")))
        asked = ensureDeferred(ask_config(client, "10.0.0.1:10911"))
        self.assertEqual(client.asked, [("10.0.0.1:10911", 26)])
        return asked

    def test_told(self) -> None:
        """Both keys, among others, and as brokers before 4.8 wrote the first."""
        for key in ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"):
            body = f"brokerName=broker-a\nx=a=b\n{key}=1048576\nrubbish\n".encode()
            found = self.successResultOf(self.ask(body))
            self.assertEqual(found, MasterConfig(1 << 20, "broker-a"))

    def test_not_told(self) -> None:
        """What is missing, no size, or refused: a person has to say it."""
        for body in (b"", b"brokerName=a\n", b"mappedFileSizeCommitLog=1GiB\n", b"\xff\xff"):
            error = self.failureResultOf(self.ask(body), FileSizeUnknown).value
            self.assertIn("give --file-size", str(error))
        error = self.failureResultOf(self.ask(b"", ResponseCode.NO_PERMISSION), FileSizeUnknown)
        self.assertIn("no permission", str(error.value))

    def test_unreachable(self) -> None:
        """The same when it cannot be asked."""
        client = FakeClient(fail(RemotingUnreachable("10.0.0.1:10911", "refused")))
        asked = ensureDeferred(ask_config(client, "10.0.0.1:10911"))
        error = self.failureResultOf(asked, FileSizeUnknown).value
        self.assertIn("refused", str(error))
