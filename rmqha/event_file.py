"""What happened to a store lately, in a file that stays small: one JSON object a line.

A node writes to it while it runs, commands while none does.  Nothing depends on it, so nothing is
fsynced: what a power cut takes of it is in the log of the node.

Source: docs/status.rst, Events.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

from attrs import asdict, frozen

from rmqha import reserve
from rmqha.wire.store_layout import EVENTS, NEW_SUFFIX, OWN_FOLDER

MOST_BYTES = 256 << 10
"""The size from which on the older half is dropped."""

LONGEST = 2000
"""Most characters of an event's text."""


@frozen
class Event:
    """Something that an operator may want to know afterwards.

    @ivar time: When, in milliseconds since 1970.
    @ivar kind: What it is about: C{state}, C{replication}, C{promotion}, ...
    @ivar text: What it was.
    """

    time: int
    kind: str
    text: str


def event_path(root: Path) -> Path:
    """The file of a store."""
    return root / OWN_FOLDER / EVENTS


def append(path: Path, events: Iterable[Event]) -> None:
    """Add events; blocking.

    @raise OSError: If the file cannot be written.
    """
    rows = [asdict(event) | {"text": event.text[:LONGEST]} for event in events]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    reserve.write(path, len(text), partial(_append, path, text))


def _append(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            # What a crash tore must not take the next with it.
            text = text if file.read(1) == b"\n" else b"\n" + text
        file.write(text)
        full = file.tell() > MOST_BYTES
    if full:
        lines = path.read_bytes().splitlines(keepends=True)
        new = path.with_name(path.name + NEW_SUFFIX)
        new.write_bytes(b"".join(lines[len(lines) // 2 :]))
        os.replace(new, path)


def note(root: Path, kind: str, text: str) -> None:
    """Add what a command has done to a store.  It is done: that it cannot be noted is no error."""
    with suppress(OSError):
        append(event_path(root), [Event(int(time.time() * 1000), kind, text)])


def read(path: Path) -> list[Event]:
    """The events in a file, oldest first; none without a file.  Lines that are no events, such as
    one that a crash tore, are left out.  Blocking.

    @raise OSError: If it cannot be read.
    """
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    return [event for event in map(_event, lines) if event is not None]


def _event(line: bytes) -> Event | None:
    try:
        row = json.loads(line)
        event = Event(row["time"], row["kind"], row["text"])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    whole = type(event.time) is int and isinstance(event.kind, str) and isinstance(event.text, str)
    return event if whole else None
