"""Run all measurements and write lab/bench/RESULTS.md: C{python -m lab.bench [NAME...] [--quick]}.

Names: C{catchup}, C{latency}, C{steps}, C{recovery}, C{connections}, C{idle}, C{cold},
C{offsets}, C{checksums}, C{metrics}, C{floods}, C{queues}, C{trickle}, C{ha_tls}, C{kinds},
C{timers}, C{dispatching}; all by default.
C{--quick} measures on smaller logs and writes nothing.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from lab.bench import (
    catchup,
    checksums,
    cold,
    connections,
    dispatching,
    floods,
    ha_tls,
    idle,
    kinds,
    latency,
    metrics,
    offsets,
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and keep the results."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench", description="rmqha beside others")
    parser.add_argument("names", nargs="*", metavar="NAME", help="catchup, latency, ...")
    parser.add_argument("--gib", type=int, default=4, help="size of the log to catch up with")
    parser.add_argument("--quick", action="store_true", help="smaller logs, nothing is written")
    options = parser.parse_args(arguments)
    total = GIB if options.quick else options.gib * GIB
    rounds = 3
    runs: dict[str, Callable[[Path], list[Row]]] = {
        "catchup": lambda folder: catchup.run(folder, total, rounds),
        "recovery": lambda folder: recovery.run(folder, GIB),
        "connections": connections.run,
        "latency": lambda folder: latency.run(folder, 4000 if options.quick else 20_000, rounds),
        "steps": lambda folder: steps.run(folder, 2000 if options.quick else 10_000, rounds),
        "idle": lambda folder: idle.run(folder, GIB, 10.0 if options.quick else 20.0),
        "offsets": lambda folder: offsets.run(folder, 60, (4 if options.quick else 30) * rounds),
        "checksums": lambda folder: checksums.run(
            folder, 60, (4 if options.quick else 30) * rounds
        ),
        "metrics": lambda folder: metrics.run(
            folder,
            60,
            (4 if options.quick else 25) * rounds,
            3 if options.quick else 5,
        ),
        "cold": lambda folder: cold.run(folder, GIB, 10.0 if options.quick else 40.0, rounds),
        "floods": lambda folder: floods.run(folder, 3.0 if options.quick else 10.0, rounds),
        "queues": lambda folder: queues.run(folder, 1000 if options.quick else 10_000, rounds),
        "trickle": lambda folder: trickle.run(
            folder,
            1000 if options.quick else 10_000,
            5 if options.quick else 20,
            1 if options.quick else rounds,
        ),
        "ha_tls": lambda folder: ha_tls.run(
            folder, GIB, 1000 if options.quick else 10_000, 1 if options.quick else rounds
        ),
        "kinds": lambda folder: kinds.run(
            folder, 4096 if options.quick else 16_384, 4 if options.quick else 4 * rounds
        ),
        "timers": lambda folder: timers.run(
            folder, 2000 if options.quick else 10_000, 50_000 if options.quick else 1_000_000
        ),
        "dispatching": lambda folder: dispatching.run(
            folder, 8192 if options.quick else 32_768, 1 if options.quick else rounds
        ),
    }
    unknown = [name for name in options.names if name not in runs]
    if unknown:
        parser.error(f"no such measurement: {', '.join(unknown)}; there are {', '.join(runs)}")
    begun = time.monotonic()
    facts = [datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), *machine()]
    print("\n".join(facts), flush=True)
    folder = work_folder(2 * total + GIB)
    facts.append(f"stores in {folder.parent}, a log of {total // GIB} GiB to catch up with")
    warmed = warm_memory(2 * total + 2 * GIB)
    facts.append(f"{warmed / GIB:.0f} GiB of memory touched beforehand")
    rows: list[Row] = []
    try:
        for name in options.names or runs:
            print(f"\n# {name}", flush=True)
            found = runs[name](folder / name)
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
