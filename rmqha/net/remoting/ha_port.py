"""Which of a master's two ports a person named: that of its clients, or that of its slaves.

They are next to each other, and a number does not say which one it is.  RocketMQ's own numbers are
taken as they are.  The broker whose client port is the one below is asked whether its HA port is
the other.  Any other port is told what a slave with an empty log tells an HA port: C{offset 0}.  An
HA port keeps the connection.  To a client port it is a frame of no bytes, and to an HTTP server no
request: both close.  Nothing else may be tried: a stock HA port takes the first bytes of any
question for an acknowledgement, up to some far offset.

Source: docs/protocol/ha.rst, Ports; docs/protocol/remoting.md, Ports.
"""

from __future__ import annotations

import socket

from attrs import frozen

from rmqha.config.broker_settings import DEFAULT_LISTEN_PORT
from rmqha.config.values import ENDPOINT
from rmqha.errors import RemotingFrameError
from rmqha.net.remoting.client import with_port
from rmqha.wire.ports import HA_PORT_STEP
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

PATIENCE = 3.0
"""Seconds to connect, and for an answer."""

SILENCE = 2.0
"""Seconds after which a port that did not close the connection is an HA port."""

REPORTS = bytes(16) + b"\r\n\r\n"
"""Two reports that nothing is held, and half of one: RocketMQ 5.3 looks at twelve bytes before it
reads a frame, and an HTTP server waits for the end of a line.
"""

_CHUNK = 1 << 16

Address = tuple[str, int]


@frozen(kw_only=True)
class MasterPorts:
    """Where a master serves slaves and clients.

    @ivar client: The client port, where that was named; C{None} if it is to be guessed.
    """

    ha: Address
    client: Address | None


def ports_of(text: str) -> MasterPorts:
    """Find a master's ports by one of them.  Blocking.

    @param text: C{HOST}, or C{HOST:PORT}.
    @raise ValueError: If it is no address.
    @raise OSError: If the port is none of RocketMQ's, and does not answer.
    @raise RemotingFrameError: If it answers with something else.
    """
    named = ENDPOINT.parse(with_port(text, DEFAULT_LISTEN_PORT))
    if named is None:
        raise ValueError("no address")
    host, port = named
    if port == DEFAULT_LISTEN_PORT:
        return MasterPorts(ha=(host, port + HA_PORT_STEP), client=named)
    if port == DEFAULT_LISTEN_PORT + HA_PORT_STEP:
        return MasterPorts(ha=named, client=None)
    below = host, port - HA_PORT_STEP
    try:
        if _ha_port_told(below) == port:
            return MasterPorts(ha=named, client=below)
    except (OSError, RemotingFrameError):
        pass
    if keeps_slaves(named):
        return MasterPorts(ha=named, client=None)
    return MasterPorts(ha=(host, _ha_port_told(named)), client=named)


def keeps_slaves(address: Address) -> bool:
    """Whether a port is a master's HA port.  Blocking.

    @raise OSError: If nothing is there.
    """
    with socket.create_connection(address, PATIENCE) as peer:
        peer.sendall(REPORTS)
        peer.settimeout(SILENCE)
        return _hears(peer)


def _hears(peer: socket.socket) -> bool:
    try:
        heard = peer.recv(len(_HTTP))
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False
    return heard not in (b"", _HTTP)


_HTTP = b"HTTP/"
"""What an HTTP server says before it closes."""


def _ha_port_told(client: Address) -> int:
    """The HA port of the broker at a client port: what it tells, or else the next one, as
    RocketMQ counts.
    """
    answer = _answer(client, Command.request(RequestCode.GET_BROKER_CONFIG))
    lines = bytes(answer.body).decode("utf-8", "replace").splitlines()
    told = dict(line.split("=", 1) for line in lines if "=" in line).get("haListenPort", "")
    # A broker with access control does not tell.
    return int(told) if told.isdecimal() and 0 < int(told) < 65536 else client[1] + HA_PORT_STEP


def _answer(address: Address, request: Command) -> Command:
    decoder = FrameDecoder()
    with socket.create_connection(address, PATIENCE) as peer:
        peer.sendall(encode(request))
        peer.settimeout(PATIENCE)
        while data := peer.recv(_CHUNK):
            for command in decoder.receive(data):
                if command.is_response:
                    return command
    raise ConnectionResetError("it closed the connection without an answer")
