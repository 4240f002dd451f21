"""
Measure beside stock RocketMQ and write bench/RESULTS-java.md: C{python -m bench.java}.

Options: C{--rocketmq VERSION}, whose results get a file of their own if it is not the first
that C{make interop} knows; C{--quick}, which measures a smaller log in one round and
writes nothing; C{--only catchup} or C{--only sync}.  Without Maven or a JDK nothing is measured,
and the exit code is 0.
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

from bench import pairs, sync
from bench.facts import machine, warm_memory, work_folder
from bench.report import Row, page, table
from bench.stock import JVM, Peer, java_version
from tests.interop import jars

RESULTS = Path(__file__).parent

GIB = 1 << 30

NEEDED = 5 * GIB
"""Two masters' logs, a slave of each for the idle rows, queues and index."""

ROUNDS = 5

CATCH_UP_UNTIL = 300.0
"""Seconds after which no more rounds of catching up begin; a round takes about 45."""

SYNC_UNTIL = 520.0
"""The same for SYNC writes; a round takes about 25."""

LIMIT = 700.0
"""Seconds after which the whole run is given up."""

NOTES = """\
## What is compared

- **Pairs** are named master -> slave; ratios are to the stock pair. Speeds count from the first
  bytes a slave shows, so neither the start of a JVM (about 4 s) nor the 5 s for which a stock
  slave waits before its first report count.
- A stock slave is a JVM that has just started, as any empty slave's is: it compiles while it
  copies. Masters are warm after the first round.
- **Dispatch.** A stock slave builds queues in a thread of its own while it copies; ours does it
  in the reactor's thread, mostly afterwards.
- **SYNC writes** run through the same master and the same producer, which stay up; the slaves
  take turns, and each is warmed up first.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Measure, print, and keep the results.

    @return: The exit code.
    """
    parser = argparse.ArgumentParser(prog="python -m bench.java", description="beside RocketMQ")
    parser.add_argument("--rocketmq", choices=jars.VERSIONS, default=jars.VERSIONS[0])
    parser.add_argument("--only", choices=("catchup", "sync"), help="one part; writes nothing")
    parser.add_argument("--quick", action="store_true", help="smaller, one round, writes nothing")
    options = parser.parse_args(arguments)
    try:
        jars.resolve(options.rocketmq)
    except jars.Missing as error:
        print(f"bench-java skipped: RocketMQ {options.rocketmq}: {error}")
        return 0
    # Both as exceptions, so that every process started here is ended.
    signal.signal(signal.SIGALRM, _give_up)
    signal.signal(signal.SIGTERM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    _measure(options)
    return 0


def _give_up(number: int, frame: FrameType | None) -> None:
    why = "told to stop" if number == signal.SIGTERM else f"not done within {LIMIT:.0f} s"
    raise SystemExit(f"bench-java given up: {why}")


def _measure(options: argparse.Namespace) -> None:
    begun = time.monotonic()
    quick, version = options.quick, options.rocketmq
    facts = [
        datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        *machine(),
        f"RocketMQ {version}, {java_version()}, {' '.join(JVM)}",
    ]
    print("\n".join(facts), flush=True)
    total = GIB // 4 if quick else GIB
    folder = work_folder(NEEDED)
    facts.append(f"stores in {folder.parent}, a log of {total / GIB:g} GiB to catch up with")
    facts.append(f"{warm_memory(NEEDED + 3 * GIB) / GIB:.0f} GiB of memory touched beforehand")
    rounds = 1 if quick else ROUNDS
    kept = RESULTS / (
        "RESULTS-java.md" if version == jars.VERSIONS[0] else f"RESULTS-java-{version}.md"
    )
    rows: list[Row] = []
    tool = Peer(folder, version)
    parts: dict[str, Callable[[], list[Row]]] = {
        "catchup": lambda: pairs.run(
            folder / "pairs", tool, total, rounds, begun + CATCH_UP_UNTIL, 5.0 if quick else 20.0
        ),
        "sync": lambda: sync.run(
            folder / "sync", tool, 2000 if quick else 10_000, rounds, begun + SYNC_UNTIL
        ),
    }
    took = ""
    try:
        tool.start()
        for name, part in parts.items():
            if options.only not in (None, name):
                continue
            print(f"\n# {name}", flush=True)
            found = part()
            rows += found
            print("\n".join([*table(found), *(note for row in found for note in row.notes)]))
            took = f"took {(time.monotonic() - begun) / 60:.1f} minutes"
            if not quick and options.only is None:
                # After each, so that an interrupted run leaves what it found.
                kept.write_text(page("bench-java", [*facts, took], rows, NOTES), encoding="utf-8")
    finally:
        tool.kill9()
        shutil.rmtree(folder, ignore_errors=True)
    missed = [row.what for row in rows if row.met is False]
    print(f"\nmissed: {', '.join(missed) or 'nothing'}; {took}")


if __name__ == "__main__":
    sys.exit(main())
