"""Tests for L{rmqha.logfiles.published}: whose log it is."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import identity_of, other_first
from rmqha.wire.log.log_identity import LogIdentity


class FirstRecordTests(SynchronousTestCase):
    """Logs of one name are told from each other by their first record."""

    def test_first_record(self) -> None:
        """Copies of a log share the first record, others do not; one that lost it cannot tell."""
        one, other = (LogFiles.find(golden.store(each)) for each in ("5.3.3", "4.9.7"))
        identity = identity_of(one, None)
        self.assertEqual("", other_first(identity, LogFiles.find(golden.store("5.3.3"))))
        self.assertEqual(identity_of(other, None).sum, other_first(identity, other))
        self.assertEqual("", other_first(identity, LogFiles(one.root, one.files[1:])))
        self.assertEqual("", other_first(LogIdentity(), one))
        self.assertEqual(LogIdentity(), identity_of(LogFiles(one.root, ()), None))
