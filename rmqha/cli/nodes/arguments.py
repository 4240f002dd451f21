"""How a command is told which nodes to ask, and what its end says of them."""

from __future__ import annotations

import re

import click

from rmqha.cli.common import FAILED, UNREACHABLE
from rmqha.config.broker_settings import DEFAULT_LISTEN_PORT
from rmqha.net.remoting.client import with_port
from rmqha.nodes.poll import PollResult

DEFAULT_ADDRESS = "127.0.0.1:10914"
"""C{adminListenAddress} and C{adminListenPort} of a node with no configuration."""

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def checked(address: str) -> str:
    """An address that a person gave; a host alone has the default client port.

    @raise click.UsageError: If it is none.
    """
    whole = with_port(address, DEFAULT_LISTEN_PORT)
    match = ADDRESS.fullmatch(whole)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise click.UsageError(f"{address} is not HOST:PORT")
    return whole


def exit_code(seen: PollResult) -> int:
    """What a command that showed it ends with."""
    if seen.status is None:
        return UNREACHABLE
    return FAILED if seen.problem else 0
