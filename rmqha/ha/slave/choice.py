"""Which master a slave follows, when name servers name another than the one it has.

A name server says who registered, not who is right: a stock one names whoever registered last.
A slave that follows a master which answers does not leave it for such a word.  It leaves for one
with a higher master epoch, by which an operator has decided; or when its own was silent for
C{haHousekeepingInterval}, as a master is that is gone.  A restart takes less.

So the named one is asked who it is, and is told at that which master we know: an old one learns
that it is not the master any more.

Source: docs/architecture.rst, The master epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

from attrs import define, evolve, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import RmqhaError
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.periodic import cancelled

MARGIN = 0.1
"""Seconds for which a silence may last longer than it has to."""


@frozen(kw_only=True)
class NamedMaster:
    """A master that a name server names.

    @ivar address: C{host:port} of its HA port.
    @ivar client: C{host:port} of its client port; C{""} if it was not told.
    @ivar epoch: Its master epoch; C{None} if nobody tells.
    """

    address: str
    client: str = ""
    epoch: int | None = None

    def __str__(self) -> str:
        epoch = "an unknown master epoch" if self.epoch is None else f"master epoch {self.epoch}"
        return f"{self.address} with {epoch}"


@frozen(kw_only=True)
class PresentMaster:
    """The master that a slave has.

    @ivar address: C{host:port} of its HA port; C{""} for none.
    @ivar silent: Seconds since it was last heard; C{None} if it was not proven to have our log.
    """

    address: str = ""
    silent: float | None = None


class Verdict(Enum):
    """What becomes of a named master."""

    SAME = auto()
    """It is the present one."""
    FOLLOW = auto()
    STAY = auto()
    """The present one is kept, for as long as it is heard."""
    REFUSE = auto()
    """It is an older one than one that we have followed."""


def choose(
    named: NamedMaster, present: PresentMaster, *, number: int, trusted: str, patience: float
) -> Verdict:
    """Decide.

    @param number: The master epoch that this log follows: the present master's, if that tells one.
    @param trusted: The HA port of a master that is followed whatever its epoch is.
    @param patience: Seconds of silence after which the present one counts as gone.
    """
    if named.address == present.address:
        return Verdict.SAME
    if named.address == trusted:
        return Verdict.FOLLOW
    if named.epoch is not None and named.epoch < number:
        return Verdict.REFUSE
    if not present.address or present.silent is None or present.silent >= patience:
        return Verdict.FOLLOW
    higher = named.epoch is not None and named.epoch > number
    return Verdict.FOLLOW if higher else Verdict.STAY


@define(eq=False, kw_only=True)
class MasterChoice:
    """Hears name servers, and has the slave follow another master when it is time to.

    @ivar present: Tells of the master that the slave has.
    @ivar number: Tells the master epoch that its log follows.
    @ivar trusted: C{haTrustMaster}; C{""} for none.
    @ivar patience: C{haHousekeepingInterval}, in seconds.
    @ivar ask: Asks a client port who is there.
    @ivar follow: Has a master followed.
    @ivar refuse: Told why an older one than ours is not followed.
    @ivar other: What is wrong with what name servers say, in words; C{""} if nothing is.
    """

    present: Callable[[], PresentMaster]
    number: Callable[[], int]
    trusted: str
    patience: float
    ask: Callable[[str], Deferred[MasterBounds]]
    follow: Callable[[NamedMaster], None]
    refuse: Callable[[str], None] = lambda why: None
    clock: IReactorTime
    other: str = field(default="", init=False)
    _named: NamedMaster | None = field(default=None, init=False)
    _asking: bool = field(default=False, init=False)
    _later: IDelayedCall | None = field(default=None, init=False)
    _ended: bool = field(default=False, init=False)

    _log = Logger()

    def hear(self, named: NamedMaster) -> None:
        """A name server names a master."""
        self._named = named
        if self._ended:
            return
        if self._verdict(named) in (Verdict.SAME, Verdict.FOLLOW):
            self._settle(named)
        elif not self._asking:
            self._asking = True
            Deferred.fromCoroutine(self._look()).addErrback(self._failed)

    def stop(self) -> None:
        """Decide nothing more."""
        self._ended = True
        self._forget_later()

    async def _look(self) -> None:
        """Ask the one that is named, as long as others are named meanwhile."""
        asked: NamedMaster | None = None
        found: NamedMaster | None = None
        try:
            while self._named is not None and self._named is not asked:
                asked = self._named
                found = await self._identified(asked)
        finally:
            self._asking = False
        if found is not None and not self._ended:
            self._settle(found)

    async def _identified(self, named: NamedMaster) -> NamedMaster:
        """What the named one says of itself goes before what is said of it."""
        if not named.client:
            return named
        try:
            identity = (await self.ask(named.client)).identity
        except (RmqhaError, OSError):
            return named
        return evolve(named, epoch=identity.epoch)

    def _verdict(self, named: NamedMaster) -> Verdict:
        return choose(
            named,
            self.present(),
            number=self.number(),
            trusted=self.trusted,
            patience=self.patience,
        )

    def _settle(self, named: NamedMaster) -> None:
        self._forget_later()
        present, verdict = self.present(), self._verdict(named)
        if verdict in (Verdict.SAME, Verdict.FOLLOW):
            # The same one may have another client port now.
            self._say("")
            self.follow(named)
        elif verdict is Verdict.REFUSE:
            self._say(
                f"name servers name {named}, which is not followed: this log follows "
                f"master epoch {self.number()}; if {named.address} is the right master, promote "
                f"its store (rmqha promote --epoch {self.number() + 1}), or start this slave with "
                f"haTrustMaster={named.address}"
            )
            if present.silent is None or present.silent >= self.patience:
                self.refuse(self.other)
        elif present.silent is not None:
            self._say(
                f"name servers name {named}; staying with {present.address}, which answers and "
                f"has master epoch {self.number()}"
            )
            wait = max(0.0, self.patience - present.silent) + MARGIN
            self._later = self.clock.callLater(wait, self._again, named)

    def _again(self, named: NamedMaster) -> None:
        """The present one may be silent by now."""
        self._later = None
        self._settle(named)

    def _forget_later(self) -> None:
        self._later = cancelled(self._later)

    def _say(self, other: str) -> None:
        if other and other != self.other:
            self._log.warn("Another master is named: {other}", other=other)
        elif self.other and not other:
            self._log.info("Name servers name the master that is followed")
        self.other = other

    def _failed(self, failure: Failure) -> None:
        self._log.failure("Asking the master that name servers name failed", failure)
