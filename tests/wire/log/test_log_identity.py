"""Tests for L{rmqha.wire.log.log_identity}."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from rmqha.wire.log.log_identity import LogIdentity


class LogIdentityTests(SynchronousTestCase):
    """Logs are told from each other by what is known of both."""

    def test_names(self) -> None:
        """A name that one side does not know is not held against the other."""
        one = LogIdentity(cluster="c", broker="a")
        for other, same in (
            (one, True),
            (LogIdentity(), True),
            (LogIdentity(broker="a"), True),
            (LogIdentity(broker="b"), False),
            (LogIdentity(cluster="d", broker="a"), False),
        ):
            self.assertEqual((same, same), (one.is_named_as(other), other.is_named_as(one)))

    def test_json(self) -> None:
        """What was written is read, and nothing else."""
        one = LogIdentity(cluster="c", broker="a", first=7, sum="0123")
        self.assertEqual(one, LogIdentity.from_json(json.loads(json.dumps(one.to_json()))))
        self.assertEqual(LogIdentity(), LogIdentity.from_json({}))
        for bad in ({"first": "0"}, {"broker": None}, {"sum": 7}, {"owner": "a"}):
            self.assertRaises(ValueError, LogIdentity.from_json, bad)
