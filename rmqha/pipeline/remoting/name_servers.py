"""Name servers of one cluster: any of them knows the same, and the first that answers is asked.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from attrs import AttrsInstance, define, frozen

from rmqha.config.values import Endpoints
from rmqha.errors import RequestRefused, RmqhaError
from rmqha.pipeline.remoting.errors import NameServersSilent
from rmqha.pipeline.remoting.peers import Peers
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.command import Command

FRESH = 30.0
"""Seconds for which an answer is believed, as by stock clients."""

_Answer = TypeVar("_Answer")
_Body = TypeVar("_Body", bound=AttrsInstance)


@frozen
class NameServers(Endpoints):
    """At least one C{host:port}, with C{;} between."""

    def parse(self, text: str) -> Any:
        parts = tuple(part.strip() for part in super().parse(text).split(";"))
        if not all(parts):
            raise ValueError(text)
        return parts


@define(eq=False)
class NameServerClient:
    """Asks name servers.

    @ivar addresses: C{host:port} of each; the first that answers is asked from then on.
    """

    addresses: tuple[str, ...]
    peers: Peers

    def __str__(self) -> str:
        return ";".join(self.addresses)

    def ask(self, request: Command, read: Callable[[Command], _Answer]) -> _Answer:
        """Ask until one gives an answer that can be used.

        @param read: Makes something of the answer, or raises what is wrong with it.
        @raise NameServersSilent: If none does.
        """
        failure: RmqhaError | None = None
        for address in self.addresses:
            try:
                found = read(self.peers.ask(address, request))
            except RmqhaError as error:
                failure = error
                continue
            others = (other for other in self.addresses if other != address)
            self.addresses = (address, *others)
            return found
        raise NameServersSilent(str(self), str(failure))


def read_answer(cls: type[_Body], answer: Command, request: int) -> _Body:
    """The body of an answer.

    @param request: The code of what was asked.
    @raise RequestRefused: If the code is not success.
    @raise BodyInvalid: If it is no such body.
    """
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, answer.remark, request)
    return json_body.read(cls, answer.body)
