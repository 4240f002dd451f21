"""What a slave of 5.x copies besides the tables of 4.x.

Source: docs/protocol/remoting.md, Brokers among themselves.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from attrs import astuple, field, frozen

from rmqha.wire.remoting.bodies.common import DataVersion


@frozen(kw_only=True)
class TimerCheckpoint:
    """Answers code 60, in binary: how far a broker's timer messages are.

    @ivar last_read_time: Up to when they were delivered, in milliseconds since the epoch.
    @ivar log_flushed: Bytes of the timer log that are on disk.
    @ivar queue_offset: The next one to be taken into the timer log.
    @ivar master_queue_offset: The same at the master.
    @ivar state_version: With the next two a data version.
    """

    last_read_time: int = 0
    log_flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """It as a body: seven numbers of eight bytes."""
        return _CHECKPOINT.pack(*astuple(self))


_CHECKPOINT = Struct(">7q")


@frozen(kw_only=True)
class TimerMetrics:
    """Answers code 61: how many timer messages wait, by topic."""

    data_version: DataVersion = field(factory=DataVersion)
    timing_count: dict[str, dict[str, Any]] = field(factory=dict)
