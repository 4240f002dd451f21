"""What is waited for between the steps of a change of roles, as it can be seen at the client
ports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from attrs import define
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from rmqha.switchover.asked_broker import AskedBroker
from rmqha.switchover.errors import NotSeen

PAUSE = 0.2
"""Seconds between two looks."""

TELL = 10.0
"""Seconds between two lines about what is waited for."""

Missing = Callable[[], Awaitable[str]]
"""Says what is missing, in words; nothing when all is there."""


def is_gone(broker: AskedBroker) -> Missing:
    """Nothing listens where a broker did."""

    async def missing() -> str:
        return "" if await broker.gone() else broker.said

    return missing


def is_master(broker: AskedBroker) -> Missing:
    """A broker answers, and is a master."""

    async def missing() -> str:
        look = await broker.seen()
        return "" if look is not None and look.is_master else broker.said

    return missing


def follows(slave: AskedBroker, master: AskedBroker, epoch: int = 0) -> Missing:
    """A slave has what its master has.  Twice: by chance a log that stands still may once end where
    another is just now, and the second time that one has gone on.

    @param epoch: The master epoch that a slave of ours has to know.
    """
    agreed = 0

    async def missing() -> str:
        nonlocal agreed
        before = await master.seen()
        look = await slave.seen()
        after = await master.seen()
        if before is None or after is None:
            return master.said
        if look is None or look.is_master:
            return slave.said
        if look.ours and look.epoch < epoch:
            return f"it knows master epoch {look.epoch}, and not yet {epoch}"
        if look.end > after.end:
            agreed = 0
            return (
                f"its log ends at byte {look.end}, that of its master at {after.end}: see Ahead in "
                "docs/states.rst"
            )
        agreed = agreed + 1 if look.end >= before.end else 0
        return "" if agreed > 1 else f"it has {look.end} of {before.end} bytes"

    return missing


@define(eq=False, kw_only=True)
class Patience:
    """Waits.

    @ivar say: Tells the operator what is waited for.
    @ivar timeout: Seconds that anything may take but what a person does.
    """

    clock: IReactorTime
    say: Callable[[str], None]
    timeout: float = 120.0

    async def until(self, missing: Missing, wanted: str, *, patient: bool = False) -> None:
        """Wait until nothing is missing.

        @param wanted: What is waited for.
        @param patient: Whether a person has to do something: that takes as long as it takes.
        @raise NotSeen: If it takes too long.
        """
        begun = told = self.clock.seconds()
        while what := await missing():
            now = self.clock.seconds()
            if not patient and now - begun >= self.timeout:
                raise NotSeen(wanted, self.timeout, what)
            if now - told >= TELL:
                told = now
                self.say(f"waiting until {wanted}: {what}")
            await deferLater(self.clock, PAUSE, lambda: None)
