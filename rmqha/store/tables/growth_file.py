"""How a master may have let its SyncStateSet grow.

A master that is started again, and is still the one that was elected, does not know what it had
asked for when it ended.  Whoever the controller may still take into the set because of that has to
hold what is acknowledged from now on: C{rmqha/growth.json} says who.

There is no C{.bak}: what an older generation says is of an older set, and reads as if nothing had
been asked for since.

Source: docs/protocol/controller.rst, The SyncStateSet.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from attrs import evolve, frozen

from rmqha.errors import TableUnreadable
from rmqha.logfiles import json_table
from rmqha.logfiles.typed_table import Natural, value_of
from rmqha.wire.store_layout import GROWTH, OWN_FOLDER


@frozen(kw_only=True)
class Growth:
    """What is kept.

    @ivar epoch: The master epoch.
    @ivar set_epoch: That of the set which was to grow.
    @ivar sets: What it was to become: controller ids.
    """

    epoch: int = 0
    set_epoch: int = 0
    sets: tuple[frozenset[int], ...] = ()

    def on_its_way(self, epoch: int, set_epoch: int) -> tuple[frozenset[int], ...]:
        """The sets that may still come into force.  A controller makes no change that names an
        older epoch than it has.

        @param epoch: The master epoch that is decided.
        @param set_epoch: That of the set which is in force.  An older one than ours is told by a
            controller that has not heard yet of what was decided.
        """
        return self.sets if epoch == self.epoch and set_epoch <= self.set_epoch else ()

    def grown(self, epoch: int, set_epoch: int, new: frozenset[int]) -> Self:
        """The same, and another set."""
        before = self.on_its_way(epoch, set_epoch)
        sets = before if new in before else (*before, new)
        newest = max(set_epoch, self.set_epoch) if before else set_epoch
        return evolve(self, epoch=epoch, set_epoch=newest, sets=sets)

    def without(self, new: frozenset[int]) -> Self:
        """The same, once it is certain that a set will not come into force."""
        return evolve(self, sets=tuple(each for each in self.sets if each != new))

    @classmethod
    def read(cls, root: Path) -> Self:
        """Read a store's; an empty one without one.  Blocking.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If it is there and is empty, or makes no sense.
        """
        path = root / OWN_FOLDER / GROWTH
        data = json_table.read_file(path)
        if data is None:
            return cls()
        try:
            table = json_table.parse(data) or {}
            return cls(
                epoch=value_of(table, "masterEpoch", Natural),
                set_epoch=value_of(table, "setEpoch", Natural),
                sets=value_of(table, "sets", tuple[frozenset[Natural], ...]),
            )
        except ValueError as error:
            raise TableUnreadable(
                str(path), f"it does not say how a set was to grow: {error}"
            ) from None

    def write(self, root: Path) -> None:
        """Keep it; durable on return.  Blocking.

        @raise DiskFull: If there is no room.
        """
        path = root / OWN_FOLDER / GROWTH
        path.parent.mkdir(parents=True, exist_ok=True)
        table: json_table.Table = {
            "masterEpoch": self.epoch,
            "setEpoch": self.set_epoch,
            "sets": [sorted(each) for each in self.sets],
        }
        json_table.replace_text(path, json_table.render(table), looks_whole=lambda _: False)
