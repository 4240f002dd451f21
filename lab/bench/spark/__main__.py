"""Run the measurements of the pipeline and write lab/bench/RESULTS-spark.md:
C{python -m lab.bench.spark [PART...] [--quick]}.

C{--quick} measures once on a smaller store, and writes nothing; so does naming parts.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from lab.bench.facts import machine, package, warm_memory, work_folder
from lab.bench.report import Row, page, table
from lab.bench.spark import decoding, idling, impact, pulls, reads, streams, uploads, writes
from lab.bench.spark.field import Field
from lab.bench.stock import java_version
from lab.stock import jars

RESULTS = Path(__file__).parents[1] / "RESULTS-spark.md"
NOTES = Path(__file__).with_name("notes.md")

TOTAL = 2_500_000_000
QUICK = 200_000_000

LIMIT = 3000.0
"""Seconds after which the whole run is given up."""

PACKAGES = ("pyspark", "pyarrow", "deltalake")

PARTS: dict[str, Callable[[Field], list[Row]]] = {
    "decoder": decoding.part,
    "count": reads.count,
    "large": reads.large,
    "noop": reads.noop,
    "export": writes.export,
    "read": writes.read,
    "stream": streams.steady,
    "s3": streams.in_s3,
    "flat": streams.flat,
    "late": streams.late,
    "idle": idling.part,
    "verify": writes.verify,
    "scale": reads.scale,
    "pull": pulls.part,
    "sync": impact.part,
    "tier": uploads.part,
}
"""What is measured, in this order."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the results.

    @return: The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.bench.spark", description="the pipeline")
    parser.add_argument("names", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="smaller, nothing is written")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    # Both as exceptions, so that every process started here is ended.
    signal.signal(signal.SIGALRM, _give_up)
    signal.signal(signal.SIGTERM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    total = QUICK if options.quick else TOTAL
    needed = max(4 * total, total + (reads.LARGE_QUICK if options.quick else reads.LARGE))
    begun = time.monotonic()
    facts = [
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        *machine(),
        f"{', '.join(map(package, PACKAGES))}, {java_version()}",
    ]
    print("\n".join(facts), flush=True)
    folder = work_folder(needed)
    facts.append(f"stores in {folder.parent}, a log of {total / 1e9:g} GB")
    if not options.quick:
        warm_memory(needed)
    field = Field(folder, total, options.quick)
    rows: list[Row] = []
    skipped: list[str] = []
    try:
        for name in options.names or PARTS:
            print(f"\n# {name}", flush=True)
            try:
                found = PARTS[name](field)
            except (jars.Missing, FileNotFoundError) as error:
                skipped.append(f"{name} was not measured: {error}")
                print(skipped[-1], flush=True)
                continue
            rows += found
            print("\n".join([*table(found), *(note for row in found for note in row.notes)]))
            took = f"took {(time.monotonic() - begun) / 60:.1f} minutes"
            print(took, flush=True)
            if not options.quick and not options.names:
                # After each, so that an interrupted run leaves what it found.
                notes = NOTES.read_text(encoding="utf-8")
                text = page("bench-spark", [*facts, took, *skipped], rows, notes)
                RESULTS.write_text(text, encoding="utf-8")
    finally:
        field.end()
        shutil.rmtree(folder, ignore_errors=True)
    missed = [row.what for row in rows if row.met is False]
    print(f"\nmissed: {', '.join(missed) or 'nothing'}")
    return 0


def _give_up(number: int, frame: FrameType | None) -> None:
    late = f"not done within {LIMIT:.0f} s"
    why = "told to stop" if number == signal.SIGTERM else late
    raise SystemExit(f"bench-spark given up: {why}")


if __name__ == "__main__":
    sys.exit(main())
