"""One connection to a broker or a name server, by a plain socket.

It serves one thread, which waits.  Several requests may be on their way; their answers are
told apart by their numbers, whatever their order.

Source: docs/protocol/remoting.md, Requests and answers.
"""

from __future__ import annotations

import socket
import time
from typing import Self

from rmqha.config.values import Endpoint
from rmqha.pipeline.remoting.tls import SocketTls
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

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
        place = Endpoint().parse(address)
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
