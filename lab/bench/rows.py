"""How fast blocks of a log become Arrow rows, on one core: C{python -m lab.bench.rows [MiB]
[body]}.

Prints GB/s of log and microseconds a record for some selections of columns, each with the
loops in numpy and, if they are there, the compiled ones.  The log is in memory; blocks have 8 MiB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lab.bench.decode import best, log
from rmqha.wire.columnar import kernels
from rmqha.wire.columnar.decoder import COLUMNS, Decoder

BLOCK = 8 << 20

NUMBERS = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp")
RAW = tuple("raw_properties" if name == "properties" else name for name in COLUMNS)

SELECTIONS: tuple[tuple[str, Sequence[str], bool], ...] = (
    ("6 columns", NUMBERS, False),
    ("6 columns, crc", NUMBERS, True),
    ("properties raw, crc", RAW, True),
    ("properties as map, crc", COLUMNS, True),
)
"""What is measured: a name, the columns, and whether bodies are checked."""


def decode(data: memoryview, decoder: Decoder) -> int:
    """Decode a whole log, a block at a time.

    @return: How many rows it has.
    """
    position = rows = 0
    while position < len(data):
        batch, used = decoder.decode(data[position : position + BLOCK], position)
        rows += batch.num_rows
        position += used
    return rows


def measure(data: memoryview, name: str, rounds: int) -> None:
    """Print all numbers for the loops now chosen."""
    for what, columns, crc in SELECTIONS:
        decoder = Decoder(columns, verify_crc=crc)
        rows = decode(data, decoder)
        seconds = best(lambda decoder=decoder: decode(data, decoder), rounds)  # type: ignore[misc]
        print(
            f"{name} {what:23} {len(data) / seconds / 1e9:6.2f} GB/s",
            f"{seconds / rows * 1e6:6.3f} us/record",
        )


def main() -> None:
    """Measure with both."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    body = int(sys.argv[2]) if len(sys.argv) > 2 else 1024
    data = memoryview(log(size << 20, body))
    rounds = 7
    print(f"{len(data)} bytes, bodies of {body}")
    chosen, kernels._chosen = kernels._chosen, kernels.NUMPY
    measure(data, "numpy", rounds)
    kernels._chosen = chosen
    measure(data, "chosen", rounds)


if __name__ == "__main__":
    main()
