"""A coordinator that is asked to let a set grow only when that is written down.

What was asked for, and not answered before the master's process ended, may be made while the next
process of the same master leads on, in the same epoch.  That one finds here what it may be, and
nothing else: of what was refused, or reached nobody, the members were not counted on since, and may
lack what was acknowledged.  A set that only shrinks needs no note: whoever counts all of the old
one is on the safe side.

Source: docs/protocol/controller.rst, The SyncStateSet.
"""

from __future__ import annotations

from pathlib import Path

from attrs import define, field
from twisted.internet.defer import Deferred, DeferredLock

from rmqha.controller.coordinator import Coordinator, SetState
from rmqha.errors import (
    ControllerRefused,
    ControllerUnanswered,
    DiskFull,
    NoController,
    NotWritable,
    RmqhaError,
)
from rmqha.store.files.allocate import InThread
from rmqha.store.tables.growth_file import Growth
from rmqha.wire.remoting.codes import ControllerRequestCode


@define(eq=False, kw_only=True)
class WrittenGrowth:
    """Passes on what is asked.

    @ivar coordinator: Decides.
    @ivar root: The store's.
    @ivar in_thread: Runs what blocks.
    """

    coordinator: Coordinator
    root: Path
    in_thread: InThread
    _kept: Growth = field(factory=Growth, init=False)
    # What may come into force whatever becomes of asking for it again.
    _unanswered: set[frozenset[int]] = field(factory=set, init=False)
    _file: DeferredLock = field(factory=DeferredLock, init=False)
    _closed: bool = field(default=False, init=False)

    async def recall(self, state: SetState) -> tuple[frozenset[int], ...]:
        """What a process before this one has asked for and the controller may still make.

        @param state: What is decided.
        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If what was kept makes no sense.
        """
        self._kept = await self.in_thread(Growth.read, self.root)
        on_its_way = self._kept.on_its_way(state.master_epoch, state.set_epoch)
        self._unanswered.update(on_its_way)
        return on_its_way

    def current(self) -> Deferred[SetState]:
        """What is decided now."""
        return self.coordinator.current()

    def elect(self, member: int, *, designated: bool = False) -> Deferred[SetState]:
        """Have a master elected."""
        return self.coordinator.elect(member, designated=designated)

    def alter(self, old: SetState, new: frozenset[int]) -> Deferred[SetState]:
        """Have the set changed; fails also with L{DiskFull<rmqha.errors.DiskFull>} or C{OSError},
        or with L{NotWritable} after L{close}, and nobody was asked then.  A growth that was not
        made, and of which that cannot be written down, fails as if it were not answered.
        """
        kept = self._kept.grown(old.master_epoch, old.set_epoch, new)
        if new <= old.in_sync:
            return self.coordinator.alter(old, new)
        if kept == self._kept:
            return Deferred.fromCoroutine(self._grow(old, new))

        def written(_: None) -> Deferred[SetState]:
            if self._closed:
                raise NotWritable("demoting", "this node does not lead its set any more")
            self._kept = kept
            return Deferred.fromCoroutine(self._grow(old, new))

        return self._file.run(self.in_thread, kept.write, self.root).addCallback(written)

    async def _grow(self, old: SetState, new: frozenset[int]) -> SetState:
        """Ask, and forget what is certain not to be made before anybody acts on that."""
        try:
            return await self.coordinator.alter(old, new)
        except (ControllerRefused, NoController) as error:
            if not self._closed and new not in self._unanswered:
                await self._forget(new, error)
            raise
        except Exception:
            self._unanswered.add(new)
            raise

    async def _forget(self, new: frozenset[int], why: RmqhaError) -> None:
        kept = self._kept.without(new)
        try:
            await self._file.run(self.in_thread, kept.write, self.root)
        except (DiskFull, OSError) as error:
            self._unanswered.add(new)
            asked = ControllerRequestCode.ALTER_SYNC_STATE_SET
            what = f"{why}, and that cannot be written down: {error}"
            raise ControllerUnanswered("(any)", asked, what) from error
        self._kept = kept

    def close(self) -> Deferred[None]:
        """Ask for no growth any more.

        @return: Fires when nothing is being written: whoever leads next in the same epoch recalls
            all that was asked for.
        """
        self._closed = True
        return self._file.run(lambda: None)
