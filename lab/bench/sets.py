"""Measure sets with a controller beside stock ones and write lab/bench/RESULTS-sets.md:
C{python -m lab.bench.sets}, with the options of L{lab.bench.beside}.
"""

from __future__ import annotations

import sys

from lab.bench import set_writes, switches
from lab.bench.beside import GIB, Bench, Field
from lab.bench.report import Row
from lab.stock.controllers import VERSION

NEEDED = 2 * GIB
"""What three members write of their logs, queues and index."""

ROUNDS = 5

SWITCHES_UNTIL = 900.0
"""Seconds after which no more rounds of switches begin; a round takes about 150."""

WRITES_UNTIL = 1500.0
"""The same for SYNC writes; a round takes about 100."""

LIMIT = 2400.0
"""Seconds after which the whole run is given up."""

NOTES = """\
## What is compared

- **Sets** have three members and one stock controller, which scans every five seconds for members
  that have not been heard for ten, as by default. Stock members have
  `allAckInSyncStateSet=true`: without it a write is answered by the master alone.
- **Until a write is answered 0** is seen by four clients of ours that go to the next member at
  once; stock producers ask for routes every half a minute. A stock master that is alone in its
  SyncStateSet answers 0 with one copy. Ours never does: it answers 0 when another member is back.
- **All that live are in sync** when the controller says so: before, nobody could take over.
- **Consumption repeated**: a reader commits after every message; the offset that the successor
  knows is so many seconds old at the kill.
- **Cut off from everybody** is a master that stands still (SIGSTOP): nothing from it arrives.
- **SYNC writes** are a stock producer's through each of them, fresh and warmed up. Those of
  a set of three wait for two members, those of a pair for one.

## What the limit is

All members, the controller and the producers share two processors. A set of three has one slave
more than a pair: 20 us of processor time a message for the master, 9 for each slave and 27 for the
producer, against 15.5, 8 and 24.5. That alone is 0.74 of the pair's rate; a master elsewhere than
its slaves and producers would be bound by its own 20 us. A single producer waits for the slower one
of two slaves, which take turns on what the producer and the master leave them.

After a kill a stock successor may answer 0 with its own copy alone. Ours waits until another
member has connected, compared and reported: 0.07 s more here, and no acknowledged write in one
place.
"""


def _switches(field: Field) -> list[Row]:
    return switches.run(
        field.folder,
        field.tool,
        1 if field.quick else ROUNDS,
        field.begun + SWITCHES_UNTIL,
        5.0 if field.quick else 20.0,
    )


def _writes(field: Field) -> list[Row]:
    return set_writes.run(
        field.folder,
        field.tool,
        1000 if field.quick else 10_000,
        1 if field.quick else ROUNDS,
        field.begun + WRITES_UNTIL,
    )


BENCH = Bench(
    name="bench-sets",
    parts={"switches": _switches, "writes": _writes},
    needed=NEEDED,
    limit=LIMIT,
    size=lambda quick: f"{1 if quick else ROUNDS} rounds at most",
    notes=NOTES,
    versions=(VERSION,),
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
