"""How fast blocks of records are checked and read: C{python -m lab.bench.decode [MiB] [body]}.

Prints MB/s and microseconds a record for walk with and without CRC and for the
dispatch fields, each with the loops in numpy and, if they are there, the compiled ones;
then the cost of small windows.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from struct import pack

from rmqha.wire.columnar import kernels
from rmqha.wire.columnar.dispatch_fields import fields
from rmqha.wire.columnar.record_blocks import walk
from rmqha.wire.log.delay_levels import DelayLevels
from rmqha.wire.log.hashing import body_crc
from rmqha.wire.log.layout import MAGIC_V1

LEVELS = DelayLevels.parse("1s 5s 10s")
MAX_SIZE = (4 << 20) + 65536


def log(size: int, body_size: int) -> bytes:
    """Build a log of records as a 5.x client makes them: CLUSTER, UNIQ_KEY, TAGS."""
    parts: list[bytes] = []
    offset = 0
    while offset < size:
        number = len(parts)
        body = os.urandom(body_size)
        topic = b"BenchTopic%d" % (number % 4)
        properties = b"MSG_REGION\x01DefaultRegion\x02UNIQ_KEY\x01%032X\x02CLUSTER\x01" % number
        properties += b"DefaultCluster\x02WAIT\x01true\x02TAGS\x01TagA\x02"
        whole = 91 + len(body) + len(topic) + len(properties)
        head = pack(
            ">iiiiiqqiq", whole, MAGIC_V1, body_crc(body), number % 4, 0, number, offset, 0, 1
        )
        hosts = pack(">4siq4siiqi", bytes(4), 1, 2, bytes(4), 2, 0, 0, len(body))
        parts += [head, hosts, body, bytes((len(topic),)), topic, pack(">h", len(properties))]
        parts += [properties]
        offset += whole
    return b"".join(parts)


def best(work: Callable[[], object], rounds: int = 9) -> float:
    """Seconds of the fastest of a few rounds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(data: memoryview, name: str) -> None:
    """Print all numbers for the loops now chosen."""
    end = len(data)

    def run(crc: bool, limit: int = end) -> object:
        return walk(data, 0, limit, 1 << 30, crc=crc, max_size=MAX_SIZE)

    block = walk(data, 0, end, 1 << 30, max_size=MAX_SIZE)
    count = len(block.start)
    assert block.end == end and count, block
    for what, work in (
        ("walk, crc", lambda: run(True)),
        ("walk, no crc", lambda: run(False)),
        ("fields", lambda: fields(data, block, LEVELS)),
    ):
        seconds = best(work)
        print(
            f"{name} {what:13} {end / seconds / 1e6:8.0f} MB/s",
            f"{seconds / count * 1e6:6.3f} us/record",
        )
    for records in (1, 10, 30, 100, 1000):
        if records < count:
            limit = int(block.start[records])
            part = walk(data, 0, limit, 1 << 30, max_size=MAX_SIZE)
            walking = best(lambda limit=limit: run(True, limit), 200)
            reading = best(lambda part=part: fields(data, part, LEVELS), 200)
            print(
                f"{name} {records:5} records: walk {walking * 1e6:7.1f} us,",
                f"fields {reading * 1e6:7.1f} us",
            )


def main() -> None:
    """Measure with both sets of loops."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    body = int(sys.argv[2]) if len(sys.argv) > 2 else 760
    data = memoryview(log(size << 20, body))
    print(f"{len(data)} bytes, bodies of {body}")
    chosen, kernels._chosen = kernels._chosen, kernels.NUMPY
    measure(data, "numpy")
    kernels._chosen = chosen
    measure(data, "chosen")


if __name__ == "__main__":
    main()
