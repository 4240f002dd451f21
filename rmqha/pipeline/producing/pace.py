"""How fast is sent."""

from __future__ import annotations

import time
from collections.abc import Callable

from attrs import define, field


@define(eq=False)
class Pace:
    """Waits so long that neither messages nor bytes go out faster than they may, whatever was
    sent in one piece.

    @ivar rows: Messages a second; 0 is no limit.
    @ivar size: Bytes of bodies a second; 0 is no limit.
    """

    rows: float = 0
    size: float = 0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _free: float = field(default=0.0, init=False)

    def wait(self, rows: int, size: int) -> None:
        """Wait until so much may go out.

        @param rows: Messages.
        @param size: Bytes of their bodies.
        """
        takes = max(rows / self.rows if self.rows else 0.0, size / self.size if self.size else 0.0)
        now = self.clock()
        if self._free > now:
            self.sleep(self._free - now)
        self._free = max(self._free, now) + takes
