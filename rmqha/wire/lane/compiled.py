"""Which modules were compiled when rmqha was built, the lane's codecs first of all.  Where no
compiler was there everything works in the usual way, and slower.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def built(module: Path) -> bool:
    """Whether a module was compiled.

    @param module: Its file, without a suffix.
    """
    return any(module.with_name(module.name + suffix).exists() for suffix in EXTENSION_SUFFIXES)


MODULES = (
    "send_run",
    "batch_run",
    "dispatch_run",
    "check_run",
    "pull_run",
    "columns_run",
    "due_run",
)

COMPILED = all(built(Path(__file__).with_name(module)) for module in MODULES)
"""Whether they are there."""

CHECKSUMS = built(Path(__file__).with_name("checksum_run"))
"""Whether the checksums of records are taken by compiled code."""
