"""How fast a log is recovered after a crash: C{python -m lab.bench recovery}.

1 GiB of 1 KiB records is an unverified tail: no checkpoint, C{abort} there.  Measured
is the search for the log's end, chain, fields and CRC of every record, before dispatch.
The page cache is warm, as after a kill -9.  Goal: 500 MB/s; a stock 4.9.7 broker needs
about 4.3 s for 1.45 GB, start of the JVM included.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from lab.bench.corpus import write_log
from lab.bench.report import Row, limited
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import recover

GIB = 1 << 30
BODY = 1024
ROUNDS = 5
GOAL = 500


def measure(folder: Path) -> tuple[float, int]:
    """Recover a log once, in fresh mappings.

    @return: Seconds, and the end that was found.
    """
    started = time.perf_counter()
    log = LogFolder.load(folder, GIB)
    found = recover(log, 0, crc=True)
    taken = time.perf_counter() - started
    log.close()
    return taken, found.end


def run(folder: Path, size: int = GIB) -> list[Row]:
    """Measure the row about recovery.

    @param size: Bytes of the unverified tail.
    """
    commitlog = folder / "commitlog"
    try:
        end = write_log(commitlog, size, file_size=GIB, bodies=(BODY,))
        return [_row(commitlog, end)]
    finally:
        shutil.rmtree(folder)


def _row(folder: Path, end: int) -> Row:
    rates = []
    for _ in range(ROUNDS):
        taken, found = measure(folder)
        if found != end:
            raise AssertionError(f"the log ends at {end}, found was {found}")
        rates.append(end / taken / 1e6)
    stock = "stock 4.9.7 about 337 MB/s, start of the JVM included (measured elsewhere)"
    what = "recovery of an unverified tail of 1 GiB"
    return limited(what, "MB/s", rates, GOAL, least=True, beside=stock)
