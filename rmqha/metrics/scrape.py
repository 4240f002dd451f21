"""Gathering what a monitor asks for, without keeping the reactor.

Samples are taken in slices of its turns, so that none is read while its part is being changed;
their text is made in a thread.

Source: docs/guide/metrics.rst.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmqha.metrics.exposition import text_of
from rmqha.metrics.family import Sample
from rmqha.periodic import in_slices


class Measured(Protocol):
    """A node as what it has to tell monitors."""

    def looked(self) -> Deferred[None]:
        """Look at what may take a moment; never fails."""

    def samples(self) -> Iterator[Sample | None]:
        """All there is; C{None} where a turn may end."""

    def metric_labels(self) -> dict[str, str]:
        """What tells this node's samples from others'."""


@define(eq=False)
class Scrape:
    """Makes the text for those that ask; who asks while it is made gets the same.

    @ivar in_thread: Runs what blocks.
    """

    node: Measured
    clock: IReactorTime
    in_thread: Any
    _waiting: list[Deferred[bytes]] = field(factory=list, init=False)

    def text(self) -> Deferred[bytes]:
        """Ask for it.

        @return: Fails as reading a part did, such as one that is just being closed.
        """
        asked: Deferred[bytes] = Deferred()
        self._waiting.append(asked)
        if len(self._waiting) == 1:
            Deferred.fromCoroutine(self._made()).addBoth(self._tell)
        return asked

    async def _made(self) -> bytes:
        await self.node.looked()
        rows: list[Sample] = []
        await in_slices(self.clock, self._gathered(rows))
        text: bytes = await self.in_thread(text_of, rows, self.node.metric_labels())
        return text

    def _gathered(self, rows: list[Sample]) -> Iterator[None]:
        for sample in self.node.samples():
            if sample is not None:
                rows.append(sample)
            yield

    def _tell(self, result: Any) -> None:
        waiting, self._waiting = self._waiting, []
        for asked in waiting:
            asked.callback(result)
