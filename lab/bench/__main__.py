"""Measure what needs no Java, and write lab/bench/RESULTS.md: C{python -m lab.bench}, with the
options of L{lab.bench.table}.
"""

from __future__ import annotations

import sys

from lab.bench import busy_master, catchup, dispatching, queues, timers, trickle
from lab.bench.table import GIB, Bench

BENCH = Bench(
    name="bench",
    rows=[
        *catchup.ALONE,
        *busy_master.ROWS,
        *queues.ROWS,
        *trickle.ROWS,
        *timers.ROWS,
        *dispatching.ROWS,
    ],
    needed=9 * GIB,
    limit=3600.0,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
