"""The decoder alone on one core, beside one thread of Java that makes an object of each record.

As a program it is our side: C{python -m lab.bench.spark.decoding FOLDER END}.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from attrs import frozen

from lab.bench.report import Row
from lab.bench.spark.field import Field
from lab.bench.spark.peers import Peer, compared, in_turns, serve
from rmqha.logfiles.blocks.blocks import BLOCK, Blocks
from rmqha.logfiles.listing import LogFile
from rmqha.logfiles.log_files import opened_log
from rmqha.pipeline.spark.batch import keep_freed
from rmqha.wire.columnar.decoder import COLUMNS, Decoder

NUMBERS = ("topic", "queue_id", "queue_offset", "physical_offset", "store_size", "store_timestamp")
RAW = tuple("raw_properties" if name == "properties" else name for name in COLUMNS)

SOURCE = Path(__file__).with_name("Decode.java")

ROUNDS = 5

JVM = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")
"""One collector thread, as there is one that decodes."""

GOALS = {"raw": 0.6, "map": 0.4}


@frozen
class JavaPeer:
    """The other side.

    @ivar process: A JVM that answers each line with numbers.
    """

    process: subprocess.Popen[str]

    def rate(self) -> float:
        """Bytes a second of one pass."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None, "both are pipes"
        stdin.write("\n")
        stdin.flush()
        nanos, *_, size = map(int, stdout.readline().split())
        return 1e9 * size / nanos

    def end(self) -> None:
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.close()
        self.process.wait()


def java(folder: Path, log: Path) -> JavaPeer:
    """Compile and start the other side.

    @param folder: Takes the classes.
    @param log: The folder of the log.
    @raise FileNotFoundError: If there is no JDK.
    """
    subprocess.run(["javac", "-d", str(folder), str(SOURCE)], check=True)
    command = ["java", *JVM, "-cp", str(folder), "Decode", str(log)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return JavaPeer(subprocess.Popen(command, text=True, **pipes))


def decode(
    folder: Path, end: int, columns: tuple[str, ...], block: int = BLOCK
) -> dict[str, float]:
    """Decode a log as a task does: blocks by C{preadv} into one buffer.

    @param end: The log's end.
    """
    begun, spent = time.perf_counter(), time.process_time()
    total = rows = 0
    for path in sorted(folder.iterdir()):
        start, size = int(path.name), path.stat().st_size
        decoder = Decoder(columns, verify_crc=True)
        with opened_log(LogFile(path, start, start + size)) as file:
            last = min(end, start + size)
            blocks, used = Blocks(file, start, start, last, size=block), 0
            while blocks.base + used < last:
                blocks.more(used)
                batch, used = decoder.decode(blocks.view, blocks.base, file_end=start + size)
                rows += batch.num_rows
            total += last - start
    return {
        "seconds": time.perf_counter() - begun,
        "processor": time.process_time() - spent,
        "bytes": total,
        "rows": rows,
    }


def part(field: Field) -> list[Row]:
    """The rows about the decoder."""
    folder = field.store.root / "commitlog"
    classes = field.folder / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    arguments = (str(folder), str(field.store.end))
    ours = Peer.python("lab.bench.spark.decoding", field.folder / "decoding.log", *arguments)
    other = java(classes, folder)

    def rate(peer: Peer, what: str) -> float:
        told = peer.ask(what)
        return float(told["bytes"] / told["seconds"])

    works = {"Java": other.rate, "raw": lambda: rate(ours, "raw"), "map": lambda: rate(ours, "map")}
    try:
        found = in_turns(works, field.rounds(ROUNDS), 2)
    finally:
        ours.end()
        other.end()
    beside = "one Java thread"
    rows = []
    for kind, words in (("raw", "properties raw"), ("map", "properties as a map")):
        what = f"decoder on one core, all columns and CRC, {words}"
        rows.append(compared(what, found[kind], beside, found["Java"], GOALS[kind]))
    return rows


def main() -> None:
    """Read commands from standard input and answer them."""
    folder, end = Path(sys.argv[1]), int(sys.argv[2])
    keep_freed()
    serve({"raw": lambda: decode(folder, end, RAW), "map": lambda: decode(folder, end, COLUMNS)})


if __name__ == "__main__":
    main()
