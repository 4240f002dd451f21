"""
How much a run of the tests does: all of it, or what C{make test-core} wants in two minutes.
"""

from __future__ import annotations

import os
from unittest import skipIf

CORE = os.environ.get("RMQHA_TESTS") == "core"
"""Whether this is C{make test-core}."""

slow = skipIf(CORE, "slow, and left to make test")
"""Decorates a test that starts processes or takes seconds, and has a cheaper one beside it."""


def tries(count: int) -> int:
    """
    How often a test of random cases tries.

    @param count: The tries of a whole run; a core run makes a fifth of them.
    """
    return max(1, count // 5) if CORE else count
