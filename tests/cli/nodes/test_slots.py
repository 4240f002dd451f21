"""C{rmqha slots}."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

from rich.console import Console
from treq.testing import StubTreq
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock

from rmqha.admin.http import AdminSite
from rmqha.cli.nodes.slots import SlotRequests, table_of
from tests.cli.command import CommandTestCase
from tests.cli.nodes.test_status import Node
from tests.support.effort import slow

AWAY = {
    "address": "10.0.0.5",
    "connected": False,
    "offset": 4096,
    "bytes": 1 << 20,
    "since": 1_700_000_000_000,
    "until": 1_700_003_600_000,
}


class Keeping(Node):
    """A node that keeps files for one replica."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = [AWAY]

    def status(self) -> dict[str, Any]:
        return {"role": "master", "retentionSlots": self.rows}

    def drop_slot(self, address: str) -> bool:
        before, self.rows = self.rows, [row for row in self.rows if row["address"] != address]
        return before != self.rows


class SlotRequestsTests(CommandTestCase):
    def setUp(self) -> None:
        self.node: Node = Keeping()

    def requests(self) -> SlotRequests:
        return SlotRequests(StubTreq(AdminSite(self.node)), "127.0.0.1:10914", Clock())

    def test_rows(self) -> None:
        """All that is known of each is shown, with times that can be read."""
        rows = self.successResultOf(ensureDeferred(self.requests().rows()))
        self.assertEqual(rows, [AWAY])
        console = Console(width=120)
        with console.capture() as captured:
            console.print(table_of(rows))
        self.assertEqual(
            captured.get().split()[6:],
            [
                "10.0.0.5",
                "False",
                "4096",
                "1048576",
                "2023-11-14T22:13:20Z",
                "2023-11-14T23:13:20Z",
            ],
        )

    def test_drop(self) -> None:
        """A slot is dropped; where there is none the node says so."""
        dropped = self.successResultOf(ensureDeferred(self.requests().drop("10.0.0.5")))
        self.assertEqual(dropped, "")
        again = self.successResultOf(ensureDeferred(self.requests().drop("10.0.0.5")))
        self.assertIn("no files are kept for a replica at 10.0.0.5", again)

    def test_no_slots(self) -> None:
        """A name server, or another program, has none."""
        self.node = Node()
        self.failureResultOf(ensureDeferred(self.requests().rows()), ValueError)


class SlotsTests(CommandTestCase):
    def test_addresses(self) -> None:
        """An address is a host and a port."""
        for address in ("local host", ":1", "h:0", "h:65536"):
            self.assertIn("is not HOST:PORT", self.fails(2, "slots", address))

    @slow
    def test_refused(self) -> None:
        """With nobody listening the command ends in one line and exit code 3, as status does."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            done = subprocess.run(
                [sys.executable, "-c", "from rmqha.cli.main import main; main()", "slots", address],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"rmqha: {address} cannot be reached", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
