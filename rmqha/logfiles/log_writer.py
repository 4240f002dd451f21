"""Who wrote the end of a log, and what zeros there mean therefore.

Only a record's body has a checksum.  If a crash tears the last record in its properties, the
missing bytes are zeros and everything else agrees: then properties that end in NUL are all
that tells.  Whether they do depends on the writer:

  - A slave writes what has arrived, in pieces: wherever it stands, such a record is torn.
    Its master has the whole one.
  - What a master of ours wrote never ends in NUL: from where its last run began, if that was
    not ended cleanly, such a record is torn.
  - Any other master's record may end so as its producer wanted it, and may be the only copy.

A node knows its role.  Who looks from outside, the offline tools and Spark, goes by what the
last node left beside the log, and so says what that node will at its next start.  Where nothing
is left, in the store of a Java broker or a log put aside, the log is read as a slave's: nothing
is cut by reading, and a whole record that is left out is there as soon as another follows it,
while one with wrong properties would be handed on for good.

Source: docs/protocol/store.rst, Recovery.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from attrs import frozen

from rmqha.errors import TableUnreadable
from rmqha.logfiles import typed_table
from rmqha.logfiles.typed_table import Natural
from rmqha.wire.store_layout import BOOTSTRAPPING, EPOCH, METADATA, OWN_FOLDER

EPOCH_FILE = Path(OWN_FOLDER) / EPOCH
"""What a node that serves its log writes when it begins and when it ends; below the store's
root."""

OF_A_SLAVE = (Path(OWN_FOLDER) / METADATA, Path(OWN_FOLDER) / BOOTSTRAPPING)
"""What only slaves keep; C{rmqha promote} takes it away."""

NOWHERE = 1 << 62
"""Behind every byte: no record is known to be torn if it ends in NUL."""


@frozen(kw_only=True)
class LogWriter:
    """The last one to write a log.

    @ivar ours_from: Where a master of ours began to write, a physical offset; C{None} if it
        ended cleanly, or was another's.
    @ivar known: Whether anything tells.
    """

    master: bool
    ours_from: int | None = None
    known: bool = True

    @classmethod
    def of(cls, root: Path | None) -> Self:
        """Tell from what lies below a store's root.

        @param root: C{None} for a log without its store.
        """
        known = None if root is None else epoch_or_none(root)
        if root is not None and any((root / path).exists() for path in OF_A_SLAVE):
            return cls(master=False)
        if root is None or known is None:
            return cls(master=False, known=False)
        if not known.master:
            return cls(master=False)
        return cls(master=True, ours_from=crashed_from(root))

    @property
    def nul_is_torn_from(self) -> int:
        """From which physical offset on a last record whose properties end in NUL is torn."""
        if not self.master:
            return 0
        return NOWHERE if self.ours_from is None else self.ours_from


def crashed_from(root: Path) -> int | None:
    """Where the last run began to write, if it was a master of ours and did not end cleanly.

    @return: A physical offset: records from there on are rmqha's; C{None} if the last writer
        may have been another.
    """
    known = epoch_or_none(root)
    return None if known is None or known.closed or not known.master else known.end


@frozen(kw_only=True)
class EpochFile:
    """What a node writes down of an epoch.

    @ivar id: A name of the run, for people.
    @ivar master: Whether it was a master's.
    @ivar start: Where the epoch begins, a physical offset.
    @ivar closed: Whether the run ended cleanly.
    @ivar end: Where the log ended when this was written.
    @ivar crc: That of the log's last bytes before that.
    @ivar marks: The highest offset that each address was sent.
    """

    id: str
    master: bool
    start: Natural
    closed: bool
    end: Natural
    crc: Natural
    marks: dict[str, Natural]


def read_epoch(root: Path) -> EpochFile | None:
    """What a store's epoch file says.

    @raise FileUnreadable: If the system does not let it be read.
    @raise TableUnreadable: If it is there and makes no sense.
    """
    what = "it does not tell of an epoch"
    return typed_table.read(root / EPOCH_FILE, EpochFile, what, id="", master=True)


def epoch_or_none(root: Path) -> EpochFile | None:
    """The same, C{None} too if it makes no sense.

    @raise FileUnreadable: If the system does not let it be read.
    """
    try:
        return read_epoch(root)
    except TableUnreadable:
        return None
