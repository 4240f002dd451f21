"""Tests for L{lab.bench.table} and L{lab.bench.report}."""

from __future__ import annotations

import io
import signal
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

from lab.bench import report, table
from lab.bench.__main__ import BENCH
from lab.bench.clients import BENCH as CLIENTS
from lab.bench.java import BENCH as JAVA
from lab.bench.report import RUNS, Line, page, with_run
from lab.bench.sets import BENCH as SETS
from lab.bench.table import Bench, Field, Figure, Row, Seen, Turn


class FigureTests(SynchronousTestCase):
    def line(self, figure: Figure, **values: list[float]) -> Line:
        line = figure.line({"x": values})
        assert line is not None
        return line

    def test_ratio(self) -> None:
        """A ratio of medians is to be at least its goal, or at most, and is met at the goal."""
        least, most = Figure("x", "rate", "/s", 1.5), Figure("x", "p99", "us", 0.8, most=True)
        for figure, ours, met in (
            (least, 3.0, True),
            (least, 2.9, False),
            (most, 1.6, True),
            (most, 1.7, False),
        ):
            self.assertIs(self.line(figure, ours=[ours, ours, 9.0], stock=[2.0]).met, met)
        line = self.line(least, ours=[3.0, 2.0, 4.0], stock=[2.0])
        self.assertEqual((line.ours, line.beside), ("3.00 /s [2.00..4.00]", "stock 2.00 /s"))
        self.assertEqual((line.ratio, line.goal), ("1.50", ">= 1.5x"))

    def test_alone(self) -> None:
        """Without an alternative the value itself has the goal."""
        alone = Figure("x", "start", "s", 10, most=True)
        line = self.line(alone, ours=[10.0])
        self.assertEqual((line.beside, line.ratio, line.goal), ("", "", "<= 10 s"))
        self.assertIs(line.met, True)
        apart = Figure("x", "start", "s", 10, most=True, ours="etcd", beside=None)
        self.assertIs(self.line(apart, ours=[1.0], other=[1.0], etcd=[11.0]).met, False)

    def test_named(self) -> None:
        """Of several contenders two are told apart by their names; without one there is no line."""
        figure = Figure("x", "kind", "us", ours="batches", beside="plain")
        line = self.line(figure, plain=[2.0], other=[1.0], batches=[8.0])
        self.assertEqual((line.ratio, line.met), ("4.00", None))
        self.assertIsNone(figure.line({"x": {"plain": [2.0]}}))
        self.assertIsNone(figure.line({}))

    def test_nothing(self) -> None:
        """What costs the alternative nothing has no ratio, and meets or misses nothing."""
        line = self.line(Figure("x", "slave", "us", 0.9, most=True), ours=[1.0], stock=[0.0])
        self.assertEqual((line.ratio, line.met), ("-", None))

    def test_quiet(self) -> None:
        """Where other work makes a round dear, the quiet ones are compared."""
        figure = Figure("x", "cost", "us", 1.1, most=True, quiet=True)
        values = {"ours": [1.0, 1.0, 9.0, 9.0, 9.0], "plain": [1.0] * 5}
        self.assertIs(self.line(figure, **values).met, True)


class PageTests(SynchronousTestCase):
    LINES = (Line(what="writes", ours="2 /s", ratio="0.50", goal=">= 1x", met=False),)

    def test_prose_and_runs(self) -> None:
        """What is written below a page by hand stays, and so does each commit's line."""
        old = (
            "# Old\n\n| table |\n\n## What is compared\n\nPairs.\n" + RUNS + "- aaa: writes 1.00\n"
        )
        text = page("bench", ["a fact"], self.LINES, old, "bbb")
        self.assertIn("- a fact\n", text)
        self.assertIn("missed in this run: writes.\n\n## What is compared\n\nPairs.\n", text)
        self.assertNotIn("Old", text)
        self.assertTrue(text.endswith(RUNS + "- aaa: writes 1.00\n- bbb: writes 0.50\n"))
        self.assertEqual(page("bench", ["a fact"], self.LINES, text, "bbb"), text)
        short = with_run(text, "ccc, short", self.LINES)
        self.assertEqual(short, text + "- ccc, short: writes 0.50\n")
        self.assertEqual(with_run(short, "ccc, short", self.LINES), short)

    def test_commit(self) -> None:
        """A page that is written after each row says one commit, though it makes the tree dirty."""
        said = iter(("aaa\n", "aaa-dirty\n"))
        report.commit.cache_clear()
        self.addCleanup(report.commit.cache_clear)
        git = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(stdout=next(said)))
        self.patch(report, "subprocess", git)
        self.assertEqual([report.commit(), report.commit()], ["aaa", "aaa"])

    def test_new(self) -> None:
        """A page that was not there begins with its first run."""
        text = page("bench", [], self.LINES, "", "aaa")
        self.assertTrue(text.endswith(RUNS + "- aaa: writes 0.50\n"))


class BenchTests(SynchronousTestCase):
    def run_rows(self, *arguments: str) -> list[str]:
        """What is loaded in which turn when a bench of three rows is started so."""
        loaded: list[str] = []

        def both(field: Field) -> dict[str, str]:
            return {"ours": "o", "other": "x"}

        def load(contender: str, turn: Turn) -> Seen:
            loaded.append(f"{contender}{turn.number}{' quick' if turn.quick else ''}")
            return {"x": 1.0}

        rows = [
            Row(name=name, set_up=both, load=load, figures=[Figure("x", name, "s")], rounds=2)
            for name in ("one", "two", "three")
        ]
        bench = Bench(name="bench-none", rows=rows, needed=0, limit=60.0)
        self.patch(signal, "signal", lambda number, call: None)
        self.patch(signal, "setitimer", lambda which, seconds: None)
        self.patch(table, "warm_memory", lambda size: 0)
        self.kept: list[tuple[list[str], bool]] = []
        self.patch(
            Bench,
            "keep",
            lambda _, version, facts, lines, quick: self.kept.append(
                ([line.what for line in lines], quick)
            ),
        )
        self.said = io.StringIO()
        with redirect_stdout(self.said):
            self.assertEqual(bench.main(arguments), 0)
        return loaded

    def test_turns(self) -> None:
        """All contenders warm up, and then take turns in either order."""
        self.assertEqual(self.run_rows("two"), ["x-1", "o-1", "o0", "x0", "x1", "o1"])
        self.assertIn(
            "| two | 1.00 s [1.00..1.00] | other 1.00 s [1.00..1.00] |", self.said.getvalue()
        )
        self.assertEqual(self.kept, [], "of all rows only")

    def test_short(self) -> None:
        """A short run measures all rows, once; it tells them together, and keeps a line."""
        for option in ("--quick", "--short"):
            self.assertEqual(
                self.run_rows(option), ["x-1 quick", "o-1 quick", "o0 quick", "x0 quick"] * 3
            )
            _, _, whole = self.said.getvalue().partition("\n# all\n")
            self.assertEqual([whole.count(f"\n| {name} |") for name in ("one", "three")], [1, 1])
            self.assertEqual(self.kept, [(["one", "two", "three"], True)])

    def test_no_time(self) -> None:
        """A row that a short run has no time for is named."""
        self.patch(table, "SHORT", -1.0)
        self.assertEqual(self.run_rows("--short"), [])
        for name in ("one", "two", "three"):
            self.assertIn(f"{name} was not measured: no time is left", self.said.getvalue())

    def test_only(self) -> None:
        """Some rows are measured in the table's order, whichever way they are named."""
        self.assertEqual(len(self.run_rows("--only", "three", "one")), 12)
        lines = [line for line in self.said.getvalue().splitlines() if line.startswith("# ")]
        self.assertEqual(lines, ["# one", "# three"])

    def test_unknown(self) -> None:
        """A row that is not there is told at once."""
        with redirect_stderr(io.StringIO()) as said:
            self.assertRaises(SystemExit, self.run_rows, "--only", "four")
        self.assertIn("four", said.getvalue())

    def test_rows(self) -> None:
        """The benches have the rows that goals and docs name."""
        for bench, wanted in (
            (BENCH, "catchup idle metrics kinds queues trickle timers dispatching"),
            (CLIENTS, "sync async flush topics consume slave-reads kinds pop"),
            (JAVA, "catchup idle sync"),
            (SETS, "switches writes"),
        ):
            self.assertLessEqual(set(wanted.split()), {row.name for row in bench.rows})
