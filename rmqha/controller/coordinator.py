"""Who is master of a set, as somebody outside of it decides, and what a member is to it.

A member knows this and nothing of how it is asked: RocketMQ's controllers
(L{rmqha.controller.group}) are one way, etcd (L{rmqha.controller.etcd}) is another.

Source: docs/architecture.rst, Who decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import define, field, frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from rmqha.controller.identity import IdentityFiles
from rmqha.periodic import NodePart


@frozen
class ElectedMember:
    """A member that was elected.

    @ivar id: Its controller id.
    @ivar address: C{host:port} of its client port.
    """

    id: int
    address: str


@frozen(kw_only=True)
class SetState:
    """What was decided of a set.

    @ivar master: C{None} while there is none, or none that lives.
    @ivar master_epoch: How often a master was elected, or should have been.
    @ivar in_sync: The ids from which a master may be elected.
    @ivar set_epoch: How often C{in_sync} was changed.
    """

    master: ElectedMember | None
    master_epoch: int
    in_sync: frozenset[int]
    set_epoch: int


class Coordinator(Protocol):
    """Decides who is master of one set.

    All of its answers fail with L{NoController<rmqha.errors.NoController>} while it cannot be
    reached, and with L{ControllerRefused<rmqha.errors.ControllerRefused>} if it says no.
    """

    def current(self) -> Deferred[SetState]:
        """What is decided now."""

    def elect(self, member: int, *, designated: bool = False) -> Deferred[SetState]:
        """Have a master elected, if there is none that lives.

        @param member: The id of who asks.
        @param designated: Whether it is to be this one, also in the place of one that lives.
        """

    def alter(self, old: SetState, new: frozenset[int]) -> Deferred[SetState]:
        """Have the ids changed from which a master may be elected.

        @param old: What was decided, with the caller as master.
        @return: Fails with L{ControllerUnanswered<rmqha.errors.ControllerUnanswered>} where nobody
            knows whether they were changed.
        """


class SetCoordinator(Coordinator, Protocol):
    """One that also knows who the members are."""

    @property
    def leader(self) -> str:
        """Who answers, as C{host:port}; empty while that is not known."""

    async def find_leader(self) -> str:
        """See that it can be asked.

        @raise NoController: If it cannot.
        """

    def members(self) -> Deferred[Mapping[int, str]]:
        """C{host:port} of the client port of each member, by id, whether it lives or not."""

    def follow(self, told: Callable[[], None]) -> None:
        """Have it called when something may have been decided, where there is a way to hear of it
        beside to ask.
        """

    def close(self) -> Deferred[None]:
        """Ask and hear no more."""


@frozen(kw_only=True)
class SignOfLife:
    """What a member tells of itself.

    @ivar epoch: The newest label of its log; C{None} without one.
    @ivar end: Where its log ends.
    @ivar confirm: Up to where its set has the log, as far as it knows.
    """

    epoch: int | None
    end: int
    confirm: int


@define(eq=False, kw_only=True)
class SetMembership(NodePart):
    """One node's part in its set.

    @ivar address: C{host:port} of our client port.
    @ivar sign: What to tell; C{None} to tell nothing, so that we are not elected.
    @ivar generation: Of our log, as it is published: a copy of our disk has the same.
    @ivar id: Ours; 0 while there is none.
    """

    files: IdentityFiles
    address: str
    sign: Callable[[], SignOfLife | None]
    generation: Callable[[], str]
    clock: IReactorTime
    in_thread: Callable[..., Deferred[Any]]
    id: int = field(default=0, init=False)

    async def join(self) -> SetState:
        """Get an id, if there is none, and say where we are.

        @return: What is decided; without a master if none lives.
        @raise IdentityInvalid: If the store's is one of another set, or cannot be read.
        @raise MemberLivesElsewhere: If our id is alive somewhere else.
        @raise ControllerRefused: If another node got the id first, or ours is not known.
        @raise NoController: If the coordinator cannot be asked.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Begin to give signs of life, at once."""
        raise NotImplementedError

    def stop(self) -> Deferred[None]:
        """Give none any more: others may be elected."""
        raise NotImplementedError

    def doubt(self, epoch: int) -> str:
        """Why a master may not be sure that it leads.

        @param epoch: The master epoch in which it does.
        @return: In words; empty if no other member can have been elected, or if there is nothing by
            which that would be known.
        """
        return ""

    def status(self) -> dict[str, object]:
        """What C{/status} says of it."""
        return {}
