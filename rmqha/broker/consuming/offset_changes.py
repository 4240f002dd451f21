"""All offsets of all groups, for a slave (43); or, for one of ours, what changed since it last
asked.

A stock slave asks for the whole table, which it is given with a version, as 5.x wants it.  One of
ours names the version of the table that it has, and is answered when something newer is durable
here: so it is behind by as much as a message takes, and costs nothing while no group moves.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from rmqha.broker.access.needs import Stated, reads_all
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.offset_journal import Marks
from rmqha.errors import RequestRefused
from rmqha.net.remoting.connection import RemotingProtocol
from rmqha.store.tables.offset_segments import ALL_QUEUES, ORDERED
from rmqha.wire.remoting.answers import Answer
from rmqha.wire.remoting.bodies.common import DataVersion
from rmqha.wire.remoting.bodies.offsets import ORDERED_POPS, QUEUE_ENDS, ConsumerOffsets
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.fields import from_ext
from rmqha.wire.remoting.headers.offsets import ConsumerOffsetsAnswer, ConsumerOffsetsRequest
from rmqha.wire.remoting.json_body import to_json, write

MOST = 64
"""Most requests that wait at a time; what comes above is answered at once."""

LONGEST = 30.0
"""Most seconds that one waits, whatever it asks for."""


@define(eq=False)
class _Waiting:
    """A request that is answered when something changes."""

    command: Command
    version: int
    answer: Deferred[Answer]
    timer: IDelayedCall


@define(eq=False)
class OffsetChanges:
    """Tells slaves of offsets."""

    state: BrokerState
    _waiting: list[_Waiting] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.state.offsets.journal.flushed.append(self._wake)

    def handlers(self) -> Mapping[RequestCode, Stated]:
        need = reads_all(topics=True, groups=True)
        return {RequestCode.GET_ALL_CONSUMER_OFFSET: (need, self.ask)}

    def ask(self, connection: RemotingProtocol, command: Command) -> Deferred[Answer]:
        """43: the whole table, or what changed."""
        request = from_ext(ConsumerOffsetsRequest, command.ext)
        journal = self.state.offsets.journal
        if request.offsets_since is None or not journal.active:
            return self._whole(command)
        version = self._version_in(request.offsets_since)
        marks = None if version is None else journal.changes_since(version)
        if version is None or marks is None:
            return self._whole(command, self._now())
        wait = min((request.wait_millis or 0) / 1000, LONGEST)
        if marks or wait <= 0 or len(self._waiting) >= MOST:
            return self._changed(command, marks)
        return self._wait(command, version, wait)

    def stop(self) -> None:
        """Refuse all that wait: the store is about to close."""
        for waiting in tuple(self._waiting):
            self._drop(waiting)
            waiting.answer.errback(
                RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, "the store is closing")
            )

    # --- waiting --------------------------------------------------------------------

    def _wait(self, command: Command, version: int, seconds: float) -> Deferred[Answer]:
        answer: Deferred[Answer] = Deferred(lambda _: self._drop(waiting))
        timer = self.state.clock.callLater(seconds, lambda: self._finish(waiting))
        waiting = _Waiting(command, version, answer, timer)
        self._waiting.append(waiting)
        return answer

    def _wake(self) -> None:
        """Something is durable that was not."""
        for waiting in tuple(self._waiting):
            self._finish(waiting)

    def _finish(self, waiting: _Waiting) -> None:
        self._drop(waiting)
        marks = self.state.offsets.journal.changes_since(waiting.version)
        if marks is None:
            made = self._whole(waiting.command, self._now())
        else:
            made = self._changed(waiting.command, marks)
        made.addBoth(_settle, waiting.answer)

    def _drop(self, waiting: _Waiting) -> None:
        if waiting.timer.active():
            waiting.timer.cancel()
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    # --- answers --------------------------------------------------------------------

    def _now(self) -> str:
        journal = self.state.offsets.journal
        return f"{journal.life}-{journal.version}"

    def _version_in(self, text: str) -> int | None:
        """The version that a slave has; C{None} if it is not one of this life of the table."""
        life, _, version = text.rpartition("-")
        if life != self.state.offsets.journal.life or not version.isdigit():
            return None
        return int(version)

    def _whole(self, command: Command, version: str | None = None) -> Deferred[Answer]:
        """The answer with the whole table as it is now, which is made in a thread as well."""
        header = None if version is None else ConsumerOffsetsAnswer(offsets_version=version)
        table = self.state.offsets.table()
        if version is None and table.data_version is None:
            # A slave of 5.x takes nothing over from a table without.
            table = evolve(
                table, data_version=DataVersion(counter=self.state.offsets.journal.version)
            )
        ours = version is not None
        companion = self.state.offsets.journal.companion
        ordered = {} if companion is None else companion.all()
        made: Deferred[Answer] = self.state.in_thread(
            self._table, table, ordered, ours=ours
        ).addCallback(lambda body: command.answer(header=header, body=body))
        return made

    def _table(self, table: ConsumerOffsets, ordered: Any, *, ours: bool) -> bytes:
        """A whole table, for a broker of ours with where queues go on of which its log has nothing,
        and with what is popped in order.
        """
        if ours:
            more = {QUEUE_ENDS: self.state.store.queues.idle_ends(), ORDERED_POPS: to_json(ordered)}
            table = evolve(table, extra=table.extra | more)
        return write(table, numeric_keys="bare")

    def _changed(self, command: Command, marks: Marks) -> Deferred[Answer]:
        """The answer with what changed, which is made in a thread: it may be much."""
        header = ConsumerOffsetsAnswer(
            offsets_version=self._now(),
            changes_only=True,
            keys_gone=any(queue_id == ALL_QUEUES for _, queue_id in marks),
        )
        made: Deferred[Answer] = self.state.in_thread(self._body, marks).addCallback(
            lambda body: command.answer(header=header, body=body)
        )
        return made

    def _body(self, marks: Marks) -> bytes:
        table = self.state.offsets.some(marks)
        companion, ordered = self.state.offsets.journal.companion, dict[str, dict[int, Any]]()
        for (key, queue_id), kind in marks.items():
            if kind & ORDERED and companion is not None:
                ordered.setdefault(key, {})[queue_id] = companion.batch(key, queue_id)
        if ordered:
            table = evolve(table, extra={ORDERED_POPS: to_json(ordered)})
        return write(table, numeric_keys="bare")


def _settle(result: Answer | Failure, answer: Deferred[Answer]) -> None:
    """Answer, if the slave is still there."""
    if answer.called:
        return
    if isinstance(result, Failure):
        answer.errback(result)
    else:
        answer.callback(result)
