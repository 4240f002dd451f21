"""Up to where a member of a set was counted on to hold its log, and whether it does.

Who may be elected with what it has must not come back with less and say nothing: it gives no sign
of life then, and asks for no election, until it has all of it again.

Source: docs/architecture.rst, Members of a set.
"""

from __future__ import annotations

from pathlib import Path

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from rmqha.errors import DiskFull
from rmqha.store.files.allocate import InThread
from rmqha.store.tables.held_file import Held


@define(eq=False, kw_only=True)
class CountedOn:
    """What is kept of it.  Offsets are physical, in bytes.

    @ivar root: The store's.
    @ivar in_thread: Runs what blocks.
    @ivar lost: What is missing of the log, in words; empty if nothing is.
    """

    root: Path
    in_thread: InThread
    lost: str = field(default="", init=False)
    _held: Held | None = field(default=None, init=False)

    _log = Logger()

    async def recall(self, end: int) -> None:
        """Hold a log that was just opened against what was kept.

        @param end: Where it ends.
        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If what was kept makes no sense.
        """
        self._held = await self.in_thread(Held.read, self.root)
        self.look(end)

    def look(self, end: int) -> None:
        """The log may have lost bytes."""
        held = self._held
        if held is not None and end < held.offset:
            self.lost = (
                f"the log ends at byte {end}, and was counted on up to {held.offset} in master "
                f"epoch {held.epoch}"
            )
            self._log.critical("Log bytes are lost: {why}", why=self.lost)

    async def lacks(self, now: Held, end: int) -> None:
        """Others have more of the log than is here.

        @param now: Up to where.
        @param end: Where the log ends here.
        """
        self._held = now
        self.look(end)
        try:
            await self.in_thread(now.write, self.root)
        except (DiskFull, OSError) as error:
            self._log.warn("What is lost of the log is not written down: {error}", error=error)

    def has(self, end: int) -> None:
        """The log is that of a master, up to C{end}."""
        if self.lost and self._held is not None and end >= self._held.offset:
            self._log.info("What was lost of the log is here again")
            self.lost = ""

    async def cut(self, end: int) -> None:
        """The log was cut, where its set never counted on it: that is no loss."""
        held = self._held
        if held is None or end >= held.offset or self.lost:
            return
        self._held = evolve(held, offset=end)
        try:
            await self.in_thread(self._held.write, self.root)
        except (DiskFull, OSError) as error:
            # After a restart it is taken for lost until the log is as long again.
            self._log.warn("The cut of the log is not written down: {error}", error=error)

    def keep(self, now: Held) -> Deferred[None] | None:
        """Write down how far this member is counted on now, if that is further than before.

        @return: Fires when it is durable; C{None} if there is nothing to write.
        """
        held = self._held
        if self.lost or (held is not None and now.offset <= held.offset):
            return None

        def kept(_: None) -> None:
            self._held = now

        return self.in_thread(now.write, self.root).addCallback(kept)
