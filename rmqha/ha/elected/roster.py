"""Who the members of a set are, as its master knows: asked of the controllers when somebody comes
who is not known, and kept.

Source: docs/protocol/controller.rst, Who is fed and who counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import HandshakeRejected
from rmqha.wire.ha_v2 import FOLLOWERS, SlaveHandshake

PAUSE = 1.0
"""Least seconds between two questions: anybody on the port can make us ask."""


@define(eq=False, kw_only=True)
class Roster:
    """The members of one set.

    @ivar own: The controller id of the master.
    @ivar ask: Asks the controllers for the members' client ports, by id.
    @ivar any_host: Whether a member may come from anywhere: something else decides who comes.
    @ivar addresses: What is known; also of brokers that follow and are no members.
    """

    own: int
    ask: Callable[[], Deferred[Mapping[int, str]]]
    clock: IReactorTime
    any_host: bool = False
    addresses: dict[int, str] = field(factory=dict, init=False)
    _asked: float = field(default=float("-inf"), init=False)
    _asking: list[Deferred[None]] | None = field(default=None, init=False)
    _failed: str = field(default="", init=False)

    _log = Logger()

    def judge(
        self, said: SlaveHandshake, host: str, then: Callable[[HandshakeRejected | None], object]
    ) -> None:
        """Decide about a slave.

        @param host: Where it connects from.
        @param then: Is told why it is not fed, or C{None}; maybe at once.
        """
        error = self._verdict(said, host)
        if error is None or error.reason == "own-id":
            then(error)
        else:
            self.refreshed().addCallback(lambda _: then(self._verdict(said, host)))

    def _verdict(self, said: SlaveHandshake, host: str) -> HandshakeRejected | None:
        """What follows from what is known."""
        if said.learner:
            members = [one for number, one in self.addresses.items() if number < FOLLOWERS]
            if self.any_host or host in map(_host, members):
                return None
            reason, detail = "not-its-address", "another host"
        elif said.id == self.own:
            reason, detail = "own-id", ""
        elif said.id in self.addresses:
            detail = self.addresses[said.id]
            if self.any_host or _host(detail) == host:
                return None
            reason = "not-its-address"
        else:
            reason, detail = "unknown-member", ""
        if self._failed:
            reason, detail = "no-controller", self._failed
        return HandshakeRejected(reason, said.id, detail)

    def refreshed(self) -> Deferred[None]:
        """Ask, unless that was done just now.

        @return: Fires when it is answered, well or not.
        """
        now = self.clock.seconds()
        if self._asking is None:
            if now - self._asked < PAUSE:
                return succeed(None)
            self._asked, self._asking = now, []
            answered: Deferred[None] = Deferred()
            self._asking.append(answered)
            self.ask().addCallbacks(self._told, self._not_told).addBoth(self._wake)
            return answered
        waiting: Deferred[None] = Deferred()
        self._asking.append(waiting)
        return waiting

    def _told(self, members: Mapping[int, str]) -> None:
        self._failed = ""
        self.addresses = dict(members)

    def _not_told(self, failure: Failure) -> None:
        self._failed = failure.getErrorMessage()

    def _wake(self, result: object) -> None:
        if isinstance(result, Failure):
            self._log.failure("Looking at the members of the set failed", result)
        waiting, self._asking = self._asking or [], None
        for each in waiting:
            each.callback(None)


def _host(address: str) -> str:
    """The host of C{host:port}, as L{rmqha.net.door.host_of} tells a peer's."""
    return address.rpartition(":")[0].strip("[]")
