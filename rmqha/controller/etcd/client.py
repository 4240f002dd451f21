"""etcd, asked through its JSON gateway, which every etcd from 3.4 on has on its client port.

Its members are asked in turn, from the one that answered last.  A request that changes something
goes to another one only where it has certainly not arrived: of one that was sent and not answered
the outcome is not known.

Source: docs/protocol/etcd.rst.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field, frozen
from OpenSSL import SSL
from treq.client import HTTPClient
from twisted.internet import defer, error
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IProtocol, IStreamClientEndpoint
from twisted.internet.protocol import connectionDone
from twisted.internet.task import deferLater
from twisted.protocols.basic import LineOnlyReceiver
from twisted.python.failure import Failure
from twisted.web.client import (
    URI,
    Agent,
    HTTPConnectionPool,
    RequestGenerationFailed,
    RequestTransmissionFailed,
    ResponseFailed,
)
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from rmqha.errors import ControllerRefused, ControllerUnanswered, NoController, RmqhaError
from rmqha.net.tls.outgoing import IN_CLEAR_TEXT, OutgoingTls

Answer = dict[str, Any]
"""An object of JSON."""

PAUSE = 0.5
"""Seconds before a watch that ended is begun again."""

_LINE = 4 << 20
"""Most bytes of one line of a watch."""

_NOT_SENT = (error.ConnectError, error.ConnectingCancelledError, error.DNSLookupError)
"""How a request fails that has certainly not arrived."""

_LATE = (
    defer.CancelledError,
    defer.TimeoutError,
    error.ConnectingCancelledError,
    error.TimeoutError,
)
"""How time that is over is told."""

_WRAPPED = (RequestGenerationFailed, RequestTransmissionFailed, ResponseFailed)
"""Errors that have another in them: the first if a request is given up while it is written."""

_LOST = (*_WRAPPED, *_LATE, error.ConnectionClosed, OSError, ValueError)
"""How one fails that may have."""

_WORDS = 256
"""Most bytes of a refusal in plain text."""

_UNAUTHENTICATED = 401


class NoEtcd(NoController):
    """No member of etcd answers, or they have no quorum: nothing was changed."""

    def __str__(self) -> str:
        return f"no etcd of {', '.join(self.addresses)} answers: {self.reason}"


class EtcdRefused(ControllerRefused):
    """etcd, or what is written there, says no.

    @ivar code: As controllers say it, where they would; else of HTTP.
    """

    sentence = "etcd at {address} refuses ({code}): {remark}"


class EtcdUnanswered(ControllerUnanswered):
    """etcd was asked for a change and did not answer: it may be made all the same."""

    sentence = "etcd at {address} did not answer: {reason}"


def encoded(text: str) -> str:
    """As the gateway takes keys and values."""
    return b64encode(text.encode()).decode()


def decoded(text: str | None) -> str:
    """A key or value as the gateway gives it.

    @raise ValueError: If it is none.
    """
    return b64decode(text or "", validate=True).decode()


def below(prefix: str) -> Answer:
    """The range of all keys that begin with C{prefix}, which ends with a slash."""
    return {"key": encoded(prefix), "range_end": encoded(prefix[:-1] + "0")}


@implementer(IStreamClientEndpoint)
@frozen
class _Quiet:
    """Connects, and has the log tell nothing of it: requests come each second."""

    endpoint: IStreamClientEndpoint

    def connect(self, protocolFactory: Any) -> Deferred[IProtocol]:
        protocolFactory.noisy = False
        connecting: Deferred[IProtocol] = self.endpoint.connect(protocolFactory)
        return connecting


@implementer(IAgentEndpointFactory)
@frozen
class _Endpoints:
    """Dials members of etcd."""

    reactor: Any
    tls: OutgoingTls

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        dialled = HostnameEndpoint(self.reactor, uri.host, uri.port)
        return _Quiet(self.tls.wrap(uri.host.decode(), dialled))


@define(eq=False, kw_only=True)
class EtcdClient:
    """Asks the members of one etcd.

    @ivar addresses: C{host:port} of each one's client port.
    @ivar http: A C{treq} client, or what looks like it.
    @ivar pool: Its connections; C{None} if it keeps none.
    @ivar patience: Seconds that one member has for an answer.
    @ivar account: Says user and password; C{None} where etcd asks for none.
    @ivar answering: The member that answered last; empty before, and while none does.
    @ivar latency: Seconds that its answer took; C{None} before the first.
    @ivar failures: How often each member gave no answer, or said no.
    """

    addresses: Sequence[str]
    http: Any
    clock: Any
    patience: float = 2.0
    account: Callable[[], tuple[str, str]] | None = None
    pool: HTTPConnectionPool | None = None
    answering: str = field(default="", init=False)
    latency: float | None = field(default=None, init=False)
    failures: Counter[str] = field(factory=Counter, init=False)
    _next: int = field(default=0, init=False)
    _token: str = field(default="", init=False)

    @classmethod
    def over_tcp(
        cls, reactor: Any, addresses: Sequence[str], tls: OutgoingTls = IN_CLEAR_TEXT, **more: Any
    ) -> EtcdClient:
        """One with connections of its own."""
        pool = HTTPConnectionPool(reactor)
        agent = Agent.usingEndpointFactory(reactor, _Endpoints(reactor, tls), pool)
        return cls(addresses=addresses, http=HTTPClient(agent), clock=reactor, pool=pool, **more)

    @property
    def address(self) -> str:
        """Who is asked next."""
        return self.addresses[self._next % len(self.addresses)]

    def leave(self, address: str) -> None:
        """Ask another one next time."""
        if address == self.address:
            self._next += 1

    async def ask(self, path: str, body: Answer, *, changes: bool = False) -> Answer:
        """Ask one member after the other.

        @param path: Of the operation, below C{/v3/}.
        @param changes: Whether it must not be asked for twice.
        @raise NoEtcd: If none answers; nothing was changed.
        @raise EtcdUnanswered: If a change was asked for, and the outcome is not known.
        @raise EtcdRefused: If one says no.
        """
        why = ""
        for _ in self.addresses:
            address, sent = self.address, self.clock.seconds()
            try:
                status, answer = await self._signed(address, path, body)
            except _NOT_SENT as failed:
                why = f"{address}: {_reason(failed)}"
            except _LOST as failed:
                why = f"{address}: {_reason(failed)}"
                if changes:
                    self._failed(address)
                    raise EtcdUnanswered(address, 0, _reason(failed)) from None
            else:
                if status == 200:
                    self.answering, self.latency = address, self.clock.seconds() - sent
                    return answer
                said = str(answer.get("error") or answer.get("message") or f"HTTP {status}")
                if status < 500:
                    self.failures[address] += 1
                    raise EtcdRefused(address, status, said)
                why = f"{address}: {said}"
                if changes:
                    self._failed(address)
                    raise EtcdUnanswered(address, 0, said)
            self._failed(address)
        raise NoEtcd(tuple(self.addresses), why)

    def _failed(self, address: str) -> None:
        self.failures[address] += 1
        self.leave(address)
        if self.answering == address:
            self.answering = ""

    async def _signed(self, address: str, path: str, body: Answer) -> tuple[int, Answer]:
        """Ask with a token, where etcd wants one; a token that is over is asked for anew."""
        if self.account is None:
            return await self._once(address, path, body)
        for fresh in (not self._token, True):
            if fresh:
                self._token = ""
                user, password = self.account()
                asked = {"name": user, "password": password}
                status, answer = await self._once(address, "auth/authenticate", asked)
                if status != 200:
                    return status, answer
                self._token = str(answer.get("token", ""))
            status, answer = await self._once(address, path, body)
            if status != _UNAUTHENTICATED:
                break
        return status, answer

    async def _once(self, address: str, path: str, body: Answer) -> tuple[int, Answer]:
        asked = Deferred.fromCoroutine(self._read(address, path, body))
        return await asked.addTimeout(self.patience, self.clock)

    async def _read(self, address: str, path: str, body: Answer) -> tuple[int, Answer]:
        response = await self._post(address, path, body)
        raw: bytes = await response.content()
        try:
            content = json.loads(raw)
        except ValueError:
            content = None
        if isinstance(content, dict):
            return response.code, content
        if response.code == 200:
            raise ValueError(f"/v3/{path} is not a JSON object")
        # So it refuses certificates.
        return response.code, {"error": raw[:_WORDS].decode(errors="replace").strip()}

    def _post(self, address: str, path: str, body: Answer, **how: Any) -> Deferred[Any]:
        headers = {"authorization": self._token} if self._token else {}
        sent: Deferred[Any] = self.http.post(
            f"http://{address}/v3/{path}",
            data=json.dumps(body).encode(),
            headers=headers,
            allow_redirects=False,
            **how,
        )
        return sent

    async def stream(self, path: str, body: Answer, line: Callable[[Answer], bool]) -> None:
        """Read an answer that goes on, until it ends.

        @param line: Is given each line of it, and says whether to go on.
        @raise RmqhaError: If it did not begin.
        """
        address = self.address
        if self.account is not None and not self._token:
            await self.ask("kv/range", {"key": encoded("/"), "count_only": True})
        try:
            response = await self._post(address, path, body, unbuffered=True)
        except (*_NOT_SENT, *_LOST) as failed:
            self.leave(address)
            raise NoEtcd((address,), _reason(failed)) from None
        if response.code != 200:
            self._token = ""
            raise EtcdRefused(address, response.code, f"/v3/{path}")
        reader = _Lines(line)
        ended: Deferred[None] = Deferred(lambda _: reader.leave())
        reader.ended = ended
        response.deliverBody(reader)
        await ended

    def status(self) -> dict[str, object]:
        """Who answers, and how well."""
        return {
            "latencySeconds": self.latency,
            "members": [
                {
                    "address": address,
                    "answers": address == self.answering,
                    "failures": self.failures[address],
                }
                for address in self.addresses
            ],
        }

    def close(self) -> Deferred[None]:
        """End the connections."""
        if self.pool is None:
            return defer.succeed(None)
        closing: Deferred[None] = self.pool.closeCachedConnections()
        return closing


class _Lines(LineOnlyReceiver):
    """A stream of JSON, an object a line."""

    delimiter = b"\n"
    MAX_LENGTH = _LINE
    ended: Deferred[None]

    def __init__(self, line: Callable[[Answer], bool]) -> None:
        self.line = line

    def lineReceived(self, line: bytes) -> None:
        """Pass it on; what is none ends the stream."""
        try:
            content = json.loads(line)
        except ValueError:
            content = None
        if not isinstance(content, dict) or not self.line(content):
            self.leave()

    def leave(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.ended.called:
            self.ended.callback(None)


@define(eq=False, kw_only=True)
class EtcdWatch:
    """Hears of each change of some keys.

    It goes on at the next member from where it was; where etcd has forgotten what was there, and at
    its beginning, it says that something may have changed, so that all is read again.

    @ivar keys: Which they are, as L{below} says it.
    @ivar told: Called when something has changed.
    """

    client: EtcdClient
    keys: Answer
    told: Callable[[], None]
    # From which revision on; 0 is the present one.
    _since: int = field(default=0, init=False)
    _at: str = field(default="", init=False)
    # A cancelled request may end as one that failed.
    _turn: int = field(default=0, init=False)
    _following: Deferred[None] | None = field(default=None, init=False)

    def start(self) -> None:
        """Begin."""
        self._following = Deferred.fromCoroutine(self._follow(self._turn))
        self._following.addErrback(lambda failure: failure.trap(defer.CancelledError) and None)

    def stop(self) -> None:
        """End it."""
        self._turn += 1
        following, self._following = self._following, None
        if following is not None:
            following.cancel()

    def look(self) -> None:
        """A member that answers requests no more tells of no change either: go on at another."""
        if self._following is not None and self._at not in ("", self.client.address):
            self.stop()
            self.start()

    async def _follow(self, turn: int) -> None:
        while turn == self._turn:
            asked = {**self.keys, "start_revision": str(self._since)}
            self._at = self.client.address
            try:
                await self.client.stream("watch", {"create_request": asked}, self._line)
            except RmqhaError:
                if turn != self._turn:
                    return
                self._at = ""
            await deferLater(self.client.clock, PAUSE)

    def _line(self, line: Answer) -> bool:
        result = line.get("result") or {}
        canceled = bool(result.get("canceled"))
        revision = int((result.get("header") or {}).get("revision", 0))
        self._since = 0 if canceled else revision + 1
        self.told()
        return not canceled


def _reason(failed: BaseException) -> str:
    """The text of a network error, without what wraps it."""
    if isinstance(failed, _WRAPPED) and failed.reasons:
        failed = failed.reasons[0].value
    if isinstance(failed, SSL.Error):
        return "TLS: " + ", ".join(str(part[-1]) for parts in failed.args for part in parts)
    return "no answer in time" if isinstance(failed, _LATE) else str(failed).rstrip(".")
