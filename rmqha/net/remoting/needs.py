"""What a request needs of who sends it, stated beside its handler.

Each part of a server gives its handlers together with their needs, so that none is without one.

Who changed what: a line of the log for each change that an administrator asks for, whatever
became of it.

Source: docs/protocol/remoting.md, Request codes; docs/status.rst, Log.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve, frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import RequestRefused
from rmqha.net.allowed_peers import Allowed
from rmqha.net.remoting.calls import name_of
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Handler
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command

AUDIT = "rmqha.audit"
"""The namespace of these lines."""

LONGEST = 400
"""Most characters of what was asked for."""

SECRET = frozenset({"Signature", "SecurityToken", "secretKey"})
"""Fields that no log may have; C{AccessKey} says who signed."""

_log = Logger(AUDIT)


def audited(handler: Handler, *, with_body: bool = False) -> Handler:
    """A handler whose requests are told to the log.

    @param with_body: Whether a body is text that says what is changed.
    """

    def served(connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        try:
            answer = handler(connection, command)
        except Exception as error:
            _tell(connection, command, _why(error), with_body=with_body)
            raise
        if isinstance(answer, Deferred):
            return answer.addBoth(_later, connection, command, with_body)
        _tell(connection, command, _outcome(answer), with_body=with_body)
        return answer

    return served


def told(who: str, what: str, outcome: str) -> None:
    """Write the line.

    @param who: The peer's address.
    @param what: What it asked for.
    @param outcome: What became of it.
    """
    _log.info("Audit: {who}: {what}: {outcome}", who=who, what=what, outcome=outcome)


def _later(result: Any, connection: RemotingProtocol, command: Command, with_body: bool) -> Any:
    failed = isinstance(result, Failure)
    outcome = _why(result.value) if failed else _outcome(result)
    _tell(connection, command, outcome, with_body=with_body)
    return result


def _tell(connection: RemotingProtocol, command: Command, outcome: str, *, with_body: bool) -> None:
    shown = sorted((name, value) for name, value in command.ext.items() if name not in SECRET)
    fields = " ".join(f"{name}={value}" for name, value in shown)
    if command.body:
        body = bytes(command.body[:LONGEST]).decode("utf-8", "replace") if with_body else ""
        fields += f" {body}" if body else f" ({len(command.body)} bytes)"
    text = " ".join(f"{name_of(command.code)} {fields}".split())
    told(connection.address, text[:LONGEST], outcome)


def _outcome(answer: Answer) -> str:
    command = answer if isinstance(answer, Command) or answer is None else answer.command
    if command is None or command.code == ResponseCode.SUCCESS:
        return "done"
    return f"refused with code {command.code}: {command.remark}"


def _why(error: BaseException) -> str:
    if isinstance(error, RequestRefused):
        return f"refused with code {error.code}: {error.remark}"
    return f"failed: {error}"


@frozen(kw_only=True)
class Need:
    """What is needed of any peer.

    @ivar said: All of it in words, for the table of request codes in the documentation.
    @ivar listed: Whether only peers of a list may send it: C{adminAllowedPeers} of a broker,
        C{namesrvAllowedPeers} of a name server.
    @ivar audited: Whether it is told to the log.
    @ivar text: Whether its body is text that says what is changed, for that line.
    """

    said: str
    listed: bool = True
    audited: bool = False
    text: bool = False


Stated = tuple[Need, Handler]
"""A handler, and what its requests need."""

ANY_PEER = Need(said="any peer", listed=False)
"""What tells clients where they find what they want."""

BROKERS = Need(said="`namesrvAllowedPeers`")
"""What brokers send by themselves."""

ADMINISTRATION = evolve(BROKERS, audited=True)
"""What an administrator changes."""

ADMINISTRATION_BY_TEXT = evolve(ADMINISTRATION, text=True)
"""The same by lines of its body."""


def only_listed(need: Need, handler: Handler, allowed: Allowed, refusal: str) -> Handler:
    """A handler that works for the peers of a list alone, if it needs one.

    @param refusal: What other peers may not do.
    """
    if not need.listed:
        return handler

    def guard(connection: RemotingProtocol, command: Command) -> Answer | Deferred[Answer]:
        if not allowed.permits(connection.host):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"{connection.host} may not {refusal}")
        return handler(connection, command)

    return guard


def audited_as(need: Need, handler: Handler) -> Handler:
    """A handler whose requests are told to the log, if they are to be."""
    return audited(handler, with_body=need.text) if need.audited else handler
