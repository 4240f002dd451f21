"""Where access control stands: before the handlers, and before the short way of messages."""

from __future__ import annotations

from collections.abc import Collection

from attrs import define
from twisted.internet.defer import Deferred

from rmqha.broker.access.access_control import AccessControl
from rmqha.broker.access.needs import AccountNeed
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Answer, Handler, Lane
from rmqha.wire.remoting.command import Command


def checked(access: AccessControl, need: AccountNeed, handler: Handler) -> Handler:
    """A handler that works at what access control lets pass."""

    def guard(connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        access.check(connection.host, command, need)
        return handler(connection, command)

    return guard


@define(eq=False)
class TrustedLane:
    """A lane for those from whom everything is taken; it does not see signatures."""

    lane: Lane
    access: AccessControl

    @property
    def serves(self) -> Collection[int]:
        """The codes of all that it may serve."""
        return self.lane.serves

    @property
    def codes(self) -> tuple[tuple[int, int], ...]:
        """How many requests of each code the last run had."""
        return self.lane.codes

    def serve_run(
        self, connection: RemotingProtocol, data: bytes, at: int, stop: int
    ) -> tuple[int, int]:
        """Serve frames in one go, or leave them all to the handlers."""
        if not self.access.trusts(connection.host):
            return 0, at
        return self.lane.serve_run(connection, data, at, stop)
