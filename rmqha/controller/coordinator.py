"""Who is master of a set, as somebody outside of it decides.

A member knows this and nothing of how it is asked: RocketMQ's controllers
(L{rmqha.controller.group}) are one way.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from typing import Protocol

from attrs import frozen
from twisted.internet.defer import Deferred


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
