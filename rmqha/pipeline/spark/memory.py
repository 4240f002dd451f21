"""Memory that a task's process uses again and again."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Of glibc's C{mallopt}."""

KEPT = 128 << 20
"""Bytes that are kept at most when all is freed."""

LARGEST = 32 << 20
"""Bytes of the largest piece that is kept; more is not allowed."""


def keep_freed() -> bool:
    """Do not give freed memory back at once: the arrays of each block are as large as those of
    the last one, and pages that the system takes back have to be cleared and mapped anew
    (measured: a fifth of a decoder's time).

    It changes the whole process, so it is for processes that only run tasks.

    @return: Whether the C library knows how.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
