"""What was measured on: the machine in a few lines, and its memory made ready."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("twisted", "numpy", "isal")

LEFT_ALONE = 3 << 30
"""Bytes of free memory that warming does not touch."""


def available() -> int:
    """Bytes that a process could get now (C{MemAvailable})."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    return int(re.findall(r"MemAvailable:\s+(\d+) kB", text)[0]) * 1024


def _touch(size: int) -> None:
    area = mmap.mmap(-1, size)
    piece = b"\1" * (1 << 20)
    for position in range(0, size - len(piece) + 1, len(piece)):
        area[position : position + len(piece)] = piece


def warm_memory(size: int) -> int:
    """Touch and free memory, so that no measurement pays for a hypervisor that gives pages at their
    first use; less of it where less is free.
    """
    size = max(0, min(size, available() - LEFT_ALONE))
    if size:
        toucher = multiprocessing.get_context("fork").Process(target=_touch, args=(size,))
        toucher.start()
        toucher.join()
    return size


def work_folder(needed: int) -> Path:
    """A fresh folder in memory (tmpfs) if there is room, else where temporary files go."""
    memory = Path("/dev/shm")
    fits = min(_room(memory), available()) > needed + LEFT_ALONE // 2
    return Path(tempfile.mkdtemp(prefix="rmqha-bench-", dir=memory if fits else None))


def _room(place: Path) -> int:
    """Free bytes there; 0 if there is no such folder."""
    return shutil.disk_usage(place).free if place.is_dir() else 0


MEMORY_ONLY = frozenset({"tmpfs", "ramfs"})
"""Types of file systems whose fsync does nothing."""


def file_system(path: Path) -> str:
    """The type of the file system that a path is on, as C{stat} of coreutils names it."""
    command = ["stat", "--file-system", "--format=%T", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def disk_folder(needed: int) -> Path | None:
    """A fresh folder on a disk with enough room, for what costs nothing in memory, if any."""
    for base in (Path(tempfile.gettempdir()), Path("/var/tmp"), Path(__file__).parent):
        if _room(base) > needed and file_system(base) not in MEMORY_ONLY:
            return Path(tempfile.mkdtemp(prefix="rmqha-bench-", dir=base))
    return None


def processor() -> str:
    """The processor's name, from the system."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    return found[1] if found else platform.machine()


def package(name: str) -> str:
    """Name and version of a package."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name}"


def machine() -> list[str]:
    """Lines about processor, memory, system and packages."""
    total = re.findall(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
    return [
        f"{os.cpu_count()} x {processor()}, {int(total[0]) / (1 << 20):.0f} GiB memory",
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        ", ".join(map(package, PACKAGES)),
        "load at the start: {:.2f} {:.2f} {:.2f}".format(*os.getloadavg()),
    ]
