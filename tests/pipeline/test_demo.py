"""
Tests for what C{make demo-pipeline} checks at its end: it has to see what is wrong.
"""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from lab.bench.corpus import write_log
from lab.demo.traffic import Sent
from rmqha.logfiles.offline_log import OfflineLog
from tests.support.rows import publish

try:
    import matplotlib  # noqa: F401
    import pyarrow as pa
    from deltalake import write_deltalake

    from lab.demo_pipeline.report import COLUMNS, Facts, Report
    from rmqha.pipeline.scan import scan
except ImportError as missing:  # without the extras
    skip = f"the extras pipeline, delta and plots are not installed: {missing}"

KEY = "%032X"


class ReportTests(SynchronousTestCase):
    """
    A log with a few hundred records, and tables of it.
    """

    def setUp(self) -> None:
        self.place = Path(self.mktemp()).absolute()
        store = self.place / "store"
        size = 1 << 18
        publish(store, write_log(store / "commitlog", size, file_size=size, bodies=(500,)))
        self.log = OfflineLog(store, size)
        self.rows = scan(store, columns=",".join(COLUMNS), visibility="log").read_all()
        self.sent = [Sent("BenchTopic-1", True, "", KEY % 7), Sent("BenchTopic-2", False, "no")]

    def wrong(self, rows: pa.Table) -> str:
        """
        What the report says of a table.
        """
        write_deltalake(str(self.place / "table"), rows)
        facts = Facts(self.place / "table", self.place / "rates.png", self.sent)
        facts.commits = [(1_700_000_000.0, self.log.end)]
        facts.killed, facts.back = 1_700_000_000.0, 1_700_000_000.1
        found = "\n".join(Report(facts, self.log).wrong)
        self.assertTrue(facts.picture.read_bytes().startswith(b"\x89PNG"))
        return found

    def test_well(self) -> None:
        """
        A table with each record once is as it should be.
        """
        self.assertGreater(self.rows.num_rows, 200)
        self.assertEqual("", self.wrong(self.rows))

    def test_one_twice(self) -> None:
        """
        A record that is there twice is told of.
        """
        self.assertIn("1 more than once", self.wrong(pa.concat_tables([self.rows, self.rows[:1]])))

    def test_one_missing(self) -> None:
        """
        A record that is not there is told of, and a message that somebody relies on.
        """
        said = self.wrong(pa.concat_tables([self.rows[:7], self.rows[8:]]))
        self.assertIn("1 of one only", said)
        self.assertIn("1 of 1 are not in the table", said)

    def test_no_keys(self) -> None:
        """
        Without a message's own id nothing is proved.
        """
        self.sent.append(Sent("BenchTopic-3", True, ""))
        self.assertIn("of 2 are not in the table", self.wrong(self.rows))
