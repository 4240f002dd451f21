"""Asking nodes how they are, over their admin ports."""

from __future__ import annotations

import json
from typing import Any

import treq
from attrs import define, field, frozen
from twisted.internet import defer, error
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.web.client import ResponseFailed

TIMEOUT = 5.0
"""Seconds a node has for an answer."""

MOST_BYTES = 16 << 20
"""The largest answer that is read; a status with a thousand replicas is far smaller."""

LATE = (defer.CancelledError, defer.TimeoutError, error.TimeoutError)
"""How an answer that is not there in time is told."""

UNREACHED = (*LATE, error.ConnectError, OSError, ResponseFailed)
"""How an answer may fail to come."""


@frozen
class PollResult:
    """The result of one poll of a node.

    @ivar problem: Why the node is unhealthy, or cannot be reached; empty if it is healthy.
    @ivar status: What C{/status} answered; C{None} without an answer.
    @ivar reasons: Why it is unhealthy, each with C{name} and C{text}.
    """

    problem: str
    status: dict[str, Any] | None
    reasons: list[dict[str, str]] = field(factory=list)


@define
class NodeClient:
    """Asks one node.

    @ivar client: C{treq}, or what looks like it.
    @ivar address: C{host:port} of its admin port.
    @ivar clock: For the time an answer may take.
    @ivar most: The largest answer that is read, in bytes.
    """

    client: Any
    address: str
    clock: IReactorTime
    most: int = MOST_BYTES

    async def once(self) -> PollResult:
        """Ask for its health and its status."""
        try:
            code, health = await self.get("healthz")
            status_code, status = await self.get("status")
        except (*UNREACHED, ValueError) as failed:
            return PollResult(unreached(self.address, failed), None)
        if status_code != 200:
            return PollResult(f"{self.address} answers /status with {status_code}", None)
        if code == 200:
            return PollResult("", status)
        reason = health.get("reason") or f"/healthz answers {code}"
        reasons = [each for each in health.get("reasons") or () if isinstance(each, dict)]
        return PollResult(f"{self.address} is unhealthy: {reason}", status, reasons)

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Ask for one page.

        @return: The response's code, and its JSON object.
        @raise ValueError: If that is none.
        """
        return await self._ask(self.client.get, path)

    async def delete(self, path: str) -> tuple[int, dict[str, Any]]:
        """Have something deleted; what comes is as of L{get}."""
        return await self._ask(self.client.delete, path)

    async def _ask(self, ask: Any, path: str) -> tuple[int, dict[str, Any]]:
        url = f"http://{self.address}/{path}"
        # Not the name in the address, which the node need not know for its own.
        headers = {"host": "localhost"}
        # No redirects: what answers there is a node, or nobody.
        answer: Deferred[Any] = ask(url, headers=headers, timeout=TIMEOUT, allow_redirects=False)
        response = await answer
        body = bytearray()

        def take(piece: bytes) -> None:
            body.extend(piece)
            if len(body) > self.most:
                raise ValueError(f"/{path} has more than {self.most} bytes")

        taken: Deferred[None] = treq.collect(response, take)
        await taken.addTimeout(TIMEOUT, self.clock)
        try:
            content = json.loads(body)
        except RecursionError:
            content = None
        if not isinstance(content, dict):
            raise ValueError(f"/{path} is not a JSON object")
        return response.code, content


def unreached(address: str, failed: BaseException) -> str:
    """Why a node gave no answer, in words.

    @param failed: One of L{UNREACHED}, or a C{ValueError} about what it answered.
    """
    if isinstance(failed, LATE):
        return f"{address} did not answer within {TIMEOUT:.0f} seconds"
    if isinstance(failed, ValueError):
        return f"{address} is not an admin port of rmqha: {failed}"
    return f"{address} cannot be reached: {_reason(failed)}"


def _reason(failed: BaseException) -> str:
    """The text of a network error, the operating system's where there is one."""
    if isinstance(failed, ResponseFailed) and failed.reasons:
        return str(failed.reasons[0].getErrorMessage()).rstrip(".")
    return str(failed).rstrip(".")
