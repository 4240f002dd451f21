"""The master that a slave's log was last proven to be a copy of, and what it was told is held here.

Two decisions need it.  A master whose epoch is lower than one that this log has followed is not
followed.  And bytes that were reported to one master as held are not cut because another one does
not have them: clients of the first were told that a replica has their messages.  Such a cut, or a
C{rebootstrap}, is refused unless the other master has a higher master epoch, by which an operator
has decided, or the operator names it in C{haTrustMaster}.

It is one master, not a list: whoever is proven to have all of our log has what was held for the
one before, too.  It is kept in C{rmqha/followed.json}, written when another master is proven, or
the same one after a restart; the log's own end says up to where, while we follow.

Source: docs/architecture.rst, The master epoch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, Self

from attrs import asdict, define, evolve, field, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from rmqha.errors import StoreError, TableUnreadable
from rmqha.ha.master_epoch import MasterEpochs, unwritten
from rmqha.ha.slave.master_bounds import MasterBounds
from rmqha.logfiles import json_table, typed_table
from rmqha.logfiles.typed_table import Natural
from rmqha.net.group_commit import GroupCommit
from rmqha.wire.remoting.headers.slave import EpochClaim
from rmqha.wire.store_layout import FOLLOWED, OWN_FOLDER


class HeldForAnotherMaster(StoreError, kw_only=True):
    """A log must not be cut as one master wants it, because the bytes were reported to another one
    as held.

    @ivar holder: C{host:port} of the HA port of the master that was told so.
    @ivar holder_epoch: Its master epoch; C{None} if it told none.
    @ivar master: C{host:port} of the HA port of the master that does not have them.
    @ivar master_epoch: Its master epoch; C{None} if it told none.
    """

    operation: str
    start: int
    end: int
    holder: str
    holder_epoch: int | None
    master: str
    master_epoch: int | None

    def __str__(self) -> str:
        epochs = [
            "unknown" if epoch is None else str(epoch)
            for epoch in (self.holder_epoch, self.master_epoch)
        ]
        return (
            f"{self.operation} refused: bytes {self.start} to {self.end} were acknowledged to "
            f"master {self.holder} (master epoch {epochs[0]}), and master {self.master} (master "
            f"epoch {epochs[1]}) does not have them. If {self.master} is the right master, start "
            f"this slave once with haTrustMaster={self.master}; if {self.holder} is, stop the "
            f"other one"
        )


@frozen(kw_only=True)
class FollowedMaster:
    """What is kept of a master.

    @ivar address: C{host:port} of its HA port, as it was dialled.
    @ivar client: C{host:port} of its client port; C{""} if that was not known.
    @ivar epoch: Its master epoch; C{None} if its client port did not tell.
    @ivar boot: When its process was started, in milliseconds since 1970; C{None} likewise.
    @ivar held: Up to which physical offset it was told that we hold the log, unless C{following}.
    @ivar following: Whether our log grew by its bytes alone since: then all of it is held for it.
    """

    address: str
    client: str = ""
    epoch: Natural | None = None
    boot: Natural | None = None
    held: Natural = 0
    following: bool = True

    @classmethod
    def read(cls, root: Path) -> Self | None:
        """Read what a store keeps.  Blocking.

        @raise FileUnreadable: If the system does not let it be read.
        @raise TableUnreadable: If something is there that makes no sense.
        """
        return typed_table.read(path_of(root), cls, "it does not name a master")

    def write(self, root: Path) -> None:
        """Make it what the store keeps; durable on return.  Blocking.

        @raise DiskFull: If there is no room.
        """
        path = path_of(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        table: json_table.Table = dict(asdict(self).items())
        json_table.replace(path, table)

    def is_at(self, address: str, bounds: MasterBounds | None) -> bool:
        """Whether a master is this one: it has its address, or its process."""
        if address == self.address:
            return True
        return bounds is not None and self.boot is not None and bounds.boot_timestamp == self.boot


def path_of(root: Path) -> Path:
    """Where a store keeps it."""
    return root / OWN_FOLDER / FOLLOWED


def end_following(root: Path, end: int) -> None:
    """The store becomes a master's: from here on its log grows by other bytes.  Blocking.

    @param end: Where the log ends.
    @raise TableUnreadable: If what is kept cannot be read.
    """
    row = FollowedMaster.read(root)
    if row is not None and row.following:
        evolve(row, held=end, following=False).write(root)


class MastersBelieved(Protocol):
    """Which masters are followed, by what is known of the past."""

    def too_low(self, address: str, epoch: int | None) -> str:
        """Why a master is not followed although it answers; C{""} if it is.

        @param address: Its HA port.
        @param epoch: Its master epoch; C{None} if it did not tell.
        """

    def proven(self, address: str, client: str, bounds: MasterBounds | None, end: int) -> None:
        """A master was proven to have all of our log.

        @param address: Its HA port.
        @param client: Its client port, if it is known.
        @param bounds: What that said; C{None} if nothing.
        @param end: Where our log ends.
        """


@define(eq=False, kw_only=True)
class FollowedMasters:
    """Decides by the past which masters a slave believes.

    @ivar epochs: The journal of the same store.
    @ivar trusted: C{haTrustMaster}, C{host:port} of an HA port; C{""} for none.
    @ivar row: The last one; C{None} if none is known.
    """

    epochs: MasterEpochs
    trusted: str
    row: FollowedMaster | None = field(default=None, init=False)
    _commits: GroupCommit = field(init=False)

    _log = Logger()

    def __attrs_post_init__(self) -> None:
        self._commits = GroupCommit(self._write)

    def load(self) -> None:
        """Read what is kept.

        @raise FileUnreadable: If the system does not let it be read.
        """
        try:
            self.row = FollowedMaster.read(self.epochs.root)
        except TableUnreadable as error:
            self._log.error(
                "Cannot tell which master this log was copied from: {error}", error=error
            )

    # --- who is believed ------------------------------------------------------------

    def too_low(self, address: str, epoch: int | None) -> str:
        """Why a master is not followed although it answers; C{""} if it is."""
        number = self.epochs.number
        if epoch is None or epoch >= number or address == self.trusted:
            return ""
        return (
            f"master {address} has master epoch {epoch}, this log follows {number}{self._whose()}; "
            f"if {address} is the right master, promote its store, or start this slave with "
            f"haTrustMaster={address}"
        )

    def objection(
        self, what: str, *, at: int, end: int, address: str, bounds: MasterBounds | None
    ) -> HeldForAnotherMaster | None:
        """Why the log may not be cut to be like a master's.

        @param what: What is to be done, C{truncate} or C{rebootstrap}.
        @param at: The first byte that would go.
        @param end: Where our log ends.
        @param address: The master's HA port.
        @param bounds: What its client port says; C{None} if nothing.
        """
        row = self.row
        held = 0 if row is None else end if row.following else min(row.held, end)
        if row is None or held <= at or address == self.trusted or row.is_at(address, bounds):
            return None
        epoch = None if bounds is None else bounds.identity.epoch
        if epoch is not None and epoch > self.epochs.number:
            return None
        return HeldForAnotherMaster(
            operation=what,
            start=at,
            end=held,
            holder=row.address,
            holder_epoch=row.epoch,
            master=address,
            master_epoch=epoch,
        )

    def claim(self, name: str) -> EpochClaim | None:
        """What to tell other masters of the one we follow; C{None} if that is of no use.

        @param name: The C{brokerName}.
        """
        row, number = self.row, self.epochs.number
        if row is None or not row.client or not number or row.epoch != number:
            return None
        return EpochClaim(broker_name=name, master_epoch=number, master_addr=row.client)

    def _whose(self) -> str:
        row = self.row
        return "" if row is None or row.epoch is None else f", of master {row.address}"

    # --- what becomes of it -----------------------------------------------------------

    def proven(self, address: str, client: str, bounds: MasterBounds | None, end: int) -> None:
        """A master was proven to have all of our log."""
        identity = None if bounds is None else bounds.identity
        row = FollowedMaster(
            address=address,
            client=client,
            epoch=None if identity is None else identity.epoch,
            boot=None if bounds is None else bounds.boot_timestamp,
            held=end,
        )
        if self.row is None or evolve(self.row, held=end) != row:
            self.row = row
            self._commits.commit().addErrback(unwritten, self._log, "which master is followed")
        if identity is None:
            return
        if identity.epoch < self.epochs.number:
            self._log.critical(
                "Following master {address} with master epoch {epoch} instead of {before}, as "
                "haTrustMaster says",
                address=address,
                epoch=identity.epoch,
                before=self.epochs.number,
            )
        self.epochs.become(self.epochs.journal.followed(identity.epoch, identity.starts))

    def _write(self) -> Deferred[None]:
        epochs, row = self.epochs, self.row
        return succeed(None) if row is None else epochs.in_thread(row.write, epochs.root)
