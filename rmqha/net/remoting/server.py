"""The answering side of a remoting port."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import ServerFactory

from rmqha.net.allowed_peers import Network
from rmqha.net.door import host_of
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.connections import ConnectionLimits, Connections
from rmqha.net.remoting.handlers import Registry
from rmqha.net.tls.gate import CLEAR_TEXT, TlsGate


class RemotingFactory(ServerFactory):
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
        self.connections = Connections(clock, registry, limits, f"of the {name}", allowed)
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
