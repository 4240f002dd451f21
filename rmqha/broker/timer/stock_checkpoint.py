"""C{config/timercheck}, for a stock broker that is started on the store some day: without it that
one delivers all timer messages that the log has still.

It has no timer log then, reads the timer queue from where this says, and delivers what is due at
once: so it says where the first message is that may wait.

Source: docs/protocol/remoting.md, Timer messages.
"""

from __future__ import annotations

from struct import Struct

from attrs import define, evolve, field
from twisted.internet.defer import Deferred, succeed

from rmqha.broker.delay.delay_offsets import INTERVAL, LevelOffsets
from rmqha.broker.state import BrokerState
from rmqha.logfiles import json_table
from rmqha.periodic import NodePart, Periodic
from rmqha.wire.remoting.bodies.later_slaves import TimerCheckpoint
from rmqha.wire.remoting.bodies.offsets import TimerProgress
from rmqha.wire.store_layout import TIMER_CHECKPOINT

SIZE = 4096
"""Bytes of the file."""

_FLUSHED = Struct(">8xq")


@define(eq=False)
class StockCheckpoint(NodePart):
    """Follows what is durable of the progress."""

    state: BrokerState
    offsets: LevelOffsets
    job: Periodic = field(init=False)
    _written: TimerProgress | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.job = Periodic("keeping timercheck", self.state.clock, self.write)

    def start(self) -> None:
        """Write it again and again."""
        self.job.start(INTERVAL)

    def write(self) -> Deferred[None]:
        """Write it, if there is news."""
        known = self.offsets.timers
        if known is None or not known.next or known == self._written:
            return succeed(None)
        self._written = known
        return self.state.in_thread(self._replace, known)

    async def stop(self) -> None:
        """Write it for the last time."""
        await self.job.stop()
        await self.write()

    def _replace(self, known: TimerProgress) -> None:
        told = TimerCheckpoint(
            last_read_time=known.time // known.slot * known.slot,
            queue_offset=known.low,
            master_queue_offset=known.next,
            timestamp=known.time,
        )
        found = json_table.read_file(self.state.files.path(TIMER_CHECKPOINT)) or b""
        if len(found) >= _FLUSHED.size:
            # A stock broker's timer log, if there is one, is as it was.
            told = evolve(told, log_flushed=_FLUSHED.unpack_from(found)[0])
        data = told.encode().ljust(SIZE, b"\0")
        json_table.replace_text(
            self.state.files.path(TIMER_CHECKPOINT), data, looks_whole=lambda path: False
        )
