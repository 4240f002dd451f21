"""What a master's client port says of its log, asked before a slave asks the log itself.

A stock master believes a first report whatever it says, and counts it as an
acknowledgement until it is restarted.  So a slave should know where the master's log
ends before it reports anything: request 28, the runtime information that every broker
gives to any client, has its bounds.  docs/protocol/ha.rst, The client port.

A broker of ours tells who it is besides, and its master epoch, and is told the epoch of the
master that we know: an old master learns so that it is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Self

from attrs import define, field, frozen
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime, IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger

from rmqha.errors import ProtocolViolation, RequestRefused, RmqhaError
from rmqha.ha.master_epoch import EpochStart
from rmqha.ha.master_epoch import parse as parse_starts
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.wire.remoting import fastjson
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.slave import EpochClaim

ASK_TIMEOUT = 3.0
"""Seconds an answer may take, connecting included: a stock client's patience."""

PATIENCE = 10.0
"""Seconds for which a client port that has answered before is asked again before the
master counts as one that cannot be asked: brokers open it after their HA port.  Less
than the 20 s for which a stock master bears a slave that reports nothing."""

ASK_AGAIN = 0.5
"""Seconds between two such questions."""

LONGEST_TEXT = 200
"""Most characters of a bad answer that an error shows."""


class RuntimeInfoInvalid(ProtocolViolation):
    """A broker's runtime information (request 28) does not tell what was asked for."""

    sentence = "invalid {key} in the broker's runtime info (request 28): {text}"
    key: str
    text: str


@frozen(kw_only=True)
class BrokerIdentity:
    """Who a broker is, as far as it tells: one of ours tells all of it, a stock broker nothing.

    @ivar run_id: A name of its process, which no other process has.
    @ivar epoch: Its master epoch.
    @ivar starts: Where epochs began in its log.
    """

    name: str = ""
    id: int | None = None
    run_id: str = ""
    epoch: int = 0
    starts: tuple[EpochStart, ...] = ()

    @classmethod
    def of_table(cls, table: dict[Any, Any]) -> Self:
        """What request 28 tells of it.

        @raise RuntimeInfoInvalid: If it is told and makes no sense.
        """
        try:
            starts = parse_starts(str(table.get("epochStarts", "")))
        except ValueError as error:
            raise RuntimeInfoInvalid("epochStarts", _excerpt(error)) from error
        return cls(
            name=str(table.get("brokerName", "")),
            id=_number(table, "brokerId") if "brokerId" in table else None,
            run_id=str(table.get("runId", "")),
            epoch=_number(table, "masterEpoch") if "masterEpoch" in table else 0,
            starts=starts,
        )


@frozen
class MasterBounds:
    """Where a master's log begins and ends.

    @ivar min_offset: Its first byte; 0 while there is none.
    @ivar max_offset: Just past its last byte.
    @ivar boot_timestamp: When its process was started, in milliseconds since 1970.
    @ivar identity: Who answered.
    """

    min_offset: int
    max_offset: int
    boot_timestamp: int
    identity: BrokerIdentity = BrokerIdentity()

    @classmethod
    def of_runtime(cls, body: bytes | memoryview) -> Self:
        """The bounds in an answer to request 28: a table of strings.

        @raise RuntimeInfoInvalid: If they are not in it.
        """
        try:
            answer = fastjson.loads(bytes(body))
        except (RmqhaError, ValueError) as error:
            raise RuntimeInfoInvalid("table", str(error)) from error
        table = answer.get("table") if isinstance(answer, dict) else None
        if not isinstance(table, dict):
            raise RuntimeInfoInvalid("table", _excerpt(answer))
        # Stock brokers give -1 for the first byte of a log without files.
        first = max(_number(table, "commitLogMinOffset", least=-1), 0)
        end = _number(table, "commitLogMaxOffset")
        if end < first:
            raise RuntimeInfoInvalid(
                "commitLogMaxOffset", f"{end}, below commitLogMinOffset {first}"
            )
        return cls(first, end, _number(table, "bootTimestamp"), BrokerIdentity.of_table(table))


def _number(table: dict[Any, Any], key: str, least: int = 0) -> int:
    text = table.get(key)
    try:
        number = int(text) if isinstance(text, str | int) else None
    except ValueError:
        number = None
    if number is None or not least <= number < 1 << 63:
        raise RuntimeInfoInvalid(key, "missing" if text is None else _excerpt(text))
    return number


def _excerpt(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."


class Client(Protocol):
    """What is needed of a L{rmqha.net.remoting.client.RemotingClient}."""

    def request(
        self, address: str, command: Command, timeout: float = ASK_TIMEOUT
    ) -> Deferred[Command]:
        """Send a request; the Deferred has the answer."""


def ask(client: Client, address: str, claim: EpochClaim | None = None) -> Deferred[MasterBounds]:
    """Ask a broker for its log's bounds.

    @param address: C{host:port} of its client port.
    @param claim: What to tell it of the master that is known here.
    @return: Fails with L{RequestRefused}, L{RuntimeInfoInvalid}, or what the client has
        to say.
    """

    def answered(answer: Command) -> MasterBounds:
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, answer.remark, RequestCode.GET_BROKER_RUNTIME_INFO)
        return MasterBounds.of_runtime(answer.body)

    request = Command.request(RequestCode.GET_BROKER_RUNTIME_INFO, claim)
    return client.request(address, request, timeout=ASK_TIMEOUT).addCallback(answered)


AskBounds = Callable[[], "Deferred[MasterBounds]"]
"""Asks the master for its bounds once; has an answer or fails within L{ASK_TIMEOUT}."""


@define(eq=False)
class MasterClientPort:
    """What a slave knows of its master from the master's client port, and its HA port.

    @ivar ask: C{None} if it is not to be asked.
    @ivar peer: The master, for the log.
    @ivar endpoint: Its HA port; C{None} while that is not known.
    @ivar client: Where its client port is; C{""} if that is not known.
    @ivar bounds: What the last question brought; C{None} if nothing.
    @ivar state: C{reachable}, or why not.
    @ivar boot_timestamp: When the master's process was started, as far as is known.
    @ivar boot_before: The same of the process before it; C{None} until a change was seen.
    """

    ask: AskBounds | None
    clock: IReactorTime
    peer: str
    endpoint: IStreamClientEndpoint | None = None
    client: str = ""
    bounds: MasterBounds | None = field(default=None, init=False)
    state: str = field(init=False)
    boot_timestamp: int | None = field(default=None, init=False)
    boot_before: int | None = field(default=None, init=False)
    _told: type[Exception] | None = field(default=None, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self.state = "off" if self.ask is None else "not asked yet"
        self._quiet = RateLimitedLog(self._log, self.clock)

    def look(self) -> Deferred[None]:
        """Bring L{bounds} up to date.

        A port that answered before is asked for L{PATIENCE}: that it does not now may
        just mean that the master is coming back, and what it lost is to be known then.

        @return: Fires when that is done or given up; it fails only if it is cancelled.
        """
        return Deferred.fromCoroutine(self._look())

    async def _look(self) -> None:
        self.bounds = None
        if self.ask is None:
            return
        until = self.clock.seconds() + (PATIENCE if self.state == "reachable" else 0.0)
        while True:
            try:
                bounds = await self.ask()
            except CancelledError:
                raise
            except Exception as error:
                problem = error
            else:
                self._answered(bounds)
                return
            if self.clock.seconds() >= until:
                self._unanswered(problem)
                return
            await deferLater(self.clock, ASK_AGAIN, lambda: None)

    def status(self) -> dict[str, object]:
        """How the master's client port answers, for C{/status}; its boot time in milliseconds since
        1970, C{None} before it has told.
        """
        return {"clientPort": self.state, "masterBootTimestamp": self.boot_timestamp}

    def _answered(self, bounds: MasterBounds) -> None:
        self.bounds, self.state, self._told = bounds, "reachable", None
        if self.boot_timestamp not in (None, bounds.boot_timestamp):
            self.boot_before = self.boot_timestamp
            self._log.info(
                "Master {peer} was restarted (boot time {before} -> {now})",
                peer=self.peer,
                before=self.boot_before,
                now=bounds.boot_timestamp,
            )
        self.boot_timestamp = bounds.boot_timestamp

    def _unanswered(self, error: Exception) -> None:
        self.state = str(error) or type(error).__name__
        if self._told is not type(error):
            self._told = type(error)
            self._quiet.warn(
                "client port",
                self.peer,
                "Client port of master {peer} is unreachable, so its log's end is not known "
                "before it is probed: {reason}",
                reason=self.state,
            )
