"""Who may send which request: what a slave does not do, and what only some peers may.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from rmqha.broker.access.access_control import AccessControl, checked
from rmqha.broker.access.needs import Stated
from rmqha.errors import RequestRefused
from rmqha.net.allowed_peers import Allowed
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Handler
from rmqha.net.remoting.needs import audited_as, only_listed
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command

SLAVE_REFUSES = (
    "Can't modify topic or subscription group from slave broker, please execute it from master "
    "broker."
)
"""What a slave says to changes that its master has to make; stock brokers' text."""


def guarded(
    stated: Stated, *, allowed: Allowed, master: bool, access: AccessControl | None = None
) -> Handler:
    """A handler with its guards.

    @param allowed: Who may administer.
    @param master: Whether this broker is one.
    @param access: Access control, if there is any: it comes first.
    """
    need, handler = stated
    guard = handler if master or not need.master else _slave
    guard = only_listed(need, guard, allowed, "administer this broker")
    if access is not None:
        guard = checked(access, need, guard)
    return audited_as(need, guard)


def _slave(connection: RemotingProtocol, command: Command) -> Answer:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, SLAVE_REFUSES)
