"""C{make cluster}: five processes started, shown and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console

from lab.cluster.members import MEMBERS, Cluster
from lab.cluster.view import View, row_of
from lab.harness.nodes import Process, until
from lab.harness.remote import Remote, send
from tests.faults.harness import FaultTestCase

#: Five interpreters start on a busy machine.
BOOT = 90.0


class ClusterTests(FaultTestCase):
    def start(self, *arguments: str) -> Process:
        """Start it, and wait until both slaves are in sync."""
        self.started = len(self.command.log()) if hasattr(self, "command") else 0
        self.command = Process("cluster", self.folder / "cluster.log")
        self._processes.append(self.command)
        folder = str(self.folder / "stores")
        self.command.spawn([sys.executable, "-m", "lab.cluster", "--folder", folder, *arguments])
        return self.command

    def said(self) -> str:
        """What it said since it was started the last time."""
        return self.command.log()[self.started :]

    def until_in_sync(self) -> None:
        """Wait until it shows that both slaves are."""
        until(
            lambda: (
                {"broker-a-s", "broker-b-s"}
                <= set(re.findall(r"(?m)^(\S+): .*serving, in-sync;", self.said()))
            ),
            "both in sync",
            BOOT,
            tell=self.command.log,
        )

    def pids(self) -> dict[str, int]:
        """The process ids of its nodes."""
        folder = self.folder / "stores"
        return {name: int((folder / f"{name}.pid").read_text()) for name in MEMBERS}

    def port(self, name: str) -> int:
        """Where clients connect to a node."""
        found = re.findall(rf"(?m)^{name} +127\.0\.0\.1:(\d+) ", self.said())
        return int(found[-1])

    def test_twice(self) -> None:
        """A message that a SYNC master took is on its slave; Ctrl-C stops all five cleanly, and
        another start goes on with the same stores.
        """
        self.start()
        self.until_in_sync()
        pids = self.pids()
        self.assertEqual(5, len(set(pids.values())))
        with Remote(self.port("broker-a")) as client:
            self.assertEqual(0, client.ask(send("Orders", b"kept")).code)
        until(lambda: "1 PUT_OK" in self.said(), "the write is shown", tell=self.said)
        self.assertIn("4 brokers", self.said())
        self.command.signal(signal.SIGINT)
        self.assertEqual(0, self.command.wait(BOOT), self.command.log())
        for pid in pids.values():
            self.assertFalse(Path(f"/proc/{pid}").exists())
        for name in MEMBERS[1:]:
            self.assertFalse((self.folder / "stores" / name / "abort").exists(), name)
        end = re.findall(r"(?m)^broker-a: .*log end (\d+);", self.said())[-1]
        self.start("--seconds", "0")
        self.assertEqual(0, self.command.wait(BOOT), self.command.log())
        ends = re.findall(r"(?m)^(\S+): .*log end (\d+);", self.said())
        self.assertEqual({end}, {found for name, found in ends if name.startswith("broker-a")})
        self.assertNotEqual("0", end)

    def test_one_ends(self) -> None:
        """A node that ends by itself is shown, and the exit code tells."""
        self.start()
        self.until_in_sync()
        os.kill(self.pids()["broker-b-s"], signal.SIGKILL)
        until(
            lambda: "broker-b-s: role slave; state ended with -9" in self.said(),
            "it is shown",
            tell=self.said,
        )
        self.command.signal(signal.SIGTERM)
        self.assertEqual(1, self.command.wait(BOOT))
        self.assertIn("broker-b-s ended by itself with -9", self.said())

    def test_cannot_start(self) -> None:
        """A node that does not start is told of with its own words, and all others are stopped."""
        (self.folder / "stores").mkdir()
        (self.folder / "stores" / "broker-a").write_text("no folder")
        self.start()
        self.assertEqual(1, self.command.wait(BOOT), self.command.log())
        self.assertIn("broker-a did not start:", self.said())
        for path in (self.folder / "stores").glob("*.pid"):
            self.assertFalse(Path(f"/proc/{path.read_text()}").exists(), path.name)

    def test_bad_setting(self) -> None:
        """A key nobody knows is told of before anything starts."""
        self.start("--set", "brokerRoll=SLAVE")
        self.assertEqual(2, self.command.wait(BOOT))
        self.assertIn("did you mean brokerRole", self.said())


class ViewTests(FaultTestCase):
    def test_rows(self) -> None:
        """A terminal gets one table, everything else a line for each change."""
        cluster = Cluster.of(self.folder)
        status = json.loads(STATUS)
        rows = [row_of(member, None) for member in cluster.members]
        rows[3] = row_of(cluster.members[3], status)
        self.assertEqual(
            rows[3],
            ("broker-a-s", "slave", "serving, in-sync", "812", "0 bytes", "1 feeding", "9", ""),
        )
        self.assertEqual(rows[0][2], "no answer")
        plain = StringIO()
        with View(Console(file=plain, width=160)) as view:
            view.show(rows)
            view.show(rows)
        lines = plain.getvalue().splitlines()
        self.assertEqual(len(lines), 5)
        self.assertIn("broker-a-s: role slave; state serving, in-sync; log end 812;", lines[3])
        terminal = StringIO()
        with View(Console(file=terminal, width=160, force_terminal=True)) as view:
            view.show(rows)
        self.assertIn("broker-a-s", terminal.getvalue())
        self.assertIn("log end", terminal.getvalue())


STATUS = """{"role": "slave", "state": "serving", "maxOffset": 812, "replicas":
[{"state": "feeding"}], "remoting": {"topics": 9}, "upstream": {"state": "in-sync",
"lagBytes": 0}}"""
