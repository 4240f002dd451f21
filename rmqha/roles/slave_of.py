"""C{--slave-of}: the keys of a slave whose master was named on the command line, by the port that
its clients connect to, by that of its slaves, or by its host alone.

The two ports of a broker are next to each other, and a number does not say which one it is.
RocketMQ's own numbers are taken as they are.  Any other port is told, before the node starts, what
a slave with an empty log tells an HA port: C{offset 0}.  An HA port keeps the connection.  To a
client port it is a frame of no bytes, and it closes.  Nothing else may be tried: a stock HA port
takes the first bytes of any question for an acknowledgement, up to some far offset.

Source: docs/protocol/ha.rst, Ports; docs/protocol/remoting.md, Ports.
"""

from __future__ import annotations

import socket

from attrs import frozen

from rmqha.config.broker_settings import DEFAULT_LISTEN_PORT
from rmqha.config.values import Endpoint
from rmqha.errors import BadValue, RemotingFrameError, RmqhaError
from rmqha.net.remoting.client import with_port
from rmqha.wire.ports import HA_PORT_STEP
from rmqha.wire.remoting.codes import RequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FrameDecoder, encode

OPTION = "--slave-of"

PATIENCE = 3.0
"""Seconds to connect, and for an answer."""

SILENCE = 2.0
"""Seconds after which a port that did not close the connection is an HA port."""

REPORTS = bytes(16)
"""Two reports that nothing is held: RocketMQ 5.3 looks at twelve bytes before it reads a frame."""

_CHUNK = 1 << 16

Address = tuple[str, int]


@frozen
class MasterPortUnknown(RmqhaError):
    """It cannot be told whether a port is for a master's clients or for its slaves.

    @ivar master: C{host:port}, as it was given.
    """

    sentence = (
        "--slave-of {master}: {reason}, so it is not known whether this is its master's client "
        "port or its HA port. Start the master first, or name its HA port: "
        "--set haMasterAddress={master}"
    )
    master: str
    reason: str


def keys_of(text: str) -> list[str]:
    """What a slave is configured with.

    @param text: C{HOST}, or C{HOST:PORT}.
    @return: C{key=value} each.
    @raise BadValue: If it is no address.
    @raise MasterPortUnknown: If the port is none of RocketMQ's, and cannot be asked.
    """
    host, port = _parsed(text)
    if port == DEFAULT_LISTEN_PORT:
        return _by_client_port((host, port), port + HA_PORT_STEP)
    if port == DEFAULT_LISTEN_PORT + HA_PORT_STEP or _keeps_slaves((host, port)):
        return [f"haMasterAddress={Endpoint().show((host, port))}"]
    return _by_client_port((host, port), _ha_port_told((host, port)))


def _by_client_port(client: Address, ha_port: int) -> list[str]:
    show = Endpoint().show
    return [
        f"haMasterAddress={show((client[0], ha_port))}",
        f"haMasterClientAddress={show(client)}",
    ]


def _parsed(text: str) -> Address:
    try:
        found: Address | None = Endpoint().parse(with_port(text.strip(), DEFAULT_LISTEN_PORT))
    except ValueError:
        found = None
    if found is None:
        raise BadValue(OPTION, text, "HOST, or HOST:PORT with a port from 1 to 65535")
    return found


def _keeps_slaves(address: Address) -> bool:
    """Whether it is an HA port.

    @raise MasterPortUnknown: If nothing is there.
    """
    try:
        with socket.create_connection(address, PATIENCE) as peer:
            peer.sendall(REPORTS)
            peer.settimeout(SILENCE)
            return _hears(peer)
    except OSError as error:
        raise MasterPortUnknown(Endpoint().show(address), _reason(error)) from error


def _hears(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) != b""
    except TimeoutError:
        return True
    except ConnectionResetError:
        return False


def _ha_port_told(client: Address) -> int:
    """The HA port of the broker at a client port: what it tells, or else the next one, as
    RocketMQ counts.

    @raise MasterPortUnknown: If it does not answer as a broker.
    """
    named = Endpoint().show(client)
    try:
        answer = _answer(client, Command.request(RequestCode.GET_BROKER_CONFIG))
    except (OSError, RemotingFrameError) as error:
        raise MasterPortUnknown(named, _reason(error)) from error
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


def _reason(error: OSError | RemotingFrameError) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {PATIENCE:g} s"
    return (getattr(error, "strerror", None) or str(error)).rstrip(".")
