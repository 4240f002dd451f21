"""Where named readers stand, told to the store that they read.

A node shows how far each is behind; nothing of the reader depends on it, so a store that
cannot be written to is read all the same.

Source: docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

import json
import os
import time
from logging import getLogger
from pathlib import Path

from rmqha.logfiles.listing import root_of
from rmqha.wire.store_layout import OWN_FOLDER, READERS

_log = getLogger(__name__)


def publish(path: Path, name: str, offset: int) -> None:
    """Write a reader's position.

    @param path: The store.
    @param name: The reader's.
    @param offset: Physical offset up to which its rows are where they belong.
    """
    file = root_of(path) / OWN_FOLDER / READERS / f"{name}.json"
    text = json.dumps({"offset": offset, "time": round(time.time() * 1000)}, sort_keys=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(text + "\n", encoding="utf-8")
        beside.replace(file)
    except OSError as error:
        _log.warning("cannot write the offset of reader %s: %s", name, error)
