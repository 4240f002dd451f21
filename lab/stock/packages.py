"""Stock clients that are no jars: from the npm registry and from PyPI, pinned, installed once
into the ignored folder where the jars are.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.stock.jars import HERE, KEPT, Missing, run, say


def node() -> Path:
    """The folder with C{node_modules}, or L{Missing} without Node."""
    return _modules("node", HERE / "node")


def python() -> Path:
    """The interpreter of an environment with the clients from PyPI, or L{Missing}."""
    pinned = HERE / "python" / "requirements.txt"

    def install(folder: Path) -> None:
        run(folder, sys.executable, "-m", "venv", str(folder))
        _pip(folder, folder / "bin" / "python", "-r", str(pinned))

    return _installed("python", [pinned], install) / "bin" / "python"


def grpc_node() -> Path:
    """The folder with C{node_modules} of the official gRPC client."""
    return _modules("grpc-node", HERE / "node" / "grpc")


def grpc_python() -> Path:
    """The folder, for C{PYTHONPATH}, of the official gRPC client, named as the C++ client's is."""
    pinned = HERE / "python" / "grpc-requirements.txt"

    def install(folder: Path) -> None:
        _pip(folder, sys.executable, "--no-deps", "--target", str(folder), "-r", str(pinned))

    return _installed("grpc-python", [pinned], install)


def _pip(folder: Path, python: Path | str, *more: str) -> None:
    told = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(folder, str(python), *told, "--require-hashes", "--only-binary", ":all:", *more)


def _modules(name: str, told: Path) -> Path:
    """The folder with C{node_modules} of a package and its lock."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise Missing(f"no {tool} on the PATH; Node.js with npm is needed")
    pinned = [told / name for name in ("package.json", "package-lock.json")]

    def install(folder: Path) -> None:
        for path in pinned:
            shutil.copy(path, folder)
        run(folder, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent")

    return _installed(name, pinned, install)


def _installed(name: str, pinned: list[Path], install: Callable[[Path], None]) -> Path:
    """The folder of what is pinned, installed if it is not there or was something else."""
    folder = KEPT / name
    done = folder / ".complete"
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in pinned)).hexdigest()
    with _alone(name):
        if not done.exists() or done.read_text(encoding="ascii") != wanted:
            say(f"installing {name} clients into {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            install(folder)
            done.write_text(wanted, encoding="ascii")
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Keep out other processes of the same run."""
    KEPT.mkdir(exist_ok=True)
    with open(KEPT / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
