"""Stores and HA streams of stock RocketMQ brokers, in files of the small sizes below; how they came
to be is in C{tests/data/README.md}.
"""

from __future__ import annotations

import atexit
import gzip
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import frozen

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"

#: Size of one commit log file, in bytes.
LOG_FILE_SIZE = 262144
#: Size of one consume queue file, in bytes: 300 units.
QUEUE_FILE_SIZE = 6000
#: Hash slots of one index file.
INDEX_SLOTS = 200
#: Entries of one index file, the unused first one included.
INDEX_ENTRIES = 800

#: The RocketMQ releases that wrote the stores and streams.
VERSIONS = tuple(sorted(path.name for path in (DATA / "stores").iterdir() if path.is_dir()))
#: Every store there is: C{(version, name)}.
ARCHIVES = [
    (version, path.name.removesuffix(".tar.gz"))
    for version in VERSIONS
    for path in sorted((DATA / "stores" / version).glob("*.tar.gz"))
]
#: Every recorded HA conversation, as C{capture} takes it: C{"4.9.7-resume"}.
CAPTURES = tuple(sorted(path.stem for path in (DATA / "captures" / "ha").glob("*.json")))


def store(version: str, name: str = "store", into: Path | None = None) -> Path:
    """A fresh copy of a store folder, which the caller may change and remove; without C{into} in a
    temporary folder that is removed when this process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="golden-")) if into is None else into
    if into is None:
        atexit.register(_remove, folder, os.getpid())
    unpack(DATA / "stores" / version / f"{name}.tar.gz", folder)
    return folder / "store"


def unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive of ours."""
    with tarfile.open(archive) as files:
        # Python 3.11.0 to 3.11.3 have no filters.
        safe: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        files.extractall(folder, **safe)


def truth(name: str, kind: str) -> str:
    """Name of the truth file of one kind (C{expected-cq.jsonl}, ...) for a store."""
    return kind if name == "store" else f"{name}-{kind}"


def has(version: str, file: str) -> bool:
    """Tell whether a truth file exists, packed or not."""
    path = DATA / "stores" / version / file
    return path.exists() or _packed(path).exists()


def jsonl(version: str, file: str) -> Iterator[Any]:
    """The parsed lines of a truth file, which may be packed (C{.gz}) or not."""
    for line in _read(DATA / "stores" / version / file).splitlines():
        yield json.loads(line)


def document(version: str, file: str) -> Any:
    """A truth file that is one JSON document."""
    return json.loads(_read(DATA / "stores" / version / file))


@frozen(kw_only=True)
class Capture:
    """One recorded HA conversation between stock brokers: all bytes of each way, connection after
    connection.

    @ivar about: Connections (C{conns}), TCP segments (C{chunks}), what was
        done to the processes (C{events}), the files at the end (C{stores}), ...
    """

    m2s: bytes
    s2m: bytes
    about: dict[str, Any]

    def connections(self) -> Iterator[tuple[bytes, bytes]]:
        """The bytes of each connection: C{(master to slave, slave to master)}."""
        for connection in self.about["conns"]:
            yield self.m2s[slice(*connection["m2s"])], self.s2m[slice(*connection["s2m"])]


def capture(name: str) -> Capture:
    """Read one of the recorded streams of L{CAPTURES}."""
    folder = DATA / "captures" / "ha"
    return Capture(
        m2s=gzip.decompress((folder / f"{name}.m2s.bin.gz").read_bytes()),
        s2m=gzip.decompress((folder / f"{name}.s2m.bin.gz").read_bytes()),
        about=json.loads((folder / f"{name}.json").read_bytes()),
    )


def _packed(path: Path) -> Path:
    return path.with_name(path.name + ".gz")


def _read(path: Path) -> bytes:
    if path.suffix != ".gz" and path.exists():
        return path.read_bytes()
    return gzip.decompress((path if path.suffix == ".gz" else _packed(path)).read_bytes())


def _remove(folder: Path, owner: int) -> None:
    # A forked child inherits the registration, not the folder.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
