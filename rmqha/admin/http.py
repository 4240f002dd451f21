"""The admin port: C{GET} of C{/livez}, C{/readyz}, C{/healthz}, C{/status} and C{/events}, all
JSON, and of C{/metrics} for Prometheus.

Two things can be changed here: C{DELETE /slots/ADDRESS} ends a retention slot, and C{PUT
/promotion} makes a slave the master.  The admin port has no passwords, so they are for who has a
login on the node's machine: the peer must be a loopback address, and the C{Host} that was asked for
too, so that no web page can have a browser do it; nor does a browser send these methods unasked.

Source of names: docs/status.rst, Status and Health; docs/states.rst, Retention slots;
docs/operations.rst, Lost master; docs/guide/ports.rst.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from ipaddress import ip_address
from typing import Any, Protocol, Self, cast

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import http
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request, Site

from rmqha.errors import RmqhaError
from rmqha.health import HealthProbe, HealthReason, failing
from rmqha.net.allowed_peers import Allowed
from rmqha.net.door import CROWDED_OUT, host_of
from rmqha.net.rate_limited_log import RateLimitedLog


@frozen
class OwnNames:
    """The names of this machine that somebody may ask for.  An address needs no name, and one
    without a dot no web page can have for its own.
    """

    _names: frozenset[str]

    @classmethod
    def of(cls, further: Iterable[str]) -> Self:
        """This host's names, and others."""
        return cls(frozenset({socket.gethostname().lower(), *further}))

    def include(self, host: str) -> bool:
        """Whether it may be asked by a name, or by an address; empty is nothing said.

        @param host: As the request has it, without the port.
        """
        name = host.lower().removesuffix(".")
        return "." not in name or name in self._names or is_address(name)


def is_address(host: str) -> bool:
    """Whether a host is said by its address."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    """Whether a host is this machine, by an address or the one name that means nothing else."""
    return host == "localhost" or (is_address(host) and ip_address(host.strip("[]")).is_loopback)


PROBES = {b"livez": HealthProbe.LIVE, b"readyz": HealthProbe.READY, b"healthz": HealthProbe.HEALTH}
"""The paths of the probes."""
METRICS_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
"""Prometheus' text format."""
AUDIT = Logger("rmqha.audit")
"""Who changed what."""
MOST_CONNECTIONS = 32
"""Most connections at once: each takes a file descriptor from the store."""
DEADLINE = 20.0
"""Seconds in which a whole request has to come, from when its connection is free for one;
Prometheus asks on the same connection every 15."""


class Promotable(Protocol):
    """A slave that can become the master."""

    def check(self, *, epoch: int | None, verify: bool, dry_run: bool) -> dict[str, Any]:
        """Begin to look whether it may.

        @raise RmqhaError: If it cannot.
        """

    def begin(self) -> None:
        """Its configuration is a master's now: become it.

        @raise RmqhaError: If it cannot.
        """

    def status(self) -> dict[str, Any] | None:
        """How far that is; C{None} if nobody has asked."""


class Node(Protocol):
    """A node that can say how it is.

    @ivar promotion: Makes it the master; C{None} where that cannot be.
    """

    @property
    def promotion(self) -> Promotable | None: ...

    def status(self) -> dict[str, Any]:
        """Everything, as values that JSON has."""

    def looked(self) -> Deferred[None]:
        """Look at what the status tells and may take a moment; never fails."""

    def metrics(self) -> Deferred[bytes]:
        """Prometheus' text; fails while it cannot be told."""

    def happened(self) -> list[dict[str, Any]]:
        """The latest events, oldest first."""

    def health(self) -> Iterator[HealthReason]:
        """What is wrong with the node now."""

    def drop_slot(self, address: str) -> bool:
        """Keep no files any more for a replica that is away.

        @return: Whether any were kept.
        """


class NodeResource(Resource):
    """Something of a node that is asked for."""

    isLeaf = True

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


class Answer(Resource):
    """One JSON answer to C{GET} and C{HEAD}; anything else is told what is allowed."""

    isLeaf = True

    def __init__(
        self,
        answer: Callable[[], tuple[int, dict[str, Any]]],
        ready: Callable[[], Deferred[None]] = lambda: succeed(None),
    ) -> None:
        """@param answer: Gives the response code and what to say.
        @param ready: Gives what fires, and never fails, when there can be an answer.
        """
        super().__init__()
        self.answer, self.ready = answer, ready

    def render(self, request: Request) -> bytes | int:
        """Answer a request; this never fails on what it contains."""
        refused = only_reading(request)
        if refused is not None:
            return refused
        if request.postpath and request.postpath != [b""]:
            return say(request, http.NOT_FOUND, {"error": "there is nothing below this path"})
        ready = self.ready()
        if ready.called:
            return say(request, *self.answer())
        return later(request, ready.addCallback(lambda _: say(request, *self.answer())))


def only_reading(request: Request) -> bytes | None:
    """Refuse what is not C{GET} or C{HEAD}.

    @return: The answer; C{None} if it is one of them.
    """
    if request.method in (b"GET", b"HEAD"):
        return None
    request.setHeader(b"allow", b"GET, HEAD")
    return say(request, http.NOT_ALLOWED, {"error": "only GET and HEAD are allowed here"})


def only_here(request: Request) -> bytes | None:
    """Refuse what does not come from the node's machine.

    @return: The answer; C{None} if it does.
    """
    asked = request.getRequestHostname().decode("ascii", "replace")
    if is_local(getattr(request.getClientAddress(), "host", "")) and is_local(asked):
        return None
    error = "only from the node's own machine, by a loopback address"
    return say(request, http.FORBIDDEN, {"error": error})


def later(request: Request, body: Deferred[bytes]) -> int:
    """Answer a request when the answer is there, if its client still waits.

    @param body: Fires with what to write.
    """
    gone: list[object] = []
    request.notifyFinish().addErrback(gone.append)

    def finish(content: bytes) -> None:
        if not gone:
            request.write(content)
            request.finish()

    body.addCallback(finish)
    return NOT_DONE_YET


def say(request: Request, code: int, content: dict[str, Any]) -> bytes:
    """The same for JSON.

    @return: Its body.
    """
    body = (json.dumps(content, indent=2) + "\n").encode()
    return send(request, code, b"application/json", body)


def send(request: Request, code: int, kind: bytes, body: bytes) -> bytes:
    """Set a response's code and headers.

    @param kind: Its content type.
    @return: Its body.
    """
    request.setResponseCode(code)
    request.setHeader(b"content-type", kind)
    request.setHeader(b"cache-control", b"no-store")
    request.setHeader(b"content-length", str(len(body)).encode())
    return b"" if request.method == b"HEAD" else body


def health(node: Node, probe: HealthProbe) -> tuple[int, dict[str, Any]]:
    """A probe: 200 while nothing makes it fail, else 503 with every reason."""
    wrong = failing(node.health(), probe)
    if not wrong:
        return http.OK, {"healthy": True}
    return http.SERVICE_UNAVAILABLE, {
        "healthy": False,
        "reason": "; ".join(map(str, wrong)),
        "reasons": [{"name": reason.name, "text": reason.text} for reason in wrong],
    }


def missing() -> tuple[int, dict[str, Any]]:
    """A path that does not exist."""
    paths = [*(f"/{path.decode()}" for path in PROBES), "/status", "/events", "/metrics"]
    return http.NOT_FOUND, {"error": "not found", "paths": paths}


class Gathered(Resource):
    """What takes a moment to be told to C{GET} and C{HEAD}."""

    isLeaf = True

    def __init__(self, gather: Callable[[], Deferred[bytes]], kind: bytes, what: str) -> None:
        """@param kind: Its content type.
        @param what: What cannot be read where that fails.
        """
        super().__init__()
        self.gather, self.kind, self.what = gather, kind, what

    def render(self, request: Request) -> bytes | int:
        """Answer a request when all is gathered, if its client still waits."""
        refused = only_reading(request)
        if refused is not None:
            return refused

        def failed(failure: Failure) -> bytes:
            error = f"{self.what} cannot be read now: {failure.getErrorMessage()}"
            return say(request, http.SERVICE_UNAVAILABLE, {"error": error})

        return later(
            request,
            self.gather().addCallbacks(
                lambda body: send(request, http.OK, self.kind, body), failed
            ),
        )


class SlotsResource(NodeResource):
    """The replicas that files are kept for."""

    isLeaf = False

    def getChild(self, path: bytes, request: Request) -> Resource:
        return SlotResource(self.node, path.decode("ascii", "replace"))

    def render(self, request: Request) -> bytes:
        """They are listed in the status."""
        return say(request, http.NOT_FOUND, {"error": "not found", "paths": ["/slots/ADDRESS"]})


class SlotResource(NodeResource):
    """One of them: it can be dropped."""

    def __init__(self, node: Node, address: str) -> None:
        super().__init__(node)
        self.address = address

    def render(self, request: Request) -> bytes:
        """Answer C{DELETE}."""
        if request.method != b"DELETE":
            request.setHeader(b"allow", b"DELETE")
            return say(request, http.NOT_ALLOWED, {"error": "only DELETE is allowed here"})
        if (refused := only_here(request)) is not None:
            return refused
        client = getattr(request.getClientAddress(), "host", "")
        dropped = self.node.drop_slot(self.address)
        AUDIT.info(
            "Audit: {who}: DELETE /slots/{address}: {outcome}",
            who=client,
            address=self.address[:100],
            outcome="done" if dropped else "there is none",
        )
        if not dropped:
            rows = self.node.status().get("retentionSlots") or ()
            here = any(row["address"] == self.address and row["connected"] for row in rows)
            why = "it is connected, and keeps what it needs itself" if here else "none is known"
            error = f"no files are kept for a replica at {self.address} that is away: {why}"
            return say(request, http.NOT_FOUND, {"error": error})
        return say(request, http.OK, {"dropped": self.address})


class PromotionResource(NodeResource):
    """A slave's way to become the master: it is asked whether it may, and then to do it."""

    def render(self, request: Request) -> bytes:
        """Answer C{PUT}: C{?begin=true} for the second."""
        if request.method != b"PUT":
            request.setHeader(b"allow", b"PUT")
            return say(request, http.NOT_ALLOWED, {"error": "only PUT is allowed here"})
        if (refused := only_here(request)) is not None:
            return refused
        asked = {
            name.decode("ascii", "replace"): values[-1].decode("ascii", "replace")[:100]
            for name, values in request.args.items()
        }
        code, content = self._asked(asked)
        AUDIT.info(
            "Audit: {who}: PUT /promotion {asked}: {outcome}",
            who=getattr(request.getClientAddress(), "host", ""),
            asked=asked,
            outcome=content.get("error", "done"),
        )
        return say(request, code, content)

    def _asked(self, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        promotion = self.node.promotion
        if promotion is None:
            return http.CONFLICT, {"error": "only a slave that was started as one is promoted"}
        try:
            if asked.get("begin") == "true":
                promotion.begin()
                return http.ACCEPTED, {}
            found = promotion.check(
                epoch=int(asked["epoch"]) if "epoch" in asked else None,
                verify=asked.get("verify") != "false",
                dry_run=asked.get("dryRun") == "true",
            )
        except RmqhaError as error:
            return http.CONFLICT, {"error": str(error)}
        except ValueError as error:
            return http.BAD_REQUEST, {"error": str(error)}
        return http.ACCEPTED, found


class AdminSite(Resource):
    """The root of the admin port."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node
        for path, probe in PROBES.items():
            self.putChild(path, Answer(partial(health, node, probe)))
        self.putChild(b"status", Answer(lambda: (http.OK, node.status()), node.looked))
        self.putChild(b"events", Answer(lambda: (http.OK, {"events": node.happened()})))
        self.putChild(b"metrics", Gathered(node.metrics, METRICS_TYPE, "the metrics"))
        self.putChild(b"slots", SlotsResource(node))
        self.putChild(b"promotion", PromotionResource(node))

    def getChild(self, path: bytes, request: Request) -> Resource:
        """Whatever else is asked for is not there."""
        return Answer(missing)


class Channel(http.HTTPChannel):
    """A connection to the admin port.  Time that it has for a request is not lengthened by each
    byte.

    @ivar refused: Whether what is asked has a body, which nothing here wants: none of it is read.
    """

    refused = False
    site: AdminPort
    transport: Any

    def resetTimeout(self) -> None:
        """Something came: that changes no deadline."""

    def connectionMade(self) -> None:
        self.site.waiting[self] = None
        super().connectionMade()

    def allHeadersReceived(self) -> None:
        self.refused = self.length != 0
        self.length = 0
        super().allHeadersReceived()
        self.persistent = self.persistent and not self.refused

    def allContentReceived(self) -> None:
        self.site.waiting.pop(self, None)
        super().allContentReceived()

    def requestDone(self, request: Request) -> None:
        self.persistent = self.persistent and not self.site.ended
        self.site.waiting[self] = None
        super().requestDone(request)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.site.waiting.pop(self, None)
        self.site.connections -= 1
        super().connectionLost(reason)


class AdminPort(Site):
    """The HTTP server around it.

    @ivar connections: How many there are.
    @ivar ended: Whether the node has ended, so that each answer is the last one of its connection.
    @ivar waiting: Those that have asked nothing, or whose answer is written; of the address that
        has most of them the one that has been so longest makes room, as at a L{Door
        <rmqha.net.door.Door>}.
    """

    noisy = False
    displayTracebacks = False
    protocol: Any = Channel
    connections = 0
    ended = False

    _log = Logger()

    def __init__(
        self,
        resource: Resource,
        *,
        allowed: Allowed | None = None,
        names: OwnNames | None = None,
        clock: Any = None,
    ) -> None:
        """@param allowed: Who may connect; by default everybody.
        @param names: By which names it may be asked; by default by those of this machine.
        @param clock: Bounds the rate of log lines, and requests; the reactor by default.
        """
        super().__init__(resource, reactor=clock, timeout=DEADLINE)
        self.waiting: dict[Channel, None] = {}
        self._allowed = allowed or Allowed(())
        self._names = names or OwnNames.of(())
        self._quiet = RateLimitedLog(self._log, self.reactor)

    def getResourceFor(self, request: Request) -> Any:
        """What answers a request.  A web page can give its own name this machine's address, and
        then have a browser ask here what it may read: so a name has to be ours.
        """
        if cast(Channel, request.channel).refused:
            return WITH_BODY
        host = request.getRequestHostname().decode("ascii", "replace")
        if self._names.include(host):
            return super().getResourceFor(request)
        self._quiet.warn(
            "host",
            host_of(request.getClientAddress()),
            "Refused a request from {peer} to the admin port by the name {host}: adminHosts does "
            "not have it",
            host=host[:256],
        )
        return ANOTHER_HOST

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Take a connection, if its peer is allowed.  Where there are L{MOST_CONNECTIONS} already,
        one that waits for a request goes.
        """
        if not self._allowed.permits(host_of(addr)):
            self._quiet.warn(
                "not-allowed",
                host_of(addr),
                "Refused a connection from {peer} to the admin port: adminPortAllowedPeers does "
                "not have it",
            )
            return None
        if self.connections >= MOST_CONNECTIONS and not self._make_room():
            return None
        self.connections += 1
        return super().buildProtocol(addr)

    def end(self) -> None:
        """The node ends; another one of the same process may listen next: connections would go on
        asking this one.
        """
        self.ended = True
        for each in list(self.waiting):
            each.loseConnection()

    def _make_room(self) -> bool:
        hosts = {each: host_of(each.transport.getPeer()) for each in self.waiting}
        if not hosts:
            return False
        many = Counter(hosts.values())
        most = max(many.values())
        oldest = next(each for each, host in hosts.items() if many[host] == most)
        del self.waiting[oldest]
        self._quiet.warn(
            CROWDED_OUT,
            hosts[oldest],
            "Closed a connection of {peer} to the admin port that asked nothing, to make room: "
            "there are {most} at the most",
            most=MOST_CONNECTIONS,
        )
        oldest.transport.abortConnection()
        return True

    def logPrefix(self) -> str:
        """What Twisted says is listening."""
        return "admin port"

    def log(self, request: http.Request) -> None:
        """Write nothing, as a poll a second would fill the log."""


class Refusing(Resource):
    """Refuses whatever is asked, by any method."""

    isLeaf = True

    def __init__(self, code: int, error: str) -> None:
        super().__init__()
        self.code, self.error = code, error

    def render(self, request: Request) -> bytes:
        """Say why; of a body that is not read the rest never comes."""
        if self.code == http.REQUEST_ENTITY_TOO_LARGE:
            request.setHeader(b"connection", b"close")
        return say(request, self.code, {"error": self.error})


ANOTHER_HOST = Refusing(http.FORBIDDEN, "the Host asked for is not in adminHosts")
WITH_BODY = Refusing(http.REQUEST_ENTITY_TOO_LARGE, "a body is not wanted here")
