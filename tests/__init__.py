"""The tests of rmqha, for pytest and for trial."""

import os
import sys

# What is no runner and looks at the tests has no use for hypothesis.
if {"pytest", "twisted.trial.runner"} & sys.modules.keys():
    from hypothesis import HealthCheck, Phase, settings

    from lab.harness.forked import Forked
    from lab.harness.nodes import Process
    from tests.support.effort import tries

    Process.popen = Forked
    # A busy machine, or code compiled at its first call, is slow and not wrong.
    settings.register_profile(
        "rmqha",
        deadline=None,
        print_blob=True,
        max_examples=tries(100),
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("long", settings.get_profile("rmqha"), max_examples=10_000)
    # A change is noticed or not, each time alike, and nobody reads how.
    settings.register_profile(
        "mutants",
        settings.get_profile("rmqha"),
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "rmqha"))
