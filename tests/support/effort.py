"""How much a run of the tests does: all of it, or what C{make test-core} wants in two minutes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from unittest import skip

CORE = os.environ.get("RMQHA_TESTS") == "core"
"""Whether this is C{make test-core}."""
LEFT_OUT = "slow, and left to make test"
"""Why a slow test was skipped."""

Tests = TypeVar("Tests", bound=Callable[..., Any])


def slow(tests: Tests) -> Tests:
    """Decorates a test, or a class of them, that starts processes or takes seconds, and has a
    cheaper one beside it.

    Trial looks at C{skip} before C{setUp}, and at a method that L{skip} has wrapped only after it,
    so that what C{setUp} began would be left behind.
    """
    if not CORE:
        return tests
    left_out = skip(LEFT_OUT)(tests)
    left_out.skip = LEFT_OUT  # type: ignore[attr-defined]
    return left_out


def tries(count: int) -> int:
    """How often a test of random cases tries: a core run makes a fifth of a whole one's."""
    return max(1, count // 5) if CORE else count
