"""What leaves on one connection: together, without a copy where that is possible, and only as
fast as the peer reads.

Three things happen to a peer that asks more than it reads.  Its connection's transport has
enough (64 KiB in Twisted): what follows is held here.  L{PAUSE_ABOVE} bytes are held: it is
no longer read from, so that it cannot ask for more.  Nothing is taken for long, or too much
is held: its owner gives it up, which is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IPushProducer, IReactorTime
from zope.interface import implementer

from rmqha.net.zero_copy_send import TURN, Part, regions

PAUSE_ABOVE = 256 * 1024
"""Bytes held above which a peer is not read from: what one pull may answer."""

AT_ONCE = 16 * 1024
"""Bytes that are written as soon as they are there: to send them costs more than to send twice, and
who asked for them asks for the next meanwhile."""


@implementer(IPushProducer)
@define(eq=False)
class Outbox:
    """Gather what is ready in one reactor turn, and write it once.

    @ivar soon: Has L{flush} called before the reactor waits again.
    @ivar held: Bytes not yet given to the transport.
    @ivar stuck_since: Since when the transport takes nothing, in the clock's seconds.
    """

    _transport: Any
    _clock: IReactorTime
    _soon: Callable[[Outbox], None]
    held: int = field(default=0, init=False)
    stuck_since: float | None = field(default=None, init=False)
    _parts: list[Part] = field(factory=list, init=False)
    _views: bool = field(default=False, init=False)
    _due: bool = field(default=False, init=False)
    _reading: bool = field(default=True, init=False)
    _full: bool = field(default=False, init=False)
    _held_back: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._transport.registerProducer(self, True)

    def add(self, part: Part) -> None:
        """Let something leave in this turn."""
        self._parts.append(part)
        self._grow(len(part))

    def extend(self, parts: Sequence[Part]) -> None:
        """Let several parts leave in this turn, one after the other.

        @param parts: Byte views of one dimension.  What they show must not change until sent.
        """
        self._parts += parts
        self._views = True
        self._grow(sum(map(len, parts)))

    def cork(self) -> None:
        """More comes, and L{flush} will be called."""
        self._due = True

    def flush(self) -> None:
        """Write what there is, as much as the transport takes."""
        self._due = False
        while self._parts and self.stuck_since is None:
            self._write(self._take())
        if self._full and not self._parts:
            self._full = False
            self._read_or_not()

    def hold_back(self, yes: bool) -> None:
        """Read nothing from the peer for now, or go on, whatever waits for it."""
        self._held_back = yes
        self._read_or_not()

    def _read_or_not(self) -> None:
        reading = not (self._full or self._held_back)
        if reading is not self._reading:
            self._reading = reading
            if reading:
                self._transport.resumeProducing()
            else:
                self._transport.pauseProducing()

    def finish(self) -> None:
        """Write all there is, whether or not it is taken."""
        parts, self._parts = self._parts, []
        self.held = 0
        if parts:
            self._write(parts)

    @property
    def unsent(self) -> bool:
        """Whether anything was not given to the kernel yet: views of it must still not change."""
        direct = regions(self._transport)
        return bool(self._parts) or (direct is not None and direct.queued > 0)

    def close(self) -> None:
        """Drop what was not written yet; nothing more leaves."""
        self._parts = []
        self.held = 0
        self._due = self._reading = True
        self._full = self._held_back = False

    def _grow(self, size: int) -> None:
        self.held += size
        if self._due and self.held >= AT_ONCE and self.stuck_since is None:
            self._write(self._take())
            return
        if self.stuck_since is not None:
            if self.held > PAUSE_ABOVE:
                self._full = True
                self._read_or_not()
        elif not self._due:
            self._due = True
            self._soon(self)

    def _take(self) -> list[Part]:
        """One turn's parts, about L{TURN} bytes."""
        parts = self._parts
        if self.held <= TURN:
            self._parts = []
            self.held = 0
            return parts
        size = count = 0
        while size < TURN:
            size += len(parts[count])
            count += 1
        self._parts = parts[count:]
        self.held -= size
        return parts[:count]

    def _write(self, parts: list[Part]) -> None:
        direct = regions(self._transport) if self._views else None
        if direct is not None:
            self._views = bool(self._parts)
            direct.writeParts(parts)
        else:
            # The kernel takes one piece sooner than many small ones.
            self._transport.write(b"".join(parts))

    # --- IPushProducer ------------------------------------------------------

    def pauseProducing(self) -> None:
        """The transport has enough for now."""
        self.stuck_since = self._clock.seconds()

    def resumeProducing(self) -> None:
        """The transport has sent what it had: the peer reads again."""
        self.stuck_since = None
        self.flush()

    def stopProducing(self) -> None:
        """The transport will take nothing more; its protocol is told by itself."""
