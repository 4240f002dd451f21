"""A slave's look at the other brokers of its name: is its id its own?

Two brokers of one name and id take each other's place in the name servers' tables, again and
again; clients then read now from one, now from the other, and nothing tells them.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from rmqha.broker.cluster.broker_members import Members
from rmqha.broker.cluster.registration import REGISTERED, Registration
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.periodic import Watch

PERIOD = 10.0
"""Seconds between two looks: more often than brokers register."""

FORGOTTEN = 120.0
"""Seconds after which it is no longer told: a name server forgets a silent broker then."""

TIMEOUT = 3.0
"""Seconds a name server has to answer."""


@define(eq=False)
class DuplicateIdCheck(Watch):
    """Finds another broker that has our name and id.

    @ivar twin: What is wrong, in words; C{""} if nothing is known to be.
    """

    members: Members
    registration: Registration
    twin: str = field(default="", init=False)
    _last: float = field(default=0.0, init=False)
    clock: IReactorTime = field(init=False)
    _quiet: RateLimitedLog = field(init=False)

    job = "looking for a broker with the same brokerId"
    every = PERIOD
    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.clock = self.registration.state.clock
        super().__attrs_post_init__()
        self._quiet = RateLimitedLog(self._log, self.clock)

    def start(self) -> None:
        """Begin to look, every L{PERIOD} seconds; without name servers there is nothing to ask."""
        if self.registration.servers:
            super().start()

    def look(self) -> Deferred[None]:
        status = self.registration.status()
        # Before it was told of us, a name server may know our place by an old address of ours.
        told = [server for server, state in status.items() if state == REGISTERED]
        asked = [
            self.members.ask(server, TIMEOUT).addCallback(self._on_reply, server) for server in told
        ]
        return DeferredList(asked, consumeErrors=True).addCallback(self._over)

    def _on_reply(self, brokers: dict[int, str], server: str) -> None:
        """One name server answered; another may take its time."""
        own = self.registration.address
        number = self.registration.state.settings.broker.id
        other = brokers.get(number, own)
        if other == own or not self.looking.running:
            return
        self._last = self.clock.seconds()
        self.twin = (
            f"name server {server} lists {other} with brokerId={number} too: "
            f"give one of the two another brokerId"
        )
        self._quiet.warn("twin", other, "Duplicate broker id: {twin}", twin=self.twin)

    def _over(self, _: object) -> None:
        if self.clock.seconds() > self._last + FORGOTTEN:
            self.twin = ""
