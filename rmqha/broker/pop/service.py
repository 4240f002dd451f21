"""POP as a whole: what it is made of, and when it begins and ends.

Source: docs/architecture.rst, The broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from twisted.internet.defer import maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.broker.access.needs import Stated
from rmqha.broker.consuming.queue_reader import QueueReader
from rmqha.broker.pop.acks import AckRequests
from rmqha.broker.pop.check_points import CheckPointLog
from rmqha.broker.pop.handles import RETRY_V1, RETRY_V2, retry_topic
from rmqha.broker.pop.ordered import OrderedPops
from rmqha.broker.pop.polling import Polling
from rmqha.broker.pop.pop import Pops
from rmqha.broker.pop.positions import Place, PopPositions
from rmqha.broker.pop.revive import Revival
from rmqha.broker.state import BrokerState
from rmqha.errors import FlushFailed, MessageIllegal, NotWritable
from rmqha.net.rate_limited_log import RateLimitedLog
from rmqha.wire.log.pop_record import LEAD, CheckPoint
from rmqha.wire.remoting.bodies.request_modes import RequestMode
from rmqha.wire.remoting.codes import RequestCode


class PopService:
    """Hands messages out, and takes them back.

    @ivar revival: Knows which are open, and lets them come again.
    """

    _logger = Logger()

    def __init__(self, state: BrokerState, revival: Revival, reader: QueueReader) -> None:
        store = state.store
        self.state, self.revival = state, revival
        self.polling = Polling(state.clock)
        self._quiet = RateLimitedLog(self._logger, state.clock)
        self._positions = PopPositions(state.offsets, store)
        self._ordered = OrderedPops(state, self.polling)
        self._log: CheckPointLog | None = None
        if state.writer is not None:
            self._log = CheckPointLog(state, state.writer)
            self._positions.on_set_back = self._on_set_back
        self.acks = AckRequests(
            state=state,
            log=self._log,
            reader=reader,
            positions=self._positions,
            revival=revival,
            ordered=self._ordered,
        )
        self._pops = Pops(
            state=state,
            log=self._log,
            reader=reader,
            polling=self.polling,
            positions=self._positions,
            revival=revival,
            ordered=self._ordered,
        )
        store.dispatcher.on_units.append(self.polling.on_units)
        store.dispatcher.on_pause.append(self.polling.on_pause)
        # A message that is popped is stored, and then its check point, before it leaves.
        store.dispatcher.urgent = self.polling.urgent
        self.polling.on_wait = store.dispatcher.on_wait
        revival.on_ready = self.polling.wake_all
        revival.on_due = self.acks.store_gathered

    def handlers(self) -> Mapping[RequestCode, Stated]:
        return {**self._pops.handlers(), **self.acks.handlers()}

    def together(self) -> AbstractContextManager[None]:
        """Surround requests that came together."""
        return self.acks.together()

    def retry_topics(self, topic: str) -> list[str]:
        """Where messages of a topic come again for groups that have offsets in it."""
        names = (
            retry_topic(group, topic, kind)
            for group in sorted(self.state.offsets.groups_of(topic))
            for kind in (RETRY_V1, RETRY_V2)
        )
        return [name for name in names if self.state.topics.get(name) is not None]

    def topic_gone(self, topic: str) -> None:
        """A topic was deleted: nothing of it comes again, and who waits for it is told."""
        self.acks.store_gathered()
        self.revival.points.drop(lambda point: point.topic == topic)
        self._positions.forget(topic=topic)
        self.polling.forget(topic)

    def group_gone(self, group: str) -> None:
        """A group was deleted: nothing comes again for it."""
        self.acks.store_gathered()
        self.revival.points.drop(lambda point: point.group == group)
        self._positions.forget(group=group)

    def pops(self, group: str, topic: str) -> bool:
        """Whether a group has popped from a topic since the start, and was not told to pull."""
        told = (self.state.modes.get(topic) or {}).get(group)
        pulls = told is not None and told.mode is RequestMode.PULL
        return not pulls and (group, topic) in self._positions.asked

    def _on_set_back(self, place: Place, offset: int) -> None:
        # The next start would take it forward again, behind what was handed out before.
        handed_out = self._positions.handed_out(place) or place in self.revival.recent
        if self._log is None or not handed_out:
            return
        (group, topic, queue_id), state = place, self.state
        point = CheckPoint(
            topic=topic,
            queue_id=queue_id,
            group=group,
            start=offset,
            pop_time=self._positions.pop_time([place], state.now_ms()),
            invisible=LEAD,
            broker=state.name,
            offsets=(),
            behind=0,
        )
        maybeDeferred(self._log.open, point).addErrback(self._on_not_recorded, point)

    def _on_not_recorded(self, failure: Failure, point: CheckPoint) -> None:
        failure.trap(FlushFailed, MessageIllegal, NotWritable)
        self._quiet.warn(
            "set back without a record",
            point.group,
            "Group {group} goes on at {offset} in queue {queue_id} of {topic}, but a restart in "
            "the next ten seconds takes it forward again: {error}",
            group=point.group,
            offset=point.start,
            queue_id=point.queue_id,
            topic=point.topic,
            error=failure.getErrorMessage(),
        )

    def stop(self) -> None:
        """Hand out no more, and refuse who waits."""
        self.acks.store_gathered()
        dispatcher = self.state.store.dispatcher
        if self.polling.on_units in dispatcher.on_units:
            dispatcher.on_units.remove(self.polling.on_units)
            dispatcher.on_pause.remove(self.polling.on_pause)
            self._positions.stop()
        self._ordered.stop()
        self.polling.stop()
        self.revival.stop()

    def status(self) -> dict[str, Any]:
        """What C{/status} says of it."""
        if self._log is None:
            return {}
        points = self.revival.points
        groups: Counter[str] = Counter()
        for (_, group), count in points.unacked.items():
            groups[group] += count
        return {
            "checkPoints": len(points),
            "unacked": dict(sorted(groups.items())),
            "firstDue": points.oldest(),
            "revived": self.revival.revived,
            "notRevived": self.revival.lost,
            "waiting": self.polling.count,
        }
