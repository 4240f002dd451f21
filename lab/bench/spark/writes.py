"""What jobs do with a whole store: export it, compare it with a copy; and how
much of it an export reads.
"""

from __future__ import annotations

import shutil

from lab.bench.processes import bytes_read, tree
from lab.bench.report import Row
from lab.bench.spark.field import Field
from lab.bench.spark.peers import cat, compared, in_turns

ROUNDS = 3
MOST_READ = 1.05
CODECS = ("snappy", "zstd")


def export(field: Field) -> list[Row]:
    """Parquet by our export, and by Spark's writer of the same rows."""
    ours = field.spark
    sizes: dict[str, int] = {}

    def rate(what: str, codec: str) -> float:
        told = ours.ask(what, store=str(field.store.root), compression=codec)
        sizes[f"{what} {codec}"] = told["bytes"]
        return float(field.store.end / told["seconds"])

    rows = []
    for codec in CODECS:
        works = {
            f"export {codec}": lambda codec=codec: rate("export", codec),
            f"parquet {codec}": lambda codec=codec: rate("parquet", codec),
        }
        found = in_turns(works, field.rounds(ROUNDS), 0 if field.quick else 1)
        name = "zstd-1" if codec == "zstd" else codec
        mib = {what: size >> 20 for what, size in sizes.items()}
        note = (
            f"{name}: {mib[f'export {codec}']} MiB of files by the export, "
            f"{mib[f'parquet {codec}']} by Spark"
        )
        rows.append(
            compared(
                f"export to Parquet, {name}",
                found[f"export {codec}"],
                "df.write.parquet",
                found[f"parquet {codec}"],
                3.5,
                notes=[note],
            )
        )
    return rows


def read(field: Field) -> list[Row]:
    """What an export reads, beside what it is to read: all of its processes, whatever they read."""
    ours, root = field.spark, str(field.store.root)

    def export() -> list[int]:
        ours.ask("export", store=root, compression="snappy")
        return tree(ours.pid)

    # The first one reads what it imports, and starts the tasks that the second one has.
    pids = export()
    before = bytes_read(pids)
    if export() != pids:
        raise AssertionError("a process of the session has ended, with what it had read")
    done = bytes_read(pids) - before
    ratio = done / field.store.end
    return [
        Row(
            what="bytes read by an export",
            ours=f"{done / 1e6:.0f} MB",
            beside=f"bytes of log {field.store.end / 1e6:.0f} MB",
            ratio=f"{ratio:.2f}",
            goal=f"<= {MOST_READ:g}x",
            met=ratio <= MOST_READ,
        )
    ]


def verify(field: Field) -> list[Row]:
    """Two stores that are equal: bytes of both count, as they do for C{cat}."""
    copy = field.store.copied(field.folder / "copy")
    both = [*field.store.files, *copy.files]

    def rate() -> float:
        told = field.spark.ask("verify", one=str(field.store.root), other=str(copy.root))
        if told["verdict"] != "equal":
            raise AssertionError(f"equal stores are told to be {told['verdict']}")
        return float(2 * field.store.end / told["seconds"])

    try:
        found = in_turns({"cat": lambda: cat(both), "verify": rate}, field.rounds(ROUNDS))
    finally:
        shutil.rmtree(copy.root)
    return [compared("verify two stores", found["verify"], "cat of both", found["cat"], 0.7)]
