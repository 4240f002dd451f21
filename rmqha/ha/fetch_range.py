"""Fetch a range of a master's log by its HA port, ours or stock: ask as a slave does, and leave
when the range is there.

The first report says from where, and it is the only one: it is repeated, so that the connection
lives, and never raised.  A node of ours is told before that this is an observer, so it asks for no
proof and counts the connection for nothing.  To a stock master it looks like a slave; the report
lies below the end that its client port has just told, so it takes no write for replicated because
of it (L{rmqha.ha.slave.probe}).

Source: docs/protocol/ha.rst, Observers; docs/operations.rst, Repair from a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, BinaryIO, TypeVar

from attrs import define, field
from twisted.internet.defer import Deferred

from rmqha.errors import ProtocolViolation
from rmqha.ha.observer import Observer
from rmqha.ha.slave.compare_bytes import missing_first_byte
from rmqha.ha.slave.master_bounds import MasterClientPort
from rmqha.ha.slave.reconnect import SingleConnection, ours_alone
from rmqha.store.repair.from_replica import Fetching, ReplicaLacks
from rmqha.wire.ha_frame import OBSERVER, BodyPart, encode_report

T = TypeVar("T")


@define(eq=False, kw_only=True)
class MasterReplica:
    """A running master, or a slave that serves slaves, as the one who has the bytes.

    @ivar file_size: Size of its log's files, in bytes.
    """

    port: MasterClientPort
    file_size: int
    _waiting: Deferred[Any] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        """The master, for people."""
        return self.port.peer

    async def begins(self) -> int:
        """Ask, if it is to be asked."""
        await self._wait(self.port.look())
        return 0 if self.port.bounds is None else self.port.bounds.min_offset

    async def fetch(self, start: int, stop: int, out: BinaryIO, came: Fetching) -> int:
        """Copy a range over one connection.

        @raise ReplicaLacks: If the master sends nothing from there.
        @raise MasterLeft: If it leaves before the end of its log.
        @raise ProtocolViolation: If it is no master.
        @raise TlsRefused: If TLS is to be said and it is a stock broker.
        @raise MasterUnidentified: If TLS is to be said and its client port does not answer.
        """
        bounds = self.port.bounds
        if bounds is not None and not bounds.min_offset <= start < bounds.max_offset:
            said = f"it says it holds [{bounds.min_offset}, {bounds.max_offset})"
            raise ReplicaLacks(self.port.peer, start, said)
        protocol = RangeProtocol(
            start=start,
            stop=stop,
            port=self.port,
            out=out,
            came=came,
            first_byte=partial(missing_first_byte, file_size=self.file_size),
        )
        await self._wait(ours_alone(self.port).connect(SingleConnection(lambda: protocol)))
        if not await self._wait(protocol.done):
            raise ReplicaLacks(self.port.peer, start, "it sent nothing from there")
        return protocol.cursor

    async def _wait(self, deferred: Deferred[T]) -> T:
        self._waiting = deferred
        try:
            return await deferred
        finally:
            self._waiting = None

    def leave(self) -> None:
        """Wait for the master no longer: what waits fails with C{CancelledError}, or
        L{MasterLeft}.
        """
        if self._waiting is not None:
            self._waiting.cancel()


@define(eq=False, kw_only=True)
class RangeProtocol(Observer):
    """One connection that copies C{[start, stop)} of a master's log, or what there is of it.

    @ivar first_byte: Tells byte 0 by those behind it; C{None} if they are not enough.
    """

    greeting = encode_report(OBSERVER)
    ends_on = (ProtocolViolation, OSError)

    start: int
    stop: int
    out: BinaryIO
    came: Fetching
    first_byte: Callable[[bytearray], int | None]
    report: int = field(init=False)
    # The log's first bytes, while byte 0, for which nobody can ask, is not known.
    _head: bytearray | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.report = max(self.start, 1)
        super().__attrs_post_init__()
        if self.start == 0:
            self._head = bytearray()

    # --- what comes -----------------------------------------------------------

    def _ended(self) -> None:
        self._finish(self._head is None)

    def _body(self, part: BodyPart) -> None:
        data = part.data[: self.stop - part.offset]
        self.answered = True
        self.cursor += len(data)
        self.came(len(data))
        if self._head is None:
            self.out.write(data)
        else:
            self._with_first_byte(data)
        if self.cursor >= self.stop:
            self._ended()

    def _with_first_byte(self, data: memoryview) -> None:
        """Collect the head of the log until byte 0 is known."""
        assert self._head is not None, "only called then"
        self._head += data
        first = self.first_byte(self._head)
        if first is not None or self.cursor >= self.stop:
            self.out.write(bytes([first or 0]) + self._head)
            self._head = None
