"""How fast the full files of a store go into a tier, and what that costs the clients of its master.

The S3 server runs on the same processors, so it runs with the lowest priority while the master has
clients: elsewhere it would be on other machines.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.bench.latency import percentile
from lab.bench.report import Row, spread
from lab.bench.spark.field import Field
from lab.bench.spark.pair import beside, loaded_pair
from lab.bench.spark.peers import compared, in_turns, seconds
from lab.bench.stock import JVM
from lab.stock.s3_server import BUCKET, S3Server

ROUNDS = 3
GOAL = 0.9
GOAL_BESIDE = 1.1

RMQHA = Path(sys.executable).with_name("rmqha")

PLAIN = """
import sys
from pyarrow.fs import FileSystem
files, folder = FileSystem.from_uri(sys.argv[1])
for path in sys.argv[2:]:
    with open(path, "rb") as file, files.open_output_stream(folder + path) as out:
        while piece := file.read(8 << 20):
            out.write(piece)
"""
"""An upload of files by the client that the tier has, and nothing else."""


def part(field: Field) -> list[Row]:
    """Both rows.

    @raise Missing: If the server was not fetched.
    """
    return [_fast(field), _kind(field)]


@contextmanager
def _served(field: Field, prefix: tuple[str, ...] = ()) -> Iterator[S3Server]:
    folder = field.folder / "s3"
    folder.mkdir()
    server = S3Server(folder)
    try:
        server.start(prefix, JVM)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _uploading(server: S3Server, *command: str) -> Callable[[], float]:
    """@return: Runs a command, and gives the bytes a second that came to be in the server."""

    def upload() -> float:
        place = server.folder / BUCKET / "tier"
        took = seconds(
            lambda: subprocess.run(
                command,
                check=True,
                env={**os.environ, **server.environment},
                stdout=subprocess.DEVNULL,
            )
        )
        size = sum(each.stat().st_size for each in place.rglob("*") if each.is_file())
        shutil.rmtree(place)
        return size / took

    return upload


def _tier(server: S3Server, root: Path) -> Callable[[], float]:
    return _uploading(server, str(RMQHA), "tier", str(root), server.url("tier"))


def _fast(field: Field) -> Row:
    """C{rmqha tier}, which reads back what it has sent, beside a program that only sends."""
    store = field.store
    full = [str(path) for path in store.files[:-1]]  # the tier has no other
    with _served(field) as server:
        works = {
            "plain": _uploading(server, sys.executable, "-c", PLAIN, server.url("tier"), *full),
            "tier": _tier(server, store.root),
        }
        found = in_turns(works, field.rounds(ROUNDS), 0 if field.quick else 1)
    what = "upload of full files to a tier, read back and compared"
    return compared(what, found["tier"], "plain upload", found["plain"], GOAL)


def _kind(field: Field) -> Row:
    """SYNC writes to a master, while the files of its slave are uploaded."""
    total, writes = (128 << 20, 2000) if field.quick else (1 << 30, 10_000)
    found: dict[str, list[float]] = {"alone": [], "upload": []}
    with loaded_pair(total) as pair, _served(field, ("nice", "-n", "19")) as server:
        upload = _tier(server, pair.slave.root)
        upload()
        pair.writes(writes // 4)
        for number in range(field.rounds(ROUNDS)):
            for name in list(found)[:: -1 if number % 2 else 1]:
                with beside(upload if name == "upload" else None) as times:
                    micros = pair.writes(writes)
                found[name].append(percentile(micros, 0.99))
                print(f"{name}: p99 {found[name][-1]:.0f} us, {times[0]} uploads", flush=True)
    ratio = statistics.median(found["upload"]) / statistics.median(found["alone"])
    return Row(
        what="SYNC write p99 while the slave's files are uploaded to a tier",
        ours=spread(found["upload"], "us"),
        beside="without " + spread(found["alone"], "us"),
        ratio=f"{ratio:.2f}",
        goal=f"<= {GOAL_BESIDE:g}x",
        met=ratio <= GOAL_BESIDE,
    )
