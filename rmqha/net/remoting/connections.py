"""What the connections of one port, or of one client, share: handlers, limits, counters and a
sweep.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.errors import AccessDenied, RequestRefused, RmqhaError
from rmqha.net.allowed_peers import Network
from rmqha.net.connection_shares import MOST_CLIENTS
from rmqha.net.door import Connection, Door
from rmqha.net.lean_reactor import at_turn_end
from rmqha.net.rate_limit import TokenBucket
from rmqha.net.remoting.outbox import Outbox
from rmqha.periodic import NodePart, Periodic
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.frame import FRAME_LIMIT

SWEEP = 2.0
"""Seconds between two looks at all connections."""

LOOSE_RATE = 64 * 1024
"""Bytes a second of JSON that only the lenient reader can read, from all connections of a port: it
takes some 3 % of a processor."""

MiB = 1024 * 1024


@frozen(kw_only=True)
class ConnectionLimits:
    """How long and how much.

    @ivar idle: Seconds without a byte in either direction before a connection is closed; stock
        brokers and clients both have 120.
    @ivar connections: Most connections at once, as it is now.
    @ivar requests: Most requests of one connection in progress; more are answered C{SYSTEM_BUSY}.
        Stock brokers queue 10,000 sends of all connections.
    @ivar unread: Most bytes that wait for a peer, looked at in each sweep.  It is not read from
        long before, so this is what the requests of one read, and those in progress, may answer.
    @ivar stuck: Most seconds a peer may take nothing of what waits for it.
    @ivar frame: Most bytes of a frame.
    """

    idle: float = 120.0
    connections: Callable[[], int] = lambda: MOST_CLIENTS
    requests: int = 10_000
    unread: int = 64 * MiB
    stuck: float = 30.0
    frame: int = FRAME_LIMIT


class Peer(Connection, Protocol):
    """What is asked of a connection.

    @ivar address: Host and port.
    """

    address: str

    def go_on(self) -> None:
        """It is its turn."""

    def look(self, now: float) -> None:
        """A sweep.

        @param now: The clock's seconds.
        """

    def release(self) -> None:
        """What its answers show is about to change."""


Each = TypeVar("Each", bound=Peer)
Asking = TypeVar("Asking", contravariant=True)


class Handlers(Protocol[Asking]):
    """What answers the requests of connections.

    @ivar together: Gives what surrounds requests that came together.
    """

    @property
    def together(self) -> Callable[[], AbstractContextManager[None]]: ...

    def serve(self, connection: Asking, command: Command) -> Answer | Deferred[Answer]:
        """Answer a request, now or later, or raise."""

    def serve_run(self, connection: Asking, data: bytes, at: int, stop: int) -> tuple[int, int]:
        """Answer frames in one go, as L{Registry.serve_run
        <rmqha.net.remoting.handlers.Registry.serve_run>} says.
        """


class Connections(NodePart, Generic[Each]):
    """All connections of one side.

    @ivar door: Who is connected, and who may be.
    @ivar sign: Adds to a request of ours who sends it.
    @ivar unasked: Answers nobody waited for: late, or never asked.
    @ivar lost: Called with each connection that ends.
    @ivar loose: Accounts for the bytes that the lenient reader had to read.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        registry: Handlers[Each],
        limits: ConnectionLimits,
        name: str = "of the client port",
        allowed: Iterable[Network] = (),
        *,
        sign: Callable[[Command], None] = lambda command: None,
    ) -> None:
        """@param name: Whose they are, in the words that follow C{connections}.
        @param sign: Adds to a request of ours who sends it.
        """
        self.clock = clock
        self.registry = registry
        self.limits = limits
        self.door: Door[Each] = Door(
            clock=clock, log=self._log, most=limits.connections, allowed=allowed
        )
        self.sign = sign
        self.unasked = 0
        self.lost: list[Callable[[Each], None]] = []
        self._due: list[Outbox] = []
        self._in_turn: deque[Each] = deque()
        self.loose = TokenBucket(LOOSE_RATE, clock)
        self._sweeping = Periodic(f"closing idle connections {name}", clock, self._sweep)

    @property
    def live(self) -> dict[Each, None]:
        """Those there are, in the order they came."""
        return self.door.inside

    @property
    def closed(self) -> Counter[str]:
        """How many ended, or were refused, by reason: C{peer} (it left), C{idle}, C{not-reading},
        C{timeout}, C{not-allowed}, C{too-many}, C{released}, C{internal}, C{crowded-out} (it had
        sent nothing, and others came), C{stopped}, the reason of a L{TlsRefused
        <rmqha.net.tls.errors.TlsRefused>}, or the class of the L{RemotingFrameError
        <rmqha.errors.RemotingFrameError>}.
        """
        return self.door.closed

    # --- what connections tell ------------------------------------------------

    def joined(self, connection: Each) -> None:
        """One is there.  The sweep runs as long as there is any."""
        self.door.entered(connection)
        self._sweeping.start(SWEEP)

    def ended(self, connection: Each, reason: str, error: Exception | None) -> None:
        """One does no more; its socket may still be open."""
        self.closed[reason] += 1
        if error is not None:
            self.warn(
                reason, connection, "Closed the connection to {address}: {error}", error=error
            )
        for listener in tuple(self.lost):
            try:
                listener(connection)
            except Exception:
                self._log.failure("Cleanup after a closed connection failed")

    def gone(self, connection: Each) -> None:
        """A connection's socket is closed."""
        self.door.left(connection)
        if not self.live:
            self.door.quiet.flush()
            self._sweeping.stop()

    def failed(self, connection: Each, command: Command, failure: Failure) -> None:
        if failure.check(AccessDenied):
            self.warn(
                "access-denied",
                connection,
                "Refused request {code} of {address}: {error}",
                code=command.code,
                error=failure.getErrorMessage(),
            )
        if failure.check(RequestRefused):
            return
        cause = type(failure.value).__name__
        ours = {} if failure.check(RmqhaError) else {"log_failure": failure}
        self.warn(
            cause,
            connection,
            "Request {code} from {address} failed: {cause}: {error}",
            code=command.code,
            error=failure.getErrorMessage(),
            **ours,
        )

    def warn(self, cause: str, connection: Each, message: str, **fields: object) -> None:
        """Write a line about a peer, at a bounded rate."""
        self.door.quiet.warn(cause, connection.host, message, address=connection.address, **fields)

    # --- turns ----------------------------------------------------------------

    def soon(self, outbox: Outbox) -> None:
        """Flush an outbox at the end of this reactor turn, when all its answers are there."""
        if not self._due:
            at_turn_end(self.clock, self._flush)
        self._due.append(outbox)

    def in_turn(self, connection: Each) -> None:
        """Let a connection go on in one of the next reactor turns.  In each only one does, so that
        those who have little to ask wait for one such slice at the most.
        """
        self._in_turn.append(connection)
        if len(self._in_turn) == 1:
            self.clock.callLater(0, self._next_turn)

    @property
    def crowded(self) -> bool:
        """Whether any connection waits for its turn."""
        return bool(self._in_turn)

    def _next_turn(self) -> None:
        connection = self._in_turn.popleft()
        if self._in_turn:
            self.clock.callLater(0, self._next_turn)
        try:
            connection.go_on()
        except Exception:
            self._log.failure(
                "Reading from {address} failed, closing the connection", address=connection.address
            )
            connection.close("internal")

    def _flush(self) -> None:
        due, self._due = self._due, []
        for outbox in due:
            outbox.flush()

    def _sweep(self) -> None:
        now = self.clock.seconds()
        for connection in tuple(self.live):
            connection.look(now)
        self.door.quiet.sweep()

    def release(self) -> None:
        """Close those with answers on their way, as the memory these show is about to go."""
        for connection in tuple(self.live):
            connection.release()

    # --- the end ----------------------------------------------------------------

    def stop(self) -> Deferred[None]:
        """Close all, letting them have what was written.

        @return: Fires when the last one is gone.
        """
        return self.door.stop()

    def status(self) -> dict[str, object]:
        """Numbers for a status page."""
        return {
            "connections": len(self.live),
            "unasked": self.unasked,
            "closed": dict(sorted(self.closed.items())),
        }
