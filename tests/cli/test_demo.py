"""C{rmqha demo} without its processes; tests/faults has it whole."""

from __future__ import annotations

import shutil
import socket
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from lab.bench.corpus import write_log
from rmqha.cli import demo, local_nodes
from rmqha.cli.local_nodes import LocalNodeFailed, LocalNodes, free_ports
from rmqha.store.offline.client_ledger import Acknowledged
from tests.cli.command import CommandTestCase
from tests.cli.test_doctor import log_records, row_of
from tests.support import damage


class FolderTests(CommandTestCase):
    """Where it works, and what is left of that."""

    def setUp(self) -> None:
        """A folder for what is temporary, and a demo that does nothing."""
        self.folder = Path(tempfile.mkdtemp(prefix="demo-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.patch(tempfile, "tempdir", str(self.folder))
        self.patch(demo, "in_reactor", self.nothing)
        self.error: Exception | None = None

    def nothing(self, run: Any) -> None:
        if self.error is not None:
            raise self.error

    def test_temporary(self) -> None:
        """A temporary folder goes away, unless it is to be kept: then its name is the last line."""
        self.assertEqual("", self.succeed("demo"))
        self.assertEqual([], list(self.folder.iterdir()))
        said = self.succeed("demo", "--keep")
        (kept,) = self.folder.iterdir()
        self.assertEqual(f"Stores and logs are in {kept}\n", said)

    def test_failed(self) -> None:
        """What went wrong is one line with a folder that is kept."""
        self.error = LocalNodeFailed("the master has ended, and last said: Cannot start.")
        said = self.fails(1, "demo")
        (kept,) = self.folder.iterdir()
        self.assertEqual(
            f"rmqha: the master has ended, and last said: Cannot start. Stores and logs are in "
            f"{kept}",
            said,
        )

    def test_given(self) -> None:
        """A folder that is given is made, and stays; one with something in it is refused."""
        given = self.folder / "a" / "b"
        self.assertIn(str(given), self.succeed("demo", "--dir", given))
        self.assertTrue(given.is_dir())
        (given / "file").touch()
        said = self.fails(2, "demo", "--dir", given)
        self.assertIn(f"--dir {given}: it is not empty; give a new or an empty folder", said)


class PortTests(CommandTestCase):
    def test_neighbours(self) -> None:
        """A port is passed over if one that is counted from it is in use."""
        port = next(free_ports())
        for step in (-2, 0, 1, 3):
            self.patch(local_nodes, "PORTS", range(port, port + 1))
            with socket.create_server(("127.0.0.1", port + step)):
                error = self.assertRaises(LocalNodeFailed, next, free_ports())
            self.assertIn("no 4 ports of 127.0.0.1 from ", str(error))
            self.assertEqual(port, next(free_ports()))


class CheckTests(CommandTestCase):
    """What it looks at in the end."""

    def setUp(self) -> None:
        """A store, and what a client was told of its messages."""
        folder = Path(self.mktemp()).absolute()
        self.log = folder / "b" / "commitlog"
        write_log(self.log, 1 << 16, file_size=1 << 16, bodies=(500,))
        self.told = [Acknowledged.of_row(row_of(record)) for record in log_records(self.log)]
        self.demo = demo.Demo(LocalNodes(Clock(), folder, 28.0))

    def test_all_there(self) -> None:
        """Every message at its byte is well."""
        said = StringIO()
        with redirect_stdout(said):
            self.demo.check(self.told)
        verify, doctor, end = said.getvalue().splitlines()
        self.assertIn("rmqha verify b: clean", verify)
        self.assertIn(f"each of {len(self.told)} acknowledged messages is at its byte", doctor)
        self.assertIn("all is well", end)

    def test_lost(self) -> None:
        """A message that is not there, or at another byte, is not."""
        for wrong in (
            evolve(self.told[3], msg_id="F" * 32),
            evolve(self.told[3], offset=self.told[4].offset),
        ):
            told = [*self.told[:3], wrong]
            error = self.assertRaises(LocalNodeFailed, self.demo.check, told)
            self.assertIn("1 messages are missing from a store; ", str(error))

    def test_damaged(self) -> None:
        """A record whose bytes are others is not."""
        (path,) = self.log.iterdir()
        damage.flip(path, self.told[3].offset + 200)
        error = self.assertRaises(LocalNodeFailed, self.demo.check, self.told)
        self.assertRegex(str(error), r"^`rmqha verify .*/b` found: 1 faults$")


class WaitTests(CommandTestCase):
    def test_limit(self) -> None:
        """What does not come in time is named, with the time there was."""
        clock = Clock()
        nodes = LocalNodes(clock, Path(), 28.0)

        async def never() -> bool:
            return False

        waiting = Deferred.fromCoroutine(nodes.until(never, "the slave was not ready"))
        for _ in range(29):
            self.assertNoResult(waiting)
            clock.advance(1.0)
        error = self.failureResultOf(waiting, LocalNodeFailed).value
        self.assertEqual("the slave was not ready within 28 s", str(error))
