"""What the journal of consumer offsets costs a busy master (L{lab.bench.busy_master}).

A round is longer than the interval of the journal: none is cheap because nothing was synced in it.
"""

from __future__ import annotations

from pathlib import Path

from lab.bench.busy_master import Load, cost_rows, in_turn
from lab.bench.catchup import STOCK
from lab.bench.report import Row
from lab.harness.nodes import Node

GOAL = 0.98
"""The least part of its writes that a master with a journal takes."""


def run(folder: Path, batches: int, rounds: int) -> list[Row]:
    """Measure the rows about the journal of offsets.

    @param batches: Of writes and commits, in one round.
    """
    ours, plain = (
        Load(Node(folder, "master", name, **STOCK, offsetJournalInterval=interval))
        for name, interval in (("with", 150), ("without", 0))
    )
    with ours, plain:
        in_turn(ours, plain, batches, rounds)
        written = ours.node.status()["remoting"]["offsetJournal"]["batches"]
    return cost_rows("offset journal", ours, plain, GOAL, (f"{written} batches were synced",))
