"""A slave's view of its master's consumer offsets between two rounds: what changed, when it did.

A round fetches the whole table, and a master of ours says which version that is.  From then on the
slave asks on the same connection what changed since, and the master answers when something did.
A stock master names no version: its table is fetched in each round, every ten seconds.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.periodic import Job
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.offsets import ConsumerOffsetsAnswer, ConsumerOffsetsRequest

WAIT = 10.0
"""Seconds that the master may wait for a change."""

PATIENCE = 3.0
"""Seconds that its answer may take besides."""

PAUSE = 0.05
"""Least seconds between two questions, whatever the master does."""


@define(eq=False)
class OffsetFeed:
    """Asks one master, on one connection.

    @ivar adopt: Takes over the offsets in an answer.
    @ivar ended: Called when it ends otherwise than by L{stop}: the whole table has to be fetched.
    @ivar live: Whether it goes on.
    @ivar answers: How many came since the start.
    """

    adopt: Callable[[bytes], Awaitable[None]]
    ended: Callable[[], None]
    clock: IReactorTime
    live: bool = field(default=False, init=False)
    answers: int = field(default=0, init=False)
    job: Job = field(init=False)
    _following: Deferred[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.job = Job("following the master's consumer offsets", self.clock)

    def start(self, connection: RemotingProtocol, version: str) -> None:
        """Follow a table.

        @param connection: Where it came from.
        @param version: Of it, in the master's words.
        """
        self.stop()
        self.live = True
        following = self._following = Deferred.fromCoroutine(self._follow(connection, version))
        following.addBoth(self._over, following)

    def stop(self) -> None:
        """Follow no more."""
        self.live = False
        following, self._following = self._following, None
        if following is not None:
            following.cancel()

    def jobs(self) -> Iterator[Job]:
        """What is done again and again."""
        if self.live:
            yield self.job

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        return {"live": self.live, "answers": self.answers}

    async def _follow(self, connection: RemotingProtocol, version: str) -> None:
        """Ask until the answer is something else than changes."""
        while True:
            self.job.begun()
            request = ConsumerOffsetsRequest(offsets_since=version, wait_millis=int(WAIT * 1000))
            command = Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET, request)
            answer = await connection.request(command, WAIT + PATIENCE)
            told = from_ext(ConsumerOffsetsAnswer, answer.ext)
            changes = answer.code == ResponseCode.SUCCESS and told.changes_only
            if not changes or told.offsets_version is None:
                return
            await self.adopt(bytes(answer.body))
            self.answers += 1
            self.job.succeeded()
            if told.keys_gone:
                # What is deleted goes in a round, after the topics and groups that it is of.
                return
            version = told.offsets_version
            await deferLater(self.clock, PAUSE, lambda: None)

    def _over(self, result: object, following: Deferred[None]) -> None:
        if following is not self._following:
            return
        self._following, self.live = None, False
        if isinstance(result, Failure) and not result.check(CancelledError):
            self.job.failed(result)
        self.ended()
