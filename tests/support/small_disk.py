"""File systems of some megabytes, for tests of what happens when they are full."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.support.commands import ended


def small_disk(case: SynchronousTestCase, size: int, kind: str = "tmpfs") -> Path:
    """Mount one until a test ends, of so many bytes, as C{tmpfs} or C{ext4}, which has blocks of 1
    KiB
    then; skip the test where that is not allowed.
    """
    folder = Path(tempfile.mkdtemp(prefix="small-disk-"))
    case.addCleanup(_remove, folder)
    place, image = folder / "disk", folder / "image"
    place.mkdir()
    commands = [["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]]
    if kind == "ext4":
        with open(image, "wb") as file:
            file.truncate(size)
        mount = ["mount", "-o", "loop", str(image), str(place)]
        commands = [["mkfs.ext4", "-q", str(image)], mount]
    for command in commands:
        try:
            done = ended(*command)
        except FileNotFoundError as error:
            raise SkipTest(f"there is no {command[0]} here") from error
        if done.returncode:
            raise SkipTest(f"no {kind} can be mounted here: {done.stderr.strip()}")
    return place


def _remove(folder: Path) -> None:
    subprocess.run(["umount", "-l", str(folder / "disk")], check=False, capture_output=True)
    for name in ("disk", "image"):
        path = folder / name
        if path.is_dir():
            path.rmdir()
        elif path.exists():
            path.unlink()
    folder.rmdir()
