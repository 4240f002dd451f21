"""A run of measurements beside stock RocketMQ, which Maven fetches: options, limits, and the
page that is written.

Options: C{--rocketmq VERSION}, whose results get a file of their own if it is not the first
that C{make interop} knows; C{--quick}, which measures less and writes nothing; C{--only PART...}.
Without Maven or a JDK nothing is measured, and the exit code is 0.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from attrs import frozen

from lab.bench.facts import machine, warm_memory, work_folder
from lab.bench.report import Row, page, table
from lab.bench.stock import JVM, Peer, java_version
from lab.stock import jars

RESULTS = Path(__file__).parent

GIB = 1 << 30


@frozen
class Field:
    """What a part measures with.

    @ivar folder: The part's own; it is deleted after the run.
    @ivar tool: Producers, consumers and a name server, all stock.
    @ivar quick: Whether to measure less.
    @ivar begun: When the run began, in the monotonic clock's seconds.
    """

    folder: Path
    tool: Peer
    quick: bool
    begun: float


Part = Callable[[Field], list[Row]]


@frozen(kw_only=True)
class Bench:
    """One target of C{make}.

    @ivar name: The target's.
    @ivar parts: What it measures, in this order.
    @ivar needed: Bytes of all stores that are there at one time.
    @ivar limit: Seconds after which the whole run is given up.
    @ivar size: Words for how much is measured, if it is quick or not.
    @ivar notes: Markdown below the results.
    @ivar versions: What it can be measured beside; by default the first.
    """

    name: str
    parts: Mapping[str, Part]
    needed: int
    limit: float
    size: Callable[[bool], str]
    notes: str
    versions: Sequence[str] = jars.VERSIONS

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Measure, print, and keep the results.

        @return: The exit code.
        """
        module = f"lab.bench.{self.name.removeprefix('bench-')}"
        parser = argparse.ArgumentParser(prog=f"python -m {module}", description="beside RocketMQ")
        parser.add_argument("--rocketmq", choices=self.versions, default=self.versions[0])
        parser.add_argument(
            "--only",
            nargs="+",
            choices=tuple(self.parts),
            default=(),
            metavar="PART",
            help=f"some of {', '.join(self.parts)}; writes nothing",
        )
        parser.add_argument("--quick", action="store_true", help="smaller, writes nothing")
        options = parser.parse_args(arguments)
        try:
            jars.resolve(options.rocketmq)
        except jars.Missing as error:
            print(f"{self.name} skipped: RocketMQ {options.rocketmq}: {error}")
            return 0
        # Both as exceptions, so that every process started here is ended.
        signal.signal(signal.SIGALRM, self._give_up)
        signal.signal(signal.SIGTERM, self._give_up)
        signal.setitimer(signal.ITIMER_REAL, self.limit)
        self._measure(options.rocketmq, options.quick, options.only)
        return 0

    def _give_up(self, number: int, frame: FrameType | None) -> None:
        late = f"not done within {self.limit:.0f} s"
        why = "told to stop" if number == signal.SIGTERM else late
        raise SystemExit(f"{self.name} given up: {why}")

    def _measure(self, version: str, quick: bool, only: Sequence[str]) -> None:
        begun = time.monotonic()
        facts = [
            datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            *machine(),
            f"RocketMQ {version}, {java_version()}, {' '.join(JVM)}",
        ]
        print("\n".join(facts), flush=True)
        folder = work_folder(self.needed)
        facts.append(f"stores in {folder.parent}, {self.size(quick)}")
        warmed = warm_memory(self.needed + 3 * GIB)
        facts.append(f"{warmed / GIB:.0f} GiB of memory touched beforehand")
        rows: list[Row] = []
        tool = Peer(folder, version)
        took = ""
        try:
            tool.start()
            for name, part in self.parts.items():
                if only and name not in only:
                    continue
                print(f"\n# {name}", flush=True)
                found = part(Field(folder / name, tool, quick, begun))
                rows += found
                print("\n".join([*table(found), *(note for row in found for note in row.notes)]))
                took = f"took {(time.monotonic() - begun) / 60:.1f} minutes"
                if not quick and not only:
                    # After each, so that an interrupted run leaves what it found.
                    text = page(self.name, [*facts, took], rows, self.notes)
                    self.kept(version).write_text(text, encoding="utf-8")
        finally:
            tool.kill9()
            shutil.rmtree(folder, ignore_errors=True)
        missed = [row.what for row in rows if row.met is False]
        print(f"\nmissed: {', '.join(missed) or 'nothing'}; {took}")

    def kept(self, version: str) -> Path:
        """Where the results beside a version are kept."""
        more = "" if version == self.versions[0] else f"-{version}"
        return RESULTS / f"RESULTS-{self.name.removeprefix('bench-')}{more}.md"
