"""What a request needs of who sends it, stated beside its handler.

Each part of a server gives its handlers together with their needs, so that none is without one.

Source: docs/protocol/remoting.md, Request codes.
"""

from __future__ import annotations

from attrs import evolve, frozen
from twisted.internet.defer import Deferred

from rmqha.errors import RequestRefused
from rmqha.net.allowed_peers import Allowed
from rmqha.net.remoting.audit import audited
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.net.remoting.handlers import Answer, Handler
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command


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
