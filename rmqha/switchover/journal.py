"""How far a change of roles is, in a file: whoever runs the command again goes on from there, or
back.

It is written before each step, so what it names may not have been done yet; each step looks first
whether it was.
"""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path

from attrs import asdict, field, frozen

from rmqha.logfiles import json_table, typed_table
from rmqha.logfiles.typed_table import Long, Natural


class Phase(IntEnum):
    """What was begun last."""

    CLOSING = 1
    STOPPING = 2
    PROMOTING = 3
    FOLLOWING = 4


@frozen(kw_only=True)
class UnderWay:
    """A change of roles that has begun.

    @ivar master: The client address of the broker that was master.
    @ivar slave: That of the one that is to be it.
    @ivar phase: What was begun last.
    @ivar permission: The C{brokerPermission} that the old master had.
    @ivar closed: When it took no more writes, in milliseconds since 1970.
    @ivar epoch: The highest master epoch of both.
    @ivar refuses: Whether a new master that comes late refuses to start beside the old one: both
        are brokers of ours and know a name server, and what promotes is told the L{number}.
    @ivar end: Where the new master's log has to end at least, in bytes.
    @ivar offsets: The consumer offsets that the old master had last.
    """

    master: str
    slave: str
    phase: Phase
    permission: Natural
    closed: Natural
    epoch: Natural
    refuses: bool = False
    end: Natural = 0
    offsets: dict[str, dict[int, Long]] = field(factory=dict)

    @property
    def number(self) -> int:
        """The master epoch of the change, for the new master and for the old one that is restored
        alike: of two with one number the second refuses to start beside the first, whichever that
        is, and a slave that follows the first is not promoted to that number any more.
        """
        return self.epoch + 1


@frozen
class SwitchoverJournal:
    """The file."""

    path: Path

    def read(self) -> UnderWay | None:
        """What is under way; C{None} if nothing is.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If the file makes no sense.
        """
        return typed_table.read(self.path, UnderWay, "it is no switchover's")

    def write(self, under_way: UnderWay) -> None:
        """Make it what is under way; durable on return."""
        table = asdict(under_way) | {"phase": int(under_way.phase)}
        json_table.replace(self.path, dict(table.items()))

    def remove(self) -> None:
        """Nothing is under way any more."""
        json_table.remove(self.path)
