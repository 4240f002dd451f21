"""What consumers that pop in order have not acknowledged yet, in C{config/consumerOrderInfo.json}.

Source: docs/protocol/remoting.md, Popping in order.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from rmqha.wire.remoting.fields import ext


@frozen(kw_only=True)
class OrderedBatch:
    """What was popped last of one queue, by one group.  Times are in milliseconds since 1970.

    @ivar pop_time: When that was.
    @ivar invisible: For how many milliseconds nobody else gets anything of the queue.
    @ivar places: The first message's queue offset, and how far behind that the others are.
    @ivar acked: Bit n is of the n-th of them, which was acknowledged.
    @ivar visible: Until when some are not given again, by queue offset: that was changed.
    @ivar given: How often some were given before, by queue offset.
    @ivar attempt: Who asked; who asks again is given the same.
    @ivar asked: When the queue was popped from last.
    """

    pop_time: int
    invisible: int = ext("i")
    places: tuple[int, ...] = ext("o", ())
    acked: int = ext("cm", 0)
    visible: dict[int, int] | None = ext("ot", None)
    given: dict[int, int] | None = ext("oc", None)
    attempt: str | None = ext("a", None)
    asked: int = ext("l", 0)
    extra: dict[str, Any] = field(factory=dict)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The queue offsets of its messages."""
        first, *others = self.places or (0,)
        return (first, *(first + each for each in others)) if self.places else ()


@frozen(kw_only=True)
class OrderTable:
    """C{consumerOrderInfo.json}: by C{topic@group} and queue id."""

    table: dict[str, dict[int, OrderedBatch]] = field(factory=dict)
    extra: dict[str, Any] = field(factory=dict)
