"""Up to where a member of a set was counted on to hold the log.

A member that was in the SyncStateSet may be elected with what it has, and so must not come back
with less and say nothing: C{rmqha/held.json} says how far it was counted on.  A log that ends below
that has lost acknowledged bytes.

Source: docs/architecture.rst, Members of a set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from attrs import frozen

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.wire.store_layout import HELD, OWN_FOLDER


@frozen(kw_only=True)
class Held:
    """What is kept.

    @ivar id: The member's controller id.
    @ivar epoch: The master epoch.
    @ivar offset: Physical: the log was counted on below it.
    """

    id: int
    epoch: int
    offset: int

    @classmethod
    def read(cls, root: Path) -> Self | None:
        """Read a store's; C{None} without one.  Blocking.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If it is there and makes no sense.
        """
        path = root / OWN_FOLDER / HELD
        table = json_table.read(path)
        if table is None:
            return None
        found = [table.get(name) for name in ("id", "epoch", "offset")]
        numbers = [value for value in found if isinstance(value, int) and value >= 0]
        if len(numbers) < len(found):
            raise TableUnreadable(str(path), "it does not say up to where the log was held")
        return cls(id=numbers[0], epoch=numbers[1], offset=numbers[2])

    def write(self, root: Path) -> None:
        """Keep it; durable on return.  Blocking.

        @raise DiskFull: If there is no room.
        """
        path = root / OWN_FOLDER / HELD
        path.parent.mkdir(parents=True, exist_ok=True)
        json_table.replace(path, {"id": self.id, "epoch": self.epoch, "offset": self.offset})
