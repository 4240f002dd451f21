"""What a master asks its slaves before it serves: where consumers have come to while it was away.

A master that was away knows the offsets of before.  Consumers that went on at a slave committed
there; they must not find that they are further back.

Source: docs/protocol/remoting.md, Brokers among themselves; docs/architecture.rst, Metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from attrs import define
from twisted.internet.defer import CancelledError, Deferred, DeferredList, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.cluster import metadata_rules
from rmqha.broker.cluster.broker_members import Members
from rmqha.broker.cluster.metadata_offsets import merge
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused
from rmqha.net.remoting.client import UNREACHED, RemotingClient
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.offsets import WHOLE

WITHIN = 3.0
"""Seconds a master waits for all of it, before it serves without."""

IN_A_SET = 0.5
"""The same for a member of a set: it copied the offsets of the master before it each second, and no
write is acknowledged meanwhile.
"""


@define(eq=False)
class Return:
    """Takes over the higher offsets of a master's slaves.

    @ivar servers: The name servers, who know the slaves.
    """

    state: BrokerState
    client: RemotingClient
    members: Members
    servers: Callable[[], Sequence[str]]

    _log = Logger()

    def gather(self) -> Deferred[None]:
        """Ask all slaves there are.

        @return: Fires when that is done, well or not, after L{WITHIN} at the latest.
        """
        if not self.servers():
            return succeed(None)
        within = IN_A_SET if self.state.current.settings.controller.member else WITHIN
        asking = Deferred.fromCoroutine(self._gather())
        asking.addTimeout(within, self.state.clock, self._late)
        return asking.addErrback(self._failed)

    def _late(self, _: object, within: float) -> None:
        self._log.warn(
            "Not all slaves answered within {s} s; serving with the consumer offsets known here",
            s=within,
        )

    def _failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("Asking the slaves for consumer offsets failed", failure)

    async def _gather(self) -> None:
        heard: set[str] = set()
        await DeferredList(
            [Deferred.fromCoroutine(self._gather_by(server, heard)) for server in self.servers()],
            consumeErrors=True,
        )

    async def _gather_by(self, server: str, heard: set[str]) -> None:
        """Ask the slaves that one name server knows; another may take its time.

        @param heard: Those that are asked already, for another one's word.
        """
        brokers = await self.members.ask(server, WITHIN)
        slaves = {address for broker_id, address in brokers.items() if broker_id != 0} - heard
        heard |= slaves
        await DeferredList(
            [Deferred.fromCoroutine(self._hear(slave)) for slave in sorted(slaves)],
            consumeErrors=True,
        )

    async def _hear(self, slave: str) -> None:
        request = Command.request(RequestCode.GET_ALL_CONSUMER_OFFSET, WHOLE)
        try:
            answer = await self.client.request(slave, request, WITHIN)
            if answer.code != ResponseCode.SUCCESS:
                raise RequestRefused(answer.code, answer.remark, request.code)
            table = await self.state.in_thread(metadata_rules.offsets, bytes(answer.body), False)
            ends = metadata_rules.take_ends(table)
        except UNREACHED as error:
            self._log.warn(
                "No consumer offsets from slave {slave}: {error}", slave=slave, error=error
            )
            return
        for topic, queue_id, end in ends:
            if self.state.topics.get(topic) is not None:
                self.state.store.begin(topic, queue_id, end)
        moved = await merge(self.state.offsets, self._possible(table), self.state.clock)
        if moved:
            self._log.info(
                "Took {moved} consumer offsets from slave {slave}, which are ahead of ours",
                moved=moved,
                slave=slave,
            )

    def _possible(self, table: OffsetTable) -> Iterator[tuple[str, dict[int, int]]]:
        """The part of a table that can be true here: consumers may have read messages there that
        this log has lost, and in topics that were deleted here.
        """
        for key, queues in table.offset_table.items():
            topic = key.partition("@")[0]
            if self.state.topics.get(topic) is None:
                continue
            found = {}
            for queue_id, offset in queues.items():
                end = self.state.store.begin(topic, queue_id, offset)
                if end or not offset:
                    found[queue_id] = min(offset, end)
            yield key, found
