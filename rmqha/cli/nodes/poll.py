"""
Asking nodes how they are, over their admin ports.
"""

from __future__ import annotations

import json
import re
from typing import Any

import click
from attrs import define, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ConnectError, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.web.client import ResponseFailed

from rmqha.cli.common import FAILED

DEFAULT_ADDRESS = "127.0.0.1:10914"
"""C{adminListenAddress} and C{adminListenPort} of a node with no configuration."""

UNREACHABLE = 3
"""The exit code where a node gave no answer; 1 is that it is unhealthy, 2 a command that was not
understood."""

TIMEOUT = 5.0
"""Seconds a node has for an answer."""

UNREACHED = (CancelledError, TimeoutError, ConnectError, OSError, ResponseFailed)
"""How an answer may fail to come."""

ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def checked(address: str) -> str:
    """
    An address that a person gave.

    @raise click.UsageError: If it is none.
    """
    match = ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise click.UsageError(f"{address} is not HOST:PORT")
    return address


@frozen
class Seen:
    """
    The result of one poll of a node.

    @ivar problem: Why the node is unhealthy, or cannot be reached; empty if it is healthy.
    @ivar status: What C{/status} answered; C{None} without an answer.
    """

    problem: str
    status: dict[str, Any] | None

    @property
    def exit_code(self) -> int:
        """
        What a command that showed it ends with.
        """
        if self.status is None:
            return UNREACHABLE
        return FAILED if self.problem else 0


@define
class Look:
    """
    Asks one node.

    @ivar client: C{treq}, or what looks like it.
    @ivar address: C{host:port} of its admin port.
    @ivar clock: For the time an answer may take.
    """

    client: Any
    address: str
    clock: IReactorTime

    async def once(self) -> Seen:
        """
        Ask for its health and its status.
        """
        try:
            code, health = await self.get("healthz")
            status_code, status = await self.get("status")
        except (*UNREACHED, ValueError) as error:
            return Seen(unreached(self.address, error), None)
        if status_code != 200:
            return Seen(f"{self.address} answers /status with {status_code}", None)
        if code == 200:
            return Seen("", status)
        reason = health.get("reason") or f"/healthz answers {code}"
        return Seen(f"{self.address} is unhealthy: {reason}", status)

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """
        Ask for one page.

        @return: The response's code, and its JSON object.
        @raise ValueError: If that is none.
        """
        url = f"http://{self.address}/{path}"
        # Not the name in the address, which the node need not know for its own.
        headers = {"host": "localhost"}
        answer: Deferred[Any] = self.client.get(url, headers=headers, timeout=TIMEOUT)
        response = await answer
        body: Deferred[bytes] = self.client.content(response)
        content = json.loads(await body.addTimeout(TIMEOUT, self.clock))
        if not isinstance(content, dict):
            raise ValueError(f"/{path} is not a JSON object")
        return response.code, content


def unreached(address: str, error: BaseException) -> str:
    """
    Why a node gave no answer, in words.

    @param error: One of L{UNREACHED}, or a C{ValueError} about what it answered.
    """
    if isinstance(error, (CancelledError, TimeoutError)):
        return f"{address} did not answer within {TIMEOUT:.0f} seconds"
    if isinstance(error, ValueError):
        return f"{address} is not an admin port of rmqha: {error}"
    return f"{address} cannot be reached: {_reason(error)}"


def _reason(error: BaseException) -> str:
    """
    The text of a network error, the operating system's where there is one.
    """
    if isinstance(error, ResponseFailed) and error.reasons:
        return str(error.reasons[0].getErrorMessage()).rstrip(".")
    return str(error).rstrip(".")
