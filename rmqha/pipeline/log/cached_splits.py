"""Split indexes of stores whose node publishes nothing: made by the job, once.

Such a log may be cut and grow again, and readers are not told.  So beside the index
lies, for each file, a fingerprint of the last record that was indexed; while that record is
there, so are those before it.

Source: docs/protocol/store.rst, The split index.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from rmqha.logfiles.json_table import replace_bytes
from rmqha.logfiles.log_files import LogFiles
from rmqha.logfiles.published import Split, fingerprint, read_splits
from rmqha.pipeline.log.positions import Position
from rmqha.wire.store_layout import NEW_SUFFIX, OWN_FOLDER, SPLIT_FINGERPRINTS

VERSION = 1


def trusted_splits(files: LogFiles, start: int, end: int) -> tuple[Split, ...]:
    """The index of a store's bytes C{[start, end)}, as far as it still speaks of this log."""
    found: list[Split] = []
    positions = _positions(files.root) if end > start else {}
    for file, low, high in files.pieces(start, end) if positions else ():
        position = positions.get(file.start)
        if position is not None and fingerprint(files, position.last) == position.sum:
            found += read_splits(files.root, low, min(high, position.offset))
    return tuple(found)


def believed_splits(files: LogFiles, pointed: bool, start: int, end: int) -> tuple[Split, ...]:
    """The index of a store's bytes C{[start, end)}, as far as it is believed.

    @param pointed: Whether the store's node publishes a point, and so keeps the index itself.
    """
    if pointed:
        return read_splits(files.root, start, end)
    return trusted_splits(files, start, end)


def write_positions(root: Path, positions: Iterable[tuple[int, Position]]) -> None:
    """Keep the fingerprints of an index.

    @param positions: The start of each file, and the position behind its last indexed record.
    """
    table = [[start, position.offset, position.last, position.sum] for start, position in positions]
    replace(
        root / OWN_FOLDER / SPLIT_FINGERPRINTS,
        json.dumps({"version": VERSION, "files": table}).encode(),
    )


def replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably, also where a task is done twice at a time."""
    replace_bytes(path, data, f".{os.getpid()}{NEW_SUFFIX}")


def _positions(root: Path) -> dict[int, Position]:
    try:
        table = json.loads((root / OWN_FOLDER / SPLIT_FINGERPRINTS).read_bytes())
        if table["version"] != VERSION:
            return {}
        return {int(start): Position(*position) for start, *position in table["files"]}
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return {}
