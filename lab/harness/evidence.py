"""What is kept when a message is missing: all stores with their quarantine, what their nodes said,
what the clients were told, and what C{rmqha doctor} says of it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.harness.nodes import Folder, Process, rmqha
from rmqha.logfiles.listing import log_folder
from rmqha.store.offline.client_ledger import Acknowledged, write_ledger

#: What the clients were told, and what the doctor said, in what is kept.
LEDGER, DOCTOR = "acknowledged.jsonl", "doctor.txt"

#: Lines of the doctor's that are printed.
SHOWN = 100

#: Longest time that the doctor may take, in seconds.
LONGEST = 600


def keep_evidence(
    folder: Path,
    processes: Iterable[Process],
    messages: Iterable[Acknowledged],
    stores: Iterable[Path] = (),
) -> Path:
    """Kill a test's or demo's processes, keep its folder, and print where each message is.

    @param folder: It has their stores and logs, all but those that were made elsewhere.
    @param stores: Roots of more stores, whose nodes have ended.
    """
    roots: dict[Path, Path] = {}
    named: list[Path] = []
    kept = Folder("evidence-")
    for process in processes:
        process.kill9()
        root = getattr(process, "root", None)
        if isinstance(root, Path):
            named.append(root)
    for root in (*named, *stores):
        if log_folder(root).is_dir():
            inside = root.is_relative_to(folder)
            below = root.relative_to(folder) if inside else Path("elsewhere", str(len(roots)))
            roots.setdefault(root, kept.path / below)
    kept.keep()
    shutil.copytree(folder, kept.path, dirs_exist_ok=True, symlinks=True)
    for root, copy in roots.items():
        if not copy.exists():
            shutil.copytree(root, copy, symlinks=True)
    write_ledger(kept.path / LEDGER, messages)
    said = _doctor(kept.path / LEDGER, list(roots.values()))
    (kept.path / DOCTOR).write_text(said, encoding="utf-8")
    lines = said.splitlines()
    more = [f"{len(lines) - SHOWN} lines more are in {DOCTOR}"] if len(lines) > SHOWN else []
    sys.stdout.write("\n".join((*lines[:SHOWN], *more)) + "\n")
    sys.stdout.flush()
    return kept.path


@contextmanager
def evidence(
    folder: Path,
    processes: Iterable[Process],
    messages: Iterable[Acknowledged],
    stores: Iterable[Path] = (),
) -> Iterator[None]:
    """L{keep_evidence}, if what is looked at in the block is not well."""
    try:
        yield
    except Exception:
        keep_evidence(folder, processes, messages, stores)
        raise


def _doctor(ledger: Path, stores: list[Path]) -> str:
    """What C{rmqha doctor} says, and its exit code."""
    if not stores:
        return "no node had a store: the doctor was not asked"
    try:
        done = rmqha("doctor", "--ledger", ledger, *stores, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return f"rmqha doctor did not end within {LONGEST} s"
    return f"{done.stdout}rmqha doctor: exit code {done.returncode}"
