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

from rmqha.logfiles import json_table, typed_table
from rmqha.logfiles.typed_table import Natural
from rmqha.wire.store_layout import HELD, OWN_FOLDER


@frozen(kw_only=True)
class Held:
    """What is kept.

    @ivar id: The member's controller id.
    @ivar epoch: The master epoch.
    @ivar offset: Physical: the log was counted on below it.
    """

    id: Natural
    epoch: Natural
    offset: Natural

    @classmethod
    def read(cls, root: Path) -> Self | None:
        """Read a store's; C{None} without one.  Blocking.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If it is there and makes no sense.
        """
        path = root / OWN_FOLDER / HELD
        return typed_table.read(path, cls, "it does not say up to where the log was held")

    def write(self, root: Path) -> None:
        """Keep it; durable on return.  Blocking.

        @raise DiskFull: If there is no room.
        """
        path = root / OWN_FOLDER / HELD
        path.parent.mkdir(parents=True, exist_ok=True)
        json_table.replace(path, {"id": self.id, "epoch": self.epoch, "offset": self.offset})
