"""The answering side of a remoting port, which is open at once, or says why it cannot be.

Source: docs/protocol/remoting.md, Ports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.interfaces import IAddress, IListeningPort, IReactorTime
from twisted.internet.protocol import ServerFactory

from rmqha.net.allowed_peers import Network
from rmqha.net.door import host_of
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.net.tls.gate import CLEAR_TEXT, TlsGate
from rmqha.net.zero_copy_send import listen
from rmqha.periodic import NodePart
from rmqha.wire.ports import VIP_STEP


def listen_twice(
    reactor: Any, factory: ServerFactory, vip: ServerFactory, port: int, interface: str = ""
) -> list[IListeningPort]:
    """Listen on a broker's port and its VIP port, both or none.

    @param vip: Serves the VIP port.
    @param port: C{listenPort}; 3 at least, so that there is a VIP port.
    @raise CannotListenError: If one of them is in use.
    """
    first = listen(reactor, factory, port, interface)
    try:
        return [first, listen(reactor, vip, port - VIP_STEP, interface)]
    except Exception:
        first.stopListening()
        raise


class RemotingFactory(ServerFactory, NodePart):
    """Serve remoting on one port or several.

    @ivar connections: Those there are, with their counters, and the end of all.
    """

    noisy = False

    def __init__(
        self,
        registry: Registry,
        clock: IReactorTime,
        *,
        limits: ConnectionLimits | None = None,
        allowed: Iterable[Network] = (),
        gate: TlsGate | None = None,
        name: str = "client port",
    ) -> None:
        """@param clock: Its C{seconds} must not jump: give it a monotonic one.
        @param allowed: Which peers may connect; empty means all.
        @param gate: Whether TLS is spoken; by default it is not.
        @param name: What it is, for the log and the status.
        """
        limits = limits or ConnectionLimits()
        self.connections = Connections[RemotingProtocol](
            clock, registry, limits, f"of the {name}", allowed
        )
        self._name = name
        self._gate = gate or CLEAR_TEXT

    def logPrefix(self) -> str:
        """What Twisted says is listening."""
        return self._name

    def buildProtocol(self, addr: IAddress | None) -> RemotingProtocol | None:
        """Take a connection, or refuse it before anything is read."""
        if self.connections.door.admits(host_of(addr)):
            return RemotingProtocol(self.connections, self._gate)
        return None
