"""The table of measurements: each row says what is set up, what load each contender gets in turn,
and which figures of it are told, with their goals.

Options of all benches: C{[ROW...]} or C{--only ROW...} for some rows, which write nothing, and
C{--quick} (or C{--short}) for less of all: ten minutes before a release, of which the page keeps a
line of ratios where all rows were measured.  What stands beside stock RocketMQ, which Maven
fetches, has C{--rocketmq VERSION}; without Maven or a JDK nothing is measured, and the exit code is
0.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

from attrs import define, field, frozen

from lab.bench.facts import disk_folder, machine, warm_memory, work_folder
from lab.bench.report import RESULTS, Line, commit, missed, page, spread, table, with_run
from lab.bench.stock import Peer, java_version
from lab.harness.nodes import end_all
from lab.stock import jars

GIB = 1 << 30

SHORT = 500.0
"""Seconds of a short run after which it begins no other row: so it takes ten minutes at most."""

Seen = Mapping[str, float]
"""What a load gives, by the figures' names."""

Found = Mapping[str, Mapping[str, list[float]]]
"""Values of all rounds by figure and contender."""


@define(slots=False)
class Field:
    """What rows measure in.

    @ivar place: A folder that is deleted at the end; in it is L{folder}, for one row at a time.
    @ivar begun: When the run began.
    @ivar opened: What a row has opened, and is closed behind it.
    """

    place: Path
    version: str
    quick: bool
    begun: float
    opened: ExitStack = field(factory=ExitStack, init=False)

    @property
    def folder(self) -> Path:
        return self.place / "row"

    @cached_property
    def tool(self) -> Peer:
        """Producers, consumers and a name server, all stock."""
        return Peer(self.place, self.version).start()

    def on_disk(self, needed: int) -> Path:
        """A folder on a disk, with enough room; L{jars.Missing} if there is none."""
        found = disk_folder(needed)
        if found is None:
            raise jars.Missing("no disk with enough room")
        self.opened.callback(shutil.rmtree, found, ignore_errors=True)
        return found

    @contextmanager
    def cleared(self) -> Iterator[None]:
        """End what is started meanwhile, all but L{tool}, and delete what it leaves."""
        self.folder.mkdir(exist_ok=True)
        try:
            yield
        finally:
            end_all(*([self.tool] if "tool" in vars(self) else []))
            self.opened.close()
            shutil.rmtree(self.folder, ignore_errors=True)


@frozen
class Turn:
    """A contender's turn; those with a negative number only warm up."""

    number: int
    quick: bool


def call(load: Callable[[Turn], Seen], turn: Turn) -> Seen:
    """The load of a contender that is one itself."""
    return load(turn)


@frozen
class Figure:
    """One line of the results.

    @ivar goal: What the ratio to the alternative should be at least, or the value itself where
        there is none; with C{most} at most.
    @ivar ours: The contender it is told of, by default the first; C{beside} the alternative, by
        default the second, if there is one; C{None} for none.
    @ivar quiet: Whether what a tenth of the rounds does not exceed is compared: other work of the
        machine makes a round dearer, and never cheaper.
    """

    name: str
    what: str
    unit: str
    goal: float | None = None
    most: bool = False
    ours: str = ""
    beside: str | None = ""
    quiet: bool = False

    def _middle(self, values: Sequence[float]) -> float:
        if self.quiet and len(values) > 1:
            return statistics.quantiles(values, n=10)[0]
        return statistics.median(values)

    def line(self, found: Found) -> Line | None:
        """@return: Nothing, if it was not seen of both."""
        values = found.get(self.name, {})
        names = [*values, ""]
        ours, beside = self.ours or names[0], self.beside
        if beside == "":
            beside = names[1 if values else 0]
        if ours not in values or (beside and beside not in values):
            return None
        value = self._middle(values[ours])
        ratio = None
        if beside:
            other = self._middle(values[beside])
            ratio = value / other if other else None
            value = float("nan") if ratio is None else ratio
        sign, unit = "<=" if self.most else ">=", "x" if beside else f" {self.unit}"
        met = None
        # What a short run does not use a tick of has no ratio.
        if self.goal is not None and (ratio is not None or not beside):
            met = value <= self.goal if self.most else value >= self.goal
        return Line(
            what=self.what,
            ours=spread(values[ours], self.unit),
            beside=f"{beside} {spread(values[beside], self.unit)}" if beside else "",
            ratio="" if not beside else "-" if ratio is None else f"{ratio:.2f}",
            goal="" if self.goal is None else f"{sign} {self.goal:g}{unit}",
            met=met,
        )


@frozen(kw_only=True)
class Row:
    """One row of the table: contenders, ours first, and the load that each gets in its turn.

    @ivar set_up: Starts them; what it starts is ended by the table.
    @ivar until: Seconds of the run after which no more rounds begin.
    @ivar warm: Rounds that do not count, before those that do.
    """

    name: str
    set_up: Callable[[Field], Mapping[str, Any]]
    load: Callable[[Any, Turn], Seen]
    figures: Sequence[Figure]
    rounds: int = 5
    warm: int = 1
    until: float = float("inf")

    def measure(self, field: Field) -> list[Line]:
        """Put the load on all contenders, in turns."""
        found: dict[str, dict[str, list[float]]] = {}
        with field.cleared():
            contenders = self.set_up(field)
            for number in range(-self.warm, 1 if field.quick else self.rounds):
                if number > 0 and time.monotonic() - field.begun > self.until:
                    break
                # In either order: what runs later finds a warmer machine.
                for name in list(contenders)[:: -1 if number % 2 else 1]:
                    seen = self.load(contenders[name], Turn(number, field.quick))
                    told = ", ".join(f"{key} {value:.4g}" for key, value in seen.items())
                    print(f"{name}: {told}", flush=True)
                    for each, value in seen.items() if number >= 0 else ():
                        values = found.setdefault(each, {name: [] for name in contenders})
                        values[name].append(value)
        whole = {
            each: {name: some for name, some in values.items() if some}
            for each, values in found.items()
        }
        return [line for figure in self.figures if (line := figure.line(whole)) is not None]


@frozen(kw_only=True)
class Bench:
    """One target of C{make}, and the rows that it measures.

    @ivar needed: Bytes of all stores that are there at one time.
    @ivar limit: Seconds after which the whole run is given up.
    @ivar versions: Of RocketMQ, beside which it can be measured; the first by default.
    """

    name: str
    rows: Sequence[Row]
    needed: int
    limit: float
    versions: Sequence[str] = ()

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Measure, print, and keep the results."""
        names = [row.name for row in self.rows]
        parser = argparse.ArgumentParser(description=f"what `make {self.name}` measures")
        parser.add_argument("names", nargs="*", metavar="ROW", help=", ".join(names))
        parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="the same")
        parser.add_argument(
            "--quick", "--short", action="store_true", help="less of all, in ten minutes"
        )
        if self.versions:
            parser.add_argument("--rocketmq", choices=self.versions, default=self.versions[0])
        options = parser.parse_args(arguments)
        only = options.names + options.only
        if unknown := [name for name in only if name not in names]:
            parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(names)}")
        version = options.rocketmq if self.versions else ""
        if version:
            try:
                jars.resolve(version)
            except jars.Missing as error:
                print(f"{self.name} skipped: RocketMQ {version}: {error}")
                return 0
        # Both as exceptions, so that every process started here is ended.
        signal.signal(signal.SIGALRM, self._give_up)
        signal.signal(signal.SIGTERM, self._give_up)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        rows = [row for row in self.rows if not only or row.name in only]
        self._measure(rows, version, options.quick, kept=not only)
        return 0

    def _give_up(self, number: int, frame: FrameType | None) -> None:
        late = f"not done within {self.limit:.0f} s"
        why = "told to stop" if number == signal.SIGTERM else late
        raise SystemExit(f"{self.name} given up: {why}")

    def _measure(self, rows: Iterable[Row], version: str, quick: bool, *, kept: bool) -> None:
        begun = time.monotonic()
        facts = [datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), *machine()]
        if version:
            facts.append(f"RocketMQ {version}, {java_version()}, {' '.join(Peer.jvm)}")
        field = Field(work_folder(self.needed), version, quick, begun)
        facts.append(f"stores in {field.place.parent}")
        print("\n".join(facts), flush=True)
        if not quick:
            warm_memory(self.needed + 2 * GIB)
        lines: list[Line] = []
        try:
            for row in rows:
                print(f"\n# {row.name}", flush=True)
                try:
                    if quick and time.monotonic() - begun > SHORT:
                        raise jars.Missing("no time is left")
                    found = row.measure(field)
                except jars.Missing as error:
                    facts.append(f"{row.name} was not measured: {error}")
                    print(facts[-1], flush=True)
                    continue
                lines += found
                took = f"took {(time.monotonic() - begun) / 60:.1f} minutes"
                print("\n".join([*table(found), took]), flush=True)
                if kept and not quick:
                    # After each, so that an interrupted run leaves what it found.
                    self.keep(version, [*facts, took], lines, quick)
        finally:
            end_all()
            shutil.rmtree(field.place, ignore_errors=True)
        if kept and quick:
            print("\n".join(["\n# all", *facts, *table(lines)]))
            self.keep(version, facts, lines, quick)
        print(f"\nmissed: {missed(lines)}")

    def keep(self, version: str, facts: Sequence[str], lines: Sequence[Line], quick: bool) -> None:
        name = "RESULTS" + self.name.removeprefix("bench")
        if self.versions and version != self.versions[0]:
            name += f"-{version}"
        path = RESULTS / f"{name}.md"
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if quick:
            text = with_run(old, f"{commit()}, short", lines)
        else:
            text = page(self.name, facts, lines, old, commit())
        path.write_text(text, encoding="utf-8")
