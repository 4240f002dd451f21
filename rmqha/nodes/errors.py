"""How a broker or a name server that was asked says no."""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from rmqha.errors import RmqhaError
from rmqha.wire.remoting.codes import RequestCode, ResponseCode

LONGEST_REMARK = 300
"""Characters of a remark that are shown; stock brokers give stacks of Java."""

WHAT_TO_DO: dict[int, str] = {
    ResponseCode.NO_PERMISSION: "; with access control, --credentials FILE names an account",
    ResponseCode.TOPIC_NOT_EXIST: "; `rmqha topic list` names the topics",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "; `rmqha group list` names the groups",
}
"""By what it answers."""


@frozen
class BrokerRefused(RmqhaError):
    """A request was answered with a code that is none of success."""

    address: str
    request: RequestCode
    code: int
    remark: str | None

    def __str__(self) -> str:
        return (
            f"{self.address} answered request {self.request.value} ({self.request.name}) with code "
            f"{self.code}: {(self.remark or 'no remark')[:LONGEST_REMARK]}"
            f"{WHAT_TO_DO.get(self.code, '')}"
        )


@frozen
class NotMaster(RmqhaError):
    """A write is for a master, and this broker is none.

    @ivar master: Where its master is; empty if it is not known.
    """

    address: str
    name: str
    master: str
    then: ClassVar[str] = "give a name server with -n"

    def __str__(self) -> str:
        known = f"write to its master, -b {self.master}" if self.master else self.then
        return f"{self.address} is a slave of {self.name}, which takes no writes: {known}"


@frozen
class AnswerUnreadable(RmqhaError):
    """What a broker answered is not what was asked for."""

    sentence = "{address} answered request {request} with what cannot be read: {reason}"
    address: str
    request: int
    reason: str
