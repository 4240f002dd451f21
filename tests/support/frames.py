"""Remoting frames as real clients, brokers and name servers sent them.

C{tests/data/README.md} tells how they came to be.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from attrs import frozen

from lab.harness.golden import DATA

FOLDER = DATA / "captures" / "remoting"

#: Every recording, as C{frames} takes it: C{"client-push-4.9.7"}.
RECORDINGS = tuple(sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.iterdir()))


@frozen
class CapturedFrame:
    """One whole frame, and what its sender meant (C{tests/data/README.md})."""

    raw: bytes
    header: bytes
    body: bytes
    note: dict[str, Any]

    @property
    def is_answer(self) -> bool:
        return bool(self.note["kind"] == "response")

    @property
    def request_code(self) -> int:
        code = self.note["reqCode"] if self.is_answer else self.note["code"]
        return -1 if code is None else int(code)

    @property
    def ext(self) -> dict[str, str]:
        found = {}
        for name, value in (self.note["extFields"] or {}).items():
            if value is not None:
                found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return found


@cache
def frames(recording: str) -> tuple[CapturedFrame, ...]:
    """The frames of a recording, in order of time."""
    found = []
    with gzip.open(FOLDER / f"{recording}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            note = json.loads(line)
            header = base64.b64decode(note["header"])
            body = base64.b64decode(note["body"] or "")
            raw = bytes.fromhex(note["prefix"]) + header + body
            found.append(CapturedFrame(raw, header, body, note))
    return tuple(found)


def every_frame() -> Iterator[tuple[str, CapturedFrame]]:
    """The frames of all recordings, each with a name for messages."""
    for recording in RECORDINGS:
        for number, frame in enumerate(frames(recording)):
            yield f"{recording}:{number}", frame


def streams() -> Iterator[tuple[str, tuple[CapturedFrame, ...]]]:
    """Both directions of every connection, each with a name for messages."""
    for recording in RECORDINGS:
        found: dict[tuple[int, str], list[CapturedFrame]] = {}
        for frame in frames(recording):
            found.setdefault((frame.note["conn"], frame.note["dir"]), []).append(frame)
        for (connection, direction), sent in found.items():
            yield f"{recording}:{connection}:{direction}", tuple(sent)
