"""Measure beside stock RocketMQ and write lab/bench/RESULTS-java.md: C{python -m lab.bench.java},
with the options of L{lab.bench.beside}.
"""

from __future__ import annotations

import sys

from lab.bench import pairs, sync
from lab.bench.beside import GIB, Bench, Field
from lab.bench.report import Row

NEEDED = 6 * GIB
"""Two masters' logs, a slave of each for the idle rows, queues and index; or a master's and two
slaves' logs of more than a million messages."""

ROUNDS = 5

CATCH_UP_UNTIL = 300.0
"""Seconds after which no more rounds of catching up begin; a round takes about 45."""

SYNC_UNTIL = 560.0
"""The same for SYNC writes; a round takes about 35."""

LIMIT = 800.0
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
  take turns, and each is warmed up with 100,000 messages first, as a stock slave is a new JVM
  each time; in the first round with 300,000, for the master and the producers.
- **Processor time a message** is that of all threads of the process, in user mode and in the
  kernel, from the first send to the last answer, divided by the messages. The producer's process
  holds the name server too. All JVMs have the heap that is said above.
"""


def _total(quick: bool) -> int:
    return GIB // 4 if quick else GIB


def _catch_up(field: Field) -> list[Row]:
    return pairs.run(
        field.folder,
        field.tool,
        _total(field.quick),
        1 if field.quick else ROUNDS,
        field.begun + CATCH_UP_UNTIL,
        5.0 if field.quick else 20.0,
    )


def _sync(field: Field) -> list[Row]:
    return sync.run(
        field.folder,
        field.tool,
        2000 if field.quick else 10_000,
        1 if field.quick else ROUNDS,
        field.begun + SYNC_UNTIL,
    )


BENCH = Bench(
    name="bench-java",
    parts={"catchup": _catch_up, "sync": _sync},
    needed=NEEDED,
    limit=LIMIT,
    size=lambda quick: f"a log of {_total(quick) / GIB:g} GiB to catch up with",
    notes=NOTES,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
