"""
The tests of rmqha, for pytest and for trial.
"""

import sys

# Demo and bench use tests.support too, and have no use for hypothesis.
if {"pytest", "twisted.trial.runner"} & sys.modules.keys():
    from hypothesis import settings

    # A busy machine, or code compiled at its first call, is slow and not wrong.
    settings.register_profile("rmqha", deadline=None, print_blob=True)
    settings.load_profile("rmqha")
