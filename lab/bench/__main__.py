"""Run all measurements and write lab/bench/RESULTS.md: C{python -m lab.bench [NAME...] [--quick]}.

C{NAME}s are those of L{RUNS}; all by default.  C{--quick} measures on smaller logs and writes
nothing.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from lab.bench import (
    busy_master,
    catchup,
    cold,
    connections,
    dispatching,
    floods,
    idle,
    kinds,
    latency,
    metrics,
    queues,
    recovery,
    steps,
    timers,
    trickle,
)
from lab.bench.facts import machine, warm_memory, work_folder
from lab.bench.report import Row, page, table

RESULTS = Path(__file__).with_name("RESULTS.md")

GIB = 1 << 30

LIMITS = """\
## What the limit is

- **Catch-up.** Four things cost: the kernel's copy out of the socket, the first touch of
  each page of a new file, the check of the records, and the interpreter's work for each
  frame of 32 KiB. The raw copy pays the page faults (0.35 s of processor time a GiB here) in
  the process that copies. A slave has a thread that makes pages present ahead of the end,
  without the interpreter's lock, so on two processors it can be faster than the raw copy
  although it does more. On one processor, or with both busy, it cannot.
- **Until queues and index are built.** One thread copies, checks and dispatches, so the
  times add up. A check costs 0.2 s a GiB of 1 KiB records and dispatch 0.3 s, so it goes
  along with the copy. Where nothing is compiled they cost 0.8 s and 0.5 s, and the copy
  comes first: dispatch gets 4 ms of each tenth of a second until the bytes have arrived,
  and the whole reactor (in slices of 4 ms) afterwards. A thread for either does not help:
  the reactor, which lets go of the interpreter's lock twice a frame, waits for the thread
  each time it wants it back (tried: the copy went at half its speed).
- **SYNC writes.** Encode, append, check and ledger together are about 12 us. The rest is the
  way through two reactors (epoll, callbacks, one read for the header and one for body and
  next header, two sends) and two wake-ups. Two blocking sockets have only the wake-ups.
- **Restart.** A queue costs about 70 us of a start: its folder is listed, its file opened, its last
  units read and held against the log. On a disk whose directories are not in memory each queue
  costs two or three reads besides. A stop writes out what changed in the last minute; where that
  is a thousand files or more, with their whole file system.
- **Very many clients.** Each message comes alone on its connection, so nothing is done for
  several at a time: a wake-up of the connection, a receive, a send. A message's time counts from
  the moment it should have been sent, so the lateness of the clients' process is in it.
"""


RUNS: dict[str, tuple[Callable[..., list[Row]], tuple[float, ...], tuple[float, ...]]] = {
    "catchup": (catchup.run, (GIB, 3), (4 * GIB, 3)),
    "recovery": (recovery.run, (GIB,), (GIB,)),
    "connections": (connections.run, (), ()),
    "latency": (latency.run, (4000, 3), (20_000, 3)),
    "steps": (steps.run, (2000, 3), (10_000, 3)),
    "idle": (idle.run, (GIB, 10.0), (GIB, 20.0)),
    "offsets": (busy_master.offsets, (60, 12), (60, 90)),
    "checksums": (busy_master.checksums, (60, 12), (60, 90)),
    "metrics": (metrics.run, (60, 12, 3), (60, 75, 5)),
    "cold": (cold.run, (GIB, 10.0, 3), (GIB, 40.0, 3)),
    "floods": (floods.run, (3.0, 3), (10.0, 3)),
    "queues": (queues.run, (1000, 3), (10_000, 3)),
    "trickle": (trickle.run, (1000, 5, 1), (10_000, 20, 3)),
    "kinds": (kinds.run, (4096, 4), (16_384, 12)),
    "timers": (timers.run, (2000, 50_000), (10_000, 1_000_000)),
    "dispatching": (dispatching.run, (8192, 1), (32_768, 3)),
}
"""What is measured, in this order: how, and how much of it, quick and as it is written."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench", description="rmqha beside others")
    parser.add_argument("names", nargs="*", metavar="NAME", help="catchup, latency, ...")
    parser.add_argument("--quick", action="store_true", help="smaller logs, nothing is written")
    options = parser.parse_args(arguments)
    total = (1 if options.quick else 4) * GIB
    unknown = [name for name in options.names if name not in RUNS]
    if unknown:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are {', '.join(RUNS)}")
    begun = time.monotonic()
    facts = [datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), *machine()]
    print("\n".join(facts), flush=True)
    folder = work_folder(2 * total + GIB)
    facts.append(f"stores in {folder.parent}, a log of {total // GIB} GiB to catch up with")
    warmed = warm_memory(2 * total + 2 * GIB)
    facts.append(f"{warmed / GIB:.0f} GiB of memory touched beforehand")
    rows: list[Row] = []
    try:
        for name in options.names or RUNS:
            print(f"\n# {name}", flush=True)
            run, quick, whole = RUNS[name]
            found = run(folder / name, *(quick if options.quick else whole))
            print("\n".join(table(found)), flush=True)
            for row in found:
                print("\n".join(row.notes), end="\n" if row.notes else "", flush=True)
            rows += found
            took = f"took {(time.monotonic() - begun) / 60:.1f} minutes"
            if not options.quick and not options.names:
                # After each, so that an interrupted run leaves what it found.
                RESULTS.write_text(page("bench", [*facts, took], rows, LIMITS), encoding="utf-8")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    missed = [row.what for row in rows if row.met is False]
    print(f"\nmissed: {', '.join(missed) or 'nothing'}; {took}")


if __name__ == "__main__":
    main()
