"""Looking at a node again and again, for those parts of it that remember or tell what they see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmqha.periodic import Job, NodePart, Periodic


class Watch(NodePart):
    """A part that looks at its node; its class is made by attrs, and has a C{clock}.

    @cvar job: What the look is called in log and status.
    @cvar every: Seconds between two looks.
    """

    job: ClassVar[str]
    every: ClassVar[float]
    clock: IReactorTime

    def __attrs_post_init__(self) -> None:
        self._looking = Periodic(self.job, self.clock, self.look)

    def look(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Look at once, and again and again."""
        self._looking.start(self.every, now=True)

    def stop(self) -> Deferred[None]:
        return self._looking.stop()

    def jobs(self) -> Iterator[Job]:
        yield self._looking
