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


COMPILED = _built("send_run") and _built("dispatch_run")
"""Whether they are there."""
