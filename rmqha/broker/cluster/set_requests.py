"""What a member of a set whose master is elected is asked and told: 1007 and 1008.

Source: docs/protocol/controller.rst, Requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import define
from twisted.logger import Logger

from rmqha.broker.access.needs import ANY_ACCOUNT, Stated
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.controller import EpochCache
from rmqha.wire.remoting.codes import ControllerRequestCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.controller import EpochCacheRequest, RoleChangedRequest
from rmqha.wire.remoting.json_body import write


@define(eq=False)
class SetRequests:
    """Answers for one member.

    @ivar labels: The labels of its log; is given the token that came with the question.
    @ivar changed: Called when a controller tells of an election: it is only a reason to ask.
    """

    labels: Callable[[int | None], EpochCache]
    changed: Callable[[RoleChangedRequest], None]

    _log = Logger()

    def handlers(self) -> Mapping[ControllerRequestCode, Stated]:
        return {
            ControllerRequestCode.GET_BROKER_EPOCH_CACHE: (ANY_ACCOUNT, self.epochs),
            ControllerRequestCode.NOTIFY_BROKER_ROLE_CHANGED: (ANY_ACCOUNT, self.role_changed),
        }

    def epochs(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1007: under which labels the log's bytes are filed."""
        token = command.custom(EpochCacheRequest).token
        return command.answer(body=write(self.labels(token)))

    def role_changed(self, connection: RemotingProtocol, command: Command) -> Answer:
        """1008: who is master.  Anybody can say so, and so nothing is done but to ask."""
        self.changed(command.custom(RoleChangedRequest))
        return command.answer()
