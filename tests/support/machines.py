"""State machines of hypothesis: for a moment with every run, for ten minutes by hand."""

from __future__ import annotations

import os
import time

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.support.effort import tries

SECONDS = 600.0 if os.environ.get("HYPOTHESIS_PROFILE") == "long" else 0.0
"""How long one machine is tried again and again."""


def run_machine(machine: type[RuleBasedStateMachine], *, count: int, steps: int) -> None:
    """Try a machine, so often, with so many random orders of its rules."""
    end = time.monotonic() + SECONDS
    tried = settings(max_examples=tries(count), stateful_step_count=steps)
    while True:
        run_state_machine_as_test(machine, settings=tried)
        if time.monotonic() >= end:
            break
