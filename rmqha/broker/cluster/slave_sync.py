"""A slave asks its master for its tables: topics, groups, request modes, consumers' offsets, delay
offsets.

They are asked for at once and every ten seconds, each by a request of its own: one that fails
leaves the others.  Consumers' offsets of a master of ours come between, as they change.  Which
answers are believed is said in L{rmqha.broker.cluster.metadata_rules}; what is not leaves the table
as it was, on disk and in memory.

Of these offsets a round fetches the whole table, and a master of ours says which version that is.
From then on the slave asks on the same connection what changed since, and the master answers when
something did.  A stock master names no version: its table is fetched in each round, every ten
seconds.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.cluster.metadata_rules import (
    DELAYS,
    GROUPS,
    MODES,
    OFFSETS,
    TOPICS,
    AnotherBroker,
    MetadataRefused,
)
from rmqha.broker.cluster.metadata_tables import AskEpoch, Copies, TableState, never_elected
from rmqha.errors import RemotingTimeout, RequestRefused, StoreError
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.health import HealthReason
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.net.remoting.client import UNREACHED, RemotingClient
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.periodic import Job, NodePart, Periodic, cancelled
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.offsets import WHOLE, ConsumerOffsetsAnswer, ConsumerOffsetsRequest
from rmqha.wire.remoting.headers.slave import SlaveTablesRequest

WAIT = 10.0
"""Seconds that the master may wait for a change."""

PATIENCE = 3.0
"""Seconds that its answer may take besides."""

PAUSE = 0.05
"""Least seconds between two questions, whatever the master does."""


@define(eq=False)
class OffsetFeed(NodePart):
    """Asks one master, on one connection.

    @ivar adopt: Takes over the offsets in an answer.
    @ivar ended: Called when it ends otherwise than by L{stop}: the whole table has to be fetched.
    @ivar answers: How many came since the start.
    """

    adopt: Callable[[bytes], Awaitable[None]]
    ended: Callable[[], None]
    job: Job
    answers: int = field(default=0, init=False)
    _following: Deferred[None] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.job.running = False

    def start(self, connection: RemotingProtocol, version: str) -> None:
        """Follow a table.

        @param connection: Where it came from.
        @param version: Of it, in the master's words.
        """
        self.stop()
        self.job.running = True
        following = self._following = Deferred.fromCoroutine(self._follow(connection, version))
        following.addBoth(self._over, following)

    def stop(self) -> None:
        """Follow no more."""
        self.job.running = False
        following, self._following = self._following, None
        if following is not None:
            following.cancel()

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        return {"live": self.job.running, "answers": self.answers}

    async def _follow(self, connection: RemotingProtocol, version: str) -> None:
        """Ask until the answer is something else than changes."""
        while True:
            self.job.begun()
            request = ConsumerOffsetsRequest(offsets_since=version, wait_millis=int(WAIT * 1000))
            command = Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET, request)
            answer = await connection.request(command, WAIT + PATIENCE)
            told = from_ext(ConsumerOffsetsAnswer, answer.ext)
            changes = answer.code == ResponseCode.SUCCESS and told.changes_only
            if not changes or told.offsets_version is None:
                return
            await self.adopt(bytes(answer.body))
            self.answers += 1
            self.job.succeeded()
            if told.keys_gone:
                # What is deleted goes in a round, after the topics and groups that it is of.
                return
            version = told.offsets_version
            await deferLater(self.job.clock, PAUSE, lambda: None)

    def _over(self, result: object, following: Deferred[None]) -> None:
        if following is not self._following:
            return
        self._following, self.job.running = None, False
        if isinstance(result, Failure) and not result.check(CancelledError):
            self.job.failed(result)
        self.ended()


PERIOD = 10.0
"""Seconds between two rounds; those of 4.9 brokers."""

TIMEOUT = 3.0
"""Seconds each answer may take; stock brokers' too."""

SOONEST = 1.0
"""Least seconds between two rounds: each connection to the HA port asks for one."""

CODES = {
    TOPICS: RequestCode.GET_ALL_TOPIC_CONFIG,
    GROUPS: RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    MODES: RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    DELAYS: RequestCode.GET_ALL_DELAY_OFFSET,
    OFFSETS: RequestCode.GET_ALL_CONSUMER_OFFSET,
}
"""What is asked in a round, topics first: they tell whose tables these are."""

UNRECOGNIZED = "waiting for the master's topic table, which identifies the broker"
"""Why other tables are refused until the first table of topics was believed."""

Outcome = tuple[Command | Failure]
"""An answer, or the failure that came instead."""


@define(eq=False)
class MetadataSync(NodePart):
    """Keeps a slave's tables like its master's.

    @ivar copies: The tables.
    @ivar connect: Makes the client that asks.
    """

    copies: Copies
    connect: Callable[[], RemotingClient]
    _client: RemotingClient | None = field(default=None, init=False)
    _timed: Periodic = field(init=False)
    _soon: IDelayedCall | None = field(default=None, init=False)
    _round: Deferred[None] | None = field(default=None, init=False)
    _waiting: list[Deferred[None]] = field(factory=list, init=False)
    _again: bool = field(default=False, init=False)
    _began: float = field(default=float("-inf"), init=False)
    _stranger: str = field(default="", init=False)
    _feed: OffsetFeed = field(init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.copies.state.clock)
        self._timed = Periodic(
            "copying the master's tables", self.copies.state.clock, self._due, vital=True
        )
        job = Job("following the master's consumer offsets", self.copies.state.clock)
        self._feed = OffsetFeed(self._changed, self.hurry, job)

    # --- life -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: at once, if the master is known."""
        self.copies.load()
        offsets = self.copies.state.offsets
        if offsets.read is not None:
            self.copies.recall(offsets.read.by_clients)
        offsets.committed.append(self.copies.owed.note)
        self._client = self.connect()
        self._timed.start(PERIOD, now=True)

    def stop(self) -> Deferred[None]:
        """End, and write what is to be kept.

        @return: Fires when that is done, well or not.
        """
        self._timed.stop()
        self._feed.stop()
        self._soon = cancelled(self._soon)
        self._again = False
        if self._round is not None:
            self._round.cancel()
        self._tell(None)
        closed = succeed(None) if self._client is None else self._client.close()
        return closed.addCallback(lambda _: self.copies.stop())

    def follow(self, address: str, epoch: AskEpoch = never_elected) -> None:
        """The master's clients connect there.

        @param epoch: Asks in which master epoch it leads.
        """
        before, self.copies.epoch = self.copies.master, epoch
        if not address or address == before:
            return
        if before:
            self._log.info(
                "Metadata sync: the master is at {address} now, was at {before}",
                address=address,
                before=before,
            )
        if self._round is not None:
            self._round.cancel()
        self._stranger = ""
        self._feed.stop()
        self.copies.on_master_change(address)
        self.hurry()

    def hurry(self) -> None:
        """Ask soon: something happened, or the time has come."""
        if not self._timed.running or not self.copies.master:
            return
        if self._round is not None:
            self._again = True
        elif self._soon is None:
            wait = max(0.0, self._began + SOONEST - self.copies.state.clock.seconds())
            self._soon = self.copies.state.clock.callLater(wait, self._go)

    def health(self) -> Iterator[HealthReason]:
        """A master that is another broker's: its log is copied, and nothing else of it."""
        if self._stranger:
            yield HealthReason(
                "another-broker", f"master {self.copies.master}: {self._stranger}", told=True
            )

    def status(self) -> dict[str, Any]:
        """C{metadata} of the status: the tables, and how consumer offsets come between two
        rounds.
        """
        return {**self.copies.status(), "offsetFeed": self._feed.status()}

    # --- a round ------------------------------------------------------------------------

    def _due(self) -> Deferred[None] | None:
        """Fires when the next round is over, and fails as it does.  A master that cannot be asked
        is no failure of ours.
        """
        self.hurry()
        if self._soon is None and self._round is None:
            return None
        over: Deferred[None] = Deferred()
        self._waiting.append(over)
        return over

    def _go(self) -> None:
        self._soon = None
        self._began = self.copies.state.clock.seconds()
        self._again = False
        self._round = Deferred.fromCoroutine(self._ask_all())
        self._round.addErrback(lambda failure: failure.trap(CancelledError)).addBoth(self._over)

    def _over(self, result: object) -> None:
        self._round = None
        self._quiet.sweep()
        if isinstance(result, Failure) and not self._waiting:
            self._log.failure("Copying the master's tables failed", result)
        self._tell(result if isinstance(result, Failure) else None)
        if self._again:
            self.hurry()

    def _tell(self, wrong: Failure | None) -> None:
        """Whoever waits for the round knows how it went."""
        waiting, self._waiting = self._waiting, []
        for over in waiting:
            if wrong is None:
                over.callback(None)
            else:
                over.errback(wrong)

    async def _ask_all(self) -> None:
        """One round.  All is asked on one connection: its answers are of one process."""
        end, master = self.copies.state.store.log.confirmed, self.copies.master
        assert self._client is not None, "a round begins after the start"
        try:
            connection = await self._client.connect(master).addTimeout(
                TIMEOUT, self.copies.state.clock, lambda _, __: _late(master)
            )
        except UNREACHED as error:
            self._unreachable(str(error))
            return
        followed = self._feed.job.running
        boot = self._ask(connection, RequestCode.GET_BROKER_RUNTIME_INFO)
        ours = SlaveTablesRequest(ha_listen_port=self.copies.state.settings.ha.listen_port)
        headers: dict[str, ConsumerOffsetsRequest | SlaveTablesRequest] = {
            OFFSETS: WHOLE,
            TOPICS: ours,
            MODES: ours,
        }
        asked = {
            name: self._ask(connection, code, headers.get(name))
            for name, code in CODES.items()
            if name != OFFSETS or not followed
        }
        await self._take(TOPICS, asked[TOPICS], self.copies.adopt_topics)
        await self._take(GROUPS, asked[GROUPS], self.copies.adopt_groups)
        await self._take(MODES, asked[MODES], self.copies.adopt_modes)
        await self._take(DELAYS, asked[DELAYS], self.copies.adopt_delays)
        booted = _boot_in(await boot)
        if followed:
            await self._give_back(connection)
        else:
            await self._take_offsets(connection, await asked[OFFSETS], booted)
        await self._forget(end)
        if all(part.state is TableState.UNREACHABLE for part in self.copies.parts.values()):
            # Whatever that connection leads to, the next round is on another.
            connection.close("silent")

    def _ask(
        self,
        connection: RemotingProtocol,
        code: RequestCode,
        header: ConsumerOffsetsRequest | SlaveTablesRequest | None = None,
    ) -> Deferred[Outcome]:
        command = Command.request(code, header)
        return connection.request(command, TIMEOUT).addBoth(lambda found: (found,))

    async def _take_offsets(
        self, connection: RemotingProtocol, outcome: Outcome, boot: int | None
    ) -> None:
        """Take the whole table over, and follow it if the master names its version."""

        def adopt(body: bytes) -> Awaitable[bool]:
            return self.copies.adopt_offsets(
                body, boot, partial(connection.request, timeout=TIMEOUT)
            )

        await self._take(OFFSETS, succeed(outcome), adopt)
        version = _version_in(outcome)
        if self.copies.parts[OFFSETS].state is TableState.ADOPTED and version is not None:
            self._feed.start(connection, version)

    async def _give_back(self, connection: RemotingProtocol) -> None:
        try:
            await self.copies.give_back(partial(connection.request, timeout=TIMEOUT))
        except UNREACHED as error:
            self._note(OFFSETS, TableState.UNREACHABLE, str(error) or type(error).__name__)

    async def _changed(self, body: bytes) -> None:
        """The master tells of offsets that changed."""
        self._adopted(OFFSETS, await self.copies.adopt_offset_changes(body))

    async def _take(
        self, name: str, asked: Deferred[Outcome], adopt: Callable[[bytes], Awaitable[bool]]
    ) -> None:
        """Wait for one table, and take it over or say why not."""
        try:
            body = _body(await asked)
            if name != TOPICS and (self._stranger or not self.copies.knows_topics):
                raise MetadataRefused(name, self._stranger or UNRECOGNIZED)
            changed = await adopt(body)
        except MetadataRefused as error:
            if isinstance(error, AnotherBroker):
                self._stranger = error.reason
            self._note(name, TableState.REFUSED, error.reason)
        except RequestRefused as error:
            part = self.copies.parts[name]
            if name == MODES and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                # Releases before 5 have no POP, and nothing of it to copy.
                part.state, part.reason = TableState.UNKNOWN, str(error)
            else:
                self._note(name, TableState.REFUSED, str(error))
        except UNREACHED as error:
            self._note(name, TableState.UNREACHABLE, str(error) or type(error).__name__)
        else:
            if name == TOPICS:
                self._stranger = ""
            self._adopted(name, changed)

    async def _forget(self, end: int) -> None:
        try:
            await self.copies.forget_deleted(end)
        except (StoreError, OSError) as error:
            self._quiet.warn(
                "queues",
                self.copies.master,
                "Cannot delete the consume queues of deleted topics, retrying: {error}",
                error=error,
            )

    # --- how it went --------------------------------------------------------------------

    def _unreachable(self, reason: str) -> None:
        parts = self.copies.parts.values()
        if any((part.state, part.reason) != (TableState.UNREACHABLE, reason) for part in parts):
            self._quiet.warn(
                "unreachable",
                self.copies.master,
                "Metadata sync: master {peer} is unreachable, keeping our tables: {reason}",
                reason=reason,
            )
        for part in parts:
            part.state, part.reason = TableState.UNREACHABLE, reason

    def _note(self, name: str, state: TableState, reason: str) -> None:
        part = self.copies.parts[name]
        news = (state, reason) != (part.state, part.reason)
        part.state, part.reason = state, reason
        if news:
            self._quiet.warn(
                f"{name} {state}",
                self.copies.master,
                "Metadata sync: {name} of master {peer} are {state}, keeping ours: {reason}",
                name=name,
                state=state.value,
                reason=reason,
            )

    def _adopted(self, name: str, changed: bool) -> None:
        part = self.copies.parts[name]
        if part.state is not TableState.ADOPTED:
            self._log.info(
                "Metadata sync: {count} {name} are those of master {master}",
                count=len(part.last.names or ()),
                name=name,
                master=self.copies.master,
            )
        part.state, part.reason = TableState.ADOPTED, ""
        part.adopted = self.copies.state.now_ms()
        part.changes += changed


def _boot_in(outcome: Outcome) -> int | None:
    """When the master's process was started; C{None} if it does not say."""
    try:
        return MasterBounds.of_runtime(_body(outcome)).boot_timestamp
    except UNREACHED:
        return None


def _version_in(outcome: Outcome) -> str | None:
    """The version of a table of offsets; C{None} if the master names none."""
    (answer,) = outcome
    if isinstance(answer, Failure) or answer.code != ResponseCode.SUCCESS:
        return None
    return from_ext(ConsumerOffsetsAnswer, answer.ext).offsets_version


def _body(outcome: Outcome) -> bytes:
    (answer,) = outcome
    if isinstance(answer, Failure):
        answer.raiseException()
    if answer.code != ResponseCode.SUCCESS:
        raise RequestRefused(answer.code, answer.remark)
    return bytes(answer.body)


def _late(address: str) -> RemotingProtocol:
    raise RemotingTimeout(0, TIMEOUT, address)
