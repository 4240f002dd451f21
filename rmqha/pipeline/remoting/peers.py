"""Connections to brokers and name servers, made when they are needed, with errors that say whose
fault it was.

Each is a plain socket and serves one thread, which waits.  Several requests may be on their way;
their answers are told apart by their numbers, whatever their order.

Source: docs/protocol/remoting.md, Requests and answers; docs/guide/tls.rst.
"""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from typing import Self

from attrs import define, field

from rmqha.config.load import load_tls
from rmqha.config.settings import TlsSettings
from rmqha.config.values import ENDPOINT
from rmqha.errors import RemotingFrameError, RemotingTimeout, RemotingUnreachable, RmqhaError
from rmqha.pipeline.remoting.errors import RemotingClosed
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode
from rmqha.wire.remoting.signature import Credentials


@define(eq=False)
class SocketTls:
    """What one producer shows to brokers and name servers, and whom it believes: by the same keys
    as nodes and mqadmin.

    @ivar settings: The keys.
    """

    settings: TlsSettings
    _context: ssl.SSLContext = field(init=False)

    def __attrs_post_init__(self) -> None:
        settings = self.settings
        self._context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = settings.auth_server and settings.check_names
        if not settings.auth_server:
            context.verify_mode = ssl.CERT_NONE
        elif settings.client_trusted is not None:
            context.load_verify_locations(settings.client_trusted)
        if settings.client_cert is not None:
            context.load_cert_chain(settings.client_cert, settings.client_key)

    @classmethod
    def read(cls, path: Path | None) -> SocketTls | None:
        """Read the keys, and the files that they name.

        @param path: A file like mqadmin's C{tls.config.file}; C{None} for clear text.
        @raise ConfigProblems: If it is wrong.
        @raise OSError: If a certificate or key cannot be used.
        """
        settings = None if path is None else load_tls(path)
        return cls(settings) if settings is not None and settings.enabled else None

    def wrap(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Shake hands.

        @param host: Whom it is connected to.
        @raise OSError: If that fails; the socket is closed then.
        """
        try:
            return self._context.wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise


_CHUNK = 1 << 16
_NUMBERS = 1 << 31


class BlockingConnection:
    """Asks one peer.

    @ivar address: Its C{host:port}.
    """

    def __init__(self, address: str, timeout: float, tls: SocketTls | None = None) -> None:
        """@param timeout: Seconds it may take to connect, and to take a request.
        @param tls: C{None} for clear text.
        @raise OSError: If the address cannot be connected to.
        @raise ValueError: If this is not an address.
        """
        self.address = address
        self._timeout = timeout
        place = ENDPOINT.parse(address)
        if place is None:
            raise ValueError("there is no address")
        plain = socket.create_connection(place, timeout)
        # A request is one write, and the next may come before it is answered.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if tls is None else tls.wrap(plain, place[0])
        self._decoder = FrameDecoder()
        self._open: set[int] = set()
        self._answers: dict[int, Command] = {}
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        self._socket.close()

    def send(self, command: Command) -> int:
        """Ask, and do not wait.

        @return: The request's number.
        @raise OSError: If the peer is gone, or takes nothing.
        @raise RemotingFrameError: If the request is too large for a frame.
        """
        self._asked = (self._asked + 1) % _NUMBERS
        command.opaque = self._asked
        frame = encode(command)
        self._socket.settimeout(self._timeout)
        self._socket.sendall(frame)
        self._open.add(self._asked)
        return self._asked

    def answer(self, number: int, timeout: float) -> Command:
        """The answer to a request.

        @param number: What L{send} returned.
        @param timeout: Seconds to wait.
        @raise OSError: If the connection ends, or there is none in time.  Nothing more should be
            asked then: a late answer would be kept for ever.
        @raise RemotingFrameError: If something arrives that is not a frame.
        """
        deadline = time.monotonic() + timeout
        while number not in self._answers:
            self._receive(deadline)
        return self._answers.pop(number)

    def heard(self, timeout: float) -> Command:
        """The next answer to any of the requests.

        @raise OSError: As L{answer}.
        @raise RemotingFrameError: As L{answer}.
        """
        deadline = time.monotonic() + timeout
        while not self._answers:
            self._receive(deadline)
        return self._answers.pop(next(iter(self._answers)))

    def ask(self, command: Command, timeout: float) -> Command:
        """Ask and wait.

        @raise OSError: As L{send} and L{answer}.
        @raise RemotingFrameError: As they.
        """
        return self.answer(self.send(command), timeout)

    def _receive(self, deadline: float) -> None:
        """Wait for more; the peer's own requests and unsolicited responses are skipped."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self._socket.settimeout(left)
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionResetError("the connection was closed by the peer")
        for command in self._decoder.receive(data):
            if command.is_response and command.opaque in self._open:
                self._open.remove(command.opaque)
                self._answers[command.opaque] = command


@define(eq=False)
class Peers:
    """Sends requests to peers by their address.

    @ivar timeout: Seconds to connect, and to wait for an answer.
    @ivar credentials: What requests are signed with, if they are.
    @ivar tls: How peers are connected to; C{None} is clear text.
    """

    timeout: float
    credentials: Credentials | None = None
    tls: SocketTls | None = None
    _open: dict[str, BlockingConnection] = field(factory=dict, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def ask(self, address: str, command: Command) -> Command:
        """Ask one.

        @return: The answer, whatever its code.
        @raise RemotingUnreachable: If it cannot be reached.
        @raise RemotingClosed: If it closed the connection, or its answer cannot be decoded.
        @raise RemotingTimeout: If it did not answer in time.
        """
        (answer,) = self.ask_all([(address, command)])
        if isinstance(answer, Command):
            return answer
        raise answer

    def ask_all(self, requests: list[tuple[str, Command]]) -> list[Command | RmqhaError]:
        """Ask several at once, each of them as often as it stands here.

        @return: For each request its answer, or the error of L{ask}.
        """
        sent = [self._sent(address, command) for address, command in requests]
        return [
            each if isinstance(each, RmqhaError) else self._answered(each, command)
            for each, (_, command) in zip(sent, requests, strict=True)
        ]

    def _sent(self, address: str, command: Command) -> tuple[BlockingConnection, int] | RmqhaError:
        connection = self._open.get(address)
        if self.credentials is not None:
            self.credentials.sign(command)
        try:
            if connection is None:
                connection = self._open[address] = BlockingConnection(
                    address, self.timeout, self.tls
                )
        except (OSError, ValueError) as error:
            return RemotingUnreachable(address, _reason(error))
        try:
            return connection, connection.send(command)
        except (OSError, RemotingFrameError) as error:
            return self._failed(connection, command, error)

    def _answered(
        self, sent: tuple[BlockingConnection, int], command: Command
    ) -> Command | RmqhaError:
        connection, number = sent
        try:
            return connection.answer(number, self.timeout)
        except (OSError, RemotingFrameError) as error:
            return self._failed(connection, command, error)

    def _failed(
        self, connection: BlockingConnection, command: Command, error: Exception
    ) -> RmqhaError:
        """Give a connection up, with all that waits for answers there."""
        connection.close()
        address = connection.address
        if self._open.get(address) is connection:
            del self._open[address]
        if isinstance(error, TimeoutError):
            return RemotingTimeout(command.code, self.timeout, address)
        return RemotingClosed(address, command.code, _reason(error))


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
