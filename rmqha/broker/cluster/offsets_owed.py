"""Offsets that consumers committed at a slave: their master is owed them.

It is told by the request consumers themselves use, so stock masters take them too.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field, frozen
from twisted.internet.defer import Deferred, DeferredList
from twisted.logger import Logger

from rmqha.broker.cluster.metadata_rules import SHOWN
from rmqha.broker.state import BrokerState
from rmqha.errors import RequestRefused
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.wire.remoting.bodies.offsets import ConsumerOffsets as OffsetTable
from rmqha.wire.remoting.codes import RequestCode, ResponseCode
from rmqha.wire.remoting.command import Command
from rmqha.wire.remoting.headers.offsets import UpdateConsumerOffsetRequest

WINDOW = 64
"""Offsets given back at one time."""

ROUNDS = 30
"""How often a master is told of an offset whose group or topic it does not have: 5.x wants to know
them, and hears of a group when a consumer of it is back."""

UNKNOWN = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST)
"""What it answers then."""

SendRequest = Callable[[Command], "Deferred[Command]"]
"""Asks the master, on the connection its tables came by."""


@frozen
class OffsetMove:
    """One offset that moved, or is to.

    @ivar key: C{topic@group}.
    """

    key: str
    queue_id: int
    before: int
    after: int

    def __str__(self) -> str:
        topic, _, group = self.key.partition("@")
        return f"{group} in queue {self.queue_id} of {topic} from {self.before} to {self.after}"


@define(eq=False)
class Owed:
    """What consumers committed here and the master may not know.

    @ivar committed: Offsets by queue id by C{topic@group}.
    @ivar changed: Called when they changed.
    @ivar returned: How many were given back.
    """

    state: BrokerState
    changed: Callable[[], None] = lambda: None
    committed: dict[str, dict[int, int]] = field(factory=dict)
    returned: int = field(default=0, init=False)
    _refused: Counter[tuple[str, int]] = field(factory=Counter, init=False)
    _quiet: RateLimitedLog = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._quiet = RateLimitedLog(self._log, self.state.clock)

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A consumer committed an offset here."""
        self.committed.setdefault(f"{topic}@{group}", {})[queue_id] = offset
        self.changed()

    async def give_back(self, table: OffsetTable, ask: SendRequest, master: str) -> int:
        """Tell the master of what consumers committed here and it does not know.

        What is beyond the queue as it is held here is kept for later.

        @param table: The master's offsets.
        @return: How many offsets it took.
        """
        due = [
            (key, queue_id, offset)
            for key, queues in self.committed.items()
            for queue_id, offset in queues.items()
        ]
        given: list[OffsetMove] = []
        wanted = []
        for key, queue_id, offset in due:
            theirs = table.offset_table.get(key, {}).get(queue_id, -1)
            if offset <= theirs:
                self.forget(key, queue_id)
            elif offset <= self.state.store.queues.end(key.partition("@")[0], queue_id):
                wanted.append(OffsetMove(key, queue_id, max(theirs, 0), offset))
        for start in range(0, len(wanted), WINDOW):
            window = wanted[start : start + WINDOW]
            asked = [ask(_commit(step)) for step in window]
            answers: list[Any] = await DeferredList(asked, consumeErrors=True)
            for step, (answered, answer) in zip(window, answers, strict=True):
                if not answered:
                    # The rest has time until the next round.
                    answer.raiseException()
                self._on_answer(step, answer, given, master)
        if given:
            self.returned += len(given)
            self._log.info(
                "Passed on {count} consumer offsets committed here to master {master}: {steps}",
                count=len(given),
                master=master,
                steps=in_words(given),
            )
        return len(given)

    def _on_answer(
        self, step: OffsetMove, answer: Command, given: list[OffsetMove], master: str
    ) -> None:
        place = (step.key, step.queue_id)
        if answer.code in UNKNOWN and self._refused[place] < ROUNDS:
            self._refused[place] += 1
            return
        if self.committed.get(step.key, {}).get(step.queue_id) == step.after:
            self.forget(*place)
        if answer.code == ResponseCode.SUCCESS:
            given.append(step)
            return
        refused = RequestRefused(answer.code, answer.remark, RequestCode.UPDATE_CONSUMER_OFFSET)
        self._quiet.warn(
            "not given back",
            master,
            "Master {peer} refuses the consumer offset of {step}: {error}",
            step=step,
            error=refused,
        )

    def forget(self, key: str, queue_id: int) -> None:
        """The master needs not be told any more.

        @param key: C{topic@group}.
        """
        queues = self.committed.get(key)
        self._refused.pop((key, queue_id), None)
        if queues is None or queues.pop(queue_id, None) is None:
            return
        if not queues:
            del self.committed[key]
        self.changed()

    def forget_all(self, key: str) -> None:
        """The same of all queues."""
        for queue_id in tuple(self.committed.get(key, ())):
            self.forget(key, queue_id)


def _commit(step: OffsetMove) -> Command:
    topic, _, group = step.key.partition("@")
    header = UpdateConsumerOffsetRequest(
        consumer_group=group, topic=topic, queue_id=step.queue_id, commit_offset=step.after
    )
    return Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def in_words(steps: Sequence[OffsetMove]) -> str:
    """Some of them, and how many more there are."""
    shown = "; ".join(str(step) for step in steps[:SHOWN])
    return shown if len(steps) <= SHOWN else f"{shown}; and {len(steps) - SHOWN} more"
