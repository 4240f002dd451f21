"""
The names a node gives to what it is doing; docs/operations.rst says what to do in each.
"""

from __future__ import annotations

from enum import StrEnum


class NodeState(StrEnum):
    """
    C{state} of C{/status}: what the node as a whole can do.
    """

    RECOVERING = "recovering"
    SERVING = "serving"
    READ_ONLY = "read-only"
    DISK_FULL = "disk-full"
    FAILED = "failed"
    STOPPED = "stopped"


class SyncState(StrEnum):
    """
    C{upstream.state} of a slave's C{/status}: how it stands to its master.
    """

    CONNECTING = "connecting"
    PROBING = "probing"
    BOOTSTRAPPING = "bootstrapping"
    CATCHING_UP = "catching-up"
    IN_SYNC = "in-sync"
    UNPROVEN = "unproven"
    BELOW_MIN = "below-min"
    AHEAD = "ahead"
    DIVERGED = "diverged"
    GAP = "gap"
    FILE_SIZE = "file-size"
    DISK_FULL = "disk-full"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_stop(self) -> bool:
        """
        Whether replication stands still until somebody, or the disk, does something.

        A slave in such a state disconnects: a connected one that never acknowledges
        makes each write of a stock SYNC master wait its time out.
        """
        return self in _STOPS


_STOPS = frozenset(
    {
        SyncState.UNPROVEN,
        SyncState.BELOW_MIN,
        SyncState.AHEAD,
        SyncState.DIVERGED,
        SyncState.GAP,
        SyncState.FILE_SIZE,
        SyncState.DISK_FULL,
        SyncState.FAILED,
        SyncState.STOPPED,
    }
)
