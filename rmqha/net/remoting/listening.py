"""Open remoting ports now, or say at once why that is impossible.

Source: docs/protocol/remoting.md, Ports.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import ServerFactory

from rmqha.net.zero_copy_send import ZeroCopyPort
from rmqha.wire.ports import VIP_STEP

BACKLOG = 1024
"""Connections that may wait to be accepted: a whole cluster may come back at once."""


def listen(reactor: Any, factory: ServerFactory, port: int, interface: str = "") -> IListeningPort:
    """Listen on one port.

    @param reactor: One that watches file descriptors (C{IReactorFDSet}).
    @param port: 0 takes a free one.
    @raise CannotListenError: If the port is in use.
    """
    listening = ZeroCopyPort(port, factory, BACKLOG, interface, reactor)
    listening.startListening()
    return listening


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
