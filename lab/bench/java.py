"""Measure beside stock RocketMQ and write lab/bench/RESULTS-java.md: C{python -m lab.bench.java},
with the options of L{lab.bench.table}.
"""

from __future__ import annotations

import sys

from lab.bench.catchup import BESIDE
from lab.bench.sends import BODY, MANY, WARM_MESSAGES, Target, figures
from lab.bench.serving import QUEUES
from lab.bench.stock import STOCK, SYNC, Stock
from lab.bench.table import GIB, Bench, Field, Row, Seen, Turn
from lab.harness.nodes import Node
from lab.stock import jars

WARM_UP = 100_000
"""Messages that warm up a new slave, when its master and the producers are warm."""


def _slaves(field: Field) -> dict[str, Target]:
    """A stock master, and its slaves, of which one runs at a time."""
    folder, tool = field.folder, field.tool
    master = Stock(folder / "master", tool, "master", **SYNC)
    java = Stock(folder / "java", tool, "slave", role="SLAVE", master=master.address)
    ours = Node(folder / "ours", "slave", master=master.address, **STOCK)
    master.start()
    found = {
        name: Target(tool=tool, topic="BenchSync", master=master, slave=slave)
        for name, slave in (("our slave", ours), ("a Java slave", java))
    }
    found["our slave"].make(master.client_address, QUEUES)
    return found


def _write(target: Target, turn: Turn) -> Seen:
    writes, slave = 2000 if turn.quick else 10_000, target.slave
    assert isinstance(slave, (Node, Stock))
    slave.launch()
    found = target.sync_writes(writes, WARM_MESSAGES if turn.number == 0 else WARM_UP)
    slave.term()
    return found


WHAT = f"SYNC writes of {BODY} bytes through a Java master"

BENCH = Bench(
    name="bench-java",
    rows=[
        *BESIDE,
        Row(
            name="sync",
            set_up=_slaves,
            load=_write,
            figures=[
                *figures("one", f"{WHAT}, one producer", p50=1.0),
                *figures("many", f"{WHAT}, {MANY} producers"),
            ],
            warm=0,
            until=560.0,
        ),
    ],
    needed=6 * GIB,
    limit=800.0,
    versions=jars.VERSIONS,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
