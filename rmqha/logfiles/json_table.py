"""The JSON tables beside the log: topics, consumer offsets, groups.

RocketMQ deletes the old file before it renames the new one, or overwrites it in place, and never
syncs: a power cut leaves an empty or zero-filled table.  Here a table is written aside, synced and
renamed over the old one, which stays readable as C{.bak}; at no moment is there less than one
whole generation on the disk.

The text is fastjson's: pretty-printed with tabs, integer map keys B{without quotes}
(C{{0:12,1:7}}), which is not legal JSON.  Here an unquoted key is an C{int} and a quoted one a
C{str}, both ways.  A stock broker reads what is written here.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import frozen

from rmqha import reserve
from rmqha.errors import DiskFull, FileUnreadable, TableUnreadable
from rmqha.logfiles.blocks.open_file import opened
from rmqha.wire.store_layout import BACKUP_SUFFIX, NEW_SUFFIX

Table = dict[str | int, Any]

_STRING_OR_KEY = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|(?<=[{,\s])(-?\d+)(?=\s*:)')
"""
A whole string (so that nothing inside one is taken for a key), or an unquoted integer key.
"""

_MARK = secrets.token_hex(8) + ":"
"""
What unquoted keys are quoted with while the JSON module reads them.  Random, so that no table holds
it by chance or by intent.
"""

_quote = json.encoder.encode_basestring


@frozen
class Generation:
    """What was found where a table should be.

    @ivar table: The table; C{None} when there is nothing at all, which is a new store.
    @ivar fault: Why the present generation could not be taken, so that C{table} is the one before
        it; empty if it is the present one.
    """

    table: Table | None
    fault: str = ""


def read(path: Path) -> Table | None:
    """Read a table, or its previous generation, as L{read_generation} does."""
    return read_generation(path).table


def number_in(path: Path, name: str) -> int:
    """One number of a table, whatever else it holds; 0 if it has none, or is no table."""
    try:
        number = (read(path) or {}).get(name)
    except TableUnreadable:
        return 0
    return number if type(number) is int else 0


def read_generation(path: Path) -> Generation:
    """Read a table, or its previous generation where the table is missing, empty or damaged.

    @raise FileUnreadable: If the system does not let a file be read that is needed for that.
    @raise TableUnreadable: If something is there and nothing of it makes sense, from the first
        reason for that.  A stock broker
        starts with an empty table if only the C{.bak} is missing; that forgets every offset.
    """
    problems: list[str] = []
    cause: Exception | None = None
    for candidate in (path, _beside(path, BACKUP_SUFFIX)):
        data = read_file(candidate)
        if data is None:
            problems.append(f"{candidate.name} is missing")
            continue
        try:
            table = parse(data)
        except ValueError as error:
            cause = cause or error
            problems.append(f"{candidate.name}: {error}")
        else:
            if table is not None:
                return Generation(table, "; ".join(problems))
            problems.append(f"{candidate.name} is empty")
    if cause is not None:
        raise TableUnreadable(str(path), "; ".join(problems)) from cause
    return Generation(None)


def read_file(path: Path) -> bytes | None:
    """What is in a file; C{None} if there is none, such as below what is no folder.

    @raise FileUnreadable: If that cannot be told.
    """
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise FileUnreadable(str(path), error.errno or 0) from error


def parse(raw: bytes) -> Table | None:
    """Read a table's text: UTF-8, with or without a byte order mark.

    @return: C{None} when there is only white space.
    @raise ValueError: If it is no JSON object, even by fastjson's habits.
    """
    text = raw.decode("utf-8-sig")
    if not text.strip():
        return None
    try:
        table = json.loads(_STRING_OR_KEY.sub(_mark, text), object_pairs_hook=_unmarked)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(table, dict):
        raise ValueError(f"not an object but {type(table).__name__}")
    return table


def render(table: Table) -> bytes:
    """Write a table's text, byte for byte as fastjson would.

    @raise TypeError: For a key or a value JSON has no place for.
    """
    out: list[str] = []
    _render(table, "\n", out.append)
    # What UTF-8 cannot carry, a lone surrogate, becomes the escape that JSON has for it.
    return "".join(out).encode("utf-8", "backslashreplace")


def render_plain(table: Table) -> bytes:
    """Write the text of a table of our own, as JSON in one line.  For large ones: L{render} takes a
    microsecond for each value, and keeps every other thread from working meanwhile.

    @raise TypeError: For a key or a value JSON has no place for.
    """
    return json.dumps(table, allow_nan=False).encode("ascii")


def looks_whole(path: Path) -> bool:
    """Whether a file begins and ends as a table does: neither empty, nor zero-filled, nor cut
    off.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            file.seek(max(0, os.fstat(file.fileno()).st_size - 64))
            tail = file.read()
    except FileNotFoundError:
        return False
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" and tail.rstrip()[-1:] == b"}"


def replace(
    path: Path,
    table: Table,
    step: Callable[[str], None] | None = None,
    *,
    render: Callable[[Table], bytes] = render,
) -> None:
    """Make a table the new generation and the one before the C{.bak}, durable on return.

    A crash at any moment leaves the old or the new generation.  One caller a path at a time.

    @param render: How its text is written.
    @param step: Called with a name before each change on the disk; for tests of just that.
    @raise DiskFull: If there is no room; the old generation stays.
    """
    replace_text(path, render(table), step)


def replace_text(
    path: Path,
    data: bytes,
    step: Callable[[str], None] | None = None,
    *,
    looks_whole: Callable[[Path], bool] = looks_whole,
) -> None:
    """The same of a table that is rendered already, or is no JSON.

    @param data: What L{render} made of it.
    @param looks_whole: Whether the present generation is worth to be the C{.bak}.
    """
    step = step or (lambda name: None)
    new = _beside(path, NEW_SUFFIX)
    old = _beside(path, ".old")

    def turn() -> None:
        step("write")
        _write(new, data)
        step("keep")
        old.unlink(missing_ok=True)
        kept = looks_whole(path)
        if kept:
            _keep(path, old)
        step("replace")
        os.replace(new, path)
        if kept:
            step("backup")
            os.replace(old, _beside(path, BACKUP_SUFFIX))
        step("sync")
        fsync_folder(path.parent)

    try:
        reserve.write(path, len(data), turn)
    except OSError as error:
        if error.errno in reserve.NO_SPACE:
            new.unlink(missing_ok=True)
            old.unlink(missing_ok=True)
            raise DiskFull(str(path), len(data)) from error
        raise


def _keep(path: Path, old: Path) -> None:
    """Give the present generation a second name: after the new one took its first, that one becomes
    the C{.bak}.
    """
    try:
        os.link(path, old)
    except OSError as error:
        if error.errno in reserve.NO_SPACE:
            raise
        # No hard links on this file system.
        shutil.copyfile(path, old)
        _sync(old)


def remove(path: Path) -> None:
    """Delete a table, the generation before it first: alone that would be taken for the table.
    Durable on return.
    """
    for name in (_beside(path, BACKUP_SUFFIX), path):
        if name.exists():
            name.unlink()
            fsync_folder(path.parent)


def fsync_folder(folder: Path) -> None:
    """Make names created or removed in a folder durable."""
    with opened(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
        os.fsync(fd)


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing; their names are durable on return."""
    missing = [each for each in (folder, *folder.parents) if not each.is_dir()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        fsync_folder(each.parent)


def replace_bytes(path: Path, data: bytes, beside: str = NEW_SUFFIX) -> None:
    """Replace a file as a whole, durably: readers find the old one or the new one.

    @param beside: What the new one is called behind the name, until it is whole.
    """
    new = _beside(path, beside)
    _write(new, data)
    os.replace(new, path)
    fsync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _mark(match: re.Match[str]) -> str:
    number = match[1]
    return match[0] if number is None else f'"{_MARK}{number}"'


def _unmarked(pairs: list[tuple[str, Any]]) -> Table:
    return {int(key[len(_MARK) :]) if key.startswith(_MARK) else key: value for key, value in pairs}


def _render(value: Any, line: str, put: Callable[[str], None]) -> None:
    """Put a value as fastjson pretty-prints it: string keys each on a line, integer keys in one.

    @param line: The start of a line at this depth.
    """
    kind = type(value)
    if kind is int:
        put(str(value))
    elif kind is str:
        put(_quote(value))
    elif isinstance(value, dict):
        deeper = line + "\t"
        separator = "{"
        for key, item in value.items():
            put(separator + _render_key(key, deeper))
            _render(item, deeper, put)
            separator = ","
        put(line + "}" if value else "{}")
    elif isinstance(value, (list, tuple)):
        separator = "["
        for item in value:
            put(separator)
            _render(item, line + "\t", put)
            separator = ","
        put("]" if value else "[]")
    else:
        put(json.dumps(value, allow_nan=False))


def _render_key(key: object, line: str) -> str:
    if isinstance(key, str):
        return f"{line}{_quote(key)}:"
    if isinstance(key, int) and not isinstance(key, bool):
        return f"{key}:"
    raise TypeError(f"a table's keys are str or int, not {type(key).__name__}")
