"""A place for replicated frames in memory."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define, field
from zope.interface import implementer

from rmqha.errors import ProtocolViolation
from rmqha.net.zero_copy_receive import IFrameSink

Event = tuple[object, ...]


@implementer(IFrameSink)
@define
class MemorySink:
    """Frames in memory, and what was told about them.

    @ivar size: Bytes of the log; offsets beyond it have no room.
    @ivar file_size: Where rooms end.
    @ivar events: C{("frame", offset, size)}, C{("end",)}, C{("heartbeat", offset)} and
        C{("violation", text)} in order.
    @ivar rooms: Each room asked for: offset and what was left.
    @ivar turns: The bytes of bodies that were received, at the end of each turn.
    @ivar on: By the name of a call: what to do in it, after it was noted.
    """

    size: int = 1 << 20
    file_size: int = 1 << 30
    log: bytearray = field(init=False)
    events: list[Event] = field(init=False, factory=list)
    violations: list[ProtocolViolation] = field(init=False, factory=list)
    rooms: list[tuple[int, int]] = field(init=False, factory=list)
    received: int = field(init=False, default=0)
    turns: list[int] = field(init=False, factory=list)
    on: dict[str, Callable[[], None]] = field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        self.log = bytearray(self.size)

    def frame_starts(self, offset: int, size: int) -> None:
        self.events.append(("frame", offset, size))
        self._do("frame_starts")

    def heartbeat(self, offset: int) -> None:
        self.events.append(("heartbeat", offset))
        self._do("heartbeat")

    def room(self, offset: int, left: int) -> memoryview:
        """The bytes of the log, up to the end of a file."""
        self.rooms.append((offset, left))
        self._do("room")
        file_end = (offset // self.file_size + 1) * self.file_size
        return memoryview(self.log)[offset : min(offset + left, file_end)]

    def body_received(self, count: int) -> None:
        self.received += count
        self._do("body_received")

    def frame_ends(self) -> None:
        self.events.append(("end",))
        self._do("frame_ends")

    def turn_ends(self) -> None:
        """Note how far it came."""
        self.turns.append(self.received)
        self._do("turn_ends")

    def violation(self, error: ProtocolViolation) -> None:
        self.events.append(("violation", repr(error)))
        self.violations.append(error)
        self._do("violation")

    def _do(self, call: str) -> None:
        action = self.on.get(call)
        if action is not None:
            action()
