"""
Who may send which request: what a slave does not do, and what only some peers may.

Source: docs/protocol/remoting.md, Administration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from twisted.internet.defer import Deferred

from rmqha.broker.access import acl_requests
from rmqha.broker.access.access_control import AccessControl
from rmqha.broker.access.guard import checked
from rmqha.errors import RequestRefused
from rmqha.net.allowed_peers import Allowed
from rmqha.net.remoting.audit import audited
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Answer, Handler
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command

SLAVE_REFUSES = (
    "Can't modify topic or subscription group from slave broker, please execute it from master "
    "broker."
)
"""What a slave says to changes that its master has to make; stock brokers' text."""

MASTERS = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)
"""Changes a slave gets from its master alone."""

ADMINISTRATION = MASTERS | frozenset(
    {
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        *acl_requests.CODES,
    }
)
"""Requests that change the broker, reach into clients, or tell the configuration."""

ADMINISTRATORS_ONLY = ADMINISTRATION | {RequestCode.VIEW_MESSAGE_BY_ID}
"""What needs an administrator's account where there is access control: besides, what reads any
message by its place."""


READING = frozenset(
    {
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
    }
)
"""Those of them that change nothing, and are not audited."""

TEXTS = frozenset({RequestCode.UPDATE_BROKER_CONFIG})
"""Requests whose body is text that says what is changed."""


def guarded(
    handlers: Mapping[Any, Handler],
    *,
    allowed: Allowed,
    master: bool,
    access: AccessControl | None = None,
) -> Iterable[tuple[RequestCode, Handler]]:
    """
    Handlers with their guards, ready to be registered.

    @param allowed: Who may administer.
    @param master: Whether this broker is one.
    @param access: Access control, if there is any: it comes first.
    """
    for code, handler in handlers.items():
        guard = handler
        if code in MASTERS and not master:
            guard = _slave
        if code in ADMINISTRATION:
            guard = _for(allowed, guard)
        if access is not None:
            guard = checked(access, guard, administers=code in ADMINISTRATORS_ONLY)
        if code in ADMINISTRATION - READING:
            guard = audited(guard, with_body=code in TEXTS)
        yield code, guard


def _slave(connection: RemotingProtocol, command: Command) -> Answer:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, SLAVE_REFUSES)


def _for(allowed: Allowed, handler: Handler) -> Handler:
    def guard(connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        if not allowed.permits(connection.host):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"{connection.host} may not administer this broker"
            )
        return handler(connection, command)

    return guard
