"""Messages that are handed out in order: nobody gets more of a queue until those that were handed
out are acknowledged, or their time is over; then they are handed out again.

There is no check point, and the position moves with acks: up to the first message that is not
acknowledged.

Source: docs/protocol/remoting.md, Popping in order.
"""

from __future__ import annotations

from attrs import define, field
from twisted.internet.interfaces import IDelayedCall

from rmqha.broker.pop.handles import ORDERED, PopHandle
from rmqha.broker.pop.polling import ALL_QUEUES, Polling
from rmqha.broker.pop.positions import Place
from rmqha.broker.state import BrokerState
from rmqha.broker.tables.pop_order import NotTaken
from rmqha.errors import RequestRefused
from rmqha.wire.remoting.codes import ResponseCode
from rmqha.wire.remoting.headers.pop import (
    AckMessageRequest,
    ChangeInvisibleTimeRequest,
    PopMessageAnswer,
    PopMessageRequest,
)


@define(eq=False)
class OrderedPops:
    """Hands messages out in order."""

    state: BrokerState
    polling: Polling
    _calls: dict[Place, IDelayedCall] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.state.offsets.committed.append(self._on_commit)

    def blocked(self, place: Place, attempt: str) -> bool:
        """Whether a pop gets nothing of a queue."""
        group, topic, queue_id = place
        return self.state.order.blocked(
            topic, group, queue_id, self.state.now_ms(), attempt or None
        )

    def on_pop(
        self, place: Place, request: PopMessageRequest, pop_time: int, offsets: list[int]
    ) -> str:
        """Messages are handed out.

        @param offsets: Their queue offsets.
        @return: How often each was before.
        """
        group, topic, queue_id = place
        told = self.state.order.on_pop(
            topic,
            group,
            queue_id,
            now=self.state.now_ms(),
            pop_time=pop_time,
            invisible=max(0, request.invisible_time),
            attempt=request.attempt_id or None,
            offsets=offsets,
        )
        self._wake_when_free(place)
        return told

    def ack(self, place: Place, offset: int, pop_time: int, who: str) -> None:
        """A message is done with.

        @param who: Address of the client.
        @raise RequestRefused: If it was not handed out by that pop.
        """
        group, topic, queue_id = place
        before = self.state.offsets.get(*place) or 0
        if offset < before:
            return
        after = self.state.order.ack(topic, group, queue_id, offset, pop_time)
        if after is NotTaken.FOREIGN:
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{before}, "
                f"commit:{offset}, next:-1, /{who}",
            )
        if isinstance(after, int):
            self.state.offsets.advance(*place, after)
            self._wake_when_free(place)

    def change(
        self, place: Place, request: ChangeInvisibleTimeRequest, pop_time: int, who: str
    ) -> PopMessageAnswer:
        """A message is to be handed out again at another time.

        @raise RequestRefused: If it was not handed out by that pop.
        """
        group, topic, queue_id = place
        visible = self.state.now_ms() + max(0, request.invisible_time)
        if (
            self.state.order.change(topic, group, queue_id, request.offset, pop_time, visible)
            is NotTaken.FOREIGN
        ):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"offset is illegal, key:{topic}@{group}@{queue_id}, commit:{request.offset}, "
                f"next:-1, /{who}",
            )
        self._wake_when_free(place)
        return PopMessageAnswer(
            pop_time=pop_time, invisible_time=visible - pop_time, revive_queue=ORDERED, rest=None
        )

    def stop(self) -> None:
        """Wake nobody any more."""
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
        if self._on_commit in self.state.offsets.committed:
            self.state.offsets.committed.remove(self._on_commit)

    def _on_commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The group was moved: what it was handed does not keep the queue from others."""
        self.state.order.forget(topic, group, queue_id)

    def _wake_when_free(self, place: Place) -> None:
        """Let those who wait look again as soon as the queue is not blocked."""
        call = self._calls.pop(place, None)
        if call is not None:
            call.cancel()
        group, topic, queue_id = place
        free = self.state.order.free_at(topic, group, queue_id)
        left = 0 if free is None else max(0, free - self.state.now_ms())
        self._calls[place] = self.state.clock.callLater(left / 1000, self._wake, place)

    def _wake(self, place: Place) -> None:
        del self._calls[place]
        group, topic, queue_id = place
        self.polling.wake((group, topic, ALL_QUEUES))
        self.polling.wake((group, topic, queue_id))


def place_of(request: AckMessageRequest) -> Place:
    """The queue of a message that was handed out."""
    return request.consumer_group, request.topic, request.queue_id


def is_ordered(handle: PopHandle) -> bool:
    """Whether a message was handed out in order."""
    return handle.revive_queue == ORDERED
