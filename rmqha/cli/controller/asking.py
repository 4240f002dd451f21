"""Commands that ask controllers: their addresses, and a reactor to ask with."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import click

from rmqha.cli.common import in_reactor
from rmqha.config.values import ENDPOINT
from rmqha.controller.group import ControllerGroup
from rmqha.net.remoting.client import RemotingClient
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls

T = TypeVar("T")

ADDRESSES = click.argument("addresses", nargs=-1, required=True, metavar="ADDRESSES...")


def addresses_of(given: tuple[str, ...]) -> tuple[str, ...]:
    """Those in the arguments, each as in C{controllerAddr}.

    @raise click.UsageError: If one is no address.
    """
    found = [part.strip() for each in given for part in each.split(";") if part.strip()]
    for address in found:
        try:
            known = ENDPOINT.parse(address) is not None
        except ValueError:
            known = False
        if not known:
            raise click.UsageError(f"{address} is not HOST:PORT")
    if not found:
        raise click.UsageError("no controller is given")
    return tuple(found)


def ask(
    addresses: tuple[str, ...],
    run: Callable[[ControllerGroup], Coroutine[Any, Any, T]],
    *,
    cluster: str = "",
    name: str = "",
    tls: OutgoingTls = IN_CLEAR_TEXT,
) -> T:
    """Ask controllers something while a reactor runs; once in a process.

    @param run: Asks; what it raises is raised.
    @param cluster: The cluster of the set that is asked about, where it is one.
    @param name: Its C{brokerName}.
    @param tls: How they are connected to.
    """

    async def asked(reactor: Any) -> T:
        client = RemotingClient(reactor, tls=tls)
        group = ControllerGroup(
            addresses=addresses,
            client=client,
            cluster=cluster,
            name=name,
            now_ms=lambda: int(time.time() * 1000),
        )
        try:
            return await run(group)
        finally:
            await client.close()

    return in_reactor(asked)
