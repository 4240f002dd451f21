"""The epoch file of RocketMQ 5: from where on the bytes of a log are filed under which epoch label.

It is written aside and renamed, so that at no moment there is less than one whole generation; the
one before stays as C{.bak}.  A log without labels has a file with none, where a stock broker leaves
the old file in place.

Source: docs/protocol/controller.rst, Epoch file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from attrs import frozen

from rmqha.errors import StoreError
from rmqha.logfiles import json_table
from rmqha.wire.ha_v2 import EpochLabel
from rmqha.wire.log.hashing import MASK
from rmqha.wire.store_layout import BACKUP_SUFFIX

UNCHECKED = 0
"""The CRC that is not checked."""

_MOST_DIGITS = 19


class EpochFileInvalid(StoreError):
    """Neither the epoch file nor its C{.bak} can be read, or labels cannot be written to it."""

    sentence = "{path}: {reason}"
    path: str
    reason: str


@frozen
class LabelsRead:
    """What was found.

    @ivar labels: Ascending; C{None} when there is no file at all.
    @ivar fault: Why the file could not be taken, so that they are from the C{.bak}; empty if they
        are from the file.
    """

    labels: tuple[EpochLabel, ...] | None
    fault: str = ""


def read(path: Path) -> LabelsRead:
    """Read a log's labels, or those of the C{.bak} where the file is missing or damaged.

    @raise FileUnreadable: If the system does not let a file be read that is needed for that.
    @raise EpochFileInvalid: If something is there and nothing of it makes sense.
    """
    problems: list[str] = []
    for candidate in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        data = json_table.read_file(candidate)
        if data is None:
            problems.append(f"{candidate.name} is missing")
            continue
        try:
            labels = parse(data)
        except ValueError as error:
            problems.append(f"{candidate.name}: {error}")
        else:
            return LabelsRead(labels, "; ".join(problems))
    if all(problem.endswith("is missing") for problem in problems):
        return LabelsRead(None)
    raise EpochFileInvalid(str(path), "; ".join(problems))


def write(path: Path, labels: Sequence[EpochLabel]) -> None:
    """Replace a log's labels; durable on return.

    @raise EpochFileInvalid: If they do not ascend.
    @raise DiskFull: If there is no room; what was there stays.
    """
    try:
        _check(labels)
    except ValueError as error:
        raise EpochFileInvalid(str(path), str(error)) from None
    json_table.replace_text(path, render(labels), looks_whole=_is_whole)


def parse(data: bytes) -> tuple[EpochLabel, ...]:
    """Read a file's text.

    @raise ValueError: Saying what is wrong.
    """
    head, _, rest = data.partition(b"\n")
    sum_text, _, body = rest.partition(b"\n")
    count, said = _number(head, "the number of labels"), _number(sum_text, "the CRC")
    found = crc32(body) & MASK
    if said not in (UNCHECKED, found):
        raise ValueError(f"the CRC is {found}, and the file says {said}")
    labels = tuple(map(_label, body.splitlines()))
    if len(labels) != count:
        raise ValueError(f"there are {len(labels)} labels, and the file says {count}")
    _check(labels)
    return labels


def render(labels: Iterable[EpochLabel]) -> bytes:
    """A file's text."""
    lines = [f"{label.label}-{label.start}\n" for label in labels]
    body = "".join(lines).encode()
    return f"{len(lines)}\n{crc32(body) & MASK}\n".encode() + body


def _check(labels: Sequence[EpochLabel]) -> None:
    for before, after in pairwise(labels):
        if after.label <= before.label or after.start < before.start:
            raise ValueError(f"{_shown(after)} stands behind {_shown(before)}")


def _shown(label: EpochLabel) -> str:
    return f"label {label.label} from byte {label.start}"


def _label(line: bytes) -> EpochLabel:
    label, _, start = line.partition(b"-")
    return EpochLabel(_number(label, "a label"), _number(start, "the start of a label"))


def _number(text: bytes, what: str) -> int:
    if not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ValueError(f"{what} is {text[:32]!r}")
    return int(text)


def _is_whole(path: Path) -> bool:
    try:
        parse(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True
