"""C{rmqha events} and C{rmqha slots}."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from rich.console import Console
from treq.testing import StubTreq
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock
from twisted.web.resource import Resource

from rmqha.admin.http import AdminSite
from rmqha.cli.nodes.events import asked, tell
from rmqha.cli.nodes.slots import drop_slot, rows_of, table_of
from rmqha.event_file import Event, append, event_path
from rmqha.nodes.poll import NodeClient
from tests.cli.command import CommandTestCase
from tests.cli.nodes.test_status import Node
from tests.support.commands import nobody, rmqha
from tests.support.effort import slow

NOW = 1_700_086_400
EVENTS = [
    Event((NOW - 25 * 3600) * 1000, "start", "master started"),
    Event((NOW - 3600) * 1000, "state", "recovering -> [odd] serving"),
    Event((NOW - 60) * 1000, "replica 10.0.0.2", "in-sync -> gone"),
]


class EventsTests(CommandTestCase):
    def told(self, hours: float = 24.0, *, as_json: bool = False) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            tell(EVENTS, hours, as_json=as_json, now=NOW)
        return out.getvalue()

    def test_latest(self) -> None:
        """Those of the last day are shown, oldest first, with their times."""
        said = [" ".join(line.split()) for line in self.told().splitlines()]
        self.assertEqual(len(said), 3)
        self.assertIn("state recovering -> [odd] serving", said[1])
        self.assertIn("replica 10.0.0.2 in-sync -> gone", said[2])
        self.assertTrue(said[2].startswith("2023-11-1"))
        self.assertIn("master started", self.told(26.0))

    def test_nothing(self) -> None:
        """That nothing happened is said."""
        self.assertEqual(self.told(0.01), "nothing happened in the last 0.01 hours\n")
        self.assertEqual(self.told(0.01, as_json=True), "")

    def test_json(self) -> None:
        """For scripts it is an object a line."""
        rows = [json.loads(line) for line in self.told(as_json=True).splitlines()]
        self.assertEqual([row["kind"] for row in rows], ["state", "replica 10.0.0.2"])
        self.assertEqual(rows[1]["time"], (NOW - 60) * 1000)

    def test_asked(self) -> None:
        """A node tells its own; one of an older version has none."""
        look = NodeClient(StubTreq(AdminSite(Node())), "127.0.0.1:10914", Clock())
        found = self.successResultOf(ensureDeferred(asked(look)))
        self.assertEqual(found, [Event(1_700_000_000_000, "state", "serving")])
        old = NodeClient(StubTreq(Resource()), "127.0.0.1:10914", Clock())
        self.failureResultOf(ensureDeferred(asked(old)), ValueError)

    def test_stopped(self) -> None:
        """Of a node that is stopped its store tells."""
        root = Path(self.mktemp())
        append(event_path(root), EVENTS)
        self.assertIn("master started", self.succeed("events", str(root), "--hours", "900000"))

    def test_usage(self) -> None:
        """What is neither an address nor a folder is a usage error."""
        self.assertIn(
            "is neither HOST:PORT nor a store's folder", self.fails(2, "events", "no/where")
        )


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


class SlotsOfNodeTests(CommandTestCase):
    def setUp(self) -> None:
        self.node: Node = Keeping()

    def look(self) -> NodeClient:
        return NodeClient(StubTreq(AdminSite(self.node)), "127.0.0.1:10914", Clock())

    def test_rows(self) -> None:
        """All that is known of each is shown, with times that can be read."""
        rows = self.successResultOf(ensureDeferred(rows_of(self.look())))
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
        dropped = self.successResultOf(ensureDeferred(drop_slot(self.look(), "10.0.0.5")))
        self.assertEqual(dropped, "")
        again = self.successResultOf(ensureDeferred(drop_slot(self.look(), "10.0.0.5")))
        self.assertIn("no files are kept for a replica at 10.0.0.5", again)

    def test_no_slots(self) -> None:
        """A name server, or another program, has none."""
        self.node = Node()
        self.failureResultOf(ensureDeferred(rows_of(self.look())), ValueError)


class SlotsTests(CommandTestCase):
    def test_addresses(self) -> None:
        """An address is a host and a port."""
        for address in ("local host", ":1", "h:0", "h:65536"):
            self.assertIn("is not HOST:PORT", self.fails(2, "slots", address))

    @slow
    def test_refused(self) -> None:
        """With nobody listening the command ends in one line and exit code 3, as status does."""
        with nobody() as address:
            done = rmqha("slots", address)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"rmqha: {address} cannot be reached", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
