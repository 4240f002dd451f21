"""What this process has open, as the system sees it."""

from __future__ import annotations

import contextlib
import os


def open_files() -> list[str]:
    """The paths of all descriptors, a map's too; of a deleted file with a word behind."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the folder's own
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return found
