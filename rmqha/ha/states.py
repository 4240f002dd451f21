"""The names a node gives to what it is doing; docs/states.rst says what to do in each."""

from __future__ import annotations

from enum import Enum, StrEnum, auto


class NodeState(StrEnum):
    """C{state} of C{/status}: what the node as a whole can do."""

    RECOVERING = "recovering"
    SERVING = "serving"
    READ_ONLY = "read-only"
    DISK_FULL = "disk-full"
    FENCED = "fenced"
    FAILED = "failed"
    STOPPED = "stopped"


class Standing(Enum):
    """What a log is worth to the replicas it is served to; a master's is always C{WHOLE}.

    Source: docs/architecture.rst, Cascades.
    """

    WHOLE = auto()
    """Where it ends the master's log ends, as far as is known here."""
    PART = auto()
    """There may be more of the master's log than it has."""
    DOUBTFUL = auto()
    """It may not be the master's log."""


class SyncState(StrEnum):
    """C{upstream.state} of a slave's C{/status}: how it stands to its master."""

    CONNECTING = "connecting"
    PROBING = "probing"
    BOOTSTRAPPING = "bootstrapping"
    CATCHING_UP = "catching-up"
    IN_SYNC = "in-sync"
    UNPROVEN = "unproven"
    BELOW_MIN = "below-min"
    AHEAD = "ahead"
    DIVERGED = "diverged"
    LOWER_EPOCH = "lower-epoch"
    GAP = "gap"
    FILE_SIZE = "file-size"
    DISK_FULL = "disk-full"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_stop(self) -> bool:
        """Whether replication stands still until an operator, or the disk, does something.

        A slave in such a state disconnects: a connected one that never acknowledges
        makes each write of a stock SYNC master wait its time out.
        """
        return self in _STOPS

    @property
    def standing(self) -> Standing:
        """What the log of a slave in this state is worth to slaves behind it."""
        if self is SyncState.IN_SYNC:
            return Standing.WHOLE
        # What a full disk holds is right, and what came from a later master; what was copied from
        # nothing may start over.
        right = self in (SyncState.DISK_FULL, SyncState.LOWER_EPOCH)
        doubtful = self.is_stop and not right
        if doubtful or self is SyncState.BOOTSTRAPPING:
            return Standing.DOUBTFUL
        return Standing.PART


_STOPS = frozenset(
    {
        SyncState.UNPROVEN,
        SyncState.BELOW_MIN,
        SyncState.AHEAD,
        SyncState.DIVERGED,
        SyncState.LOWER_EPOCH,
        SyncState.GAP,
        SyncState.FILE_SIZE,
        SyncState.DISK_FULL,
        SyncState.FAILED,
        SyncState.STOPPED,
    }
)
