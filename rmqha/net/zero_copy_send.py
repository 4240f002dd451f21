# Twisted's transports are only partly annotated.
# mypy: allow-untyped-calls
"""The sending end of the replication path: log pages to the socket without a copy in Python.

Twisted's own C{write} takes C{bytes} only, joins what is queued and sends nothing before the next
poll.  L{ZeroCopyServer} takes views of the mapped log as they are, hands many of them to the kernel
in one C{sendmsg}, and sends small things before C{write} returns when nothing is queued: one record
and its acknowledgement then cost one poll each instead of two.

What is queued is a reference to the log, not a copy of it: the bytes behind a view must not change
until they are sent.  Log bytes below the end never do.

Only a plain TCP connection may be used this way.  Behind TLS, or any wrapper that forwards
attributes, the same methods would reach the raw socket; ask L{regions}.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from twisted.internet import main, tcp
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import ServerFactory
from twisted.python.failure import Failure

from rmqha.net.accepting import PatientPort

Part = bytes | memoryview

TURN = 1024 * 1024
"""
Most bytes one connection sends in one reactor turn, so that the others get theirs.
"""

AT_ONCE = 256 * 1024
"""
Most bytes that are sent in the call that writes them: a batch of messages, or a pull's answer.
"""

IOV_PARTS = 512
"""
Most parts in one C{sendmsg}.  Linux allows 1024 (C{IOV_MAX}); 32 KiB frames need 64 for L{TURN}.
"""

JOIN_BELOW = 8 * 1024
"""
Writes smaller than this many bytes are joined: the copy costs less than a second vector entry, and
the log is let go at once.
"""


BACKLOG = 1024
"""Connections that may wait to be accepted: a whole cluster may come back at once."""


class ZeroCopyServer(tcp.Server):
    """A server connection that sends views of the log as well as bytes, in the order of the calls.

    @ivar _parts: What the kernel has not taken yet, oldest first.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._parts: deque[Part] = deque()
        self._part_bytes = 0
        super().__init__(*args, **kwargs)

    @property
    def queued(self) -> int:
        """Bytes accepted and not yet given to the kernel."""
        plain = len(self.dataBuffer) - self.offset + self._tempDataLen
        return self._part_bytes + plain

    def writeParts(self, parts: Sequence[Part]) -> None:
        """Send parts after everything written before them.

        Up to L{AT_ONCE} bytes with nothing queued are sent before this returns, as far as the
        socket takes them.  More than that is always left to the reactor's turns and pauses a
        registered push producer, which is resumed when all is sent: a producer that writes all it
        has, up to L{TURN}, in one call needs no timer and starves no other connection.

        @param parts: Byte views of one dimension.  What they show must not change until sent.
        """
        if self.TLS:
            self.write(b"".join(parts))
            return
        if not self.connected or self._writeDisconnected or self._aborting:
            return
        size = sum(map(len, parts))
        if not size:
            return
        if size < JOIN_BELOW:
            parts = (b"".join(parts),)
        sent = 0
        if size <= AT_ONCE and not self.queued:
            sent = self._send_now(parts)
            if sent == size:
                return
        self._parts.extend(part for part in parts if part)
        self._part_bytes += size
        self._forget(sent)
        self._maybePauseProducer()
        self.startWriting()

    def write(self, data: bytes) -> None:
        """Send bytes, at once if nothing is queued and the socket takes them."""
        if not isinstance(data, bytes):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        if self.TLS:
            super().write(data)
        else:
            self.writeParts((data,))

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send several pieces of bytes as one write."""
        self.write(b"".join(iovec))

    def doWrite(self) -> BaseException | int | None:  # type: ignore[override]
        """Send up to L{TURN} bytes of what is queued; then Twisted's own end of a queue.

        Plain writes are in Twisted's buffer only after C{startTLS}, and then behind our parts.
        """
        if self._parts:
            try:
                sent = self.socket.sendmsg(self._next_turn())
            except (BlockingIOError, InterruptedError):
                return None
            except OSError:
                return main.CONNECTION_LOST
            self._forget(sent)
            if self._parts:
                return None
        # Stops writing, resumes the producer, closes: whatever is due at an empty queue.
        result: BaseException | int | None = super().doWrite()
        return result

    def abortConnection(self) -> None:
        """Close without sending what is queued."""
        super().abortConnection()
        self._let_go()

    def connectionLost(self, reason: Failure) -> None:
        """Let the log go and tell the protocol."""
        self._let_go()
        super().connectionLost(reason)

    def _isSendBufferFull(self) -> bool:
        return self.queued > self.bufferSize

    def _send_now(self, parts: Sequence[Part]) -> int:
        """Give the kernel what it takes now.  An error is found again, and told, by C{doWrite}."""
        try:
            if len(parts) == 1:
                return self.socket.send(parts[0])
            return self.socket.sendmsg(parts[:IOV_PARTS])
        except OSError:
            return 0

    def _next_turn(self) -> list[Part]:
        """The parts of one C{sendmsg}: L{TURN} bytes at most."""
        budget = TURN
        chosen: list[Part] = []
        for part in islice(self._parts, IOV_PARTS):
            if len(part) >= budget:
                chosen.append(memoryview(part)[:budget])
                break
            chosen.append(part)
            budget -= len(part)
        return chosen

    def _forget(self, sent: int) -> None:
        """Drop the first C{sent} bytes of the queue."""
        self._part_bytes -= sent
        parts = self._parts
        while sent:
            head = parts.popleft()
            if len(head) > sent:
                parts.appendleft(memoryview(head)[sent:])
                return
            sent -= len(head)

    def _let_go(self) -> None:
        self._parts.clear()
        self._part_bytes = 0


class ZeroCopyPort(PatientPort):
    """A listening port whose connections are L{ZeroCopyServer}s."""

    transport = ZeroCopyServer


def listen(reactor: Any, factory: ServerFactory, port: int, interface: str = "") -> IListeningPort:
    """Listen on one port of TCP, with L{ZeroCopyServer} connections.

    @param reactor: One that watches file descriptors (C{IReactorFDSet}).
    @param port: 0 takes a free one.
    @param interface: An IPv6 address listens on IPv6.
    @raise CannotListenError: If the port is in use.
    """
    listening = ZeroCopyPort(port, factory, BACKLOG, interface, reactor)
    listening.startListening()
    return listening


def regions(transport: object) -> ZeroCopyServer | None:
    """Say whether a protocol's transport can send log views as they are.

    @return: The transport itself; C{None} when it is anything else, a wrapper around one included,
        or speaks TLS.  Then header and body must be written as C{bytes}.
    """
    if isinstance(transport, ZeroCopyServer) and not transport.TLS:
        return transport
    return None
