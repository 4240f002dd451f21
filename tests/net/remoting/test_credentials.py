"""The file that says what this node's requests are signed with."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.trial.unittest import SynchronousTestCase

from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.credentials import read_credentials
from rmqha.net.remoting.handlers import Registry
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder
from rmqha.wire.remoting.signature import Credentials


class CredentialsTests(SynchronousTestCase):
    def write(self, text: str) -> Path:
        path = Path(self.mktemp())
        path.write_text(text, encoding="utf-8")
        return path

    def test_read(self) -> None:
        """It is a file like mqadmin's; digits are a secret too."""
        found = read_credentials(self.write("accessKey: RocketMQ\nsecretKey: 12345678\n"))
        self.assertEqual(found, Credentials("RocketMQ", "12345678"))
        self.assertIsNone(read_credentials(None))

    def test_wrong(self) -> None:
        """What cannot be used is told by the file, and without the secret."""
        unforeseen = ("!!float s3cret", "[" * 3000)
        known = ("", "[]", "accessKey: a", "secretKey: s3cret", "secretKey: [s3cret")
        for text in (*unforeseen, *known):
            path = self.write(text)
            error = self.assertRaises(KeyFileInvalid, read_credentials, path)
            self.assertIn(str(path), str(error))
            self.assertNotIn("s3cret", str(error))
        self.assertRaises(KeyFileInvalid, read_credentials, Path(self.mktemp()))

    def test_pipe(self) -> None:
        """A pipe that nobody writes to is not waited for."""
        path = Path(self.mktemp())
        os.mkfifo(path)
        self.assertRaises(KeyFileInvalid, read_credentials, path)

    def test_sent(self) -> None:
        """Requests and one-way requests are signed; an answer is not."""
        clock = Clock()
        credentials = Credentials("RocketMQ", "12345678")
        connections = Connections(clock, Registry(), ConnectionLimits(), sign=credentials.sign)
        connection = RemotingProtocol(connections)
        transport = StringTransport()
        connection.makeConnection(transport)
        asked = connection.request(Command(code=28))
        connection.oneway(Command(code=34, body=b"{}"))
        connection.send(Command(code=0, flag=1))
        clock.advance(0)
        request, oneway, answer = FrameDecoder().receive(transport.value())
        for command in (request, oneway):
            signed = Command(code=command.code, body=command.body)
            credentials.sign(signed)
            self.assertEqual(command.ext, signed.ext)
        self.assertEqual(answer.ext, {})
        connection.close("test")
        self.failureResultOf(asked)
