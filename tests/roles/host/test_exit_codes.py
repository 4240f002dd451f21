"""How a process ends that cannot start, what systemd is told, and the units for it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import NoReturn
from unittest import skipUnless

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
from rmqha.roles.host.service_manager import READY, STOPPING, notify
from rmqha.store.files.mapped import OutOfDescriptors
from rmqha.store.log.bootstrap_marker import UnfinishedCopy
from rmqha.store.tables.table_verdict import look_at
from tests.roles.nodes import NodeReactor, PuppetSlave, settings
from tests.support.commands import ended
from tests.support.logs import LogTestCase


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


UNITS = Path(__file__).parents[3] / "conf" / "systemd"


class NotifyTests(LogTestCase):
    """L{notify}, and when a node calls it."""

    def listen(self, name: str) -> socket.socket:
        heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(heard.close)
        heard.bind(name)
        heard.setblocking(False)
        return heard

    def environment(self, address: str) -> None:
        """Have the variable say where it listens."""
        self.patch(os, "environ", {**os.environ, "NOTIFY_SOCKET": address})

    def test_told(self) -> None:
        """It is told at a path, or by an abstract name."""
        path = str(Path(tempfile.mkdtemp(prefix="notify-", dir="/tmp")) / "s")
        self.addCleanup(shutil.rmtree, Path(path).parent)
        abstract = f"rmqha-test-{os.getpid()}"
        for address, name in ((path, path), (f"@{abstract}", f"\0{abstract}")):
            heard = self.listen(name)
            self.environment(address)
            notify(READY)
            self.assertEqual(b"READY=1", heard.recv(100))

    def test_nobody(self) -> None:
        """Without a service manager nothing is told, and one that is gone ends nothing."""
        self.environment("")
        notify(READY)
        self.environment("/nowhere/at/all")
        notify(READY)

    def test_node(self) -> None:
        """A node says that it is ready when it serves, and then that it stops."""
        reactor = NodeReactor()
        node = PuppetSlave(settings(self.folder() / "store"), reactor)
        told: list[str] = []
        self.patch(node, "notify", told.append)
        node.startService()
        self.successResultOf(node.ready)
        self.assertEqual([READY], told)
        stopped = node.stopService()
        for _ in range(5):
            reactor.advance(0)
        self.successResultOf(stopped)
        self.assertEqual([READY, STOPPING], told)


class UnitTests(SynchronousTestCase):
    def test_restarts(self) -> None:
        """They start a node again, except where that cannot help."""
        units = list(UNITS.glob("*.service"))
        self.assertEqual(2, len(units))
        for unit in units:
            lines = unit.read_text(encoding="utf-8").splitlines()
            self.assertIn("Restart=on-failure", lines)
            self.assertIn(f"RestartPreventExitStatus={FOR_A_PERSON}", lines)
        self.assertIn(f"\nRestartPreventExitStatus=2 {FOR_A_PERSON}\n", _of_the_archive())

    @skipUnless(shutil.which("systemd-analyze"), "there is no systemd here")
    def test_verified(self) -> None:
        """systemd finds nothing wrong with them."""
        folder = Path(tempfile.mkdtemp(prefix="units-"))
        self.addCleanup(shutil.rmtree, folder)
        units = {unit.name: unit.read_text(encoding="utf-8") for unit in UNITS.glob("*.service")}
        units["rmqha-receive.service"] = _of_the_archive()
        for name, text in units.items():
            path = folder / name.replace("@", "@broker-a")
            commands = f"{Path(sys.executable).parent}/"
            path.write_text(text.replace("/opt/rmqha/bin/", commands), encoding="utf-8")
            done = ended("systemd-analyze", "verify", path)
            self.assertEqual((0, ""), (done.returncode, done.stderr), name)


def _of_the_archive() -> str:
    """The unit that the guide shows for C{rmqha receive}."""
    page = (UNITS.parents[1] / "docs" / "guide" / "archive.rst").read_text(encoding="utf-8")
    found = re.search(r"(?m)^   :name: unit-receive\n\n((?:   .*\n|\n)+)", page)
    assert found is not None, "the page has the unit"
    return textwrap.dedent(found[1])
