"""Readers of the files that have a name: where each stands, as it told itself.

A stream of Spark writes its position beside the log.  How far it is behind is what the log
has published beyond that, and how long the first of that has been stored.  Whatever lies in
the folder, looking at it neither fails nor takes long.

Source: docs/architecture.rst, Files of our own.
"""

from __future__ import annotations

import json
import os
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from rmqha.config.store_settings import StoreSettings
from rmqha.logfiles.listing import file_name
from rmqha.logfiles.log_files import first_stored
from rmqha.logfiles.typed_table import Natural, value_of
from rmqha.store.environment import StoreEnvironment
from rmqha.wire.store_layout import OWN_FOLDER, READERS

MOST = 100
"""Readers that are looked at."""

LONGEST = 4096
"""Bytes of a reader's file that are read."""

SILENCE = 600.0
"""Seconds after which a reader that is behind and says nothing is called stale."""

LOOK_PATIENCE = 1.0
"""Seconds that a status waits for a disk."""


@define(eq=False)
class KnownReaders:
    """The readers of a store, as a thread saw them last.

    @ivar rows: C{readers} of C{/status}.
    """

    settings: StoreSettings
    environment: StoreEnvironment
    rows: list[dict[str, Any]] = field(factory=list, init=False)
    _looking: bool = field(default=False, init=False)

    _log = Logger()

    def look(self, confirm: int) -> Deferred[None]:
        """Have a thread look at their files.

        @return: Fires when that is done, or takes too long: then what was seen last is told.
        """
        if self._looking:
            return succeed(None)
        self._looking = True
        done: Deferred[None] = Deferred()
        late = self.environment.clock.callLater(LOOK_PATIENCE, done.callback, None)

        def over(result: object) -> None:
            self._looking = False
            if isinstance(result, Failure):
                self._log.failure("Cannot read the positions of readers", result)
            elif isinstance(result, list):
                self.rows = result
            if late.active():
                late.cancel()
                done.callback(None)

        place = self.settings.root, self.settings.commitlog, self.settings.file_size
        now_ms = self.environment.now_ms()
        self.environment.in_thread(look, *place, confirm, now_ms).addBoth(over)
        return done


def look(
    root: Path, commitlog: Path, file_size: int, confirm: int, now_ms: int
) -> list[dict[str, Any]]:
    """The readers of a store, by name.  Blocking.

    @param commitlog: The log's folder.
    @param file_size: Bytes of one of its files.
    @param confirm: How far readers may read, a physical offset.
    @param now_ms: Milliseconds since 1970.
    @return: C{readers} of C{/status}.
    """
    try:
        with os.scandir(root / OWN_FOLDER / READERS) as entries:
            names = (entry.name for entry in entries if _is_reader(entry.name))
            found = sorted(islice(names, MOST))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        return [{"name": None, "state": f"unknown: {error.strerror}"}]
    rows = []
    for name in found:
        row: dict[str, Any] = {"name": name.removesuffix(".json")}
        try:
            offset, told = _read(root / OWN_FOLDER / READERS / name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            rows.append(row | {"state": f"unreadable: {error}"})
            continue
        silent = max(0.0, (now_ms - told) / 1000)
        lag, behind = max(0, confirm - offset), 0.0
        state = "current"
        if offset > confirm:
            state = "ahead"
        elif lag:
            stored = _stored(commitlog, file_size, offset)
            behind = max(0.0, (now_ms - (told if stored is None else stored)) / 1000)
            state = "stale" if silent > SILENCE else "behind"
        numbers = {"behindBytes": lag, "behindSeconds": behind, "silentSeconds": silent}
        rows.append(row | {"state": state, "offset": offset} | numbers)
    return rows


def _is_reader(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")


def _read(path: Path) -> tuple[int, int]:
    """A reader's position, and when it told it.

    @raise ValueError: If its file says something else.
    """
    with open(path, "rb") as file:
        raw = file.read(LONGEST)
    try:
        table = json.loads(raw)
        offset, told = (value_of(table, key, Natural) for key in ("offset", "time"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not a reader's position: {error}") from error
    return offset, told


def _stored(commitlog: Path, file_size: int, offset: int) -> int | None:
    """Store time of the first record at or behind a place, C{None} if it cannot be told.

    @return: In milliseconds since 1970.
    """
    start = offset - offset % file_size
    return first_stored(
        (commitlog / file_name(file), place)
        for file, place in ((start, offset - start), (start + file_size, 0))
    )
