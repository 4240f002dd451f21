"""How a process tells its service manager whether starting it again may help."""

from __future__ import annotations

import atexit
import errno
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


LASTING_ERRNOS = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
    }
)
"""
What only a person mends of what the operating system says of a file; a disk that fails, or too few
file descriptors, may be gone by the next start.
"""


def exit_code(error: BaseException | None) -> int:
    """The exit code of a process that cannot start.

    @param error: What keeps it from that; its C{__cause__} is looked at too.
    """
    lasts = isinstance(error, LASTING) and not isinstance(error, PASSING)
    cause = error.__cause__ if lasts and error is not None else None
    if isinstance(cause, OSError) and cause.errno not in LASTING_ERRNOS:
        return FAILED
    return FOR_A_PERSON if lasts else FAILED


def exit_with(code: int) -> None:
    """Give the process an exit code when it ends by itself: twistd has no way to."""

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)
