"""Who changed what: a line of the log for each change that an administrator asks for, whatever
became of it.

Source: docs/operations.rst, Log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import RequestRefused
from rmqha.net.remoting.calls import name_of
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command

if TYPE_CHECKING:
    from rmqha.net.remoting.connection import RemotingProtocol
    from rmqha.net.remoting.handlers import Answer, Handler

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
