"""How a process ends that cannot start."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from rmqha import errors
from rmqha.broker.access.acl_file import read_accounts
from rmqha.config.errors import ConfigProblems
from rmqha.logfiles import json_table
from rmqha.net import key_file
from rmqha.net.key_file import KeyFileInvalid
from rmqha.net.tls import material
from rmqha.net.tls.errors import TlsFilesInvalid
from rmqha.roles.host.exit_codes import FAILED, FOR_A_PERSON, exit_code
from rmqha.store.files.mapped import OutOfDescriptors
from rmqha.store.log.bootstrap_marker import UnfinishedCopy
from rmqha.store.tables.table_verdict import look_at


class ExitCodeTests(SynchronousTestCase):
    def test_number(self) -> None:
        """It is the one of sysexits.h, as services elsewhere name it."""
        self.assertEqual((78, os.EX_CONFIG), (FOR_A_PERSON, FOR_A_PERSON))

    def test_for_a_person(self) -> None:
        """What the next start would find again."""
        for error in (
            ConfigProblems(()),
            errors.LogCorrupt("00", 1, "magic", 2),
            errors.LogShortened("commitlog", 1, 2, "epoch.json"),
            errors.TableUnreadable("topics.json", "empty"),
            errors.BodyInvalid("table", "empty"),
            errors.TwinMaster("a", "h:1", 0, "h:2", 1),
            UnfinishedCopy("marker", 0),
        ):
            self.assertEqual(FOR_A_PERSON, exit_code(error), error)

    def test_passing(self) -> None:
        """What may be gone by then; replicas are asked for a lost tail once more."""
        for error in (
            errors.StoreLocked("lock"),
            errors.DiskFull("log", 1),
            OutOfDescriptors("log", 1),
            errors.FlushFailed("log", "EIO"),
            errors.TailNotFetched("commitlog", 1, 2, "epoch.json"),
            CannotListenError("", 1, OSError(errno.EADDRINUSE, "in use")),
            PermissionError(errno.EACCES, "no"),
            ValueError("a bug"),
        ):
            self.assertEqual(FAILED, exit_code(error), error)

    def test_cause(self) -> None:
        """A file that is missing, forbidden or damaged is for a person; one that a disk that fails
        or too few descriptors keep from being read may be read by the next start.
        """
        path = Path(self.mktemp())
        path.write_bytes(b"{")
        for number, code in (
            (None, FOR_A_PERSON),
            (errno.EIO, FAILED),
            (errno.EMFILE, FAILED),
            (errno.ENFILE, FAILED),
            (errno.EACCES, FOR_A_PERSON),
            (errno.EISDIR, FOR_A_PERSON),
        ):

            def fail(path: Path, *_: object, number: int = number or 0) -> NoReturn:
                raise OSError(number, os.strerror(number), str(path))

            if number is not None:
                self.patch(Path, "read_bytes", fail)
                self.patch(key_file.os, "open", fail)
            table = errors.TableUnreadable if number is None else errors.FileUnreadable
            for kind, work in (
                (table, lambda: json_table.read(path)),
                (table, lambda: look_at(path, None).read()),
                (KeyFileInvalid, lambda: read_accounts(path)),
                (TlsFilesInvalid, lambda: material._certificates(path)),
            ):
                error = self.assertRaises(kind, work)
                self.assertEqual(code, exit_code(error), (number, error))
