"""What the checksum of each whole record costs a busy master (L{lab.bench.busy_master}).

C{python -m lab.bench.checksums} is the node without them, with twistd's own command line: they have
no key.
"""

from __future__ import annotations

import sys
from pathlib import Path

from twisted.scripts.twistd import run as twistd

from lab.bench.busy_master import Load, cost_rows, in_turn
from lab.bench.catchup import STOCK
from lab.bench.report import Row
from lab.harness.nodes import Node
from rmqha.store.derived.dispatch import Dispatcher

GOAL = 0.98
"""The least part of its writes that a master with checksums takes."""


class Unsummed(Node):
    """A node that keeps none."""

    program = ("-m", "lab.bench.checksums")


def run(folder: Path, batches: int, rounds: int) -> list[Row]:
    """Measure the rows about checksums.

    @param batches: Of writes and commits, in one round.
    """
    ours = Load(Node(folder, "master", "with", **STOCK))
    plain = Load(Unsummed(folder, "master", "without", **STOCK))
    with ours, plain:
        in_turn(ours, plain, batches, rounds)
    return cost_rows("checksums of records", ours, plain, GOAL, ())


if __name__ == "__main__":
    for name, instead in (("_checksums", lambda *_: b""), ("_sum", lambda *_: None)):
        setattr(Dispatcher, name, instead)
    sys.exit(twistd())
