"""
How a process ends that cannot start.
"""

from __future__ import annotations

import errno
import os

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rmqha import errors
from rmqha.config.errors import ConfigProblems
from rmqha.roles.host.exit_codes import FAILED, FOR_A_PERSON, exit_code


class ExitCodeTests(SynchronousTestCase):
    """
    L{exit_code}.
    """

    def test_number(self) -> None:
        """
        It is the one of sysexits.h, as services elsewhere name it.
        """
        self.assertEqual((78, os.EX_CONFIG), (FOR_A_PERSON, FOR_A_PERSON))

    def test_for_a_person(self) -> None:
        """
        What the next start would find again.
        """
        for error in (
            ConfigProblems(()),
            errors.LogCorrupt("00", 1, "magic", 2),
            errors.LogShortened("commitlog", 1, 2, "epoch.json"),
            errors.TableUnreadable("topics.json", "empty"),
            errors.BodyInvalid("table", "empty"),
            errors.TwinMaster("a", "h:1", 0, "h:2", 1),
            errors.UnfinishedCopy("marker", 0),
        ):
            self.assertEqual(FOR_A_PERSON, exit_code(error), error)

    def test_passing(self) -> None:
        """
        What may be gone by then; replicas are asked for a lost tail once more.
        """
        for error in (
            errors.StoreLocked("lock"),
            errors.DiskFull("log", 1),
            errors.OutOfDescriptors("log", 1),
            errors.FlushFailed("log", "EIO"),
            errors.TailNotFetched("commitlog", 1, 2, "epoch.json"),
            CannotListenError("", 1, OSError(errno.EADDRINUSE, "in use")),
            PermissionError(errno.EACCES, "no"),
            ValueError("a bug"),
        ):
            self.assertEqual(FAILED, exit_code(error), error)
