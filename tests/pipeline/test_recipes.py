"""The guide's recipes do what they say: each is run as it stands there.

Paths alone are put in: those the guide names for a store, a copy of it and a folder for
results.  What a recipe prints is compared with what the guide shows.
"""

from __future__ import annotations

import io
import re
import shlex
import shutil
import sys
import tempfile
import textwrap
from contextlib import redirect_stdout
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from lab.harness import golden
from tests.support.fake_broker import StandIn
from tests.support.rows import publish
from tests.support.shop import BROKER, ORDERS, order, shop
from tests.support.spark_needs import why_no_java

try:
    from rmqha.cli.main import main
    from rmqha.cli.spark.common import Spark
    from tests.support.spark import folder, session
except ImportError as missing:  # without the extra
    skip = f"the extra pipeline is not installed: {missing}"
else:
    if why := why_no_java():
        skip = why

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide" / "recipes.rst"

BLOCK = re.compile(
    r"^\.\. code-block:: (?P<kind>\w+)\n   :name: recipe-(?P<name>[a-z-]+)\n\n"
    r"(?P<text>(?:   .*\n|\n)+)",
    re.MULTILINE,
)
OUTPUT = "-output"
ROLLED_BACK = ["tx-ROLLBACK_MESSAGE0"]
"""Keys of what the golden stores' producers took back."""
OLDEST_WAITING = datetime(2026, 1, 30, 12, tzinfo=UTC)
"""When the first order was stored that group C{billing} has not committed: it has nine of
each of four queues, and there is one order an hour."""
STORE, COPY, LAKE, NAMES = "/var/lib/rmqha", "/mnt/replica-b", "/lake", "10.0.0.2:9876"
"""What the guide calls a store, a copy of it, a folder for results, and a name server."""


@cache
def blocks() -> dict[str, tuple[str, str]]:
    """The guide's blocks by name: their language and their text."""
    found = BLOCK.finditer(GUIDE.read_text(encoding="utf-8"))
    return {
        match["name"]: (match["kind"], textwrap.dedent(match["text"]).strip("\n"))
        for match in found
    }


class Unstopped:
    """A session that commands do not stop."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    @property
    def __class__(self) -> Any:
        return type(self._real)

    def stop(self) -> None:
        """Others need it."""


class RecipeTests(SynchronousTestCase):
    """One store, one session; each recipe has names of its own."""

    maxDiff = None
    broker: StandIn | None = None

    def setUp(self) -> None:
        self.place = Path(tempfile.mkdtemp(dir=folder(), prefix="recipe-"))
        self.addCleanup(shutil.rmtree, self.place, ignore_errors=True)
        self.store, self.middle = shop(self.place / "store")
        self.lake = self.place / "lake"
        self.lake.mkdir()
        self.names: dict[str, Any] = {}
        started = session()
        self.run_block("session")
        self.assertIs(started, self.names["spark"])

    def paths(self) -> dict[str, str]:
        """What stands for the guide's paths and addresses."""
        found = {STORE: str(self.store), COPY: str(self.place / "copy"), LAKE: str(self.lake)}
        return found if self.broker is None else {**found, NAMES: self.broker.address}

    def run_block(self, name: str) -> str:
        """Run a block, and return what it printed, with the guide's paths."""
        return self.run_text(*blocks()[name])

    def run_text(self, kind: str, text: str) -> str:
        for there, here in self.paths().items():
            text = text.replace(there, here)
        printed = io.StringIO()
        with redirect_stdout(printed):
            {"python": self._python, "sql": self._sql, "console": self._console}[kind](text)
        found = printed.getvalue()
        for there, here in self.paths().items():
            found = found.replace(here, there)
        return found

    def _python(self, text: str) -> None:
        exec(compile(text, str(GUIDE), "exec"), self.names)

    def _sql(self, text: str) -> None:
        *before, last = [part for part in text.split(";") if part.strip()]
        for statement in before:
            session().sql(statement)
        session().sql(last).show(truncate=False)

    def _console(self, text: str) -> None:
        """Commands run here, in the session of all tests."""
        self.patch(Spark, "session", lambda on, name: Unstopped(session()))
        typed = [line[4:] for line in text.splitlines() if line.startswith(">>> ")]
        self.patch(sys, "stdin", io.StringIO("".join(line + "\n" for line in typed)))
        for line in text.replace("\\\n", "").splitlines():
            if line.startswith("$ rmqha "):
                main.main(shlex.split(line)[2:], standalone_mode=False)

    def assert_prints(self, name: str) -> None:
        """A block prints what the guide shows."""
        self.assertEqual(lines(blocks()[name + OUTPUT][1]), lines(self.run_block(name)))

    def test_tour(self) -> None:
        """So does the tour, on a real broker's store."""
        text = (ROOT / "docs" / "guide" / "tour.md").read_text(encoding="utf-8")
        text = text[text.index("## Read it with Spark") :]
        code, output = re.findall(r"<<END\n(.*?)\nEND\n```\n\n```text\n(.*?)```", text, re.DOTALL)[
            0
        ]
        self.store = golden.store("5.3.3")
        code = code.replace("/tmp/rmqha-spark/store", STORE)
        self.assertEqual(lines(output), lines(self.run_text("python", code)))

    def test_shell(self) -> None:
        """So does the first look."""
        text = (ROOT / "docs" / "guide" / "pipeline.rst").read_text(encoding="utf-8")
        block = re.findall(r"code-block:: console\n\n((?:   .*\n)+)", text)[0]
        printed = self.run_text("console", textwrap.dedent(block))
        self.assertIn("|  orders|   72|", printed)
        self.assertIn("order-1000 c1", printed)
        self.assertNotIn("Traceback", printed)

    # --- recipes ------------------------------------------------------------

    def test_every_block_is_run(self) -> None:
        """There is a test for each recipe, and each has its output."""
        source = Path(__file__).read_text(encoding="utf-8")
        for name in blocks():
            self.assertIn(f'"{name.removesuffix(OUTPUT)}"', source)
        titles = re.findall(r"^(\S.*)\n-{4,}$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
        self.assertEqual(10, len(titles))

    def test_top_topics(self) -> None:
        """Topics by their bytes."""
        self.assert_prints("top-topics")

    def test_replay(self) -> None:
        """A day's messages are counted, then sent to a stand-in of a broker."""
        self.broker = StandIn({"orders-again": 4})
        self.addCleanup(self.broker.server.close)
        self.assert_prints("replay-dry")
        self.assertEqual([], self.broker.stored)
        self.assert_prints("replay")
        self.assertEqual(
            sorted(order(number) for number in range(24, 48)),
            sorted(message.body for message in self.broker.stored),
        )

    def test_export(self) -> None:
        """A span of two topics becomes files, in which no message is missing."""
        self.assert_prints("export")
        self.assert_prints("export-proof")

    def test_find(self) -> None:
        """A message is found by one of its keys, and its body is read from its place."""
        self.assert_prints("find")

    def test_lag(self) -> None:
        """Samples of what groups have not read become a history."""
        for _ in range(2):
            self.assertEqual("", self.run_block("lag-sample"))
        shown = rows(blocks()["lag-history" + OUTPUT][1])
        found = rows(self.run_block("lag-history"))
        for table in (shown, found):
            for sampled_at, group, *_, seconds in table:
                waited = (moment(sampled_at) - OLDEST_WAITING).total_seconds()
                self.assertEqual(int(waited) if group == "billing" else 0, int(seconds))
        self.assertEqual([row[1:4] for row in shown], [row[1:4] for row in found])

    def test_json(self) -> None:
        """Bodies become columns, and what is no JSON is shown."""
        self.assert_prints("json")

    def test_rolled_back(self) -> None:
        """Halves that were ended and are neither committed nor given up."""
        self.assert_prints("rolled-back")

    def test_rolled_back_golden(self) -> None:
        """In stores of real brokers too, which write ops in two ways."""
        for version in golden.VERSIONS:
            self.store = golden.store(version)
            found = [row[2] for row in rows(self.run_block("rolled-back"))]
            self.assertEqual(ROLLED_BACK, found, version)

    def test_join(self) -> None:
        """A store is a table beside others."""
        (self.lake / "customers.csv").write_text("customer,country\nc1,DE\nc2,FR\nc3,FR\n")
        session().sql("DROP TABLE IF EXISTS orders")
        self.addCleanup(session().sql, "DROP TABLE IF EXISTS orders")
        self.assert_prints("join")

    def test_duckdb(self) -> None:
        """DuckDB reads a scan."""
        self.assert_prints("duckdb")

    def test_move(self) -> None:
        """A stream goes on with a copy of the log that has more of it: every message comes once."""
        shutil.copytree(self.store, self.place / "copy")
        publish(self.store, self.middle, broker_name=BROKER)
        self.run_block("move-before")
        self.assertEqual(ORDERS // 2, session().read.parquet(str(self.lake / "orders")).count())
        self.assert_prints("move-after")


def rows(table: str) -> list[list[str]]:
    """The cells of a table that Spark printed, without its head."""
    found = [line.strip("|").split("|") for line in lines(table) if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in found[1:]]


def moment(text: str) -> datetime:
    """A time as Spark prints it."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def lines(text: str) -> list[str]:
    """A text's lines, without blanks or empty ones; file sizes vary by pyarrow's release."""
    text = re.sub(r"files, \d+ bytes", "files, some bytes", text)
    return [line.expandtabs().rstrip() for line in text.splitlines() if line.strip()]
