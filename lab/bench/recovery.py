"""How fast a log is recovered after a crash: C{python bench/recovery.py [MiB] [FOLDER]}.

1 GiB of 1 KiB records is an unverified tail: no checkpoint, C{abort} there.  Measured
is the search for the log's end, chain, fields and CRC of every record, before dispatch.
The page cache is warm, as after a kill -9.  Goal: 500 MB/s; a stock 4.9.7 broker needs
about 4.3 s for 1.45 GB, start of the JVM included.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from lab.bench.corpus import write_log
from lab.bench.report import Row, spread
from rmqha.store.files.mapped import LogFolder
from rmqha.store.log.recovery import recover
from rmqha.wire.columnar.kernels import warm_up

GIB = 1 << 30
BODY = 1024
ROUNDS = 5
GOAL = 500


def measure(folder: Path, *, crc: bool) -> tuple[float, int]:
    """Recover a log once, in fresh mappings.

    @return: Seconds, and the end that was found.
    """
    started = time.perf_counter()
    log = LogFolder.load(folder, GIB)
    found = recover(log, 0, crc=crc)
    taken = time.perf_counter() - started
    log.close()
    return taken, found.end


def run(folder: Path, size: int = GIB) -> list[Row]:
    """Measure the rows about recovery.

    @param size: Bytes of the unverified tail.
    """
    commitlog = folder / "commitlog"
    try:
        end = write_log(commitlog, size, file_size=GIB, bodies=(BODY,))
        rows = [_row("base install", commitlog, end)]
        if warm_up().name == "numba":
            rows.append(_row("with numba", commitlog, end))
    finally:
        shutil.rmtree(folder)
    return rows


def _row(name: str, folder: Path, end: int) -> Row:
    rates = []
    for _ in range(ROUNDS):
        taken, found = measure(folder, crc=True)
        if found != end:
            raise AssertionError(f"the log ends at {end}, found was {found}")
        rates.append(end / taken / 1e6)
    return Row(
        what=f"recovery of an unverified tail of 1 GiB, {name}",
        ours=spread(rates, "MB/s"),
        beside="stock 4.9.7 about 337 MB/s, start of the JVM included (measured elsewhere)",
        goal=f">= {GOAL} MB/s",
        met=statistics.median(rates) >= GOAL,
    )


def main() -> None:
    """Print MB/s with the loops for everybody and with numba, with and without CRC."""
    size = int(sys.argv[1]) << 20 if len(sys.argv) > 1 else GIB
    into = sys.argv[2] if len(sys.argv) > 2 else None
    root = Path(tempfile.mkdtemp(prefix="bench-recovery-", dir=into))
    try:
        folder = root / "commitlog"
        end = write_log(folder, size, file_size=GIB, bodies=(BODY,))
        _rounds("for everybody", folder, end)
        if warm_up().name == "numba":
            _rounds("numba", folder, end)
    finally:
        shutil.rmtree(root)


def _rounds(name: str, folder: Path, end: int) -> None:
    for crc in (True, False):
        rates = []
        for _ in range(ROUNDS):
            taken, found = measure(folder, crc=crc)
            if found != end:
                raise SystemExit(f"the log ends at {end}, found was {found}")
            rates.append(end / taken / 1e6)
        verdict = ("ok" if statistics.median(rates) >= GOAL else "MISSED") if crc else ""
        print(
            f"{name:14} {'with CRC' if crc else 'without':9} "
            f"{statistics.median(rates):7.0f} MB/s  [{min(rates):.0f}..{max(rates):.0f}] {verdict}"
        )


if __name__ == "__main__":
    main()
