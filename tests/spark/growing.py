"""A process that lets a store grow, and publishes how far it is, until its input ends.

    python -m tests.spark.growing STORE BYTES_A_SECOND

Bytes come in pieces that do not end where records do, and the point follows them, as on a
node.  Each line of input is a physical offset before which files are deleted, as retention does.
At the end it tells how many records there are, where the log begins and where it ends.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
import time
from pathlib import Path
from typing import BinaryIO

from lab.bench.corpus import message
from rmqha.logfiles.listing import file_name
from rmqha.wire.log.encode import blank, encode, place
from rmqha.wire.log.published import Point, render_point
from rmqha.wire.store_layout import COMMITLOG, OWN_FOLDER, POINT

FILE = 4 << 20
BODIES = (100, 300, 1000, 3000)
PIECE = 37_001
EVERY = 0.05
"""Seconds between two points."""


class Log:
    """A log that is being written."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.start = 0
        self.end = 0
        self.rows = 0
        self._file: BinaryIO | None = None
        (root / COMMITLOG).mkdir(parents=True)
        (root / OWN_FOLDER).mkdir()

    def grow(self, size: int) -> None:
        """Append whole records of about so many bytes."""
        stop = self.end + size
        while self.end < stop:
            record = encode(
                message(
                    f"Topic{self.rows % 3}",
                    self.rows % 4,
                    random.randbytes(random.choice(BODIES)),
                    f"{self.rows:032X}",
                ),
                max_message_size=1 << 20,
            )
            left = FILE - self.end % FILE
            if len(record) + 8 > left:
                self._write(blank(left) if left < FILE else b"", left % FILE)
            place(
                record,
                queue_offset=self.rows // 4,
                offset=self.end,
                store_timestamp=round(time.time() * 1000),
            )
            self._write(bytes(record), len(record))
            self.rows += 1

    def _write(self, content: bytes, size: int) -> None:
        if self.end % FILE == 0:
            if self._file is not None:
                self._file.close()
            path = self.root / COMMITLOG / file_name(self.end)
            path.write_bytes(bytes(FILE))
            self._file = path.open("r+b", buffering=0)
        assert self._file is not None, "there is a file"
        for start in range(0, len(content), PIECE):
            self._file.write(content[start : start + PIECE])
        self.end += size
        self._file.seek(self.end % FILE)

    def delete_before(self, offset: int) -> None:
        """Delete files that end at or before an offset. The point knows it first."""
        gone = range(self.start, offset // FILE * FILE, FILE)
        self.start = max(self.start, gone.stop)
        self.publish()
        for start in gone:
            (self.root / COMMITLOG / file_name(start)).unlink()

    def publish(self) -> None:
        point = Point(
            confirm=self.end,
            durable=self.end,
            min_offset=self.start,
            broker_name="broker-a",
            generation="i",
            time=round(time.time() * 1000),
        )
        beside = self.root / OWN_FOLDER / f".{POINT}"
        beside.write_bytes(render_point(point))
        os.replace(beside, self.root / OWN_FOLDER / POINT)


def main(root: str, rate: str) -> None:
    """Grow until the input ends."""
    log = Log(Path(root))
    log.grow(1)
    while True:
        log.publish()
        if select.select([sys.stdin], [], [], EVERY)[0]:
            told = os.read(sys.stdin.fileno(), 4096)
            if not told:
                break
            log.delete_before(int(told.split()[-1]))
        log.grow(round(int(rate) * EVERY))
    sys.stdout.write(json.dumps({"rows": log.rows, "start": log.start, "end": log.end}))


if __name__ == "__main__":
    main(*sys.argv[1:])
