"""
Whether the lane's codecs were compiled when rmqha was built.  Where no compiler was there
everything works in the usual way, and slower.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

COMPILED = any(
    Path(__file__).with_name(f"send_run{suffix}").exists() for suffix in EXTENSION_SUFFIXES
)
"""Whether they are there."""
