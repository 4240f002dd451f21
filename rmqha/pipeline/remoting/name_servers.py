"""Name servers of one cluster: any of them knows the same, and the first that answers is asked.

A name server forgets a broker two minutes after its last sign of life.  What that broker has
stored is there all the same, so a reader that has begun with its log goes on with it.

Source: docs/protocol/remoting.md, Name server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from logging import getLogger
from pathlib import Path
from typing import TypeVar

from attrs import AttrsInstance, define, field

from rmqha.config.values import ENDPOINTS, Kind
from rmqha.errors import RequestRefused, RmqhaError
from rmqha.pipeline.remoting.errors import NameServersSilent
from rmqha.pipeline.remoting.peers import Peers, SocketTls
from rmqha.wire.remoting import json_body
from rmqha.wire.remoting.bodies.route import BrokerData, ClusterInfo
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command

FRESH = 30.0
"""Seconds for which an answer is believed, as by stock clients."""

_Answer = TypeVar("_Answer")
_Body = TypeVar("_Body", bound=AttrsInstance)


def _name_servers(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in ENDPOINTS.parse(text).split(";"))
    if not all(parts):
        raise ValueError(text)
    return parts


NAME_SERVERS = Kind(ENDPOINTS.allowed, _name_servers)
"""At least one C{host:port}, with C{;} between."""


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


TIMEOUT = 3.0
"""Seconds to connect to a name server, and to wait for its answer."""

_log = getLogger(__name__)


@define(eq=False)
class RegisteredBrokers:
    """Asks for brokers, at most every L{FRESH} seconds: a stream may look many times a second.

    @ivar name_servers: C{host:port} of each.
    @ivar cluster: The only cluster whose brokers are meant; C{None} for all.
    @ivar tls_config_file: The file of the keys of TLS, if name servers take nothing else.
    """

    name_servers: tuple[str, ...]
    cluster: str | None = None
    tls_config_file: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _registered: Mapping[str, BrokerData] | None = field(default=None, init=False)
    _seen: dict[str, BrokerData] = field(factory=dict, init=False)
    _until: float = field(default=0.0, init=False)

    def registered(self) -> Mapping[str, BrokerData]:
        """The brokers by name; those of before while no name server answers.

        @raise NameServersSilent: If none has answered yet.
        @raise ConfigProblems: If the file of TLS is wrong.
        @raise OSError: If one that it names is.
        """
        if self._registered is None or self.clock() >= self._until:
            try:
                self._registered = self._asked()
            except NameServersSilent as error:
                if self._registered is None:
                    raise
                _log.warning("%s; reading from the brokers that were known before", error)
            self._seen.update(self._registered)
            self._until = self.clock() + FRESH
        return self._registered

    def with_known(self, names: Iterable[str]) -> dict[str, BrokerData]:
        """The same and brokers that are read from already, though no name server knows them now."""
        found = dict(self.registered())
        for name in names:
            if name not in found:
                bare = BrokerData(broker_name=name, cluster=self.cluster)
                found[name] = self._seen.get(name, bare)
        return found

    def _asked(self) -> dict[str, BrokerData]:
        with Peers(TIMEOUT, tls=SocketTls.read(self.tls_config_file)) as peers:
            request = Command.request(RequestCode.GET_BROKER_CLUSTER_INFO)
            client = NameServerClient(self.name_servers, peers)
            found = client.ask(request, lambda each: read_answer(ClusterInfo, each, request.code))
        return {
            name: broker
            for name, broker in sorted(found.broker_addr_table.items())
            if self.cluster in (None, broker.cluster)
        }
