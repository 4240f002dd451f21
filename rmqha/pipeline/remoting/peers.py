"""Connections to brokers and name servers, made when they are needed, with errors that say whose
fault it was.
"""

from __future__ import annotations

from typing import Self

from attrs import define, field

from rmqha.errors import RemotingFrameError, RemotingTimeout, RemotingUnreachable, RmqhaError
from rmqha.pipeline.remoting.connection import BlockingConnection
from rmqha.pipeline.remoting.errors import RemotingClosed
from rmqha.pipeline.remoting.tls import SocketTls
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.signature import Credentials


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
        """Close the connections to all peers."""
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
