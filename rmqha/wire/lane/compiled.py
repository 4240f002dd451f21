"""
Whether the lane's codecs were compiled when rmqha was built.  Where no compiler was there
everything works in the usual way, and slower.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path


def _built(module: str) -> bool:
    here = Path(__file__)
    return any(here.with_name(f"{module}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


MODULES = ("send_run", "batch_run", "dispatch_run", "check_run", "pull_run")

COMPILED = all(map(_built, MODULES))
"""Whether they are there."""
