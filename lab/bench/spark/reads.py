"""What Spark reads: rows counted, and rows brought to Java, beside C{cat} of the same files;
what a second processor brings; and a store so large that fixed costs hide nothing.
"""

from __future__ import annotations

import shutil
from statistics import median

from lab.bench.facts import LEFT_ALONE, available
from lab.bench.processes import PeakMemory
from lab.bench.report import Row, spread
from lab.bench.spark.field import PAGE, PLAIN, Field
from lab.bench.spark.made import make
from lab.bench.spark.peers import cat, compared, in_turns

LARGE = 10_000_000_000
LARGE_QUICK = 1_000_000_000
LARGE_ROUNDS = 3
LARGE_FILES = 10

MOST_MEMORY = 2e9
"""Bytes."""

ROUNDS = 5
SCALE_ROUNDS = 3

WARM = 2
"""A JVM compiles for a while."""


def count(field: Field) -> list[Row]:
    """Six columns, in our session and in one as Spark makes it."""
    store, ours = field.store, field.spark
    with field.another("plain", 2, *PLAIN) as plain:
        works = {
            "cat": lambda: cat(store.files),
            "6 columns": lambda: field.rate(ours, "count"),
            "plain session": lambda: field.rate(plain, "count"),
        }
        found = in_turns(works, field.rounds(ROUNDS), WARM)
    return [
        compared("6 columns counted, CRC", found["6 columns"], "cat", found["cat"]),
        compared("the same, a plain session", found["plain session"], "cat", found["cat"]),
    ]


def noop(field: Field) -> list[Row]:
    """All columns with bodies, to Spark's sink that does nothing."""
    store, ours = field.store, field.spark
    works = {
        "cat": lambda: cat(store.files),
        "raw": lambda: field.rate(ours, "noop", raw=True),
        "map": lambda: field.rate(ours, "noop", raw=False),
        "in the tasks": lambda: field.rate(ours, "decode"),
    }
    found = in_turns(works, field.rounds(ROUNDS), WARM)
    what = "all columns with bodies, CRC"
    return [
        compared(f"{what}, to noop, properties raw", found["raw"], "cat", found["cat"], 0.2),
        compared(f"{what}, to noop, properties as a map", found["map"], "cat", found["cat"], 0.14),
        compared(f"{what}, dropped in the tasks", found["in the tasks"], "cat", found["cat"]),
    ]


def scale(field: Field) -> list[Row]:
    """A session bound to one processor, and one that has two."""
    rows = []
    _ = field.store
    with field.another("one", 1) as one:
        for what, words in (("count", "6 columns counted"), ("decode", "all columns in the tasks")):
            works = {
                "one": lambda what=what: field.rate(one, what),
                "two": lambda what=what: field.rate(field.spark, what),
            }
            found = in_turns(works, field.rounds(SCALE_ROUNDS))
            text = f"1 -> 2 processors, local[1] -> local[2], {words}"
            rows.append(compared(text, found["two"], "one", found["one"], 1.5))
    return rows


def large(field: Field) -> list[Row]:
    """Six columns of ten GB, and what memory the session's processes have meanwhile; of less, where
    that does not fit in memory.
    """
    spark = field.spark
    total = LARGE_QUICK if field.quick else LARGE
    total = min(total, available() - LEFT_ALONE)
    root = field.folder / "large"
    # As in the other store, files are full.
    made = make(root, total, file_size=(total // LARGE_FILES // PAGE + 1) * PAGE)
    peaks: list[float] = []

    def count() -> float:
        with PeakMemory(spark.pid) as memory:
            told = spark.ask("count", store=str(root))
        peaks.append(memory.most)
        return float(made.end / told["seconds"])

    try:
        spark.ask("index", store=str(root))
        works = {"cat": lambda: cat(made.files), "6 columns": count}
        found = in_turns(works, field.rounds(LARGE_ROUNDS))
    finally:
        shutil.rmtree(root)
    size = f"{made.end / 1e9:.1f} GB"
    what = f"6 columns counted, CRC, a store of {size}"
    return [
        compared(what, found["6 columns"], "cat", found["cat"], 0.4),
        Row(
            what=f"peak memory of driver, Java and workers, a scan of {size}",
            ours=spread([each / 1e6 for each in peaks], "MB"),
            goal=f"<= {MOST_MEMORY / 1e9:g} GB",
            met=median(peaks) <= MOST_MEMORY,
        ),
    ]
