"""Commands that call a running master: its address, and what it means that it does not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, TypeVar

import click
from attrs import field, frozen
from twisted.internet.error import ConnectError, ConnectionClosed

from rmqha.cli.common import TLS, Unreachable, Whole, file_option, in_reactor
from rmqha.config.broker_settings import DEFAULT_LISTEN_PORT
from rmqha.config.values import ENDPOINT
from rmqha.errors import MasterLeft, MasterUnidentified, ProtocolViolation, RemotingFrameError
from rmqha.ha.slave import master_bounds
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.net.remoting.client import RemotingClient, split_address, tcp_endpoints, with_port
from rmqha.net.remoting.credentials import read_credentials
from rmqha.net.remoting.ha_port import Address, MasterPorts, ports_of
from rmqha.net.tls.errors import TlsRefused
from rmqha.net.tls.tool_tls import ToolTls
from rmqha.wire.ports import HA_PORT_STEP
from rmqha.wire.remoting.signature import Credentials

T = TypeVar("T")


CLIENT_PORT = click.option(
    "--client-port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="With HOST:PORT, which is its HA port then: the client port, asked where the master's log "
    "begins and ends. Default: PORT itself, or the one before an HA port; 0: do not ask.",
)


CREDENTIALS = file_option(
    "--credentials",
    "Sign what the client port is asked with this account: accessKey and secretKey as in "
    "mqadmin's tools.yml.",
    read=lambda context, option, path: read_credentials(path),
)
"""For a broker with access control."""


@frozen(kw_only=True)
class Access:
    """How a command asks nodes: as whom, and with TLS or without."""

    credentials: Credentials | None = None
    tls: ToolTls = field(factory=ToolTls)

    @asynccontextmanager
    async def client(self, reactor: Any) -> AsyncIterator[RemotingClient]:
        """What asks them, closed in the end."""
        client = RemotingClient(
            reactor, close_on_timeout=True, credentials=self.credentials, tls=self.tls.requests
        )
        try:
            yield client
        finally:
            await client.close()


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command C{--credentials} and C{--tls}, as its C{access}."""

    @wraps(command)
    def given(*others: Any, credentials: Credentials | None, tls: ToolTls, **named: Any) -> Any:
        return command(*others, access=Access(credentials=credentials, tls=tls), **named)

    return CREDENTIALS(TLS(given))


def ports_to_call(text: str, client_port: int | None) -> tuple[Address, int]:
    """A master's HA port and its client port, by one of them.  Blocking.

    @param client_port: What a person said of the second: then the first was named.
    @return: The second is 0 if it is not to be asked.
    @raise ValueError: If it is no address.
    """
    host, port = named = split_address(with_port(text, DEFAULT_LISTEN_PORT))
    if client_port is not None:
        ha = port + HA_PORT_STEP if port == DEFAULT_LISTEN_PORT else port
        return (host, ha), client_port
    try:
        found = ports_of(text)
    except (OSError, RemotingFrameError):
        # Whoever calls it says why it cannot be called.
        found = MasterPorts(ha=named, client=None)
    return found.ha, found.ha[1] - HA_PORT_STEP if found.client is None else found.client[1]


def address_of(option: str, text: str, client_port: int | None) -> tuple[Address, int]:
    """What a person gave that is no folder, as L{ports_to_call} does.

    @raise click.UsageError: If it is no address with a port either.
    """
    try:
        split_address(text)
        return ports_to_call(text, client_port)
    except ValueError as error:
        raise click.UsageError(f"{option} {text}: neither a folder nor HOST:PORT") from error


def call_master(
    address: Address,
    client_port: int,
    run: Callable[[MasterClientPort], Coroutine[Any, Any, T]],
    access: Access,
) -> T:
    """Do something with a master while a reactor runs; once in a process.

    @param address: Its HA port.
    @param client_port: What to ask for the log's bounds; 0 for none.
    @param run: Given the master.
    @raise Unreachable: If that cannot be done.
    """

    async def called(reactor: Any) -> T:
        named = ENDPOINT.show((address[0], client_port))
        async with access.client(reactor) as client:
            ask = (lambda: master_bounds.ask(client, named)) if client_port else None
            endpoint = tcp_endpoints(reactor, tls=access.tls.dialling)(*address)
            return await run(MasterClientPort(ask, reactor, ENDPOINT.show(address), endpoint))

    try:
        return in_reactor(called)
    except (MasterLeft, ProtocolViolation) as error:
        raise Unreachable(str(error)) from error
    except (MasterUnidentified, TlsRefused) as error:
        raise Unreachable(f"{ENDPOINT.show(address)} was not connected to: {error}") from error
    except (OSError, ConnectError, ConnectionClosed) as error:
        if isinstance(error, OSError) and error.filename is not None:
            # A file of ours; the error has its name.
            raise
        why = str(error).rstrip(".")
        raise Unreachable(f"{ENDPOINT.show(address)} cannot be reached: {why}") from error
