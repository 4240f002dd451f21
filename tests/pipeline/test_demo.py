"""Tests for what C{make demo-pipeline} checks at its end: it has to see what is wrong."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.demo.traffic import Sent
from lab.harness import golden
from rmqha.logfiles.offline_log import OfflineLog
from tests.support.rows import expected, publish

try:
    import matplotlib  # noqa: F401
    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import write_deltalake

    from lab.demo_pipeline.report import COLUMNS, Facts, Report
    from rmqha.pipeline.scan import scan
except ImportError as missing:  # without the extras
    skip = f"the extras pipeline, delta and plots are not installed: {missing}"


class ReportTests(SynchronousTestCase):
    """A log with a few hundred records, and tables of it."""

    def setUp(self) -> None:
        self.place = Path(self.mktemp()).absolute()
        self.place.mkdir()
        store = golden.store("5.3.3")
        records = expected("5.3.3", "store")
        publish(store, records[-1]["physicalOffset"] + records[-1]["size"])
        self.log = OfflineLog(store, 262144)
        self.rows = scan(store, columns=",".join(COLUMNS), visibility="log").read_all()
        self.keyed = next(row for row in records if row["properties"].get("KEYS") == "k1")
        self.sent = [Sent("k1", True, "", "A"), Sent("k2", False, "no")]

    def wrong(self, rows: pa.Table) -> str:
        """What the report says of a table."""
        write_deltalake(str(self.place / "table"), rows)
        facts = Facts(self.place / "table", self.place / "rates.png", self.sent)
        facts.commits = [(1_700_000_000.0, self.log.end)]
        facts.killed, facts.back = 1_700_000_000.0, 1_700_000_000.1
        found = "\n".join(Report(facts, self.log).wrong)
        self.assertTrue(facts.picture.read_bytes().startswith(b"\x89PNG"))
        return found

    def test_well(self) -> None:
        """A table with each record once is as it should be."""
        self.assertGreater(self.rows.num_rows, 200)
        self.assertEqual("", self.wrong(self.rows))

    def test_one_twice(self) -> None:
        """A record that is there twice is told of."""
        self.assertIn("1 more than once", self.wrong(pa.concat_tables([self.rows, self.rows[:1]])))

    def test_one_missing(self) -> None:
        """A record that is not there is told of, and a message that somebody relies on."""
        place = self.keyed["physicalOffset"]
        said = self.wrong(self.rows.filter(pc.not_equal(self.rows["physical_offset"], place)))
        self.assertIn("1 of one only", said)
        self.assertIn("1 of 1 are not in the table", said)
        self.assertIn(f"in the log at byte {place}, its row is missing", said)

    def test_not_in_the_log(self) -> None:
        """A message that somebody relies on and no store has is told of."""
        self.sent.append(Sent("nobody-has-it", True, ""))
        said = self.wrong(self.rows)
        self.assertIn("1 of 2 are not in the table: nobody-has-it, no id, is not in the log", said)

    def test_one_id_for_two(self) -> None:
        """Messages are known by the demo's keys: the client tells one id of two, or another's."""
        self.sent.append(Sent("flag7", True, "", "A"))
        self.assertEqual("", self.wrong(self.rows))
