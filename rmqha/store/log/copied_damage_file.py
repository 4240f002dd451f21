"""Where a store keeps the records that were damaged on the master when they were copied.

Source: docs/states.rst, Damaged records from the master.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from rmqha.logfiles import json_table
from rmqha.wire.log.copied_damage import CopiedDamage
from rmqha.wire.store_layout import COPIED_DAMAGE, OWN_FOLDER

_saving = Lock()


def save(root: Path, copied: CopiedDamage) -> None:
    """Write the table, durably; blocking.  From any thread; an empty one leaves no file.

    @raise DiskFull: If there is no room.
    """
    path = root / OWN_FOLDER / COPIED_DAMAGE
    with _saving:
        if len(copied):
            path.parent.mkdir(parents=True, exist_ok=True)
            json_table.replace(path, copied.as_table())
            return
        json_table.remove(path)
