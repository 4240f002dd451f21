"""
How a process tells its service manager whether starting it again may help.
"""

from __future__ import annotations

import atexit
import os
import sys

from rmqha.errors import (
    BodyInvalid,
    ConfigError,
    DiskFull,
    FlushFailed,
    NotWritable,
    RmqhaError,
    StoreError,
    StoreLocked,
    TailNotFetched,
    TwinMaster,
)
from rmqha.net.tls.errors import TlsFilesInvalid

FAILED = 1
"""It could not start; the next start may find a free port, or room on the disk."""

FOR_A_PERSON = os.EX_CONFIG
"""
What only a person mends keeps it from starting: a wrong configuration, damage, a twin.  The number
is 78, C{EX_CONFIG} of BSD's C{sysexits.h}; the units name it in C{RestartPreventExitStatus}.
"""

LASTING: tuple[type[RmqhaError], ...] = (
    BodyInvalid,
    ConfigError,
    StoreError,
    TlsFilesInvalid,
    TwinMaster,
)
"""What the next start would find again, as a rule."""

PASSING: tuple[type[RmqhaError], ...] = (
    DiskFull,
    FlushFailed,
    NotWritable,
    StoreLocked,
    TailNotFetched,
)
"""Those of them that may be gone by then."""


def exit_code(error: BaseException | None) -> int:
    """
    The exit code of a process that cannot start.

    @param error: What keeps it from that.
    """
    lasts = isinstance(error, LASTING) and not isinstance(error, PASSING)
    return FOR_A_PERSON if lasts else FAILED


def exit_with(code: int) -> None:
    """
    Give the process an exit code when it ends by itself: twistd has no way to.
    """

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)
